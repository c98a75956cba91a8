//! Long answers are sent in blocks where a channel's settings say so: once, in order, with pauses.

use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_types::{BlockBoundary, BlockSettings, Body, MessageOptions};

use crate::world::{World, place};

fn message(world: &World, text: &str, blocks: Option<BlockSettings>) -> NewMessage {
    let mut options = MessageOptions::default();
    options.channel.blocks = blocks;
    let body = Body { options: options.boxed(), ..Body::text(text) };
    NewMessage { target: Some(place("7")), body, ..world.message("s", "") }
}

#[tokio::test]
async fn a_long_answer_is_sent_in_blocks_with_pauses_and_only_where_it_is_wanted()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let settings = BlockSettings {
        by: BlockBoundary::Paragraph,
        min_chars: 10,
        max_chars: 40,
        delay_ms: [800, 1_200],
    };
    let paragraphs = ["The first paragraph of it.", "The second one is here.", "And the last."];
    world.model.queue([Reply::text(paragraphs.join("\n\n")), Reply::text(paragraphs.join("\n\n"))]);

    let sent = world.send(message(&world, "in blocks", Some(settings))).await?;
    let whole = world.text(&sent).await?;
    let blocks = "select body from session.deliveries order by out_seq";
    let sent_blocks = world.texts(blocks).await?;
    let pauses = "select round(extract(epoch from next_at - lag(next_at) over (order by out_seq)) * 1000)::bigint::text
                  from session.deliveries order by out_seq offset 1";
    let pauses = world.texts(pauses).await?;
    let status = world.send(message(&world, "/status", Some(settings))).await?;
    world.text(&status).await?;
    let plain = world.send(message(&world, "whole", None)).await?;
    world.text(&plain).await?;

    assert_eq!(whole, paragraphs.join("\n\n"));
    assert_eq!(sent_blocks, paragraphs);
    for pause in &pauses {
        let pause: i64 = pause.parse()?;
        assert!((800..=1_200).contains(&pause), "{pauses:?}");
    }
    assert_eq!(pauses.len(), 2);
    // A command's answer is one message, and so is an answer without the setting.
    assert_eq!(world.texts(blocks).await?.len(), 3 + 2);
    Ok(())
}

#[tokio::test]
async fn answers_of_several_agents_say_whose_they_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let options = MessageOptions { signature: Some("coach".to_owned()), ..Default::default() };
    let body = Body { options: options.boxed(), ..Body::text("hi") };
    let said = NewMessage { target: Some(place("7")), body, ..world.message("s", "") };

    let answer = world.text(&world.send(said).await?).await?;

    assert_eq!(answer, "echo: hi");
    assert_eq!(world.texts("select body from session.deliveries").await?, ["[coach] echo: hi"]);
    Ok(())
}
