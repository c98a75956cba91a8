//! Tenants of the comparison: their plan, agents and channel accounts.

use std::time::Duration;

use holdfast_directory::{
    Actor, AgentSettings, NewAccount, NewAgent, PlanLimits, TenantChanges, TenantState,
};
use holdfast_testkit::{FakeReceiver, Fault};
use holdfast_types::{AccountId, AgentId, DmScope, QueueMode};
use rand::{SeedableRng as _, rngs::StdRng};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    client::unique_session,
    mesh::{Mesh, Tenant},
    models::Model,
};

/// The plan of the example in docs/tenants.md, without its limits of tokens and money: the fake models'
/// tokens would use them up and end the attack.
pub const PLAN: PlanLimits = PlanLimits {
    calls_per_minute: Some(500),
    concurrent_calls: Some(20),
    sessions: Some(1000),
    parallel_runs: Some(4),
    tokens_per_day: None,
    micros_per_month: None,
    storage_bytes: Some(1_000_000_000),
    commands_per_day: Some(500),
};

/// How long a slow platform takes to answer.
const SLOW_ANSWER: Duration = Duration::from_secs(10);

/// Account for signed webhooks.
#[derive(Debug, Clone)]
pub struct WebhookAccount {
    pub id: AccountId,
    pub secret: SecretString,
}

/// A tenant with a default agent and a webhook account, whose replies the receiver gets.
#[derive(Debug)]
pub struct Neighbour {
    pub tenant: Tenant,
    /// The default agent.
    pub agent: AgentId,
    pub webhook: WebhookAccount,
    pub widget: AccountId,
    pub receiver: FakeReceiver,
}

impl Neighbour {
    /// Creates a tenant whose default agent uses this model.
    pub async fn create(
        mesh: &Mesh,
        name: &str,
        (plan, model): (Option<String>, Model),
    ) -> anyhow::Result<Self> {
        let by = Actor::Operator;
        let tenant = mesh.limited_tenant(&unique_session(name)).await?;
        if plan.is_some() {
            let changes = TenantChanges { plan: Some(plan), ..TenantChanges::default() };
            mesh.directory().tenants().update(tenant.id, by, changes).await?;
        }
        let settings = AgentSettings {
            queue_mode: QueueMode::Followup,
            dm_scope: DmScope::PerAccountChannelPeer,
            ..AgentSettings::default()
        };
        let agent = NewAgent {
            model: Some(format!("{}:fake-model", model.name())),
            is_default: true,
            settings,
            ..NewAgent::default()
        };
        let agent = mesh.directory().agents().update(tenant.id, by, "main", agent).await?;

        let receiver = FakeReceiver::start().await?;
        let secret = Uuid::now_v7().to_string();
        let account = |channel: &str, settings: Value, secret: &str| NewAccount {
            channel: channel.to_owned(),
            name: "default".to_owned(),
            enabled: true,
            settings,
            secrets: Some(json!({ "secret": secret })),
        };
        let accounts = mesh.directory().accounts();
        let settings = json!({ "url": receiver.url(), "allow": ["*"] });
        let webhook = accounts.create(tenant.id, by, account("webhook", settings, &secret)).await?;
        let settings = json!({ "allow": ["*"] });
        let widget = accounts.create(tenant.id, by, account("widget", settings, &secret)).await?;
        let webhook = WebhookAccount { id: webhook.id, secret: secret.into() };
        Ok(Self { tenant, agent: agent.id, webhook, widget: widget.id, receiver })
    }

    /// Creates the hostile tenant: its model takes 3 s, and its platform is slow or fails.
    pub async fn create_hostile(mesh: &Mesh, plan: Option<String>) -> anyhow::Result<Self> {
        let hostile = Self::create(mesh, "hostile", (plan, Model::VerySlow)).await?;
        let faults = hostile.receiver.faults();
        faults.sometimes(0.5, Fault::Hang(SLOW_ANSWER), StdRng::seed_from_u64(1));
        faults.always(Fault::Status(503));
        Ok(hostile)
    }

    /// Sends of replies that its platform answered slowly or refused.
    pub fn slow_sends(&self) -> usize {
        usize::try_from(self.receiver.faults().fired()).unwrap_or(usize::MAX)
    }

    /// Holds back all that still waits of it: no turn, job or reply begins from now on.
    pub async fn suspend(&self, mesh: &Mesh) -> anyhow::Result<()> {
        let changes =
            TenantChanges { state: Some(TenantState::Suspended), ..TenantChanges::default() };
        mesh.directory().tenants().update(self.tenant.id, Actor::Operator, changes).await?;
        Ok(())
    }
}

impl WebhookAccount {
    /// Returns the headers of a post that is signed now.
    pub fn headers(&self, key: &str, body: &str) -> anyhow::Result<[(&'static str, String); 3]> {
        let now = jiff::Timestamp::now().as_second().to_string();
        let secret = self.secret.expose_secret();
        let signature = holdfast_tests::load::sign(secret, &now, key, body)?;
        Ok([
            ("x-holdfast-timestamp", now),
            ("x-holdfast-signature", signature),
            ("idempotency-key", key.to_owned()),
        ])
    }
}
