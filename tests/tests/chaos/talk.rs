//! Conversations during the storm.

use std::time::Duration;

use futures::future::join_all;
use holdfast_tests::load::{Conversation, Door, Load};
use holdfast_tests::mesh::Mesh;
use holdfast_tests::script::Word;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long nobody poisons a conversation again.
const AGAIN: Duration = Duration::from_secs(120);

/// Says what the talkers had to complain about.
pub(crate) async fn talk(mesh: &Mesh, load: &Load<'_>, enough: &CancellationToken) -> Vec<String> {
    let mut conversations = Vec::new();
    for tenant in 0..mesh.tenants.len() {
        let doors = [
            Door::Grpc,
            Door::Grpc,
            Door::Grpc,
            Door::Webhook,
            Door::Webhook,
            Door::Telegram,
            Door::Telegram,
        ];
        for (number, door) in doors.into_iter().enumerate() {
            conversations.push(Conversation { tenant, number, door });
        }
    }
    let talking = conversations.iter().map(|conversation| converse(load, conversation, enough));
    let poisoned = (0..3).map(|tenant| {
        let door = if tenant == 1 { Door::Webhook } else { Door::Grpc };
        let conversation = Conversation { tenant, number: 90, door };
        async move { poison(load, &conversation, enough).await }
    });
    let (talked, poisoned) = tokio::join!(join_all(talking), join_all(poisoned));
    let failed = talked.into_iter().chain(poisoned).filter_map(Result::err);
    failed.map(|error| format!("{error:#}")).collect()
}

async fn converse(
    load: &Load<'_>,
    conversation: &Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    while !enough.is_cancelled() {
        let word = match rand::random_range(0..100) {
            0..10 => Word::Act,
            10..20 => Word::Note,
            20..30 => Word::Status,
            _ => Word::Say,
        };
        if conversation.door == Door::Grpc && rand::random_range(0..6) == 0 {
            load.ask(conversation, word).await?;
        } else {
            load.say(conversation, word, rand::random_range(1..=3)).await?;
        }
        sleep(Duration::from_millis(rand::random_range(200..1200))).await;
    }
    Ok(())
}

/// Now and then a message that kills whoever runs it, and two behind it.
async fn poison(
    load: &Load<'_>,
    conversation: &Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    while !enough.is_cancelled() {
        load.say(conversation, Word::Say, 1).await?;
        // What is still open is of the same turn, and goes before the poison does.
        sleep(Duration::from_secs(2)).await;
        load.say(conversation, Word::Poison, 2).await?;
        sleep(Duration::from_millis(500)).await;
        load.say(conversation, Word::Say, 2).await?;
        load.say(conversation, Word::Note, 1).await?;
        enough.run_until_cancelled(sleep(AGAIN)).await;
    }
    Ok(())
}
