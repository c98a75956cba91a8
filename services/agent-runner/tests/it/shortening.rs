//! `/compact`: a conversation is summarised because its user asks for it.

use std::sync::Arc;

use holdfast_llm::ScriptedModel;
use holdfast_types::{Chat, ChatMessage, Entry, Note, SessionId};

use crate::world::{Running, World};

fn is_summary(chat: &Chat) -> bool {
    &*chat.stable == holdfast_agent::compact::SUMMARISER
}

fn is_flush(chat: &Chat) -> bool {
    let is_told = |message: &ChatMessage| matches!(message, ChatMessage::User { text, .. } if text.starts_with("Pre-compaction memory flush"));
    chat.messages.iter().any(is_told)
}

/// A runner whose model answers much, writes one note down, and summarises shortly.
async fn runner(world: &World) -> anyhow::Result<(Running, Arc<ScriptedModel>)> {
    world.use_demo().await?;
    let mut flushes = 0;
    let model = Arc::new(ScriptedModel::answering(move |request| {
        Ok(if is_summary(&request.chat) {
            ScriptedModel::text("They spoke of a cat.")
        } else if is_flush(&request.chat) {
            flushes += 1;
            let input = r#"{"path":"memory/cat.md","content":"Tom\n"}"#;
            match flushes {
                1 => ScriptedModel::calls(&[("f", "write", input)]),
                _ => ScriptedModel::text("NO_REPLY"),
            }
        } else {
            ScriptedModel::text(&"much ".repeat(500))
        })
    }));
    let shared = Arc::clone(&model);
    let runner = world.runner_with(world.config(), |app| app.with_demo(shared)).await?;
    Ok((runner, model))
}

async fn ask(world: &World, text: &str) -> anyhow::Result<(SessionId, String)> {
    let sent = world.send(world.owners(text)).await?;
    Ok((sent.session, world.text(&sent).await?))
}

#[tokio::test]
async fn what_was_said_is_summarised_after_memory_was_written_down_and_its_user_hears_how_much()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (_runner, model) = runner(&world).await?;
    ask(&world, "my cat is Tom").await?;
    ask(&world, "more").await?;

    let (session, told) = ask(&world, "/compact keep the cat's name").await?;
    ask(&world, "and now?").await?;

    assert!(told.starts_with("Summarised: about 1"), "{told}");
    assert!(told.ends_with(" % less."), "{told}");
    assert_eq!(world.file("memory/cat.md").await?.as_deref(), Some("Tom\n"));
    let journal = world.journal(session).await?;
    let notes: Vec<Note> = journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Noted { note, .. } => Some(note),
            _ => None,
        })
        .collect();
    assert_eq!(notes, [Note::Flush, Note::Flushed, Note::Summary, Note::Command]);
    let requests = model.requests();
    let asked = requests.iter().find(|chat| is_summary(chat)).unwrap();
    let asked = format!("{:?}", asked.messages);
    assert!(asked.contains("regards this above all: keep the cat's name"), "{asked}");
    let last = requests.last().unwrap();
    assert!(last.dynamic.contains("They spoke of a cat."), "{}", last.dynamic);
    let said = format!("{:?}", last.messages);
    assert!(!said.contains("my cat is Tom") && !said.contains("/compact"), "{said}");
    assert!(said.contains("more") && said.contains("and now?"), "{said}");
    assert_eq!(model.violations(), Vec::<String>::new());
    let summary =
        async || world.sessions.views().session(world.tenant, session).await.map(|s| s.summary);
    assert_eq!(summary().await?, "They spoke of a cat.");
    ask(&world, "/new").await?;
    assert_eq!(summary().await?, "");
    Ok(())
}

#[tokio::test]
async fn where_nothing_was_said_nothing_is_summarised_and_no_model_is_asked() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let (_runner, model) = runner(&world).await?;

    let (_, told) = ask(&world, "/compact").await?;

    assert_eq!(told, "There is nothing to summarise yet.");
    assert_eq!(model.requests().len(), 0);
    Ok(())
}
