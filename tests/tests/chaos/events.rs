//! Subscribers to events by gRPC and by webhook while gateways and runners are killed: each gets
//! every event at least once and in order for each session, and none of another tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_proto::gateway::v1::event_webhooks_client::EventWebhooksClient;
use holdfast_proto::gateway::v1::events_client::EventsClient;
use holdfast_proto::gateway::v1::{
    CreateEventWebhookRequest, EventStart, EventWebhook, SubscribeRequest,
};
use holdfast_testkit::{Backends, FakeReceiver, Reply};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, until};
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use serde_json::Value;
use tokio::time::sleep;

use crate::RUNNER;

/// Time between two kills.
const PAUSE: Duration = Duration::from_millis(1200);

/// Session and id of an event, in the order of their arrival.
type Received = Vec<(String, String)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_miss_no_event_though_gateways_and_runners_are_killed() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        runners: 2,
        tenants: vec![QueueMode::Followup, QueueMode::Followup],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(|_| Reply::text("well"));
    let receiver = FakeReceiver::start().await?;
    let (client, other) = (GrpcClient::of(&mesh, 0)?, GrpcClient::of(&mesh, 1)?);
    create_webhook(&client, receiver.url()).await?;

    // Nothing is killed any more; nobody talks any more.
    let (is_over, is_quiet) = (AtomicBool::new(false), AtomicBool::new(false));
    let streamed: Mutex<Received> = Mutex::default();
    let talking = async {
        let mut round = 0_usize;
        while !is_over.load(Ordering::Relaxed) {
            // A call that a kill cuts off may have been accepted: its events count, too.
            let session = format!("s{}", round % 3);
            let ours = client.ask(&session, "hello").await;
            let theirs = other.ask(&session, "hello").await;
            if ours.is_err() || theirs.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
            round += 1;
        }
        is_quiet.store(true, Ordering::Relaxed);
    };
    let killing = async {
        let killed = kill_in_turn(&mesh).await;
        is_over.store(true, Ordering::Relaxed);
        killed
    };
    let following = follow(&client, &streamed, &is_quiet, &mesh);
    let ((), killed, followed) = tokio::join!(talking, killing, following);
    killed?;
    followed?;

    let whole = whole_log(&client).await?;
    ensure!(whole.len() > 20, "only {} events were logged", whole.len());
    let posted = || -> Received {
        let read = |event: Value| {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            (text("session"), text("id"))
        };
        receiver.posts().iter().map(|post| read(post.json())).collect()
    };
    let ids = |events: &Received| -> BTreeSet<String> {
        events.iter().map(|(_, id)| id.clone()).collect()
    };
    until("all events are posted", async || Ok(ids(&posted()).len() >= whole.len())).await?;
    let streamed = streamed.into_inner()?;
    for (way, got) in [("gRPC", streamed), ("webhook", posted())] {
        let (got_ids, logged) = (ids(&got), ids(&whole));
        let lacking: Vec<_> = logged.difference(&got_ids).collect();
        let strange: Vec<_> = got_ids.difference(&logged).collect();
        ensure!(lacking.is_empty(), "by {way} these events did not come: {lacking:?}");
        ensure!(strange.is_empty(), "by {way} came events that were not logged: {strange:?}");
        check_order(&got).context(way)?;
    }
    Ok(())
}

/// Kills and restarts the runners and the gateway, one after the other.
async fn kill_in_turn(mesh: &Mesh) -> anyhow::Result<()> {
    for round in 0..4 {
        for node in [&mesh.runners[round % 2], &mesh.gateways[0]] {
            sleep(PAUSE).await;
            node.kill().await?;
            node.start().await?;
            node.ready(REPLY_TIMEOUT).await?;
        }
    }
    Ok(())
}

async fn create_webhook(client: &GrpcClient, url: String) -> anyhow::Result<()> {
    let webhook = EventWebhook { name: "all".to_owned(), url, ..EventWebhook::default() };
    let request = CreateEventWebhookRequest { webhook: Some(webhook), from_earliest: true };
    let mut webhooks = EventWebhooksClient::new(client.channel.clone());
    webhooks.create_event_webhook(client.request(request)?).await?;
    Ok(())
}

/// Follows events from the first one, each stream behind the last event of the one before, until
/// everything that happened is logged and was received.
async fn follow(
    client: &GrpcClient,
    received: &Mutex<Received>,
    is_quiet: &AtomicBool,
    mesh: &Mesh,
) -> anyhow::Result<()> {
    const OPEN: &str = "
        select (select count(*) from session.events)
             + (select count(*) from control.tenant_events where logged_at is null)
             + (select count(*) from session.inbox where state in ('new', 'seen'))";
    let mut cursor = String::new();
    loop {
        // Asked before the read: what is logged later belongs to the next round.
        let is_last = is_quiet.load(Ordering::Relaxed) && mesh.number(OPEN).await? == 0;
        let request = SubscribeRequest {
            cursor: cursor.clone(),
            start: EventStart::Earliest.into(),
            end_at_newest: is_last,
            ..SubscribeRequest::default()
        };
        let mut events = EventsClient::new(client.channel.clone());
        let Ok(stream) = events.subscribe(client.request(request)?).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = stream.into_inner();
        let ended = loop {
            let next = tokio::time::timeout(Duration::from_secs(2), stream.message()).await;
            match next {
                Ok(Ok(Some(item))) => {
                    cursor = item.cursor;
                    let event = item.event.map(|event| (event.session_id, event.id));
                    received.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
                }
                Ok(Ok(None)) => break true,
                Ok(Err(_)) | Err(_) => break false,
            }
        };
        if is_last && ended {
            return Ok(());
        }
    }
}

/// All events of the tenant, by a stream that ends.
async fn whole_log(client: &GrpcClient) -> anyhow::Result<Received> {
    let request = SubscribeRequest {
        start: EventStart::Earliest.into(),
        end_at_newest: true,
        ..SubscribeRequest::default()
    };
    let mut events = EventsClient::new(client.channel.clone());
    let mut stream = events.subscribe(client.request(request)?).await?.into_inner();
    let mut all = Vec::new();
    while let Some(item) = stream.message().await? {
        all.extend(item.event.map(|event| (event.session_id, event.id)));
    }
    Ok(all)
}

/// Checks that the first arrivals of the events of each session are in the order of the log.
fn check_order(received: &[(String, String)]) -> anyhow::Result<()> {
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (session, id) in received {
        if !seen.insert(id) {
            continue;
        }
        let digits = id.strip_prefix("evc1_").context("an id has another form")?;
        let position = i64::from_str_radix(digits, 16)?;
        let before = newest.insert(session, position).unwrap_or_default();
        ensure!(position > before, "{position} of {session} came after {before}");
    }
    Ok(())
}
