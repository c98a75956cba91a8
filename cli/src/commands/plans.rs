//! `holdfast plans`. Needs the scope `platform`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    DeletePlanRequest, GetPlanRequest, ListPlansRequest, Plan, PlanLimits, PutPlanRequest,
};
use serde_json::{Value, json};

use super::llm::budgets::{dollars, micros};
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 9] = [
    "name",
    "tenants",
    "calls_per_minute",
    "sessions",
    "parallel_runs",
    "tokens_per_day",
    "usd_per_month",
    "storage_bytes",
    "platform_providers",
];

#[derive(Debug, Subcommand)]
pub enum Plans {
    /// List all plans
    List,
    /// Show a plan
    Get {
        /// Name of the plan
        name: String,
    },
    /// Create or change a plan; options that are not given stay unchanged, and tenants that have the
    /// plan get its limits at once
    Put {
        /// Name of the plan: a-z, 0-9, `_` and `-`
        name: String,
        /// Description for people
        #[arg(long)]
        description: Option<String>,
        /// Replace the plan as a whole: limits that are not given are removed
        #[arg(long)]
        replace: bool,
        /// A provider of the platform whose keys its tenants may use (`platform-keys list`); may be
        /// repeated. Given ones replace all; empty for none
        #[arg(long = "platform-provider", value_name = "PROVIDER")]
        platform_providers: Vec<String>,
        #[command(flatten)]
        limits: Limits,
    },
    /// Delete a plan that no tenant has
    Delete {
        /// Name of the plan
        name: String,
    },
}

/// Limits; without one the installation's default counts, or none
#[derive(Debug, Clone, Copy, Args)]
pub struct Limits {
    /// Maximum number of calls per minute, for all keys of a tenant together
    #[arg(long)]
    calls_per_minute: Option<u64>,
    /// Maximum number of calls that are open at once in one gateway
    #[arg(long)]
    concurrent_calls: Option<u64>,
    /// Maximum number of sessions, whatever their state
    #[arg(long)]
    sessions: Option<u64>,
    /// Maximum number of sessions that are ready or running at once; others wait
    #[arg(long)]
    parallel_runs: Option<u64>,
    /// Maximum number of tokens per day (UTC), input and output together
    #[arg(long)]
    tokens_per_day: Option<u64>,
    /// Maximum cost per month (UTC) in US dollars, by the prices that `models list` shows
    #[arg(long)]
    usd_per_month: Option<f64>,
    /// Maximum size of all files of the tenant's agents together, in bytes
    #[arg(long)]
    storage_bytes: Option<u64>,
    /// Maximum number of commands that agents begin per day (UTC)
    #[arg(long)]
    commands_per_day: Option<u64>,
}

impl Limits {
    /// Returns the limits; those that are not given are those of `before`.
    fn apply(self, before: PlanLimits) -> Result<PlanLimits, Error> {
        let usd = self.usd_per_month.map(micros).transpose()?;
        Ok(PlanLimits {
            calls_per_minute: self.calls_per_minute.or(before.calls_per_minute),
            concurrent_calls: self.concurrent_calls.or(before.concurrent_calls),
            sessions: self.sessions.or(before.sessions),
            parallel_runs: self.parallel_runs.or(before.parallel_runs),
            tokens_per_day: self.tokens_per_day.or(before.tokens_per_day),
            micros_per_month: usd.or(before.micros_per_month),
            storage_bytes: self.storage_bytes.or(before.storage_bytes),
            commands_per_day: self.commands_per_day.or(before.commands_per_day),
        })
    }
}

impl Plans {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => screen.list(&COLUMNS, list(client).await?.iter().map(view).collect()),
            Self::Get { name } => {
                let request = client.request(GetPlanRequest { name });
                let plan = client.answer(client.plans().get_plan(request).await)?.plan;
                screen.one(&COLUMNS, &view(&plan.unwrap_or_default()))
            }
            Self::Put { name, description, replace, platform_providers, limits } => {
                let before = match replace {
                    true => None,
                    false => find(client, &name).await?,
                };
                let before = before.unwrap_or_default();
                let limits = Some(limits.apply(before.limits.unwrap_or_default())?);
                let description = description.unwrap_or(before.description);
                let mut platform_providers = match platform_providers.is_empty() {
                    true => before.platform_providers,
                    false => platform_providers,
                };
                platform_providers.retain(|provider| !provider.is_empty());
                let plan =
                    Plan { name, description, limits, platform_providers, ..Plan::default() };
                let request = client.request(PutPlanRequest { plan: Some(plan) });
                let put = client.answer(client.plans().put_plan(request).await)?.plan;
                screen.one(&COLUMNS, &view(&put.unwrap_or_default()))
            }
            Self::Delete { name } => {
                let deleted = json!({"deleted": name});
                let request = client.request(DeletePlanRequest { name });
                client.answer(client.plans().delete_plan(request).await)?;
                screen.done("deleted", &deleted)
            }
        }
    }
}

async fn list(client: &Client) -> Result<Vec<Plan>, Error> {
    let request = client.request(ListPlansRequest {});
    Ok(client.answer(client.plans().list_plans(request).await)?.plans)
}

async fn find(client: &Client, name: &str) -> Result<Option<Plan>, Error> {
    Ok(list(client).await?.into_iter().find(|plan| plan.name == name))
}

fn view(plan: &Plan) -> Value {
    let mut shown = limits_view(&plan.limits.unwrap_or_default());
    shown["name"] = plan.name.clone().into();
    shown["description"] = plan.description.clone().into();
    shown["tenants"] = plan.tenants.into();
    shown["platform_providers"] = plan.platform_providers.clone().into();
    shown["updated_at"] = time(plan.updated_at.as_ref());
    shown
}

/// Limits of a plan; `null` is the installation's default, or none.
pub fn limits_view(limits: &PlanLimits) -> Value {
    json!({
        "calls_per_minute": limits.calls_per_minute,
        "concurrent_calls": limits.concurrent_calls,
        "sessions": limits.sessions,
        "parallel_runs": limits.parallel_runs,
        "tokens_per_day": limits.tokens_per_day,
        "usd_per_month": limits.micros_per_month.map(dollars),
        "storage_bytes": limits.storage_bytes,
        "commands_per_day": limits.commands_per_day,
    })
}
