//! What is remembered comes with a message; and a memory that does not answer stops nobody.

use std::{sync::Arc, time::Duration};

use holdfast_llm::Scripted;
use holdfast_types::{Chat, ChatMessage};
use tokio::net::TcpListener;

use crate::world::World;

/// The secret of the tests' mesh.
const MESH: &str = "the secret of a mesh of tests";

/// What the last call was answered.
fn returned(chat: &Chat) -> Option<&str> {
    chat.messages.iter().rev().find_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(output.as_str()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    })
}

/// Searches its memory for whatever it is asked, and says what came of that.
fn searching() -> Arc<Scripted> {
    Arc::new(Scripted::answering(|request| {
        Ok(match returned(&request.chat) {
            None => Scripted::calls(&[("a", "memory_search", r#"{"query":"cat"}"#)]),
            Some(told) => Scripted::text(told),
        })
    }))
}

#[tokio::test]
async fn without_a_secret_of_the_mesh_nothing_of_memory_is_on_offer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;

    let asked = world.model.requests()[0].body.to_string();
    assert!(!asked.contains("memory_") && !asked.contains("kb_"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_is_away_is_told_to_the_model_and_the_turn_goes_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_demo().await?;
    let model = searching();
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.mesh.memory_url = "http://127.0.0.1:1".into();
    let shared = Arc::clone(&model);
    let _runner = world.runner_with(config, |app| app.with_demo(shared)).await?;

    let answer = world.ask("a", "my cat?").await?;

    assert!(answer.starts_with("memory does not answer just now"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_hangs_is_waited_for_once_and_not_for_long() -> anyhow::Result<()> {
    let world = World::start().await?;
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut config = world.config();
    config.mesh.secret = MESH.into();
    config.mesh.memory_url = format!("http://{}", silent.local_addr()?);
    // Longer than the turns of this test may take together.
    config.runner.memory.recall_timeout = Duration::from_secs(4);
    let _runner = world.runner_with(config, |app| app).await?;

    let begun = std::time::Instant::now();
    world.ask("a", "hello").await?;
    let first = begun.elapsed();
    for n in 0..3 {
        world.ask("a", &format!("hello {n}")).await?;
    }

    assert!(first >= Duration::from_secs(4), "it was not asked at all: {first:?}");
    assert!(begun.elapsed() < Duration::from_secs(9), "it was asked again: {:?}", begun.elapsed());
    Ok(())
}
