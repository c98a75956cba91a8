//! Conversations during the storm.

use std::time::Duration;

use futures::future::join_all;
use holdfast_tests::dice;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::Mesh;
use holdfast_tests::platforms;
use holdfast_tests::script::MessageKind;
use rand::RngExt as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::actors::act;

/// How long nobody poisons a conversation again.
const POISON_INTERVAL: Duration = Duration::from_secs(120);

/// Says what the talkers had to complain about.
pub(crate) async fn talk(
    mesh: &Mesh,
    load: &Senders<'_>,
    enough: &CancellationToken,
) -> Vec<String> {
    let mut conversations = Vec::new();
    for tenant in 0..mesh.tenants.len() {
        let doors = [
            TestChannel::Grpc,
            TestChannel::Grpc,
            TestChannel::Grpc,
            TestChannel::Webhook,
            TestChannel::Webhook,
            TestChannel::Telegram,
            TestChannel::Telegram,
        ];
        for (number, door) in doors.into_iter().enumerate() {
            conversations.push(Conversation { tenant, number, door });
        }
    }
    conversations.extend(platforms::conversations());
    let talking = conversations.iter().map(|conversation| converse(load, conversation, enough));
    let poisoned = (0..3).map(|tenant| {
        let door = if tenant == 1 { TestChannel::Webhook } else { TestChannel::Grpc };
        let conversation = Conversation { tenant, number: 90, door };
        async move { poison(load, &conversation, enough).await }
    });
    let (talked, poisoned, acted) =
        tokio::join!(join_all(talking), join_all(poisoned), act(mesh, load, enough));
    let failed = talked.into_iter().chain(poisoned).chain(acted).filter_map(Result::err);
    failed.map(|error| format!("{error:#}")).collect()
}

async fn converse(
    load: &Senders<'_>,
    conversation: &Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut draws = dice::stream(&format!("{conversation:?}"));
    while !enough.is_cancelled() {
        let word = match draws.random_range(0..100) {
            0..10 => MessageKind::Act,
            10..20 => MessageKind::Note,
            20..30 => MessageKind::Status,
            _ => MessageKind::Say,
        };
        if conversation.door == TestChannel::Grpc && draws.random_range(0..6) == 0 {
            load.ask(conversation, word).await?;
        } else {
            load.say(conversation, word, draws.random_range(1..=3)).await?;
        }
        sleep(Duration::from_millis(draws.random_range(200..1200))).await;
    }
    Ok(())
}

/// Now and then a message that kills whoever runs it, and two behind it.
async fn poison(
    load: &Senders<'_>,
    conversation: &Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    while !enough.is_cancelled() {
        load.say(conversation, MessageKind::Say, 1).await?;
        // What is still open is of the same turn, and goes before the poison does.
        sleep(Duration::from_secs(2)).await;
        load.say(conversation, MessageKind::Poison, 2).await?;
        sleep(Duration::from_millis(500)).await;
        load.say(conversation, MessageKind::Say, 2).await?;
        load.say(conversation, MessageKind::Note, 1).await?;
        enough.run_until_cancelled(sleep(POISON_INTERVAL)).await;
    }
    Ok(())
}
