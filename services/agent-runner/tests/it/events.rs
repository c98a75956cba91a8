//! The log of events by a real runner, and webhooks: signed, in order, retried, given up, replayed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent_runner::Config;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::StreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_directory::{Actor, NewEventWebhook};
use holdfast_session::{LoggedEvent, NewMessage, WebhookKey};
use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::Sha256;

use crate::world::World;

/// Decides about an event: whether it is accepted, by the number of requests before.
type Accepts = Arc<dyn Fn(&Value, usize) -> bool + Send + Sync>;

/// Receiver of webhooks.
#[derive(Clone)]
struct Receiver {
    requests: Arc<Mutex<Vec<(HeaderMap, Value, bool)>>>,
    bodies: Arc<Mutex<Vec<String>>>,
    accepts: Accepts,
    url: String,
}

impl Receiver {
    async fn start(
        accepts: impl Fn(&Value, usize) -> bool + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Self {
            requests: Arc::default(),
            bodies: Arc::default(),
            accepts: Arc::new(accepts),
            url: format!("http://{}/events", listener.local_addr()?),
        };
        let app = Router::new().route("/events", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(receiver)
    }

    /// Events that were accepted, in the order of their arrival.
    fn accepted(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(_, _, is)| *is).map(|(_, event, _)| event.clone()).collect()
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn receive(State(to): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let event: Value = serde_json::from_slice(&body).unwrap();
    let mut requests = to.requests.lock().unwrap();
    to.bodies.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
    let is_accepted = (to.accepts)(&event, requests.len());
    requests.push((headers, event, is_accepted));
    if is_accepted { StatusCode::NO_CONTENT } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn quick(world: &World) -> Config {
    let mut config = world.config();
    config.runner.relay = Duration::from_millis(50);
    config.runner.webhook_retry = Duration::from_millis(50);
    config
}

/// Creates a webhook that begins with the first event. Returns it with its secret.
async fn webhook(world: &World, url: &str, types: &[&str]) -> anyhow::Result<(WebhookKey, String)> {
    webhook_of(world, (world.tenant, "crm"), url, types).await
}

/// The same for another tenant, or with another name.
async fn webhook_of(
    world: &World,
    (tenant, name): (TenantId, &str),
    url: &str,
    types: &[&str],
) -> anyhow::Result<(WebhookKey, String)> {
    let new = NewEventWebhook {
        name: name.to_owned(),
        url: url.to_owned(),
        types: types.iter().map(|&kind| kind.to_owned()).collect(),
        ..NewEventWebhook::default()
    };
    let webhooks = world.directory.event_webhooks();
    let (made, secret) = webhooks.create(tenant, Actor::Operator, new).await?;
    let key = WebhookKey { tenant, webhook: made.id };
    world.sessions.event_log().start_webhook(key, 0).await?;
    Ok((key, secret.expose_secret().to_owned()))
}

/// All events of the tenant's log.
async fn log(world: &World) -> anyhow::Result<Vec<LoggedEvent>> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = world.sessions.event_log().page(world.tenant, after).await?;
        let Some(last) = page.events.last() else { return Ok(events) };
        after = last.position;
        events.extend(page.events);
    }
}

fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["id"].as_str().unwrap()).collect()
}

/// Order of ids within each session. An event that was posted twice counts once.
fn by_session(events: &[Value]) -> HashMap<String, Vec<i64>> {
    let mut sessions: HashMap<String, Vec<i64>> = HashMap::new();
    for event in events {
        let id = event["id"].as_str().unwrap().trim_start_matches("evc1_");
        let position = i64::from_str_radix(id, 16).unwrap();
        let session = event["session"].as_str().unwrap_or_default().to_owned();
        let seen = sessions.entry(session).or_default();
        if !seen.contains(&position) {
            seen.push(position);
        }
    }
    sessions
}

#[tokio::test]
async fn a_turn_is_logged_and_the_same_events_are_published() -> anyhow::Result<()> {
    let world = World::start().await?;
    let config = quick(&world);
    let nats = holdfast_testkit::nats::connect(config.nats.url.expose_secret()).await?;
    let tenant = world.tenant.as_uuid().simple().to_string();
    let subject = format!("{}.evt.{tenant}.session.>", config.nats.prefix);
    let mut published = nats.subscribe(subject).await?;
    nats.flush().await?;
    // Without the stream the first events would be published twice: this subscription listens, so
    // NATS does not say that nobody does.
    let is_made = async || world.bus.ensure_streams().await.is_ok();
    world.until("the stream is made", is_made).await?;
    let _runner = world.runner_with(config, |app| app).await?;

    let accepted = world.say("a", "hello").await?;
    world.answer(&accepted).await?;

    let mut told = Vec::new();
    while told.len() < 5 {
        let message = tokio::time::timeout(crate::world::LONG, published.next()).await?.unwrap();
        let envelope: Value = serde_json::from_slice(&message.payload)?;
        assert_eq!(envelope["session"], accepted.session.to_string());
        // What is acknowledged late is published again, with the same ids.
        for event in envelope["events"].as_array().unwrap() {
            if !told.iter().any(|known: &Value| known["id"] == event["id"]) {
                told.push(event.clone());
            }
        }
    }
    let of_session = log(&world).await?;
    let of_session: Vec<Value> = of_session
        .iter()
        .filter(|logged| logged.event.session == Some(accepted.session))
        .map(LoggedEvent::to_json)
        .collect();
    let kinds: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["message.accepted", "run.started", "run.ended", "usage.recorded", "message.answered"]
    );
    assert_eq!(ids(&told), ids(&of_session));
    Ok(())
}

#[tokio::test]
async fn a_webhook_gets_each_event_once_in_order_and_signed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let receiver = Receiver::start(|_, _| true).await?;
    let (_, secret) = webhook(&world, &receiver.url, &["message.", "run."]).await?;
    let _runner = world.runner_with(quick(&world), |app| app).await?;

    for (session, text) in [("a", "one"), ("b", "two"), ("a", "three")] {
        let accepted = world.say(session, text).await?;
        world.answer(&accepted).await?;
    }
    world.until("all events arrive", async || receiver.count() >= 12).await?;

    let posted = receiver.accepted();
    let logged: Vec<Value> = log(&world).await?.iter().map(LoggedEvent::to_json).collect();
    let wanted: Vec<Value> = logged
        .into_iter()
        .filter(|event| {
            let kind = event["type"].as_str().unwrap();
            kind.starts_with("message.") || kind.starts_with("run.")
        })
        .collect();
    assert_eq!(posted, wanted);
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap())?;
    let requests = receiver.requests.lock().unwrap();
    let bodies = receiver.bodies.lock().unwrap();
    for ((headers, event, _), body) in requests.iter().zip(bodies.iter()) {
        let header = |name: &str| headers[name].to_str().unwrap().to_owned();
        assert_eq!(header("webhook-id"), event["id"].as_str().unwrap());
        let signed = format!("{}.{}.{body}", header("webhook-id"), header("webhook-timestamp"));
        let mac = Hmac::<Sha256>::new_from_slice(&key)?.chain_update(signed).finalize();
        let expected = format!("v1,{}", STANDARD.encode(mac.into_bytes()));
        assert_eq!(header("webhook-signature"), expected);
        assert!(!body.contains("three"), "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn after_a_rotation_both_secrets_sign() -> anyhow::Result<()> {
    let world = World::start().await?;
    let receiver = Receiver::start(|_, _| true).await?;
    webhook(&world, &receiver.url, &["message.accepted"]).await?;
    let webhooks = world.directory.event_webhooks();
    webhooks.rotate(world.tenant, Actor::Operator, "crm").await?;
    let _runner = world.runner_with(quick(&world), |app| app).await?;

    world.say("a", "hello").await?;
    world.until("the event arrives", async || receiver.count() > 0).await?;

    let requests = receiver.requests.lock().unwrap();
    let signatures = requests[0].0["webhook-signature"].to_str()?.split(' ').count();
    assert_eq!(signatures, 2);
    Ok(())
}

#[tokio::test]
async fn slow_receivers_of_one_tenant_do_not_delay_the_events_of_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let agent = world.directory.agents().default_agent(other.id).await?;
    // Each accepts every event, just before the time limit of a request.
    let waiting = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&waiting);
    let slow = async move || {
        begun.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(12)).await;
        StatusCode::NO_CONTENT
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/events", listener.local_addr()?);
    let app = Router::new().route("/events", post(slow));
    tokio::spawn(async move { axum::serve(listener, app).await });
    for n in 0..18 {
        webhook_of(&world, (world.tenant, &format!("slow-{n}")), &url, &["message.", "run."])
            .await?;
    }
    let _runner = world.runner_with(quick(&world), |app| app).await?;
    let accepted = world.say("a", "hello").await?;
    world.answer(&accepted).await?;
    let are_busy = async || waiting.load(Ordering::Relaxed) >= 16;
    world.until("slow receivers have requests", are_busy).await?;

    let receiver = Receiver::start(|_, _| true).await?;
    webhook_of(&world, (other.id, "quick"), &receiver.url, &["message.", "run."]).await?;
    let message = NewMessage { agent: agent.id, ..world.message("s", "hello") };
    world.answer_in(other.id, message).await?;

    let arrived =
        world.until("the events of the other arrive", async || receiver.accepted().len() >= 4);
    tokio::time::timeout(Duration::from_secs(20), arrived).await??;
    Ok(())
}

#[tokio::test]
async fn events_of_a_session_wait_for_the_one_that_is_not_accepted_and_others_do_not()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let first = world.sessions.ingest(world.tenant, world.message("a", "one")).await?;
    let stuck = first.session.to_string();
    // Refused until the four events of the other session are accepted.
    let others = Mutex::new(HashSet::new());
    let receiver = Receiver::start(move |event, _| {
        let mut others = others.lock().unwrap();
        if event["session"] != stuck.as_str() {
            others.insert(event["id"].to_string());
        }
        event["session"] != stuck.as_str() || others.len() >= 4
    })
    .await?;
    webhook(&world, &receiver.url, &["message.", "run."]).await?;
    let _runner = world.runner_with(quick(&world), |app| app).await?;
    world.answer(&first).await?;
    let other = world.say("b", "two").await?;
    world.answer(&other).await?;

    world.until("all events arrive", async || receiver.accepted().len() >= 8).await?;

    assert!(receiver.count() > 8, "no event was refused");
    let posted = receiver.accepted();
    for (session, order) in by_session(&posted) {
        assert!(order.is_sorted(), "{session}: {order:?}");
        assert_eq!(order.len(), 4, "{session}");
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_keeps_failing_is_disabled_and_its_dead_letters_can_be_replayed()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let is_up = Arc::new(Mutex::new(false));
    let receiver = Receiver::start({
        let is_up = Arc::clone(&is_up);
        move |_, _| *is_up.lock().unwrap()
    })
    .await?;
    let (key, _) = webhook(&world, &receiver.url, &["message."]).await?;
    let mut config = quick(&world);
    config.runner.webhook_give_up = Duration::from_millis(300);
    let _runner = world.runner_with(config, |app| app).await?;
    let accepted = world.say("a", "hello").await?;
    world.answer(&accepted).await?;

    let webhooks = world.directory.event_webhooks();
    let state = async || webhooks.get(world.tenant, "crm").await.unwrap();
    world.until("it is disabled", async || !state().await.is_active).await?;
    assert!(state().await.reason.contains("answered 503"), "{}", state().await.reason);
    world
        .until("an event tells of it", async || {
            let events = log(&world).await.unwrap();
            events.iter().any(|logged| logged.event.kind == "webhook.disabled")
        })
        .await?;
    let dead = world.sessions.event_log().dead_events(key, 10).await?;
    assert!(!dead.is_empty());

    *is_up.lock().unwrap() = true;
    let settings = state().await.settings;
    webhooks.update(world.tenant, Actor::Operator, "crm", (settings, true)).await?;
    world.sessions.event_log().resume_webhook(key).await?;
    let revived = world.sessions.event_log().revive_dead(key, None).await?;
    assert_eq!(revived, dead.len() as u64);
    world.until("both arrive", async || receiver.accepted().len() >= 2).await?;
    assert!(world.sessions.event_log().dead_events(key, 10).await?.is_empty());
    let order = by_session(&receiver.accepted());
    assert!(order.values().all(|order| order.is_sorted()), "{order:?}");

    // From a cursor everything is sent again, with the same ids.
    let before = receiver.accepted();
    world.sessions.event_log().start_webhook(key, 0).await?;
    world.until("all is replayed", async || receiver.accepted().len() >= 4).await?;
    assert_eq!(ids(&receiver.accepted()[before.len()..]), ids(&before));
    Ok(())
}

#[tokio::test]
async fn an_address_that_is_not_public_gets_no_request() -> anyhow::Result<()> {
    let world = World::start().await?;
    let receiver = Receiver::start(|_, _| true).await?;
    let (key, _) = webhook(&world, &receiver.url, &["message."]).await?;
    let mut config = quick(&world);
    config.egress.allow.clear();
    let _runner = world.runner_with(config, |app| app).await?;
    world.say("a", "hello").await?;

    let progress =
        async || world.sessions.event_log().webhook_progress(key).await.unwrap().unwrap();
    world.until("it fails", async || progress().await.failures > 0).await?;

    assert!(progress().await.last_error.contains("not on the public internet"));
    assert_eq!(receiver.count(), 0);
    Ok(())
}

#[tokio::test]
async fn when_its_runner_is_killed_another_goes_on_and_no_event_is_missed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let receiver = Receiver::start(|_, _| true).await?;
    webhook(&world, &receiver.url, &[]).await?;
    for round in 0..4 {
        let runner = world.runner_with(quick(&world), |app| app).await?;
        let accepted = world.say("a", &format!("hello {round}")).await?;
        world.answer(&accepted).await?;
        // While events are logged or posted.
        tokio::time::sleep(Duration::from_millis(150)).await;
        runner.kill();
    }
    let _runner = world.runner_with(quick(&world), |app| app).await?;
    let whole = async || {
        let logged = log(&world).await.unwrap();
        let posted = by_session(&receiver.accepted());
        let posted: usize = posted.values().map(Vec::len).sum();
        let answered = |logged: &&LoggedEvent| logged.event.kind == "message.answered";
        logged.iter().filter(answered).count() == 4 && posted == logged.len()
    };
    world.until("all events arrive", whole).await?;

    for (session, order) in by_session(&receiver.accepted()) {
        assert!(order.is_sorted(), "{session}: {order:?}");
    }
    let positions: Vec<i64> = log(&world).await?.iter().map(|logged| logged.position).collect();
    assert_eq!(positions, (1..=i64::try_from(positions.len())?).collect::<Vec<_>>());
    Ok(())
}
