//! The service `Budgets`: daily limits and usage.

use holdfast_directory::{AGENT_CACHE_TTL, Budget};
use holdfast_proto::gateway::v1::{
    self as pb, GetUsageRequest, GetUsageResponse, ListBudgetsRequest, ListBudgetsResponse,
    SetBudgetRequest, SetBudgetResponse, UnsetBudgetRequest, UnsetBudgetResponse,
    budgets_server::Budgets as Service,
};
use holdfast_session::{UsageGroup, UsageSum};
use holdfast_types::{AgentId, TenantId};
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, page_size, timestamp};
use crate::{Error, audit};

/// Maximum number of days of usage: as long as runs are kept.
const MAX_USAGE_DAYS: u32 = 90;

/// The same where lines are for hours.
const MAX_HOURLY_DAYS: u32 = 7;

/// Implements `holdfast.gateway.v1.Budgets`.
#[derive(Debug)]
pub struct Budgets(pub State);

impl Budgets {
    /// Id of the named agent; `None` for an empty name, which means the whole tenant.
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<Option<AgentId>, Error> {
        match named {
            "" => Ok(None),
            named => Ok(Some(self.0.directory.agents().get(tenant, named).await?.id)),
        }
    }
}

#[tonic::async_trait]
impl Service for Budgets {
    async fn list_budgets(
        &self,
        request: Request<ListBudgetsRequest>,
    ) -> Result<Response<ListBudgetsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;
        let budgets = self.0.directory.budgets().list(caller.tenant).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;
        let owners: Vec<_> = budgets.iter().map(|budget| budget.agent).collect();

        let spending = self.0.sessions.usage().today(caller.tenant, &owners).await;

        let spending = spending.map_err(Error::from)?;
        let budget_of = |budget: Budget| {
            let used = spending.used.iter().find(|(agent, _)| *agent == budget.agent);
            let used = used.map(|(_, used)| *used).unwrap_or_default();
            pb::Budget {
                agent: budget.agent.map(|agent| names.of(agent)).unwrap_or_default(),
                tokens: budget.tokens.unwrap_or_default(),
                micros: budget.micros.unwrap_or_default(),
                used_tokens: used.tokens,
                used_micros: used.micros,
            }
        };
        Ok(Response::new(ListBudgetsResponse {
            budgets: budgets.into_iter().map(budget_of).collect(),
            renews_at: spending.renews_at.map(timestamp),
        }))
    }

    async fn set_budget(
        &self,
        request: Request<SetBudgetRequest>,
    ) -> Result<Response<SetBudgetResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let some = |amount: u64| (amount > 0).then_some(amount);
        let budget = Budget { agent, tokens: some(request.tokens), micros: some(request.micros) };

        let set = self.0.directory.budgets().put(caller.tenant, actor(&caller), &budget).await;

        set.map_err(Error::from)?;
        // Usage of the day before the budget was set counts too.
        self.0.sessions.usage().open_budget(caller.tenant, agent).await.map_err(Error::from)?;
        // The budget holds for every turn that begins after the answer.
        tokio::time::sleep(AGENT_CACHE_TTL).await;
        Ok(Response::new(SetBudgetResponse {}))
    }

    async fn unset_budget(
        &self,
        request: Request<UnsetBudgetRequest>,
    ) -> Result<Response<UnsetBudgetResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let unset = self.0.directory.budgets().delete(caller.tenant, actor(&caller), agent).await;

        unset.map_err(Error::from)?;
        Ok(Response::new(UnsetBudgetResponse {}))
    }

    async fn get_usage(
        &self,
        request: Request<GetUsageRequest>,
    ) -> Result<Response<GetUsageResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;
        let groups = groups(&request.group_by)?;
        let is_hourly = groups.contains(&UsageGroup::Hour);
        let days =
            limit_days(request.days, if is_hourly { MAX_HOURLY_DAYS } else { MAX_USAGE_DAYS })?;
        let names = self.0.agent_names(caller.tenant).await?;

        let lines = self.0.sessions.usage().by_groups(caller.tenant, agent, days, &groups).await;
        let lines = lines.map_err(Error::from)?;
        let ids = lines.iter().map(|line| line.person.as_str());
        let people = self.0.author_names(caller.tenant, ids).await?;

        let line_of = |line: UsageSum| pb::UsageLine {
            day: line.day,
            agent: line.agent.map(|agent| names.of(agent)).unwrap_or_default(),
            model: line.model,
            runs: line.runs,
            input_tokens: line.usage.input,
            cached_tokens: line.usage.cached,
            output_tokens: line.usage.output,
            micros: line.micros,
            platform_micros: line.platform_micros,
            channel: line.channel,
            person_name: people.get(&line.person).cloned().unwrap_or_default(),
            person: line.person,
            completed: line.completed,
            failed: line.failed,
            p50_ms: line.p50_ms,
            p95_ms: line.p95_ms,
        };
        let lines = lines.into_iter().map(line_of).collect();
        Ok(Response::new(GetUsageResponse { lines }))
    }
}

fn limit_days(days: u32, most: u32) -> Result<u32, Error> {
    let days = page_size(days, 7, most)
        .map_err(|_| invalid(format!("`days` is {most} at most, and this one is {days}")))?;
    Ok(u32::try_from(days).unwrap_or(most))
}

fn groups(words: &[String]) -> Result<Vec<UsageGroup>, Error> {
    let parse = |word: &String| {
        UsageGroup::parse(word).ok_or_else(|| Error::UnknownValue {
            field: "group_by",
            given: word.chars().take(80).collect(),
            wanted: "day, hour, agent, model, channel or person",
        })
    };
    match words {
        [] => Ok(vec![UsageGroup::Day, UsageGroup::Agent, UsageGroup::Model]),
        words => words.iter().map(parse).collect(),
    }
}
