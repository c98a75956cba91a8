//! Test world: a gateway, an API server with the operator's definitions and rights, operators.

use std::{net::SocketAddr, time::Duration};

use gateway::App;
use holdfast_directory::{Actor, Agent, Directory, NewKey};
use holdfast_pg::Pools;
use holdfast_testkit::{Database, nats, redis};
use holdfast_testkit_kube::ApiServer;
use holdfast_types::TenantId;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Namespace with the resources.
pub const RESOURCES: &str = "assistants";
/// Namespace of the release.
pub const RELEASE: &str = "holdfast";
/// Token of the operator.
const TOKEN: &str = "operator";
/// Test timeout, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

const RULES: &str = include_str!("../../../../helm/holdfast/files/operator-rules.yaml");

pub struct World {
    pub kube: ApiServer,
    pub directory: Directory,
    gateway_url: String,
    platform_key: SecretString,
    _gateway: AbortOnDropHandle<anyhow::Result<()>>,
    _redis: redis::Namespace,
    _nats: nats::Namespace,
    _database: Database,
}

/// A running operator. It dies without a word when it is dropped.
pub struct RunningOperator {
    stop: CancellationToken,
    served: AbortOnDropHandle<anyhow::Result<()>>,
}

impl RunningOperator {
    /// Stops it as SIGTERM does.
    pub async fn stop(self) {
        self.stop.cancel();
        self.served.await.unwrap().unwrap();
    }
}

impl World {
    pub async fn start() -> Self {
        holdfast_kit::tls::install_crypto();
        holdfast_kit::metrics::install().unwrap();
        let schema = holdfast_pg::fingerprint();
        let database = Database::create_from(&schema, async |url: String| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        });
        Self::start_on(database.await.unwrap()).await
    }

    async fn start_on(database: Database) -> Self {
        let (nats, redis) =
            (nats::Namespace::create().await.unwrap(), redis::Namespace::create().await.unwrap());
        let mut config = gateway::Config::default();
        config.gateway.http = SocketAddr::from(([127, 0, 0, 1], 0));
        config.gateway.grpc = SocketAddr::from(([127, 0, 0, 1], 0));
        config.database.url = database.service_url("gateway").into();
        // A stall of the machine is waited for.
        config.database.acquire_timeout = Duration::from_secs(20);
        config.nats.url = nats.url().into();
        config.nats.prefix = nats.prefix().to_owned();
        config.redis.url = redis.url().into();
        config.redis.prefix = redis.prefix().to_owned();
        config.mesh.secret = "0123456789abcdef0123456789abcdef".into();
        config.secrets.kek = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".into();
        config.secrets.pepper = "pepper of the tests".into();
        let pools = Pools::lazy(&config.database, "test").unwrap();
        let directory = Directory::new(pools, &config.secrets).unwrap();
        let platform_key = platform_key(&directory).await;
        let app = App::connect(config).await.unwrap();
        let gateway_url = format!("http://{}", app.grpc_address().unwrap());
        let gateway = AbortOnDropHandle::new(tokio::spawn(app.run(CancellationToken::new())));

        let kube = ApiServer::start(&[RESOURCES, RELEASE]).await.unwrap();
        for (name, text) in operator::definitions().unwrap() {
            let definition: Value = serde_saphyr::from_str(&text).unwrap();
            kube.create(&definition).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let rules: Value = serde_saphyr::from_str(RULES).unwrap();
        for (namespace, part) in [(RESOURCES, "resources"), (RELEASE, "lease")] {
            let metadata = json!({"namespace": namespace});
            kube.grant(TOKEN, &json!({"kind": "Role", "metadata": metadata, "rules": rules[part]}));
        }
        Self {
            kube,
            directory,
            gateway_url,
            platform_key,
            _gateway: gateway,
            _redis: redis,
            _nats: nats,
            _database: database,
        }
    }

    /// Starts an operator.
    pub async fn operator(&self) -> RunningOperator {
        self.operator_with(&self.kube.url(), |_| {}).await
    }

    /// Starts an operator that reaches the API server at `url`.
    pub async fn operator_with(
        &self,
        url: &str,
        change: impl FnOnce(&mut operator::Operator),
    ) -> RunningOperator {
        let mut kubernetes = kube::Config::new(url.parse().unwrap());
        kubernetes.default_namespace = RELEASE.to_owned();
        kubernetes.auth_info = AuthInfo { token: Some(TOKEN.into()), ..AuthInfo::default() };
        let mut own = operator::Operator {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            gateway_url: self.gateway_url.clone(),
            key: self.platform_key.clone(),
            namespace: RESOURCES.to_owned(),
            resync: Duration::from_secs(2),
            retry_max: Duration::from_secs(2),
            ..operator::Operator::default()
        };
        change(&mut own);
        let config = operator::Config { operator: own, ..operator::Config::default() };
        let app = operator::App::connect_to(kubernetes, config).await.unwrap();
        let stop = CancellationToken::new();
        let served = AbortOnDropHandle::new(tokio::spawn(app.run(stop.clone())));
        RunningOperator { stop, served }
    }

    pub const fn platform_key(&self) -> &SecretString {
        &self.platform_key
    }

    pub fn gateway_url(&self) -> &str {
        &self.gateway_url
    }

    /// Applies a resource as a person does.
    pub fn apply(&self, kind: &str, name: &str, spec: &Value) -> Value {
        self.kube.apply(&resource(kind, name, spec), "anna").unwrap()
    }

    pub fn secret(&self, name: &str, key: &str, value: &str) {
        let data = json!({ key: value });
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name}, "stringData": data});
        match self.kube.get("Secret", name) {
            None => drop(self.kube.create(&secret).unwrap()),
            Some(old) => {
                secret["metadata"] = old["metadata"].clone();
                self.kube.replace(&secret).unwrap();
            }
        }
    }

    /// Waits until the resource's spec is applied.
    pub async fn until_ready(&self, kind: &str, name: &str) -> Value {
        let is_ready = |resource: &Value| {
            let ready = ready(resource);
            ready["status"] == "True"
                && ready["observedGeneration"] == resource["metadata"]["generation"]
        };
        self.until(kind, name, is_ready).await
    }

    /// Waits until the condition has this reason, and returns its message.
    pub async fn until_reason(&self, kind: &str, name: &str, reason: &str) -> String {
        let resource = self.until(kind, name, |resource| ready(resource)["reason"] == reason).await;
        let ready = ready(&resource);
        assert_eq!(ready["status"], "False", "{ready}");
        let message = ready["message"].as_str().unwrap().to_owned();
        let (_, remedy) = message.split_once(": ").unwrap_or_else(|| panic!("{message}"));
        assert!(remedy.len() > 10, "the message does not say what to do: {message}");
        message
    }

    pub async fn until(&self, kind: &str, name: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let met = eventually(|| {
            last = self.kube.get(kind, name).unwrap_or_default();
            is_met(&last)
        });
        let met = met.await;
        let (denied, requests) = (self.kube.denied(), self.kube.requests());
        assert!(met, "{kind} {name} stays {last:#}; denied: {denied:#?}, of {requests:#?}");
        last
    }

    pub async fn until_gone(&self, kind: &str, name: &str) {
        let gone = eventually(|| self.kube.get(kind, name).is_none()).await;
        assert!(gone, "{kind} {name} stays {:#}", self.kube.get(kind, name).unwrap_or_default());
    }

    /// A tenant that is ready, by a Tenant resource of this name.
    pub async fn tenant(&self, name: &str) -> TenantId {
        self.apply("Tenant", name, &json!({}));
        self.until_ready("Tenant", name).await;
        self.tenant_id(name).await
    }

    pub async fn tenant_id(&self, name: &str) -> TenantId {
        self.directory.tenants().get(name).await.unwrap().id
    }

    /// The agent in the gateway.
    pub async fn agent(&self, tenant: TenantId, name: &str) -> Option<Agent> {
        let agents = self.directory.agents().list(tenant).await.unwrap();
        agents.into_iter().find(|agent| agent.name.as_str() == name)
    }

    /// Waits until the agent in the gateway is as wanted.
    pub async fn until_agent(
        &self,
        tenant: TenantId,
        name: &str,
        is_met: impl Fn(Option<&Agent>) -> bool,
    ) {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let agent = self.agent(tenant, name).await;
            if is_met(agent.as_ref()) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{agent:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reasons of the events of a resource, in their order.
    pub fn events(&self, name: &str) -> Vec<String> {
        let events = self.kube.list("Event");
        let of = |event: &&Value| event["regarding"]["name"] == name;
        events.iter().filter(of).map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a resource has exactly these events; equal ones in a row are one.
    pub async fn until_events(&self, name: &str, reasons: &[&str]) {
        let met = eventually(|| self.events(name) == reasons).await;
        assert!(met, "{name} has the events {:?}", self.events(name));
    }

    /// What must hold in each test: nothing was refused for want of a right, nothing unknown was
    /// sent.
    pub fn check(&self) {
        assert!(self.kube.denied().is_empty(), "{:#?}", self.kube.denied());
        assert!(self.kube.pruned().is_empty(), "{:#?}", self.kube.pruned());
    }
}

async fn platform_key(directory: &Directory) -> SecretString {
    let (tenant, _) = directory.tenants().ensure("main").await.unwrap();
    let scopes = vec!["platform".to_owned()];
    let new = NewKey {
        name: "operator".to_owned(),
        scopes,
        lifetime: None,
        person: None,
        agent: None,
        origins: Vec::new(),
    };
    let (_, key) = directory.keys().create(tenant.id, Actor::Operator, new).await.unwrap();
    assert!(key.expose_secret().starts_with("hf_"));
    key
}

pub fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "holdfast.dev/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": spec})
}

/// The condition `Ready`.
pub fn ready(resource: &Value) -> &Value {
    let conditions = resource["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == "Ready"));
    found.unwrap_or(&Value::Null)
}

/// Whether this becomes true.
pub async fn eventually(mut is_met: impl FnMut() -> bool) -> bool {
    let end = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < end {
        if is_met() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
