//! Test tenants: each with a key, a bot, a webhook and a model.

use anyhow::Context as _;
use holdfast_directory::{
    Actor, AgentSettings, Directory, NewAccount, NewAgent, NewProvider, ProviderKind, TenantChanges,
};
use holdfast_types::{AccountId, DmScope, QueueMode, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::mesh::Fakes;

/// Requests a minute: no test is about being refused for their number.
const REQUESTS_PER_MINUTE: u32 = 10_000_000;

/// A tenant, ready to talk.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub id: TenantId,
    /// `t0`, `t1`, …: what the ids of its messages begin with.
    pub name: String,
    pub key: String,
    /// How its agent takes input while it is busy.
    pub mode: QueueMode,
    /// Its account for signed webhooks.
    pub webhook: AccountId,
    /// What both sides of the webhook sign with.
    pub secret: String,
    pub bot: String,
}

impl Tenant {
    /// The tenant with this number, whose agent takes input so.
    pub async fn create(
        directory: &Directory,
        number: usize,
        mode: QueueMode,
        fakes: &Fakes,
    ) -> anyhow::Result<Self> {
        let by = Actor::Operator;
        let name = format!("t{number}");
        let (made, key) = directory.tenants().create(by, &name).await?;
        let changes = TenantChanges { rate: Some(REQUESTS_PER_MINUTE), ..TenantChanges::default() };
        directory.tenants().update(made.id, by, changes).await?;
        let provider = NewProvider {
            name: "fake".to_owned(),
            kind: ProviderKind::OpenAi,
            base_url: fakes.model.url(),
            api_key: Some(format!("model-key-of-{name}").into()),
            default_model: Some("fake:fake-model".to_owned()),
            ..NewProvider::default()
        };
        directory.providers().put(made.id, by, provider).await?;
        let settings = AgentSettings {
            queue_mode: mode,
            dm_scope: DmScope::PerAccountChannelPeer,
            debounce_ms: 100,
            ..AgentSettings::default()
        };
        let agent = NewAgent {
            instructions: format!("You are the assistant of {name}."),
            is_default: true,
            settings,
            ..NewAgent::default()
        };
        directory.agents().update(made.id, by, "main", agent).await?;

        let secret = format!("webhook-secret-of-{name}");
        let bot = format!("100{number}:token-of-{name}");
        let account = |channel: &str, settings: Value, secrets: Value| NewAccount {
            channel: channel.to_owned(),
            name: "default".to_owned(),
            enabled: true,
            settings,
            secrets: Some(secrets),
        };
        let webhook = account(
            "webhook",
            json!({"url": format!("{}/{name}", fakes.receiver.url()), "allow": ["*"]}),
            json!({"secret": secret}),
        );
        let webhook = directory.accounts().create(made.id, by, webhook).await?;
        let telegram =
            account("telegram", json!({"allow": ["*"], "parse": "plain"}), json!({"token": bot}));
        directory.accounts().create(made.id, by, telegram).await.context("the bot's account")?;
        let platforms = match &fakes.platforms {
            Some(platforms) => platforms.accounts_of(number).await?,
            None => Vec::new(),
        };
        for platform in platforms {
            let account = account(platform.channel, platform.settings, platform.secrets);
            directory.accounts().create(made.id, by, account).await.context(platform.channel)?;
        }
        let key = key.expose_secret().to_owned();
        Ok(Self { id: made.id, name, key, mode, webhook: webhook.id, secret, bot })
    }
}
