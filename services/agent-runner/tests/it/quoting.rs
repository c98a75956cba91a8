//! An answer quotes the message that its tag names, and the tag is not seen.

use holdfast_session::NewMessage;
use holdfast_testkit::Reply;
use holdfast_types::Body;

use crate::world::{World, place};

fn message(world: &World, id: &str, text: &str) -> NewMessage {
    let body = Body { message_id: Some(id.to_owned()), ..Body::text(text) };
    NewMessage { body, target: Some(place("7")), ..world.message("s", text) }
}

#[tokio::test]
async fn an_answer_quotes_the_message_that_its_tag_names_and_no_message_that_nobody_knows()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let answers =
        ["plain", "[[reply_to_current]] Yes.", "[[reply_to:41]]\nYes.", "No. [[reply_to:9]]"];
    world.model.queue(answers.map(Reply::text));

    let mut texts = Vec::new();
    for id in ["41", "42", "43", "44"] {
        let sent = world.send(message(&world, id, "is it?")).await?;
        texts.push(world.text(&sent).await?);
    }

    assert_eq!(texts, ["plain", "Yes.", "Yes.", "No."]);
    let sent = "select coalesce(target->>'reply_to', '') || ':' || body \
                from session.deliveries order by out_seq";
    assert_eq!(world.texts(sent).await?, [":plain", "42:Yes.", "41:Yes.", ":No."]);
    let asked = world.model.requests().remove(0).body.to_string();
    assert!(asked.contains("[[reply_to_current]]"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn where_nothing_can_be_quoted_the_model_is_told_of_no_tags() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::text("[[reply_to_current]] Yes.")]);

    assert_eq!(world.ask("s", "is it?").await?, "Yes.");
    let asked = world.model.requests().remove(0).body.to_string();
    assert!(!asked.contains("reply_to_current"), "{asked}");
    Ok(())
}
