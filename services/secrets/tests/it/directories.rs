//! Services without the key-encryption key work with the secrets service.

use std::time::Duration;

use holdfast_directory::{Actor, Directory, Error, NewAccount, NewProvider, ProviderKind};
use holdfast_grpc::SecretsClient;
use holdfast_kit::config::Secrets;
use holdfast_pg::{Config, Pools};
use holdfast_testkit::Database;
use holdfast_types::{Fault as _, Kind, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::world::{Served, secrets};

const BY: Actor = Actor::Operator;

struct World {
    served: Served,
    pools: Pools,
    _database: Database,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await?;
        let config = Config {
            url: database.url().into(),
            pool_size: 8,
            acquire_timeout: Duration::from_secs(20),
            ..Config::default()
        };
        let pools = Pools::lazy(&config, "test")?;
        Ok(Self { served: Served::start(secrets(1)).await?, pools, _database: database })
    }

    /// Directory of a process that has the key.
    fn with_kek(&self, secrets: &Secrets) -> Directory {
        Directory::new(self.pools.clone(), secrets).unwrap()
    }

    /// Directory of a service that does not have the key.
    fn of(&self, service: &'static str) -> Directory {
        self.over(self.served.client(service, service))
    }

    fn over(&self, client: SecretsClient) -> Directory {
        let secrets = Secrets { kek: "".into(), ..secrets(1) };
        Directory::with_secrets_service(self.pools.clone(), &secrets, Some(client)).unwrap()
    }
}

fn provider() -> NewProvider {
    NewProvider {
        name: "openai".into(),
        kind: ProviderKind::OpenAi,
        base_url: "https://models.example/v1".into(),
        api_key: Some("sk-model-key".into()),
        default_model: Some("gpt-5".into()),
        ..NewProvider::default()
    }
}

fn account() -> NewAccount {
    NewAccount {
        channel: "telegram".into(),
        name: "bot".into(),
        enabled: true,
        settings: json!({"allow": ["7"]}),
        secrets: Some(json!({"token": "1:a"})),
    }
}

async fn model_key(directory: &Directory, tenant: TenantId) -> Result<String, Error> {
    let agent = directory.agents().default_agent(tenant).await?;
    let choice = directory.models().of_agent(tenant, &agent).await?;
    Ok(choice.api_key.unwrap().expose_secret().to_owned())
}

#[tokio::test]
async fn services_without_the_key_create_store_and_use_secrets() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (gateway, runner, bridge) =
        (world.of("gateway"), world.of("agent-runner"), world.of("channel-bridge"));

    let (tenant, _) = gateway.tenants().create(BY, "acme").await?;
    gateway.providers().put(tenant.id, BY, provider()).await?;
    let made = gateway.accounts().create(tenant.id, BY, account()).await?;
    let value = "of the skill".into();
    gateway.skill_env().put(tenant.id, BY, ("mailer", "TOKEN"), &value).await?;

    assert_eq!(model_key(&runner, tenant.id).await?, "sk-model-key");
    let variables = runner.skill_env().open(tenant.id).await?;
    assert_eq!(variables[0].value.expose_secret(), "of the skill");
    let opened = bridge.accounts().get(tenant.id, made.id).await?;
    assert_eq!(opened.secrets, json!({"token": "1:a"}));
    assert_eq!(gateway.request_keys().await?, runner.request_keys().await?);
    // A bridge opens the secrets of accounts, a runner does not.
    for refused in [
        model_key(&bridge, tenant.id).await.unwrap_err(),
        bridge.request_keys().await.unwrap_err(),
        runner.accounts().get(tenant.id, made.id).await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::SecretsService(_)), "{refused}");
        assert_eq!(refused.kind(), Kind::Internal, "{refused}");
    }
    world.served.stop().await
}

#[tokio::test]
async fn a_process_with_the_key_and_the_service_read_what_the_other_wrote() -> anyhow::Result<()> {
    let world = World::start().await?;
    let local = world.with_kek(&secrets(1));
    let (gateway, bridge) = (world.of("gateway"), world.of("channel-bridge"));
    let (by_local, _) = local.tenants().create(BY, "local").await?;
    let (by_remote, _) = gateway.tenants().create(BY, "remote").await?;

    let first = local.accounts().create(by_local.id, BY, account()).await?;
    let second = gateway.accounts().create(by_remote.id, BY, account()).await?;

    let secrets = json!({"token": "1:a"});
    assert_eq!(bridge.accounts().get(by_local.id, first.id).await?.secrets, secrets);
    assert_eq!(local.accounts().get(by_remote.id, second.id).await?.secrets, secrets);
    assert_eq!(local.request_keys().await?, gateway.request_keys().await?);
    assert_eq!(local.job_keys().await?, gateway.job_keys().await?);
    assert_ne!(local.job_keys().await?, local.request_keys().await?);
    world.served.stop().await
}

#[tokio::test]
async fn the_operator_rotates_the_key_while_services_go_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (tenant, _) = world.of("gateway").tenants().create(BY, "acme").await?;
    let made = world.of("gateway").accounts().create(tenant.id, BY, account()).await?;
    let rotating = Secrets { previous_kek: secrets(1).kek, ..secrets(2) };
    let both = Served::start(rotating.clone()).await?;
    let of_both = || world.over(both.client("channel-bridge", "channel-bridge"));
    let before = of_both().accounts().get(tenant.id, made.id).await?.secrets;

    // A service cannot: it has no key.
    let mut resealed = 0;
    let refused = world.of("gateway").tenants().reseal_batch(None, &mut resealed).await;
    let operator = world.with_kek(&rotating);
    operator.tenants().reseal_batch(None, &mut resealed).await?;

    assert!(matches!(refused, Err(Error::MissingSecret("secrets.kek"))), "{refused:?}");
    assert_eq!(resealed, 1);
    let new = Served::start(secrets(2)).await?;
    let of_new = world.over(new.client("channel-bridge", "channel-bridge"));
    for directory in [of_both(), of_new] {
        assert_eq!(directory.accounts().get(tenant.id, made.id).await?.secrets, before);
    }
    let of_old = world.of("channel-bridge").accounts().get(tenant.id, made.id).await;
    assert!(matches!(of_old, Err(Error::Unsealable(_))), "{of_old:?}");
    both.stop().await?;
    new.stop().await?;
    world.served.stop().await
}

#[tokio::test]
async fn while_the_service_is_down_values_in_use_open_and_others_are_retried() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let (gateway, runner) = (world.of("gateway"), world.of("agent-runner"));
    let (tenant, _) = gateway.tenants().create(BY, "acme").await?;
    gateway.providers().put(tenant.id, BY, provider()).await?;
    let another_runner = world.of("agent-runner");
    model_key(&runner, tenant.id).await?;

    let World { served, .. } = world;
    served.stop().await?;

    assert_eq!(model_key(&runner, tenant.id).await?, "sk-model-key");
    let unknown = model_key(&another_runner, tenant.id).await.unwrap_err();
    assert!(unknown.kind().is_transient(), "{unknown}");
    let unsealed = gateway.providers().put(tenant.id, BY, provider()).await.unwrap_err();
    assert!(unsealed.kind().is_transient(), "{unsealed}");
    Ok(())
}
