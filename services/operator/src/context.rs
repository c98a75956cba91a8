//! What all reconcilers share.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::channel::mpsc;
use holdfast_kit::Backoff;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        events::Recorder,
        reflector::{ObjectRef, Store},
    },
};
use rand::RngExt as _;
use tokio::sync::SetOnce;

use crate::{
    config::Operator,
    error::Failure,
    gateway::{ApiKey, Gateway},
    resources::{
        Agent, CONFIRM_DELETE, Channel, DeletionPolicy, Managed, ModelProvider, SecretReference,
        Tenant,
    },
    tenant_keys,
};

/// Maximum delay before the first retry; it doubles with each further one.
const RETRY_BASE: Duration = Duration::from_secs(1);

/// The cached resources of one kind, and a way to have one reconciled at once.
#[derive(Debug)]
pub struct Watched<K: Managed> {
    pub store: Store<K>,
    triggers: mpsc::UnboundedSender<ObjectRef<K>>,
    /// Set after the first list. `Store::wait_until_ready` wakes only one of several tasks that wait.
    listed: SetOnce<()>,
}

impl<K: Managed> Watched<K> {
    pub fn new(store: Store<K>, triggers: mpsc::UnboundedSender<ObjectRef<K>>) -> Self {
        Self { store, triggers, listed: SetOnce::new() }
    }

    /// Tells that the cache has all resources.
    pub fn set_listed(&self) {
        // Later lists change nothing.
        let _first = self.listed.set(());
    }

    /// Waits until the cache has all resources.
    pub async fn until_listed(&self) {
        self.listed.wait().await;
    }

    /// Reconciles these resources at once.
    pub fn trigger(&self, is_meant: impl Fn(&K) -> bool) {
        for resource in self.store.state().iter().filter(|resource| is_meant(resource)) {
            // The receiver lives as long as the controllers.
            let _sent = self.triggers.unbounded_send(ObjectRef::from_obj(&**resource));
        }
    }
}

/// Kind of resource, and where the context has its cache.
pub trait HasStore: Managed {
    fn watched(context: &Context) -> &Watched<Self>;
}

pub struct Context {
    pub client: Client,
    pub gateway: Gateway,
    pub settings: Operator,
    /// Namespace with the resources.
    pub namespace: String,
    pub recorder: Recorder,
    pub tenants: Watched<Tenant>,
    pub agents: Watched<Agent>,
    pub channels: Watched<Channel>,
    pub providers: Watched<ModelProvider>,
    /// Keys of tenants by the name of their Tenant resource.
    keys: Mutex<HashMap<String, ApiKey>>,
    /// Failed attempts in a row, by kind and name.
    attempts: Mutex<HashMap<(String, String), u32>>,
}

/// Value of a Secret and its version.
#[derive(Debug)]
pub struct SecretValue {
    pub value: String,
    pub version: String,
}

impl Context {
    pub fn new(
        client: Client,
        gateway: Gateway,
        settings: Operator,
        namespace: String,
        recorder: Recorder,
        watched: (Watched<Tenant>, Watched<Agent>, Watched<Channel>, Watched<ModelProvider>),
    ) -> Self {
        let (tenants, agents, channels, providers) = watched;
        Self {
            client,
            gateway,
            settings,
            namespace,
            recorder,
            tenants,
            agents,
            channels,
            providers,
            keys: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    pub fn api<K: Managed>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Delay before the next attempt for a resource that failed.
    pub fn retry_delay(&self, kind: &str, name: &str) -> Duration {
        let mut attempts = lock(&self.attempts);
        let attempt = attempts.entry((kind.to_owned(), name.to_owned())).or_default();
        let delay = Backoff::new(RETRY_BASE, self.settings.retry_max).cap(*attempt);
        *attempt = attempt.saturating_add(1);
        delay.mul_f64(rand::rng().random_range(0.5..1.0))
    }

    /// Forgets the failed attempts for a resource.
    pub fn succeeded(&self, kind: &str, name: &str) {
        lock(&self.attempts).remove(&(kind.to_owned(), name.to_owned()));
    }

    /// Interval until the next comparison, spread so that resources are not compared all at once.
    pub fn resync_delay(&self) -> Duration {
        self.settings.resync.mul_f64(rand::rng().random_range(0.9..1.1))
    }

    /// Returns the key of a tenant, by the name of its resource.
    ///
    /// # Errors
    ///
    /// If there is no such Tenant, or it cannot be used yet.
    pub async fn tenant_key(&self, tenant: &str) -> Result<ApiKey, Failure> {
        // The Tenant wakes its resources when it is ready: to ask before is of no use.
        let wait = |failure: Failure| Failure {
            retry_after: failure.retry_after.or(Some(self.settings.resync)),
            ..failure
        };
        self.find_tenant_key(tenant).await.map_err(|failure| match failure.is_of_api_server {
            true => failure,
            false => wait(failure),
        })
    }

    async fn find_tenant_key(&self, tenant: &str) -> Result<ApiKey, Failure> {
        let reference = ObjectRef::new(tenant).within(&self.namespace);
        let Some(resource) = self.tenants.store.get(&reference) else {
            return Err(Failure::new(
                "TenantNotFound",
                format!("there is no Tenant `{tenant}` in this namespace"),
                "create it, or correct `tenant`",
            ));
        };
        if resource.metadata.deletion_timestamp.is_some() {
            return Err(Failure::new(
                "TenantDeleting",
                format!("the Tenant `{tenant}` is being deleted"),
                "delete this resource too, or create the Tenant again afterwards",
            ));
        }
        if resource.spec.suspended == Some(true) {
            return Err(Failure::new(
                "TenantSuspended",
                format!("the Tenant `{tenant}` is suspended"),
                "set `suspended: false` in it; until then nothing of it is changed",
            ));
        }
        if let Some(key) = lock(&self.keys).get(tenant) {
            return Ok(key.clone());
        }
        let stored = tenant_keys::read(&self.secrets(), tenant).await?;
        let key = stored.and_then(|stored| ApiKey::new(&stored.key)).ok_or_else(|| {
            Failure::new(
                "TenantNotReady",
                format!("the Tenant `{tenant}` has no key yet"),
                "wait for its condition Ready, which says what it lacks",
            )
        })?;
        lock(&self.keys).insert(tenant.to_owned(), key.clone());
        Ok(key)
    }

    /// Whether the Tenant resource is not there, or is being deleted together with its tenant.
    pub fn is_tenant_gone(&self, tenant: &str) -> bool {
        let reference = ObjectRef::new(tenant).within(&self.namespace);
        self.tenants.store.get(&reference).is_none_or(|resource| {
            resource.metadata.deletion_timestamp.is_some()
                && resource.deletion_policy() == DeletionPolicy::Delete
                && resource.annotations().get(CONFIRM_DELETE) == Some(&resource.gateway_name())
        })
    }

    /// Forgets the cached key of a tenant.
    pub fn forget_key(&self, tenant: &str) {
        lock(&self.keys).remove(tenant);
    }

    /// Reads the value that a resource refers to.
    ///
    /// # Errors
    ///
    /// If there is no such Secret or key, or it holds the key of a tenant: whoever may write a resource
    /// would send that key to an address of theirs.
    pub async fn secret_value(&self, wanted: &SecretReference) -> Result<SecretValue, Failure> {
        let SecretReference { name, key } = wanted;
        if tenant_keys::tenant_of(name).is_some() {
            return Err(Failure::new(
                "SecretOfOperator",
                format!("the Secret `{name}` is for the operator alone"),
                "name a Secret of your own",
            ));
        }
        let Some(secret) = self.secrets().get_opt(name).await? else {
            return Err(Failure::new(
                "SecretNotFound",
                format!("there is no Secret `{name}` in this namespace"),
                format!("create it with the key `{key}`"),
            ));
        };
        let version = secret.resource_version().unwrap_or_default();
        let value = secret.data.unwrap_or_default().remove(key);
        let value = value.and_then(|value| String::from_utf8(value.0).ok());
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| {
            Failure::new(
                "SecretKeyNotFound",
                format!("the Secret `{name}` has no text under the key `{key}`"),
                "add it to the Secret, or correct `key`",
            )
        })?;
        Ok(SecretValue { value, version })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
