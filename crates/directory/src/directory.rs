//! Entry point of the directory; the operations are in `verbs`.

use std::{fmt, sync::Arc, time::Duration};

use holdfast_grpc::SecretsClient;
use holdfast_kit::config::Secrets;
use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{KeyId, NodeId, TenantId};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use uuid::Uuid;

use crate::{
    DataKey, Error, LimitLevel, LimitName, Routing, Seal,
    cache::Cache,
    key::{CachedKey, console::CachedConsoleSession, device::CachedDevice},
    node::CachedNode,
    person::CachedPerson,
    store,
    token::{Peppers, Secret},
};

/// Time limit of waiting for the lookup of a token without a mark.
const MAX_LOOKUP_WAIT: Duration = Duration::from_secs(1);

/// How long the lookup of a key, a node, a device or a console session is cached in this process.
const KEY_CACHE_TTL: Duration = Duration::from_secs(5);
const MAX_CACHED_KEYS: usize = 20_000;
/// How long a tenant's routing is cached in this process.
const ROUTING_CACHE_TTL: Duration = Duration::from_secs(1);
/// How long this process does not ask again whether a notice about a limit was given.
const NOTICE_CACHE_TTL: Duration = Duration::from_secs(60);
const MAX_CACHED_ROUTINGS: usize = 4_000;

/// The configuration of tenants. Clones share their state.
#[derive(Clone)]
pub struct Directory {
    pub(crate) pools: Pools,
    seal: Option<Seal>,
    pub(crate) peppers: Peppers,
    pub(crate) keys: Arc<Cache<KeyId, CachedKey>>,
    /// By tenant's name, issuer and subject.
    pub(crate) people: Arc<Cache<(String, String, String), CachedPerson>>,
    pub(crate) nodes: Arc<Cache<NodeId, CachedNode>>,
    /// By the id of the token.
    pub(crate) devices: Arc<Cache<Uuid, CachedDevice>>,
    pub(crate) console_sessions: Arc<Cache<Uuid, CachedConsoleSession>>,
    /// Ids of keys, nodes, console sessions and tokens of devices that do not exist.
    pub(crate) unknown: Arc<Cache<Uuid, ()>>,
    pub(crate) routings: Arc<Cache<TenantId, Arc<Routing>>>,
    /// Notices about limits that were given.
    pub(crate) notices: Arc<Cache<(TenantId, LimitName, LimitLevel), ()>>,
    /// One query at a time for tokens without a mark.
    unmarked: Arc<Semaphore>,
    /// Whether the demonstration model may be chosen, also where no model is.
    pub(crate) has_demo_model: bool,
}

impl Directory {
    /// Uses the installation's secrets. Without a pepper it cannot create or check API keys and
    /// node tokens.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`], or [`Error::WeakSecret`] for a pepper that is too short.
    pub fn new(pools: Pools, secrets: &Secrets) -> Result<Self, Error> {
        Self::with_secrets_service(pools, secrets, None)
    }

    /// As [`new`](Self::new), but if there is a client of the secrets service, that one seals and
    /// opens secrets.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_secrets_service(
        pools: Pools,
        secrets: &Secrets,
        client: Option<SecretsClient>,
    ) -> Result<Self, Error> {
        let seal = Seal::new(secrets, client)?;
        let peppers = Peppers::new(secrets)?;
        Ok(Self { seal: Some(seal), peppers, ..Self::without_secrets(pools) })
    }

    /// For a service that neither opens secrets nor checks keys.
    #[must_use]
    pub fn without_secrets(pools: Pools) -> Self {
        Self {
            pools,
            seal: None,
            peppers: Peppers::default(),
            keys: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            people: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            nodes: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            devices: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            console_sessions: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            unknown: Arc::new(Cache::new(KEY_CACHE_TTL, MAX_CACHED_KEYS)),
            routings: Arc::new(Cache::new(ROUTING_CACHE_TTL, MAX_CACHED_ROUTINGS)),
            notices: Arc::new(Cache::new(NOTICE_CACHE_TTL, MAX_CACHED_KEYS)),
            unmarked: Arc::new(Semaphore::new(1)),
            has_demo_model: true,
        }
    }

    /// Refuses to choose the demonstration model. Agents without a model have none then.
    #[must_use]
    pub fn without_demo_model(self) -> Self {
        Self { has_demo_model: false, ..self }
    }

    /// Reads the tenant's keys, people, devices and console sessions again when they are used next.
    pub fn forget_callers(&self, tenant: TenantId) {
        self.keys.forget_if(|key| key.who.tenant == tenant);
        self.people.forget_if(|person| person.who.tenant == tenant);
        self.devices.forget_if(|device| device.who.tenant == tenant);
        self.console_sessions.forget_if(|session| session.who.tenant == tenant);
    }

    /// Begins a transaction that changes a tenant's configuration.
    ///
    /// The tenant's row is locked, so changes of one tenant are serialised: limits hold, and there
    /// is only one default agent and one default model.
    pub(crate) async fn begin_change(&self, tenant: TenantId) -> Result<TenantTx, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        if store::tenants::lock(&mut tx).await? {
            Ok(tx)
        } else {
            Err(Error::not_found("tenant", tenant))
        }
    }

    /// Waits until a token may be looked up. Tokens with the mark of their id need not wait. The
    /// others share one slot, so that callers with invented tokens cannot take all connections.
    pub(crate) async fn lookup_slot(
        &self,
        id: Uuid,
        secret: &Secret,
    ) -> Result<Option<SemaphorePermit<'_>>, Error> {
        if self.peppers.have_mark(id, secret) {
            return Ok(None);
        }
        match timeout(MAX_LOOKUP_WAIT, self.unmarked.acquire()).await {
            Ok(slot) => Ok(slot.ok()),
            Err(_) => Err(Error::TooManyUnknownKeys),
        }
    }

    pub(crate) async fn data_key(&self, tx: &mut TenantTx) -> Result<DataKey<'_>, Error> {
        let sealed = store::tenants::data_key(tx).await?;
        let sealed = sealed.ok_or_else(|| Error::not_found("tenant", tx.tenant()))?;
        Ok(self.seal()?.with_data_key(tx.tenant(), sealed))
    }

    pub(crate) fn seal(&self) -> Result<&Seal, Error> {
        self.seal.as_ref().ok_or(Error::MissingSecret("secrets.kek"))
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Directory")
    }
}
