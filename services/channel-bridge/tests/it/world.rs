//! Bridge with backends of its own.

use std::{sync::OnceLock, time::Duration};

use channel_bridge::{App, Config};
use holdfast_bus::{Bus, Delta, DeltaBody};
use holdfast_directory::{Account, Actor, Directory, NewAccount};
use holdfast_kit::config::Secrets;
use holdfast_pg::Pools;
use holdfast_session::{
    Acceptance, ApprovalBatch, Claim, Completion, DeliveryFilter, DeliveryView, NewApproval,
    NewDelivery, NewMessage, Sessions, TurnOutcome,
};
use holdfast_testkit::{Database, FakeTelegram, nats, redis};
use holdfast_types::{
    AccountId, AgentId, AgentName, ApprovalId, Body, ChannelAction, DeliveryId, Entry, QueueMode,
    RunId, RunnerId, SessionKey, Source, Target, TenantId, Usage, Wait,
};
use holdfast_workspace::Workspaces;
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::gateway::FakeGateway;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const TOKEN: &str = "42:TEST-token";

const KEK: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

pub struct World {
    pub tenant: TenantId,
    pub directory: Directory,
    pub telegram: FakeTelegram,
    pub gateway: FakeGateway,
    pub config: Config,
    pub files: Workspaces,
    pub sessions: Sessions,
    /// URL of the first bridge that was started.
    pub first_bridge: OnceLock<String>,
    bus: Bus,
    _database: Database,
    _nats: nats::Namespace,
    _redis: redis::Namespace,
}

/// Running bridge.
pub struct Bridge {
    pub url: String,
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

impl World {
    pub async fn new() -> Self {
        holdfast_kit::tls::install_crypto();
        holdfast_kit::metrics::install().unwrap();
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await
        .unwrap();
        let (nats, redis) =
            (nats::Namespace::create().await.unwrap(), redis::Namespace::create().await.unwrap());
        let telegram = FakeTelegram::start().await.unwrap();
        let gateway = FakeGateway::start(SECRET).await;

        let mut config = Config::default();
        config.bridge.listen = "127.0.0.1:0".parse().unwrap();
        config.bridge.telegram.api_base = telegram.url();
        config.bridge.telegram.poll_timeout = Duration::from_secs(5);
        config.egress.allow = vec!["127.0.0.1".to_owned()];
        config.bridge.refresh = Duration::from_millis(100);
        config.database.url = database.service_url("channel-bridge").into();
        config.database.pool_size = 6;
        // A stall of the machine is waited for.
        config.database.acquire_timeout = Duration::from_secs(20);
        config.nats.url = nats.url().into();
        config.nats.prefix = nats.prefix().into();
        config.redis.url = redis.url().into();
        config.redis.prefix = redis.prefix().into();
        config.mesh.secret = SECRET.into();
        config.mesh.gateway_url = gateway.url.clone();
        config.secrets.kek = KEK.into();

        // The other services, whose part the test plays.
        let others = holdfast_pg::Config { url: database.url().into(), ..config.database.clone() };
        let pools = Pools::lazy(&others, "test").unwrap();
        let pepper = "pepper of the tests".into();
        let secrets = Secrets { kek: KEK.into(), pepper, ..Secrets::default() };
        let directory = Directory::new(pools.clone(), &secrets).unwrap();
        let (tenant, _) = directory.tenants().create(Actor::Operator, "acme").await.unwrap();
        Self {
            tenant: tenant.id,
            directory,
            telegram,
            gateway,
            files: Workspaces::new(pools.clone()),
            sessions: Sessions::new(pools),
            first_bridge: OnceLock::new(),
            bus: Bus::connect(&config.nats, "test").await.unwrap(),
            config,
            _database: database,
            _nats: nats,
            _redis: redis,
        }
    }

    pub async fn bridge(&self) -> Bridge {
        self.bridge_with(self.config.clone()).await
    }

    pub async fn bridge_with(&self, config: Config) -> Bridge {
        let app = App::connect(config).await.unwrap();
        let url = format!("http://{}", app.address().unwrap());
        let _ = self.first_bridge.set(url.clone());
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        let bridge = Bridge { url, stop, running };
        eventually("the bridge is ready", async || {
            let ready = reqwest::get(format!("{}/readyz", bridge.url)).await;
            ready.is_ok_and(|ready| ready.status().is_success())
        })
        .await;
        bridge
    }

    pub async fn account(&self, channel: &str, settings: Value, secrets: Value) -> Account {
        let new = NewAccount {
            channel: channel.into(),
            name: "default".into(),
            enabled: true,
            settings,
            secrets: Some(secrets),
        };
        self.directory.accounts().create(self.tenant, Actor::Operator, new).await.unwrap()
    }

    /// Stores a reply, as a runner does when an agent has answered.
    pub async fn reply(
        &self,
        channel: &str,
        account: AccountId,
        chat: &str,
        text: &str,
    ) -> DeliveryId {
        self.reply_to(target(channel, account, chat), text).await
    }

    pub async fn reply_to(&self, target: Target, text: &str) -> DeliveryId {
        self.reply_of(self.tenant, target, text).await
    }

    pub async fn reply_of(&self, tenant: TenantId, target: Target, text: &str) -> DeliveryId {
        self.send_of(tenant, target, text, None).await
    }

    /// Stores an action, as a runner does for an agent's action on a channel.
    pub async fn act(&self, target: Target, text: &str, act: ChannelAction) -> DeliveryId {
        self.send_of(self.tenant, target, text, Some(act)).await
    }

    async fn send_of(
        &self,
        tenant: TenantId,
        target: Target,
        text: &str,
        act: Option<ChannelAction>,
    ) -> DeliveryId {
        let agent = AgentName::new("main");
        let message = NewMessage {
            key: SessionKey::api(&agent, &target.chat).unwrap(),
            agent: AgentId::generate(),
            label: None,
            source: Source::Channel(target.account),
            idem_key: DeliveryId::generate().to_string(),
            body: Body::text("hi"),
            target: Some(target.clone()),
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: None,
        };
        let accepted = self.sessions.ingest(tenant, message).await.unwrap();
        let claims = self.sessions.claim(RunnerId::generate(), 1).await.unwrap();
        let id = DeliveryId::generate();
        let completion = Completion {
            run: RunId::from(accepted.message),
            at: None,
            newest: None,
            entries: Vec::<Entry>::new(),
            done: vec![accepted.seq],
            outcome: TurnOutcome::Completed,
            reason: None,
            reply: None,
            deliveries: vec![NewDelivery {
                target: target.clone(),
                text: text.to_owned(),
                act,
                id,
                delay: Duration::ZERO,
            }],
            usage: Usage::default(),
            model: "demo:test".into(),
            steps: 1,
            tools: Vec::new(),
            started_at: Timestamp::now(),
            wait: Wait::Anything,
            last_target: None,
            effects: None,
        };
        self.sessions.complete(&claims[0], completion).await.unwrap();
        self.bus.wake_deliver(&target.channel);
        id
    }

    /// Stores a message that the gateway accepts from now on, and claims its session as a runner.
    pub async fn begin_turn(&self, target: Target) -> (Acceptance, Claim) {
        let message = NewMessage {
            key: SessionKey::api(&AgentName::new("main"), &target.chat).unwrap(),
            agent: AgentId::generate(),
            label: None,
            source: Source::Channel(target.account),
            idem_key: DeliveryId::generate().to_string(),
            body: Body::text("hi"),
            target: Some(target),
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: None,
        };
        let accepted = self.sessions.ingest(self.tenant, message).await.unwrap();
        self.gateway.accept_as(&accepted);
        let claim = self.sessions.claim(RunnerId::generate(), 1).await.unwrap().remove(0);
        (accepted, claim)
    }

    /// Ends a turn, with an answer or without.
    pub async fn end_turn(
        &self,
        (accepted, claim): &(Acceptance, Claim),
        answer: Option<(Target, &str)>,
    ) -> DeliveryId {
        let id = DeliveryId::generate();
        let delivery = |(target, text): (Target, &str)| NewDelivery {
            target,
            text: text.to_owned(),
            act: None,
            id,
            delay: Duration::ZERO,
        };
        let channel = answer.as_ref().map(|(target, _)| target.channel.clone());
        let completion = Completion {
            run: RunId::from(accepted.message),
            at: None,
            newest: None,
            entries: Vec::<Entry>::new(),
            done: vec![accepted.seq],
            outcome: TurnOutcome::Completed,
            reason: None,
            reply: None,
            deliveries: answer.into_iter().map(delivery).collect(),
            usage: Usage::default(),
            model: "demo:test".into(),
            steps: 1,
            tools: Vec::new(),
            started_at: Timestamp::now(),
            wait: Wait::Anything,
            last_target: None,
            effects: None,
        };
        self.sessions.complete(claim, completion).await.unwrap();
        if let Some(channel) = channel {
            self.bus.wake_deliver(&channel);
        }
        id
    }

    /// Publishes a delta of a turn's first step.
    pub fn publish(&self, (accepted, claim): &(Acceptance, Claim), n: u32, body: DeltaBody) {
        let run = RunId::from(accepted.message);
        let delta = Delta { run, epoch: claim.epoch, step: 0, n, body };
        self.bus.publish_delta(self.tenant, accepted.session, &delta);
    }

    /// Stores a request for approval, as a runner does for a call that needs one.
    pub async fn ask(&self, target: Target, text: &str) -> ApprovalId {
        let message = NewMessage {
            key: SessionKey::api(&AgentName::new("main"), &target.chat).unwrap(),
            agent: AgentId::generate(),
            label: None,
            source: Source::Channel(target.account),
            idem_key: DeliveryId::generate().to_string(),
            body: Body::text("hi"),
            target: Some(target.clone()),
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: None,
        };
        let accepted = self.sessions.ingest(self.tenant, message).await.unwrap();
        let claims = self.sessions.claim(RunnerId::generate(), 1).await.unwrap();
        let id = ApprovalId::generate();
        let request = NewDelivery {
            target,
            text: text.to_owned(),
            act: None,
            id: DeliveryId::generate(),
            delay: Duration::ZERO,
        };
        let new = NewApproval {
            id,
            step: 0,
            call: "a".to_owned(),
            tool: "launch".to_owned(),
            subject: "launch".to_owned(),
            summary: "launch".to_owned(),
            pattern: None,
            timeout: Duration::from_secs(60),
            request: Some(request),
            asked_in: None,
        };
        let ask = ApprovalBatch {
            run: RunId::from(accepted.message),
            at: 1,
            newest: None,
            entries: Vec::new(),
            seen: vec![accepted.seq],
            deliveries: Vec::new(),
            approvals: vec![new],
        };
        self.sessions.approvals().ask(&claims[0], ask).await.unwrap();
        id
    }

    pub async fn deliveries(&self) -> Vec<DeliveryView> {
        let mut all = self
            .sessions
            .deliveries()
            .list(self.tenant, DeliveryFilter { limit: 100, ..DeliveryFilter::default() })
            .await
            .unwrap();
        all.sort_by_key(|delivery| delivery.created_at);
        all
    }

    pub async fn delivery(&self, id: DeliveryId) -> DeliveryView {
        self.deliveries().await.into_iter().find(|delivery| delivery.id == id).unwrap()
    }

    /// Waits until a delivery is in a state.
    pub async fn delivered(&self, id: DeliveryId, state: &str) -> DeliveryView {
        eventually(state, async || self.delivery(id).await.state == state).await;
        self.delivery(id).await
    }

    /// Waits until the gateway has this many messages.
    pub async fn taken(&self, count: usize) {
        eventually("the gateway has the messages", async || self.gateway.taken().len() >= count)
            .await;
    }

    /// Waits until all updates of the bot are confirmed.
    pub async fn confirmed(&self) {
        eventually("all is confirmed", async || self.telegram.pending(TOKEN) == 0).await;
    }
}

impl Bridge {
    pub async fn stop(self) {
        self.stop.cancel();
        timeout(Duration::from_secs(90), self.running).await.unwrap().unwrap().unwrap();
    }

    pub async fn metrics(&self) -> String {
        reqwest::get(format!("{}/metrics", self.url)).await.unwrap().text().await.unwrap()
    }
}

pub fn target(channel: &str, account: AccountId, chat: &str) -> Target {
    Target { channel: channel.into(), account, chat: chat.into(), thread: None, reply_to: None }
}

/// Waits until the condition holds, and panics after a timeout.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let until = Instant::now() + Duration::from_secs(40);
    while !is_so().await {
        assert!(Instant::now() < until, "waited in vain until {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
