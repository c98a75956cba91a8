//! Fixture of the tests: a directory over its own database.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_directory::{
    Account, Actor, Agent, Directory, NewAccount, NewAgent, NewKey, NewProvider, ProviderKind,
    Tenant,
};
use holdfast_kit::config::Secrets;
use holdfast_pg::{Config, Pools};
use holdfast_testkit::Database;
use holdfast_types::{AgentName, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

pub const BY: Actor = Actor::Operator;

const PEPPER: &str = "pepper of the tests";
const ANOTHER_PEPPER: &str = "another pepper of the tests";

pub struct World {
    pub directory: Directory,
    pub pools: Pools,
    database: Database,
}

impl World {
    pub async fn new() -> Self {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await
        .unwrap();
        let config = Config { pool_size: 8, ..config(database.url()) };
        let pools = Pools::lazy(&config, "test").unwrap();
        let directory = Self::over(&pools, &secrets(1, PEPPER));
        Self { directory, pools, database }
    }

    /// Pools of a service that logs in as itself.
    pub fn pools_of(&self, service: &str) -> Pools {
        Pools::lazy(&config(self.database.service_url(service)), service).unwrap()
    }

    /// Pools of a runner with the login of its pool; an empty name is the default pool.
    pub async fn pools_of_runner_pool(&self, pool: &str) -> Pools {
        let url = self.database.runner_pool_url(pool).await.unwrap();
        holdfast_pg::migrate(&self.database.admin_url()).await.unwrap();
        Pools::lazy(&config(url), "runner").unwrap()
    }

    /// Creates the directory of such a runner.
    pub async fn directory_of_runner_pool(&self, pool: &str) -> Directory {
        Self::over(&self.pools_of_runner_pool(pool).await, &secrets(1, PEPPER))
    }

    /// Creates the directory of a service that logs in as itself.
    pub fn directory_of(&self, service: &str) -> Directory {
        Self::over(&self.pools_of(service), &secrets(1, PEPPER))
    }

    /// Creates another process's directory over the same database, with empty caches.
    pub fn again(&self) -> Directory {
        Self::over(&self.pools, &secrets(1, PEPPER))
    }

    /// Creates a directory with another pepper.
    pub fn with_another_pepper(&self) -> Directory {
        Self::over(&self.pools, &secrets(1, ANOTHER_PEPPER))
    }

    /// Creates a directory with another key-encryption key.
    pub fn with_another_kek(&self) -> Directory {
        Self::over(&self.pools, &secrets(2, PEPPER))
    }

    /// Creates a directory during a rotation: with the secrets of [`with_another_pepper`] and
    /// [`with_another_kek`] and those before them.
    ///
    /// [`with_another_pepper`]: Self::with_another_pepper
    /// [`with_another_kek`]: Self::with_another_kek
    pub fn rotating(&self) -> Directory {
        let Secrets { kek, pepper, .. } = secrets(1, PEPPER);
        let new = secrets(2, ANOTHER_PEPPER);
        Self::over(&self.pools, &Secrets { previous_kek: kek, previous_pepper: pepper, ..new })
    }

    /// Creates a directory after that rotation.
    pub fn rotated(&self) -> Directory {
        Self::over(&self.pools, &secrets(2, ANOTHER_PEPPER))
    }

    fn over(pools: &Pools, secrets: &Secrets) -> Directory {
        Directory::new(pools.clone(), secrets).unwrap()
    }

    /// Creates a tenant, and returns it with its first key.
    pub async fn tenant(&self, name: &str) -> (Tenant, String) {
        let (tenant, secret) = self.directory.tenants().create(BY, name).await.unwrap();
        (tenant, secret.expose_secret().to_owned())
    }

    /// Runs a statement as the schema's owner, to whom row-level security does not apply.
    pub async fn admin(&self) -> PgConnection {
        PgConnection::connect(&self.database.admin_url()).await.unwrap()
    }

    /// Returns the actions and subjects of a tenant's audit log, in order.
    pub async fn audit(&self, tenant: TenantId) -> Vec<(String, String, String)> {
        sqlx::query_as(
            "select actor, action, subject from control.audit where tenant_id = $1 \
             order by created_at, audit_id",
        )
        .bind(tenant.as_uuid())
        .fetch_all(&mut self.admin().await)
        .await
        .unwrap()
    }

    pub async fn agent(&self, tenant: TenantId, name: &str) -> Agent {
        self.directory.agents().create(tenant, BY, agent(name)).await.unwrap()
    }

    pub async fn account(&self, tenant: TenantId, name: &str, token: &str) -> Account {
        self.directory.accounts().create(tenant, BY, account(name, token)).await.unwrap()
    }
}

/// Settings with which callers wait for a connection while the machine stalls.
fn config(url: String) -> Config {
    let acquire_timeout = Duration::from_secs(20);
    Config { url: url.into(), acquire_timeout, ..Config::default() }
}

fn secrets(kek: u8, pepper: &str) -> Secrets {
    let kek = STANDARD.encode([kek; 32]).into();
    Secrets { kek, pepper: pepper.into(), ..Secrets::default() }
}

pub fn agent(name: &str) -> NewAgent {
    NewAgent { name: AgentName::new(name), ..NewAgent::default() }
}

pub fn account(name: &str, token: &str) -> NewAccount {
    NewAccount {
        channel: "telegram".into(),
        name: name.into(),
        enabled: true,
        settings: json!({"allow": ["7"]}),
        secrets: Some(json!({"token": token})),
    }
}

pub fn provider(name: &str, key: Option<&str>, model: Option<&str>) -> NewProvider {
    NewProvider {
        name: name.into(),
        kind: ProviderKind::OpenAi,
        base_url: "https://models.example/v1".into(),
        api_key: key.map(Into::into),
        default_model: model.map(str::to_owned),
        ..NewProvider::default()
    }
}

pub fn key(scopes: &[&str]) -> NewKey {
    let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
    NewKey {
        name: "ci".into(),
        scopes,
        lifetime: None,
        person: None,
        agent: None,
        origins: Vec::new(),
    }
}
