//! The service `Tenants`, for operators.

pub mod plans;
pub mod platform_keys;
pub mod usage;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use holdfast_directory::{
    AGENT_CACHE_TTL, LimitName, NewKey, Product, ProductCommand, Tenant, TenantChanges, TenantState,
};
use holdfast_grpc::Scope;
use holdfast_proto::gateway::v1::{
    self as pb, CreateTenantKeyRequest, CreateTenantKeyResponse, CreateTenantRequest,
    CreateTenantResponse, DeleteTenantRequest, DeleteTenantResponse, GetTenantRequest,
    GetTenantResponse, ListTenantsRequest, ListTenantsResponse, UpdateTenantRequest,
    UpdateTenantResponse, tenants_server::Tenants as Service,
};
use holdfast_session::{InvalidPoolName, RetentionDays, RunnerPool, ShareChanges};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, keys::key_of, non_empty, required, timestamp};
use crate::{Error, audit};

/// Maximum weight of a tenant's share of the runners.
const MAX_WEIGHT: u32 = 100;
/// Maximum cap on a tenant's sessions that are ready or running.
const MAX_SESSION_CAP: u32 = 100_000;
/// Maximum limit on a tenant's sessions.
const MAX_SESSIONS: u32 = 1_000_000_000;
/// Maximum number of days of a retention period.
const MAX_RETENTION_DAYS: u32 = 36_500;
/// Scopes of a key for a program that manages a tenant.
const MANAGER_KEY_SCOPES: [Scope; 3] = [Scope::Read, Scope::Admin, Scope::Owner];
/// Concurrent reads of shares for a list.
const CONCURRENT_SHARE_READS: usize = 4;

/// Name of the first owner of a tenant, who has its first key.
const FIRST_OWNER: &str = "Owner";

/// Implements `holdfast.gateway.v1.Tenants`.
#[derive(Debug)]
pub struct Tenants(pub State);

#[tonic::async_trait]
impl Service for Tenants {
    async fn list_tenants(
        &self,
        request: Request<ListTenantsRequest>,
    ) -> Result<Response<ListTenantsResponse>, Status> {
        holdfast_grpc::caller(request)?;

        let tenants = self.0.directory.tenants().list().await.map_err(Error::from)?;
        let tenants = stream::iter(tenants.into_iter().map(|tenant| self.with_share(tenant)));
        let tenants = tenants.buffered(CONCURRENT_SHARE_READS).try_collect().await?;

        Ok(Response::new(ListTenantsResponse { tenants }))
    }

    async fn get_tenant(
        &self,
        request: Request<GetTenantRequest>,
    ) -> Result<Response<GetTenantResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;

        let tenant = self.0.directory.tenants().get(&request.tenant).await.map_err(Error::from)?;

        let tenant = Some(self.with_share(tenant).await?);
        Ok(Response::new(GetTenantResponse { tenant }))
    }

    async fn create_tenant(
        &self,
        request: Request<CreateTenantRequest>,
    ) -> Result<Response<CreateTenantResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let pool = parse_pool(request.pool)?;

        let made = self.0.directory.tenants().create(actor(&caller), &request.name).await;

        let (tenant, secret) = made.map_err(Error::from)?;
        let owner = self.0.directory.people().first_owner(tenant.id, (FIRST_OWNER, false)).await;
        owner.map_err(Error::from)?;
        if pool.is_some() {
            let pools = self.0.sessions.runner_pools();
            pools.assign(tenant.id, pool.as_ref()).await.map_err(Error::from)?;
        }
        let tenant = Some(self.with_share(tenant).await?);
        let secret = secret.expose_secret().to_owned();
        Ok(Response::new(CreateTenantResponse { tenant, secret }))
    }

    async fn update_tenant(
        &self,
        request: Request<UpdateTenantRequest>,
    ) -> Result<Response<UpdateTenantResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let wanted = required("tenant", request.tenant)?;
        let found_by = non_empty(wanted.id).unwrap_or(wanted.name);
        let state = non_empty(wanted.state).map(|word| TenantState::parse(&word));
        let state = state.transpose().map_err(Error::from)?;
        let product = wanted.product.map(product);
        let weight = at_most("weight", wanted.weight, MAX_WEIGHT)?;
        let cap = at_most("cap", wanted.cap, MAX_SESSION_CAP)?;
        let max_sessions = at_most("max_sessions", wanted.max_sessions, MAX_SESSIONS)?;
        let share = ShareChanges { weight, cap, max_sessions };
        let own = [(cap, LimitName::ParallelRuns), (max_sessions, LimitName::Sessions)];
        let follow_plan = request.follow_plan.iter().map(|name| own_limit(name));
        let given_plan = non_empty(wanted.plan).map(Some);
        let given_expiry = wanted.expires_at.map(expiry).transpose()?.map(Some);
        let changes = TenantChanges {
            state,
            rate: non_zero(wanted.rate),
            product,
            plan: given_plan.or(request.no_plan.then_some(None)),
            own_limits: own.iter().filter_map(|(given, name)| given.map(|_| *name)).collect(),
            follow_plan: follow_plan.collect::<Result<_, _>>()?,
            expires_at: given_expiry.or(request.never_expires.then_some(None)),
        };
        let is_limited = changes.plan.is_some();
        let retention = wanted.retention.map(retention_days).transpose()?;
        let pool = parse_pool(wanted.pool)?;
        if pool.is_some() && request.no_pool {
            let why = "`pool` and `no_pool` exclude each other: give one of them";
            return Err(invalid(why.to_owned()).into());
        }

        let directory = &self.0.directory;
        let tenant = directory.tenants().get(&found_by).await.map_err(Error::from)?;
        let changed = directory.tenants().update(tenant.id, actor(&caller), changes).await;
        let tenant = changed.map_err(Error::from)?;
        if share != ShareChanges::default() {
            self.0.sessions.queues().set_share(tenant.id, share).await.map_err(Error::from)?;
        }
        if pool.is_some() || request.no_pool {
            let pools = self.0.sessions.runner_pools();
            pools.assign(tenant.id, pool.as_ref()).await.map_err(Error::from)?;
        }
        if is_limited {
            // What was used in this month before the plan counts too.
            self.0.sessions.usage().open_budget(tenant.id, None).await.map_err(Error::from)?;
            // Turns that begin after the answer have the plan's limits.
            tokio::time::sleep(AGENT_CACHE_TTL).await;
        }
        if let Some(days) = retention {
            self.0.sessions.queues().set_retention(tenant.id, days).await.map_err(Error::from)?;
        }

        let tenant = Some(self.with_share(tenant).await?);
        Ok(Response::new(UpdateTenantResponse { tenant }))
    }

    async fn delete_tenant(
        &self,
        request: Request<DeleteTenantRequest>,
    ) -> Result<Response<DeleteTenantResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        let tenants = self.0.directory.tenants();
        let tenant = tenants.get(&request.name).await.map_err(Error::from)?;
        tenants.delete(tenant.id, actor(&caller)).await.map_err(Error::from)?;

        Ok(Response::new(DeleteTenantResponse {}))
    }

    async fn create_tenant_key(
        &self,
        request: Request<CreateTenantKeyRequest>,
    ) -> Result<Response<CreateTenantKeyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.tenant);
        let new = NewKey {
            name: request.name,
            scopes: MANAGER_KEY_SCOPES.map(|scope| scope.as_str().to_owned()).to_vec(),
            lifetime: None,
            person: None,
            agent: None,
            origins: Vec::new(),
        };

        let directory = &self.0.directory;
        let tenant = directory.tenants().get(&request.tenant).await.map_err(Error::from)?;
        let made = directory.keys().create(tenant.id, actor(&caller), new).await;

        let (key, secret) = made.map_err(Error::from)?;
        let (key, secret) = (Some(key_of(key)), secret.expose_secret().to_owned());
        Ok(Response::new(CreateTenantKeyResponse { key, secret }))
    }
}

impl Tenants {
    async fn with_share(&self, tenant: Tenant) -> Result<pb::Tenant, Error> {
        let queues = self.0.sessions.queues();
        let share = queues.share(tenant.id).await?;
        let retention = queues.retention(tenant.id).await?;
        let pool = self.0.sessions.runner_pools().of_tenant(tenant.id).await?;
        Ok(pb::Tenant {
            id: tenant.id.to_string(),
            name: tenant.name,
            state: tenant.state.as_str().to_owned(),
            rate: tenant.rate,
            weight: share.weight,
            cap: share.cap,
            max_sessions: share.max_sessions,
            created_at: Some(timestamp(tenant.created_at)),
            product: Some(product_of(tenant.product)),
            retention: Some(retention_of(retention)),
            plan: tenant.plan.unwrap_or_default(),
            limits: Some(plans::limits_of(tenant.limits)),
            own_limits: tenant.own_limits,
            expires_at: tenant.expires_at.map(timestamp),
            pool: pool.pool.map(|pool| pool.to_string()).unwrap_or_default(),
            pool_runners: pool.live_runners,
        })
    }
}

/// Parses the name of a pool; `None` for an empty one.
fn parse_pool(name: String) -> Result<Option<RunnerPool>, Error> {
    let pool = non_empty(name).map(|name| name.parse());
    pool.transpose().map_err(|error: InvalidPoolName| invalid(format!("`pool`: {error}")))
}

fn retention_of(days: RetentionDays) -> pb::Retention {
    pb::Retention {
        messages: days.messages.unwrap_or_default(),
        keys: days.keys.unwrap_or_default(),
        deliveries: days.deliveries.unwrap_or_default(),
        runs: days.runs.unwrap_or_default(),
        journals: days.journals.unwrap_or_default(),
    }
}

fn retention_days(retention: pb::Retention) -> Result<RetentionDays, Error> {
    let days = |field, given| at_most(field, given, MAX_RETENTION_DAYS);
    Ok(RetentionDays {
        messages: days("messages", retention.messages)?,
        keys: days("keys", retention.keys)?,
        deliveries: days("deliveries", retention.deliveries)?,
        runs: days("runs", retention.runs)?,
        journals: days("journals", retention.journals)?,
    })
}

fn product_of(product: Product) -> pb::Product {
    let command =
        |ProductCommand { command, description }| pb::ProductCommand { command, description };
    pb::Product {
        name: product.name,
        docs_url: product.docs_url,
        commands: product.commands.into_iter().map(command).collect(),
    }
}

fn product(product: pb::Product) -> Product {
    let command =
        |pb::ProductCommand { command, description }| ProductCommand { command, description };
    Product {
        name: product.name,
        docs_url: product.docs_url,
        commands: product.commands.into_iter().map(command).collect(),
    }
}

/// `None` for 0, which leaves a field unchanged.
fn non_zero(given: u32) -> Option<u32> {
    Some(given).filter(|given| *given > 0)
}

/// Returns a limit that a tenant can have of its own.
fn own_limit(name: &str) -> Result<LimitName, Error> {
    let own = [LimitName::CallsPerMinute, LimitName::ParallelRuns, LimitName::Sessions];
    own.into_iter().find(|own| own.as_str() == name).ok_or_else(|| {
        let shown: String = name.chars().take(80).collect();
        invalid(format!(
            "`{shown}` in `follow_plan` is no limit of a tenant's own: write calls_per_minute, \
             parallel_runs or sessions"
        ))
    })
}

fn expiry(at: prost_types::Timestamp) -> Result<jiff::Timestamp, Error> {
    jiff::Timestamp::new(at.seconds, at.nanos)
        .map_err(|_| invalid("`expires_at` is no time: send seconds since 1970".to_owned()))
}

fn at_most(field: &'static str, given: u32, most: u32) -> Result<Option<u32>, Error> {
    if given > most {
        return Err(invalid(format!("`{field}` is 1 to {most}, and this one is {given}")));
    }
    Ok(non_zero(given))
}
