//! No client reaches a private address that a tenant, a model or a page chose: neither directly nor
//! by a redirect. Names that resolve to one: `crates/egress`, `guard.rs`.
//!
//! The operator alone chooses the addresses of embeddings, Telegram and telemetry. Elsewhere:
//! webhooks (`channel-bridge`, `delivering.rs`), registries of skills (`crates/skills`,
//! `registry/tests.rs`), mail servers (`crates/tools`, `email/tests.rs`), the browser (`crates/tools`,
//! `browser/tests.rs`). `tests/tests/architecture` refuses a client that `crates/egress` did not build.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, response::IntoResponse as _};
use holdfast_directory::{
    Actor, CredentialKind, NewConnection, NewCredential, NewProvider, ProviderKind, TokenEndpoint,
};
use holdfast_session::TurnOutcome;
use holdfast_testkit::Reply;
use holdfast_types::{ConnectionKind, ConnectionSettings, Entry};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    mcp,
    world::{Running, World},
};

const PRIVATE: [&str; 6] = [
    "http://127.0.0.1:9",
    "http://169.254.169.254",
    "http://10.1.2.3",
    "http://[::1]:9",
    "http://[64:ff9b::7f00:1]:9",
    "http://[64:ff9b::a9fe:a9fe]",
];

/// Calls of tools that make requests to addresses of the tenant or the model.
fn calls(at: &str) -> Vec<(&'static str, Value)> {
    let event = json!({ "action": "create", "title": "a", "start": "2030-12-01T12:00:00Z" });
    vec![
        ("web_fetch", json!({ "url": format!("{at}/page") })),
        ("web_search", json!({ "query": "tea" })),
        ("image", json!({ "op": "generate", "prompt": "a cat" })),
        ("tts", json!({ "text": "good day" })),
        ("calendar", event),
        ("notion", json!({ "action": "search", "query": "tea" })),
        ("mcp_x_echo", json!({ "text": "a" })),
    ]
}

fn provider(name: &str, base_url: &str) -> NewProvider {
    NewProvider {
        name: name.to_owned(),
        kind: ProviderKind::OpenAi,
        base_url: base_url.to_owned(),
        api_key: Some("key".into()),
        default_model: (name == "fake").then(|| "fake:one".to_owned()),
        ..NewProvider::default()
    }
}

/// Lets all settings of the tenant point to an address.
async fn point_to(world: &World, at: &str) -> anyhow::Result<()> {
    for name in ["openai", "brave"] {
        let provider = provider(name, at);
        world.directory.providers().put(world.tenant, Actor::Operator, provider).await?;
    }
    for (name, kind, settings) in [
        ("cal", ConnectionKind::Caldav, json!({ "url": format!("{at}/cal/"), "user": "" })),
        ("pages", ConnectionKind::Notion, json!({ "url": at })),
    ] {
        let new = NewConnection {
            name: name.to_owned(),
            to: ConnectionSettings::from_settings(kind, settings)?,
            agent: None,
            used_by: "owner".parse()?,
            secret: Some("secret".into()),
        };
        world.directory.connections().put(world.tenant, Actor::Operator, new).await?;
    }
    mcp::put(world, mcp::at(&format!("{at}/mcp"))).await
}

/// A runner that may reach the model and these addresses.
async fn runner(world: &World, allow: &[String]) -> anyhow::Result<Running> {
    let mut config = world.config();
    let model = world.model.url();
    config.egress.allow = holdfast_egress::loopback_address(&model).into_iter().collect();
    config.egress.allow.extend_from_slice(allow);
    config.runner.web.allow = allow.to_vec();
    config.runner.mcp.allow = allow.to_vec();
    world.runner_with(config, |app| app).await
}

/// Results of the tools, in order.
async fn results(world: &World, at: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let calls = calls(at);
    let replies = calls
        .iter()
        .enumerate()
        .map(|(n, (tool, input))| Reply::call(format!("c{n}"), *tool, input.to_string()));
    world.model.queue(replies.chain([Reply::text("done")]));
    let sent = world.send(world.owners("go")).await?;
    world.text(&sent).await?;
    let outputs = world.journal(sent.session).await?.into_iter().filter_map(|entry| match entry {
        Entry::Returned { output, .. } => Some(output),
        _ => None,
    });
    Ok(calls.into_iter().map(|(tool, _)| tool).zip(outputs).collect())
}

/// Asks a model at the address, then one whose tokens are renewed there. Returns what is wrong with
/// the tokens.
async fn ask_models(world: &World, at: &str) -> anyhow::Result<Option<String>> {
    let fails = async |session: &str| {
        // An agent's settings are cached for a second.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let answer = world.answer(&world.say(session, "hello").await?).await?;
        anyhow::ensure!(answer.outcome == Some(TurnOutcome::Failed), "{at}: {answer:?}");
        anyhow::Ok(())
    };
    let (providers, keys) = (world.directory.providers(), world.directory.credentials());
    providers.put(world.tenant, Actor::Operator, provider("fake", at)).await?;
    fails("model").await?;
    world.use_provider(Some("key")).await?;
    keys.delete(world.tenant, Actor::Operator, "fake", "default").await?;
    let token = NewCredential {
        provider: "fake".into(),
        name: "mine".into(),
        kind: CredentialKind::OAuth,
        secret: "access".into(),
        refresh: Some("refresh".into()),
        expires: Some(Timestamp::now()),
        renewed_at: TokenEndpoint {
            token_url: format!("{at}/token"),
            client_id: "holdfast".into(),
            client_secret: None,
        },
    };
    keys.put(world.tenant, Actor::Operator, &token).await?;
    fails("token").await?;
    let known = keys.list(world.tenant).await?;
    Ok(known.into_iter().find(|key| key.name == "mine").and_then(|key| key.trouble))
}

#[tokio::test]
async fn no_client_reaches_a_private_address() -> anyhow::Result<()> {
    for at in PRIVATE {
        let world = World::start().await?;
        point_to(&world, at).await?;
        let _runner = runner(&world, &[]).await?;

        let results = results(&world, at).await?;
        assert_eq!(results.len(), calls(at).len(), "{results:?}");
        for (tool, output) in results {
            assert!(output.contains("not on the public internet"), "{at} {tool}: {output}");
        }
        let asked = world.model.count();
        assert_eq!(ask_models(&world, at).await?.as_deref(), Some("address_not_allowed"), "{at}");
        assert_eq!(world.model.count(), asked, "{at}");
    }
    Ok(())
}

/// A server that counts its requests and answers each with a redirect, or with 404.
async fn server(to: Option<String>) -> anyhow::Result<(String, Arc<AtomicUsize>)> {
    let count = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let counted = Arc::clone(&count);
    let answer = move || {
        counted.fetch_add(1, Ordering::AcqRel);
        let to = to.clone();
        async move {
            match to {
                Some(to) => (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response(),
                None => StatusCode::NOT_FOUND.into_response(),
            }
        }
    };
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(answer)).await });
    Ok((url, count))
}

#[tokio::test]
async fn no_client_follows_a_redirect_to_a_private_address() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (hidden, hidden_requests) = server(None).await?;
    let (open, open_requests) = server(Some(format!("{hidden}/secret"))).await?;
    point_to(&world, &open).await?;
    let allowed = open.trim_start_matches("http://").to_owned();
    let _runner = runner(&world, &[allowed]).await?;

    let results = results(&world, &open).await?;
    ask_models(&world, &open).await?;

    assert!(open_requests.load(Ordering::Acquire) >= calls(&open).len() + 2, "{results:?}");
    assert_eq!(hidden_requests.load(Ordering::Acquire), 0, "{results:?}");
    Ok(())
}
