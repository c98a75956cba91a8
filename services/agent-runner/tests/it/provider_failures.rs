//! Why a provider failed is kept with the run, without secrets and the conversation, and is in no log.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_session::{Acceptance, TurnOutcome};
use holdfast_testkit::Reply;
use holdfast_types::{Entry, ProviderFailure};
use serde_json::json;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::world::World;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Failures that the journal has of a message's conversation, in order.
async fn failures(world: &World, of: &Acceptance) -> anyhow::Result<Vec<ProviderFailure>> {
    let entries = world.journal(of.session).await?;
    Ok(entries.iter().flat_map(Entry::provider_failures).cloned().collect())
}

fn refusal(message: &str) -> Reply {
    let error = json!({"message": message, "type": "invalid_request_error", "code": "bad_field"});
    Reply::status(400).body(json!({ "error": error }).to_string())
}

#[tokio::test]
async fn the_providers_words_are_in_the_run_and_neither_in_the_answer_nor_in_a_log()
-> anyhow::Result<()> {
    let lines = Lines::default();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("debug,hyper=off,sqlx=off"))
        .with_writer(lines.clone())
        .init();
    let world = World::start().await?;
    world.use_provider(Some("hunter2-key")).await?;
    let said = "my sister Anna lives in Chur";
    world.model.queue([refusal(&format!("field X is wrong: '{said}', sent with hunter2-key"))]);
    let _runner = world.runner().await?;

    let sent = world.say("s", said).await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed));
    assert!(!answer.text.contains("field X"), "{}", answer.text);
    let failure = ProviderFailure {
        model: "fake:one".into(),
        class: "bad_request".into(),
        status: Some(400),
        code: "bad_field".into(),
        text: "field X is wrong: '[…]', sent with […]".into(),
        attempts: 1,
        repair: String::new(),
    };
    assert_eq!(failures(&world, &sent).await?, [failure]);
    let models = world.texts("select model from session.runs").await?;
    assert_eq!(models, ["fake:one"]);
    world.until("it is logged", async || lines.text().contains("failed a turn")).await?;
    let log = lines.text();
    let line = log.lines().find(|line| line.contains("failed a turn")).unwrap_or_default();
    for part in ["WARN", "run_", "fake:one", "bad_request", "400", "bad_field"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    for part in ["field X", "Anna", "hunter2"] {
        assert!(!log.contains(part), "{part} is logged");
    }
    Ok(())
}

#[tokio::test]
async fn a_repaired_request_says_what_failed_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([
        Reply::call("a", "agents_list", "{}"),
        refusal("tool results are not supported"),
        Reply::text("there"),
    ]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    assert_eq!(world.text(&sent).await?, "there");

    let failures = failures(&world, &sent).await?;
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(failure.text, "tool results are not supported");
    assert!(failure.repair.contains("without pictures, calls and results"), "{failure:?}");
    Ok(())
}

#[tokio::test]
async fn attempts_of_a_model_and_of_the_one_that_stands_in_for_it_are_kept() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|_| Reply::status(500).body(r#"{"error":{"message":"disk is full"}}"#));
    world
        .change_agent(|agent| {
            agent.settings.fallbacks = vec!["fake:two".into()];
        })
        .await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Failed));

    let found = failures(&world, &sent).await?;
    let facts: Vec<_> =
        found.iter().map(|one| (one.model.as_str(), one.attempts, one.text.as_str())).collect();
    assert_eq!(facts, [("fake:one", 3, "disk is full"), ("fake:two", 3, "disk is full")]);
    Ok(())
}

#[tokio::test]
async fn a_web_page_instead_of_an_answer_means_that_the_address_is_wrong() -> anyhow::Result<()> {
    let page = axum::Router::new().fallback(|| async {
        ([("content-type", "text/html; charset=utf-8")], "<!doctype html><title>Welcome</title>")
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, page).await });
    let world = World::start().await?;
    world.use_provider_at(&url).await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    let answer = world.answer(&sent).await?;

    assert_eq!(answer.reason.as_deref(), Some("setup"), "{answer:?}");
    assert!(!answer.text.contains("try again"), "{}", answer.text);
    let found = failures(&world, &sent).await?;
    assert!(found[0].text.contains("the base url leads to a web page"), "{found:?}");
    assert_eq!((found[0].status, found[0].attempts), (Some(200), 1));
    Ok(())
}
