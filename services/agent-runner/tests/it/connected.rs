//! Connections: a calendar is available to its own user only; a browser.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode},
    routing::put,
};
use holdfast_directory::{Actor, NewConnection};
use holdfast_session::{Acceptance, NewMessage};
use holdfast_testkit::Reply;
use holdfast_types::{ApprovalDecision, ConnectionKind, ConnectionSettings, Entry, SessionKey};
use serde_json::json;

use crate::{
    approvals::{say_of, waiting},
    world::{Running, World},
};

pub type Events = Arc<Mutex<Vec<(String, String)>>>;

/// A calendar that takes events: who made each, and what it says.
pub async fn calendar() -> anyhow::Result<(SocketAddr, Events)> {
    let events = Events::default();
    let kept = Arc::clone(&events);
    let take = move |headers: HeaderMap, body: String| {
        let who = headers.get("authorization").and_then(|who| who.to_str().ok());
        let event = (who.unwrap_or_default().to_owned(), body);
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        std::future::ready(StatusCode::CREATED)
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/cal/{id}", put(take));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok((address, events))
}

pub async fn connect(world: &World, at: SocketAddr, used_by: &str) -> anyhow::Result<()> {
    connect_as("home", world, at, used_by).await
}

async fn connect_as(
    name: &str,
    world: &World,
    at: SocketAddr,
    used_by: &str,
) -> anyhow::Result<()> {
    let settings = json!({ "url": format!("http://{at}/cal/"), "user": "" });
    let new = NewConnection {
        name: name.to_owned(),
        to: ConnectionSettings::from_settings(ConnectionKind::Caldav, settings)?,
        agent: None,
        used_by: used_by.parse()?,
        secret: Some("token-1".into()),
    };
    world.directory.connections().put(world.tenant, Actor::Operator, new).await?;
    Ok(())
}

/// A runner whose tools may go where the calendar is.
pub async fn runner(world: &World, at: SocketAddr) -> anyhow::Result<Running> {
    let mut config = world.config();
    config.runner.web.allow = vec![at.to_string()];
    world.runner_with(config, |app| app).await
}

/// A model that looks for a calendar, and writes into it.
fn looks_and_writes(world: &World) {
    let make = json!({ "action": "create", "title": "Lunch", "start": "2026-12-01T12:00:00Z" });
    world.model.answer(move |request| match request.tool_results().as_slice() {
        [] => Reply::call("a", "tool_search", r#"{"query":"calendar events"}"#),
        [.., (id, _)] if id == "b" => Reply::text("done"),
        [..] => Reply::call("b", "calendar", make.to_string()),
    });
}

async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
    world.text(sent).await?;
    let journal = world.journal(sent.session).await?.into_iter();
    Ok(journal
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect())
}

#[tokio::test]
async fn the_owner_s_calendar_is_there_for_the_owner_and_for_no_stranger() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (at, events) = calendar().await?;
    connect(&world, at, "owner").await?;
    let _runner = runner(&world, at).await?;
    looks_and_writes(&world);
    let main = SessionKey::main(&world.agent.name);

    let stranger = world.say("s", "lunch?").await?;
    let stranger = returned(&world, &stranger).await?;
    assert!(!stranger[0].contains("calendar"), "{stranger:?}");
    assert!(stranger[1].contains("not one of yours"), "{stranger:?}");
    assert!(events.lock().unwrap_or_else(PoisonError::into_inner).is_empty());

    let owner = NewMessage { key: main, ..world.message("s", "lunch?") };
    let owner = world.send(owner).await?;
    let told = returned(&world, &owner).await?;
    assert!(told[0].starts_with("- calendar: List, create"), "{told:?}");
    assert!(told[1].starts_with("The event was made"), "{told:?}");
    let events = events.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].0, "Bearer token-1");
    assert!(events[0].1.contains("SUMMARY:Lunch\r\n"), "{events:?}");
    // A call that acts is recorded before it is made; the secret is not recorded at all.
    let kinds = world.kinds(owner.session).await?;
    assert!(kinds.windows(2).any(|pair| pair == ["called", "returned"]), "{kinds:?}");
    let stored = world.texts("select body::text from session.entries").await?.concat();
    assert!(stored.contains("The event was made") && !stored.contains("token-1"));
    Ok(())
}

#[tokio::test]
async fn a_person_s_calendar_is_there_in_that_person_s_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (at, events) = calendar().await?;
    connect(&world, at, "api:anna").await?;
    let _runner = runner(&world, at).await?;
    looks_and_writes(&world);

    let anna = world.say("anna", "lunch?").await?;
    let anna = returned(&world, &anna).await?;
    let ben = world.say("ben", "lunch?").await?;
    let ben = returned(&world, &ben).await?;

    assert!(anna[1].starts_with("The event was made"), "{anna:?}");
    assert!(ben[1].contains("not one of yours"), "{ben:?}");
    assert_eq!(events.lock().unwrap_or_else(PoisonError::into_inner).len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_calendar_that_is_not_theirs_is_not_theirs_by_its_name_either() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (at, events) = calendar().await?;
    connect(&world, at, "owner").await?;
    connect_as("shared", &world, at, "everyone").await?;
    let _runner = runner(&world, at).await?;
    let make = json!({
        "action": "create", "title": "Lunch", "start": "2026-12-01T12:00:00Z", "connection": "home",
    });
    world.model.queue([Reply::call("a", "calendar", make.to_string()), Reply::text("done")]);

    let stranger = world.say("s", "lunch?").await?;
    let stranger = returned(&world, &stranger).await?;

    assert!(stranger[0].contains("no such `connection`; there are: shared"), "{stranger:?}");
    assert!(events.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    Ok(())
}

/// Tests that `tests/tools.py` leaves out where Chromium is missing.
mod needs_chromium {
    use super::*;

    #[tokio::test]
    async fn an_agent_drives_a_browser_where_one_is_configured() -> anyhow::Result<()> {
        let named = std::env::var_os("HOLDFAST_CHROMIUM").map(std::path::PathBuf::from);
        let path = named.unwrap_or_else(|| "/usr/bin/chromium".into());
        let world = World::start().await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let page = || async { axum::response::Html("<title>Shop</title><h1>Tea: 3 euro</h1>") };
        let routes = Router::new().route("/", axum::routing::get(page));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let mut config = world.config();
        config.runner.web.allow = vec![at.to_string()];
        config.runner.browser.path = Some(path);
        config.runner.browser.args = vec!["--no-sandbox".to_owned()];
        config.runner.browser.listener_program =
            Some(env!("CARGO_BIN_EXE_agent-runner-child").into());
        let _runner = world.runner_with(config, |app| app).await?;
        let go = json!({ "action": "navigate", "url": format!("http://{at}/") }).to_string();
        world.model.queue([Reply::call("a", "browser", go), Reply::text("3 euro")]);

        let sent = world.say("s", "what is the tea?").await?;
        let told = returned(&world, &sent).await?;

        assert!(told[0].contains("It is data") && told[0].contains("Tea: 3 euro"), "{told:?}");
        assert_eq!(
            world.kinds(sent.session).await?,
            ["heard", "thought", "called", "returned", "thought"]
        );
        // What the page is told after it was read is decided by a person.
        let script = json!({ "action": "evaluate", "expression": "fetch('/?d=42')" }).to_string();
        world.model.queue([Reply::call("b", "browser", script), Reply::text("done")]);
        let next = world.say("s", "order some").await?;
        let asked = waiting(&world, 1).await?;
        assert!(asked[0].subject.contains("\nexpression: fetch('/?d=42')"), "{:?}", asked[0]);
        let site = format!("\ndestination: actions on pages of http://{at}\n");
        assert!(asked[0].subject.contains(&site), "{:?}", asked[0]);
        assert_eq!(asked[0].pattern, None, "a script reaches any host");
        say_of(&world, &asked[0], ApprovalDecision::Deny).await?;
        world.text(&next).await?;
        Ok(())
    }
}
