//! Answers that ended early keep what was written, and say to people why they ended.

use holdfast_session::{NewMessage, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::Entry;

use crate::world::{World, place};

#[tokio::test]
async fn people_read_why_an_answer_ended_early_and_the_journal_has_the_answer_alone()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    for (session, said, finish, reason, note) in [
        ("a", "tell me all", "length", "output limit reached", "Write “continue”"),
        ("b", "tell me all", "content_filter", "cut off by the content filter", "content filter"),
        ("c", "请告诉我一切", "length", "output limit reached", "发送“继续”"),
    ] {
        world.model.queue([Reply::text("half of it").finish(finish)]);
        let message = NewMessage { target: Some(place(session)), ..world.message(session, said) };
        let sent = world.send(message).await?;
        let answer = world.answer(&sent).await?;

        assert_eq!(answer.outcome, Some(TurnOutcome::Completed), "{answer:?}");
        assert_eq!((answer.text.as_str(), answer.reason.as_deref()), ("half of it", Some(reason)));
        let sql = "select body from session.deliveries where target->>'chat' = ";
        let delivered = world.texts(&format!("{sql}'{session}'")).await?;
        assert!(delivered[0].starts_with("half of it\n\n["), "{delivered:?}");
        assert!(delivered[0].contains(note), "{delivered:?}");
        let journal = world.journal(sent.session).await?;
        let Some(Entry::Thought { text, .. }) = journal.last() else { panic!("{journal:?}") };
        assert_eq!(text, "half of it");
    }
    Ok(())
}

#[tokio::test]
async fn a_whole_answer_has_no_note() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::text("all of it")]);
    let _runner = world.runner().await?;

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let answer = world.answer(&world.send(message).await?).await?;

    assert_eq!((answer.text.as_str(), answer.reason), ("all of it", None));
    assert_eq!(world.texts("select body from session.deliveries").await?, ["all of it"]);
    Ok(())
}

#[tokio::test]
async fn a_failure_is_told_in_the_language_of_the_message() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([Reply::status(401)]);
    let _runner = world.runner().await?;

    let answer = world.answer(&world.say("s", "你好，请帮我写一封信").await?).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert!(answer.text.starts_with("抱歉，我无法回答：模型提供商拒绝了密钥"), "{}", answer.text);
    Ok(())
}
