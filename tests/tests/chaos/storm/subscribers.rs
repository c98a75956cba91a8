//! Subscribers to events during the storm: each is ended and resumed behind its stored cursor, and
//! must have every event of its tenant in the end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_proto::gateway::v1::event_webhooks_client::EventWebhooksClient;
use holdfast_proto::gateway::v1::events_client::EventsClient;
use holdfast_proto::gateway::v1::{
    CreateEventWebhookRequest, EventStart, EventWebhook, SubscribeRequest,
};
use holdfast_testkit::webhook::Post;
use holdfast_testkit::{FakeReceiver, Fault, Proxy};
use holdfast_tests::checks::{LogPosition, event_log, judge_received};
use holdfast_tests::dice;
use holdfast_tests::mesh::Mesh;
use holdfast_tests::person::GrpcClient;
use holdfast_tests::websocket::{Socket, Wants};
use rand::RngExt as _;
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Tenants with subscribers.
const TENANTS: [usize; 2] = [0, 1];

/// How long one call may take; longer than any life of a subscriber.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the rest of the log may take after the storm, on a busy machine.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);

/// Events that are not in the log yet.
const UNLOGGED: &str = "
    select (select count(*) from session.events)
         + (select count(*) from control.tenant_events where logged_at is null)";

/// A subscriber resumes behind each third event, so that those after it come again.
const EVENTS_PER_STORED_CURSOR: usize = 3;

/// How a subscriber receives events. Another way is another variant, which
/// [`Subscriber::receive`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Grpc,
    WebSocket,
    Webhook,
}

#[derive(Debug)]
struct Subscriber {
    way: Way,
    tenant: usize,
    received: Mutex<Vec<LogPosition>>,
    /// How often it was ended.
    ends: AtomicU64,
}

/// How a subscriber's stream ended.
enum StreamEnd {
    /// The subscriber ended it, or the gateway or the connection did.
    Broken,
    /// All events of the log were read.
    AtNewest,
}

/// All subscribers, and the receiver of their webhooks.
#[derive(Debug)]
pub(super) struct Subscribers {
    all: Vec<Subscriber>,
    gateways: Vec<Channel>,
    receiver: FakeReceiver,
    /// Way to the receiver, which is down now and then.
    to_receiver: Proxy,
    /// Secrets of the webhooks, for each of [`TENANTS`].
    secrets: Vec<String>,
    /// Positions of the newest events, for each of [`TENANTS`], when nothing was unlogged any more.
    /// Jobs go on after the storm, and so does the log.
    ends: OnceLock<Vec<i64>>,
    is_over: CancellationToken,
}

impl Subscribers {
    /// Creates the webhooks; the streams begin with [`Self::receive`].
    pub(super) async fn start(mesh: &Mesh) -> anyhow::Result<Self> {
        let receiver = FakeReceiver::start().await?;
        let to_receiver = Proxy::start(receiver.addr()).await?;
        for (probability, fault) in
            [(0.03, Fault::CutAfter), (0.01, Fault::CutBefore), (0.01, Fault::Status(503))]
        {
            let draws = dice::stream(&format!("receiver of events: {fault:?}"));
            receiver.faults().sometimes(probability, fault, draws);
        }
        let mut secrets = Vec::new();
        for tenant in TENANTS {
            let client = GrpcClient::of(mesh, tenant)?;
            let url = to_receiver.through(&format!("{}/{tenant}", receiver.url()));
            let webhook = EventWebhook { name: "all".to_owned(), url, ..EventWebhook::default() };
            let request = CreateEventWebhookRequest { webhook: Some(webhook), from_earliest: true };
            let mut webhooks = EventWebhooksClient::new(client.channel.clone());
            let created = webhooks.create_event_webhook(client.request(request)?).await?;
            secrets.push(created.into_inner().secret);
        }
        let channel = |addr| holdfast_grpc::channel(&format!("http://{addr}"), CALL_TIMEOUT);
        let gateways = mesh.grpc.iter().map(channel).collect::<Result<_, _>>()?;
        let ways = |tenant| {
            [Way::Grpc, Way::WebSocket, Way::Webhook].map(|way| Subscriber::new(way, tenant))
        };
        let all = TENANTS.into_iter().flat_map(ways).collect();
        let is_over = CancellationToken::new();
        let ends = OnceLock::new();
        Ok(Self { all, gateways, receiver, to_receiver, secrets, ends, is_over })
    }

    /// Receives until [`Self::finish`] was called and everything that was logged until then has
    /// come, or too much time has passed: the judge tells what is missing.
    pub(super) async fn receive(&self, mesh: &Mesh) -> anyhow::Result<()> {
        let receiving = try_join_all(self.all.iter().map(|one| one.receive(self, mesh)));
        tokio::select! {
            received = receiving => received.map(drop),
            () = async { self.is_over.cancelled().await; sleep(CATCH_UP_TIMEOUT).await } => Ok(()),
        }
    }

    /// Waits until all events are logged, and lets the subscribers read the rest.
    pub(super) async fn finish(&self, mesh: &Mesh) -> anyhow::Result<()> {
        self.receiver.faults().clear();
        let logged = async {
            while mesh.number(UNLOGGED).await? > 0 {
                sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        };
        timeout(CATCH_UP_TIMEOUT, logged).await.context("events are not moved to the log")??;
        let mut ends = Vec::new();
        for tenant in TENANTS {
            let log = event_log(mesh, tenant).await?;
            ends.push(log.last().map_or(0, |event| event.position));
        }
        self.ends.set(ends).ok();
        self.is_over.cancel();
        Ok(())
    }

    /// Events of a tenant that were logged when the storm was over.
    async fn expected(&self, mesh: &Mesh, tenant: usize) -> anyhow::Result<Vec<LogPosition>> {
        let mut log = event_log(mesh, tenant).await?;
        let end = self.end(tenant)?;
        log.retain(|event| event.position <= end);
        Ok(log)
    }

    /// Position of a tenant's newest event when the storm was over.
    fn end(&self, tenant: usize) -> anyhow::Result<i64> {
        let ends = self.ends.get().context("the storm is not over")?;
        Ok(ends[place(tenant)?])
    }

    /// What is wrong with what they received, and what there was to judge.
    pub(super) async fn judge(&self, mesh: &Mesh) -> anyhow::Result<(Vec<String>, Vec<Receipt>)> {
        let (mut broken, mut receipts) = (Vec::new(), Vec::new());
        for subscriber in &self.all {
            let name = format!("{:?} of t{}", subscriber.way, subscriber.tenant);
            let received = match subscriber.way {
                Way::Grpc | Way::WebSocket => subscriber.lock().clone(),
                Way::Webhook => self.posted(subscriber.tenant)?,
            };
            let log = event_log(mesh, subscriber.tenant).await?;
            let end = self.end(subscriber.tenant)?;
            broken.extend(judge_received(&name, (&log, end), &received));
            let ends = subscriber.ends.load(Ordering::Relaxed);
            let (logged, received) = (log.len(), received.len());
            receipts.push(Receipt { name, logged, received, ends });
        }
        Ok((broken, receipts))
    }

    /// Events that the receiver took for a tenant, in the order of their arrival.
    fn posted(&self, tenant: usize) -> anyhow::Result<Vec<LogPosition>> {
        let place = place(tenant)?;
        let path = format!("/{tenant}");
        let taken = self.receiver.unique();
        let own = taken.iter().filter(|post| post.path.ends_with(&path));
        own.map(|post| {
            check_signature(post, &self.secrets[place])?;
            position_of(&post.json())
        })
        .collect()
    }
}

/// What a subscriber got.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) name: String,
    pub(super) logged: usize,
    /// With repetitions.
    pub(super) received: usize,
    /// How often the subscriber was ended.
    pub(super) ends: u64,
}

impl Subscriber {
    fn new(way: Way, tenant: usize) -> Self {
        Self { way, tenant, received: Mutex::default(), ends: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<LogPosition>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn receive(&self, of: &Subscribers, mesh: &Mesh) -> anyhow::Result<()> {
        match self.way {
            Way::Grpc => self.receive_by_grpc(of, mesh).await,
            Way::WebSocket => self.receive_by_websocket(of, mesh).await,
            Way::Webhook => self.receive_by_webhook(of, mesh).await,
        }
    }

    /// Reads streams, each at another gateway and behind the cursor that was stored last.
    async fn receive_by_grpc(&self, of: &Subscribers, mesh: &Mesh) -> anyhow::Result<()> {
        let mut draws = dice::stream(&format!("stream of events of t{}", self.tenant));
        let mut cursor = String::new();
        for number in 0.. {
            let gateway = of.gateways[number % of.gateways.len()].clone();
            let client = GrpcClient::of(mesh, self.tenant)?.over(gateway);
            let life = Duration::from_millis(draws.random_range(1500..6000));
            let is_last = of.is_over.is_cancelled();
            let stream = self.read_stream(&client, &mut cursor, is_last);
            let ended = tokio::select! {
                ended = stream => ended?,
                () = sleep(life), if !is_last => StreamEnd::Broken,
                () = of.is_over.cancelled(), if !is_last => StreamEnd::Broken,
            };
            if is_last && matches!(ended, StreamEnd::AtNewest) {
                return Ok(());
            }
            self.ends.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(draws.random_range(50..500))).await;
        }
        Ok(())
    }

    async fn read_stream(
        &self,
        client: &GrpcClient,
        cursor: &mut String,
        is_last: bool,
    ) -> anyhow::Result<StreamEnd> {
        let request = SubscribeRequest {
            cursor: cursor.clone(),
            start: EventStart::Earliest.into(),
            end_at_newest: is_last,
            ..SubscribeRequest::default()
        };
        let mut events = EventsClient::new(client.channel.clone());
        let mut stream = match events.subscribe(client.request(request)?).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return broken(status),
        };
        let mut count = 0;
        loop {
            let item = match stream.message().await {
                Ok(Some(item)) => item,
                Ok(None) => return Ok(StreamEnd::AtNewest),
                Err(status) => return broken(status),
            };
            if let Some(event) = item.event {
                self.lock().push(LogPosition::parse(&event.id, &event.session_id, &event.r#type)?);
                count += 1;
            }
            if count % EVENTS_PER_STORED_CURSOR == 0 {
                *cursor = item.cursor;
            }
        }
    }

    /// Reads over connections, each to another gateway and behind the cursor that was stored last,
    /// until all events of the log have come.
    async fn receive_by_websocket(&self, of: &Subscribers, mesh: &Mesh) -> anyhow::Result<()> {
        let mut draws = dice::stream(&format!("connection for events of t{}", self.tenant));
        let key = SecretString::from(mesh.tenants[self.tenant].key.clone());
        let mut cursor = String::new();
        for number in 0.. {
            let gateway = mesh.gateways[number % mesh.gateways.len()].spec().http;
            let life = Duration::from_millis(draws.random_range(1500..6000));
            let reading = self.read_connection(gateway, (&key, number), &mut cursor);
            tokio::select! {
                broken = reading => broken?,
                () = sleep(life) => {}
            }
            if of.is_over.is_cancelled() {
                let logged = of.expected(mesh, self.tenant).await?;
                let received: BTreeSet<_> = self.lock().iter().cloned().collect();
                if logged.iter().all(|event| received.contains(event)) {
                    return Ok(());
                }
            }
            self.ends.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(draws.random_range(50..500))).await;
        }
        Ok(())
    }

    /// Reads events until the connection or the subscription breaks. A refusal is an error.
    async fn read_connection(
        &self,
        gateway: SocketAddr,
        (key, number): (&SecretString, usize),
        cursor: &mut String,
    ) -> anyhow::Result<()> {
        let Ok(mut socket) = Socket::open(gateway, key, number, Wants::Own).await else {
            return Ok(());
        };
        let params = match cursor.as_str() {
            "" => json!({ "start": "earliest" }),
            cursor => json!({ "cursor": cursor }),
        };
        if socket.begin("events.log.subscribe", params).await.is_err() {
            return Ok(());
        }
        let mut count = 0;
        while let Ok(frame) = socket.next().await {
            let payload = &frame["payload"];
            let refusal = [&frame["error"], &payload["error"]].into_iter().find(|it| !it.is_null());
            if let Some(error) = refusal {
                let is_outage = error["code"] == "UNAVAILABLE";
                ensure!(is_outage, "a subscriber to events was refused: {error}");
                return Ok(());
            }
            if frame["event"] != "events.log" {
                continue;
            }
            if let Some(event) = payload.get("event") {
                self.lock().push(position_of(event)?);
                count += 1;
            }
            if count % EVENTS_PER_STORED_CURSOR == 0 {
                payload["cursor"].as_str().context("an event has no cursor")?.clone_into(cursor);
            }
        }
        Ok(())
    }

    /// The receiver is down now and then, until all events were posted.
    async fn receive_by_webhook(&self, of: &Subscribers, mesh: &Mesh) -> anyhow::Result<()> {
        // All webhooks have one receiver, which the first of them takes down.
        if self.tenant == TENANTS[0] {
            let mut draws = dice::stream("receiver of events");
            loop {
                let up = sleep(Duration::from_millis(draws.random_range(5000..10_000)));
                if of.is_over.run_until_cancelled(up).await.is_none() {
                    break;
                }
                of.to_receiver.refuse().await?;
                of.to_receiver.cut();
                sleep(Duration::from_millis(draws.random_range(500..1500))).await;
                of.to_receiver.accept().await?;
                self.ends.fetch_add(1, Ordering::Relaxed);
            }
        }
        of.is_over.cancelled().await;
        let logged = of.expected(mesh, self.tenant).await?;
        loop {
            let posted: BTreeSet<_> = of.posted(self.tenant)?.into_iter().collect();
            if logged.iter().all(|event| posted.contains(event)) {
                return Ok(());
            }
            sleep(Duration::from_millis(300)).await;
        }
    }
}

/// Place of a tenant among [`TENANTS`].
fn place(tenant: usize) -> anyhow::Result<usize> {
    TENANTS.iter().position(|one| *one == tenant).context("a strange tenant")
}

/// Position of an event as JSON.
fn position_of(event: &Value) -> anyhow::Result<LogPosition> {
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    LogPosition::parse(field("id"), field("session"), field("type"))
}

/// A stream may break at any time, but no cursor of it may be refused.
fn broken(status: Status) -> anyhow::Result<StreamEnd> {
    let is_refusal = [
        Code::OutOfRange,
        Code::InvalidArgument,
        Code::PermissionDenied,
        Code::Unauthenticated,
        Code::NotFound,
    ]
    .contains(&status.code());
    if is_refusal {
        bail!("a subscriber to events was refused: {status}");
    }
    Ok(StreamEnd::Broken)
}

/// Checks a signature as <https://www.standardwebhooks.com> describes.
fn check_signature(post: &Post, secret: &str) -> anyhow::Result<()> {
    let header = |name: &str| post.header(name).with_context(|| format!("no header {name}"));
    let key = STANDARD.decode(secret.strip_prefix("whsec_").context("another kind of secret")?)?;
    let signed = format!("{}.{}.", header("webhook-id")?, header("webhook-timestamp")?);
    let mac = Hmac::<Sha256>::new_from_slice(&key)?.chain_update(signed).chain_update(&post.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let given = header("webhook-signature")?;
    ensure!(given.split(' ').any(|one| one == expected), "an event has a wrong signature");
    Ok(())
}
