//! OAuth tokens are renewed by themselves, by one runner for all.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use holdfast_directory::{
    Actor, CredentialKind, NewCredential, RenewableTokens, RenewalClaim, TokenEndpoint,
};
use holdfast_session::TurnOutcome;
use holdfast_testkit::Reply;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::world::World;

/// A token endpoint whose refresh tokens are good for one exchange (RFC 6749, section 6).
#[derive(Clone, Default)]
struct TokenServer {
    state: Arc<Mutex<Tokens>>,
    url: String,
}

#[derive(Default)]
struct Tokens {
    /// Number of tokens issued.
    given: u32,
    /// Form fields of the requests.
    asked: Vec<Vec<(String, String)>>,
    /// Error to answer instead of tokens.
    refuses: Option<(u16, Value)>,
}

type Pairs = Vec<(String, String)>;

async fn token(State(tokens): State<TokenServer>, body: String) -> (StatusCode, Json<Value>) {
    // Long enough for others to come.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let asked: Pairs = reqwest::Url::parse(&format!("http://form/?{body}"))
        .map(|url| url.query_pairs().into_owned().collect())
        .unwrap_or_default();
    let mut tokens = tokens.lock();
    let refresh = asked.iter().find(|(name, _)| name == "refresh_token").map(|(_, it)| it.clone());
    tokens.asked.push(asked);
    if let Some((status, body)) = &tokens.refuses {
        let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::IM_A_TEAPOT);
        return (status, Json(body.clone()));
    }
    if refresh != Some(format!("r-{}", tokens.given)) {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"})));
    }
    tokens.given += 1;
    let given = tokens.given;
    let body = json!({
        "access_token": format!("access-{given}"),
        "token_type": "Bearer",
        "expires_in": 3600,
        "refresh_token": format!("r-{given}"),
    });
    (StatusCode::OK, Json(body))
}

impl TokenServer {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/token", listener.local_addr()?);
        let server = Self { url, ..Self::default() };
        let app = Router::new().route("/token", post(token)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(server)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tokens> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.lock().asked.len()
    }
}

impl World {
    /// The provider has one key, which a person agreed to: `access-0`, that ends then.
    async fn with_oauth(&self, server: &TokenServer, ends_in: i64) -> anyhow::Result<()> {
        self.directory
            .credentials()
            .delete(self.tenant, Actor::Operator, "fake", "default")
            .await?;
        let new = NewCredential {
            provider: "fake".into(),
            name: "mine".into(),
            kind: CredentialKind::OAuth,
            secret: "access-0".into(),
            refresh: Some("r-0".into()),
            expires: Some(Timestamp::now() + SignedDuration::from_secs(ends_in)),
            renewed_at: TokenEndpoint {
                token_url: server.url.clone(),
                client_id: "holdfast".into(),
                client_secret: None,
            },
        };
        Ok(self.directory.credentials().put(self.tenant, Actor::Operator, &new).await?)
    }

    fn asked_with_tokens(&self) -> Vec<String> {
        let requests = self.model.requests();
        requests.iter().map(|request| request.key.clone().unwrap_or_default()).collect()
    }
}

#[tokio::test]
async fn two_runners_at_once_renew_a_token_once_before_it_ends() -> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TokenServer::start().await?;
    world.with_oauth(&server, -1).await?;
    let (_one, _two) = (world.runner().await?, world.runner().await?);

    let sessions: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    let asked = sessions.iter().map(|session| world.ask(session, "hello"));
    for answer in futures::future::join_all(asked).await {
        assert_eq!(answer?, "echo: hello");
    }

    assert_eq!(server.count(), 1);
    let asked = server.lock().asked[0].clone();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for expected in [
        pair("grant_type", "refresh_token"),
        pair("refresh_token", "r-0"),
        pair("client_id", "holdfast"),
    ] {
        assert!(asked.contains(&expected), "{asked:?}");
    }
    assert!(world.asked_with_tokens().iter().all(|key| key == "access-1"));
    let cards = world.directory.credentials().list(world.tenant).await?;
    assert!(cards[0].expires > Some(Timestamp::now() + SignedDuration::from_mins(50)));
    Ok(())
}

#[tokio::test]
async fn a_token_that_the_provider_refuses_is_renewed_once_and_asked_with_again()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TokenServer::start().await?;
    world.with_oauth(&server, 86_400).await?;
    world.model.answer(|request| match request.key.as_deref() {
        Some("access-1") => Reply::text("well"),
        _ => Reply::status(401),
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "well");
    assert_eq!(world.asked_with_tokens(), ["access-0", "access-1"]);

    // A new one that is refused too is not renewed again for the same answer.
    world.model.answer(|_| Reply::status(401));
    let sent = world.say("b", "hello").await?;
    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Failed));
    assert_eq!(server.count(), 2);
    Ok(())
}

#[tokio::test]
async fn a_refresh_token_that_is_refused_needs_a_person_who_is_told_and_who_ends_it()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TokenServer::start().await?;
    server.lock().refuses = Some((400, json!({"error": "invalid_grant"})));
    world.with_oauth(&server, -1).await?;
    let _runner = world.runner().await?;

    for session in ["a", "b"] {
        let sent = world.say(session, "hello").await?;
        assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Failed));
    }

    assert_eq!(server.count(), 1);
    assert!(world.model.requests().is_empty());
    let cards = world.directory.credentials().list(world.tenant).await?;
    assert_eq!(cards[0].trouble.as_deref(), Some("invalid_grant"));
    server.lock().refuses = None;
    world.directory.credentials().delete(world.tenant, Actor::Operator, "fake", "mine").await?;
    world.use_provider(Some("key")).await?;
    world.with_oauth(&server, -1).await?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(world.ask("c", "hello").await?, "echo: hello");
    Ok(())
}

#[tokio::test]
async fn what_is_not_over_yet_is_used_while_its_renewal_has_trouble() -> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TokenServer::start().await?;
    server.lock().refuses = Some((503, json!({})));
    world.with_oauth(&server, 60).await?;
    let _runner = world.runner().await?;

    let begun = std::time::Instant::now();
    assert_eq!(world.ask("a", "hello").await?, "echo: hello");
    assert_eq!(world.ask("a", "again").await?, "echo: again");

    assert_eq!(world.asked_with_tokens(), ["access-0", "access-0"]);
    // The renewal is tried again after ten seconds.
    assert!(server.count() == 1 || begun.elapsed() >= Duration::from_secs(10));
    let cards = world.directory.credentials().list(world.tenant).await?;
    assert_eq!(cards[0].trouble, None);
    Ok(())
}

#[tokio::test]
async fn tokens_whose_renewal_was_lost_with_its_process_are_there_for_the_next_one()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let server = TokenServer::start().await?;
    world.with_oauth(&server, -1).await?;
    let which =
        RenewableTokens { tenant: world.tenant, provider: "fake".into(), name: "mine".into() };
    let version =
        world.number("select version from control.auth_profiles where name = 'mine'").await?;
    // Claimed by one that is never heard of again.
    let claimed = world.directory.credentials().begin_renewal(&which, version).await?;
    assert!(matches!(claimed, RenewalClaim::Claimed(_)), "{claimed:?}");
    let other = world.directory.credentials().begin_renewal(&which, version).await?;
    assert!(matches!(other, RenewalClaim::Busy), "{other:?}");
    world
        .number(
            "update control.auth_profiles set renewing_until = now() - interval '1 second' \
             returning version",
        )
        .await?;

    let _runner = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "echo: hello");
    assert_eq!(world.asked_with_tokens(), ["access-1"]);
    Ok(())
}
