//! The service `UsageReports`: limits, usage and events of tenants, for themselves and for operators.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use holdfast_directory::{LimitLevel, LimitName, Tenant, TenantEventFilter};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, ExportUsageRequest, ExportUsageResponse, GetTenantUsageRequest,
    GetTenantUsageResponse, LimitUsage, ListTenantEventsRequest, ListTenantEventsResponse,
    usage_reports_server::UsageReports as Service,
};
use holdfast_types::AgentId;
use jiff::civil::Date;
use tonic::{Request, Response, Status};

use super::super::{State, invalid, page_size, timestamp};
use crate::{
    Error,
    permissions::{Permission, require},
};

/// Maximum number of days of an export.
const MAX_EXPORT_DAYS: i32 = 366;
/// Maximum number of events of an answer.
const MAX_EVENTS: u32 = 500;

/// Implements `holdfast.gateway.v1.UsageReports`.
#[derive(Debug)]
pub struct UsageReports(pub State);

#[tonic::async_trait]
impl Service for UsageReports {
    async fn get_tenant_usage(
        &self,
        request: Request<GetTenantUsageRequest>,
    ) -> Result<Response<GetTenantUsageResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = self.tenant(&caller, &request.tenant).await?;

        let limits = self.limits_of(&tenant).await?;

        Ok(Response::new(GetTenantUsageResponse {
            tenant_id: tenant.id.to_string(),
            tenant: tenant.name,
            plan: tenant.plan.unwrap_or_default(),
            state: tenant.state.as_str().to_owned(),
            expires_at: tenant.expires_at.map(timestamp),
            limits,
        }))
    }

    type ExportUsageStream = BoxStream<'static, Result<ExportUsageResponse, Status>>;

    async fn export_usage(
        &self,
        request: Request<ExportUsageRequest>,
    ) -> Result<Response<Self::ExportUsageStream>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let days = (day("from", &request.from)?, day("to", &request.to)?);
        check_days(days)?;
        let tenants = if request.all_tenants {
            require(&caller, Permission::Platform)?;
            self.0.directory.tenants().list().await.map_err(Error::from)?
        } else {
            vec![self.tenant(&caller, &request.tenant).await?]
        };

        let state = self.0.clone();
        let rows = stream::iter(tenants).then(move |tenant| rows(state.clone(), tenant, days));
        let rows = rows.map_ok(|rows| stream::iter(rows.into_iter().map(Ok))).try_flatten();
        Ok(Response::new(rows.map_err(|error: Error| Status::from(error)).boxed()))
    }

    async fn list_tenant_events(
        &self,
        request: Request<ListTenantEventsRequest>,
    ) -> Result<Response<ListTenantEventsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_size(request.limit, 100, MAX_EVENTS)?;
        let tenant = if request.all_tenants {
            require(&caller, Permission::Platform)?;
            None
        } else {
            Some(self.tenant(&caller, &request.tenant).await?.id)
        };

        let filter = TenantEventFilter { tenant, after: request.after, limit };
        let events = self.0.directory.tenant_events().list(filter).await.map_err(Error::from)?;

        let event_of = |event: holdfast_directory::TenantEvent| pb::TenantEvent {
            id: event.id,
            tenant_id: event.tenant.to_string(),
            tenant: event.name,
            kind: event.kind,
            detail: event.detail.to_string(),
            at: Some(timestamp(event.created_at)),
        };
        let events = events.into_iter().map(event_of).collect();
        Ok(Response::new(ListTenantEventsResponse { events }))
    }
}

impl UsageReports {
    /// Returns the named tenant, which others than the caller's own need the scope `platform` for;
    /// the caller's own for an empty name.
    async fn tenant(&self, caller: &Caller, named: &str) -> Result<Tenant, Error> {
        let tenants = self.0.directory.tenants();
        let own = tenants.get(&caller.tenant.to_string()).await?;
        if named.is_empty() || named == own.name || named == own.id.to_string() {
            return Ok(own);
        }
        require(caller, Permission::Platform)?;
        Ok(tenants.get(named).await?)
    }

    async fn limits_of(&self, tenant: &Tenant) -> Result<Vec<LimitUsage>, Error> {
        let levels = self.0.sessions.usage().levels(Some(tenant.id)).await?;
        let storage = self.0.workspaces.storage(Some(tenant.id)).await?;
        let share = self.0.sessions.queues().share(tenant.id).await?;
        let levels = levels.first();
        let limits = tenant.limits;
        let tokens = limits.tokens_per_day.or(limits.micros_per_month);
        let used = |name| match name {
            LimitName::CallsPerMinute | LimitName::ConcurrentCalls => None,
            LimitName::StorageBytes => Some(storage.first().map_or(0, |(_, bytes)| *bytes)),
            LimitName::Sessions => Some(levels.map_or(0, |levels| levels.sessions)),
            LimitName::ParallelRuns => Some(levels.map_or(0, |levels| levels.parallel_runs)),
            LimitName::CommandsPerDay => Some(levels.map_or(0, |levels| levels.commands_today)),
            LimitName::TokensPerDay => tokens.map(|_| levels.map_or(0, |one| one.tokens_today)),
            LimitName::MicrosPerMonth => tokens.map(|_| levels.map_or(0, |one| one.month_micros)),
        };
        let limit = |name| match name {
            LimitName::CallsPerMinute => Some(tenant.rate.into()),
            LimitName::Sessions => Some(share.max_sessions.into()),
            LimitName::ParallelRuns => Some(share.cap.into()),
            other => limits.get(other),
        };
        let usage_of = |name: LimitName| {
            let (used, limit) = (used(name), limit(name));
            let level =
                used.zip(limit).map_or(LimitLevel::Ok, |(used, limit)| LimitLevel::of(used, limit));
            LimitUsage {
                name: name.as_str().to_owned(),
                used,
                limit,
                level: level.as_str().to_owned(),
                is_own: tenant.own_limits.iter().any(|own| own == name.as_str()),
            }
        };
        Ok(LimitName::ALL.map(usage_of).into())
    }
}

/// Day, agent and model.
type Key = (String, AgentId, String);

/// Returns the rows of one tenant, by day, agent and model.
async fn rows(
    state: State,
    tenant: Tenant,
    days: (Date, Date),
) -> Result<Vec<ExportUsageResponse>, Error> {
    let lines = state.sessions.usage().export(tenant.id, days).await?;
    let storage = state.workspaces.storage_by_day(tenant.id, days).await?;
    let names = state.agent_names(tenant.id).await?;
    let mut rows: BTreeMap<Key, ExportUsageResponse> = BTreeMap::new();
    for line in lines {
        let of = line.line;
        let row = ExportUsageResponse {
            runs: of.runs,
            messages: line.messages,
            input_tokens: of.usage.input,
            cached_tokens: of.usage.cached,
            output_tokens: of.usage.output,
            micros: of.micros,
            platform_micros: of.platform_micros,
            commands: line.commands,
            ..ExportUsageResponse::default()
        };
        rows.insert((of.day, of.agent, of.model), row);
    }
    for (day, agent, bytes) in storage {
        rows.entry((day, agent, String::new())).or_default().storage_bytes = bytes;
    }
    let named = |((day, agent, model), row): (Key, ExportUsageResponse)| ExportUsageResponse {
        tenant_id: tenant.id.to_string(),
        tenant: tenant.name.clone(),
        day,
        agent_id: agent.to_string(),
        agent: names.of(agent),
        model,
        ..row
    };
    Ok(rows.into_iter().map(named).collect())
}

fn day(field: &'static str, given: &str) -> Result<Date, Error> {
    given.parse().map_err(|_| {
        let shown: String = given.chars().take(40).collect();
        invalid(format!("`{field}` is `{shown}`: write a day as 2026-11-22"))
    })
}

fn check_days((from, to): (Date, Date)) -> Result<(), Error> {
    let days = (to - from).get_days();
    if (0..MAX_EXPORT_DAYS).contains(&days) {
        return Ok(());
    }
    Err(invalid(format!(
        "`to` is on or after `from`, and an export has {MAX_EXPORT_DAYS} days at most: from {from} \
         to {to}"
    )))
}
