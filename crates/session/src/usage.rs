//! Daily spending against budgets, and the cost of runs.
//!
//! The amounts are written in the transaction that stores the `thought` they paid for, so that each
//! is counted once. A day is a UTC day of the database's clock.

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, RunId, TenantId, Usage};
use jiff::Timestamp;
use sqlx::FromRow;
use uuid::Uuid;

use crate::{Error, Sessions};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charge {
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub micros: u64,
}

/// Cost of one write of a turn. The default is zero, and writes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteCost {
    /// Cost of the whole run, in millionths of a US dollar; recorded when the run ends.
    pub run_micros: u64,
    /// Amounts used by this write.
    pub charge: Charge,
    /// Budgets that are charged; `None` is the budget of the whole tenant.
    pub budgets: Vec<Option<AgentId>>,
}

/// Amounts used today (UTC).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending {
    /// Amounts per agent; `None` is the whole tenant.
    pub used: Vec<(Option<AgentId>, Charge)>,
    /// Time until the next day begins.
    pub renews_in: Duration,
    /// Start of the next day; `None` if the request named no budget.
    pub renews_at: Option<Timestamp>,
}

/// Usage of one agent and model on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLine {
    /// UTC day, as `2026-11-22`.
    pub day: String,
    pub agent: AgentId,
    /// Model of the last reply; empty if no model was used.
    pub model: String,
    pub runs: u64,
    pub usage: Usage,
    /// Cost in millionths of a US dollar.
    pub micros: u64,
}

/// Returns the id under which a budget's spending is stored; the nil id is the whole tenant.
fn scope(agent: Option<AgentId>) -> Uuid {
    agent.map_or_else(Uuid::nil, |agent| agent.as_uuid())
}

fn agent(scope: Uuid) -> Option<AgentId> {
    (!scope.is_nil()).then(|| scope.into())
}

fn to_column(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl WriteCost {
    /// Adds the amounts to the budgets. These rows are locked last, and always in the same order.
    pub(crate) async fn charge_budgets(&self, tx: &mut TenantTx) -> sqlx::Result<()> {
        const SQL: &str = "
            insert into session.spending as s (tenant_id, scope, day, tokens, micros)
            select $1, u.scope, (clock_timestamp() at time zone 'utc')::date, $3, $4
            from unnest($2::uuid[]) as u (scope)
            order by u.scope
            on conflict (tenant_id, scope, day) do update
                set tokens = s.tokens + excluded.tokens, micros = s.micros + excluded.micros";

        if self.budgets.is_empty() || self.charge == Charge::default() {
            return Ok(());
        }
        holdfast_pg::query(SQL)
            .bind(tx.tenant().as_uuid())
            .bind(self.budgets.iter().map(|agent| scope(*agent)).collect::<Vec<_>>())
            .bind(to_column(self.charge.tokens))
            .bind(to_column(self.charge.micros))
            .execute(tx.conn())
            .await?;
        Ok(())
    }
}

/// Cost of runs, and spending against budgets, from [`Sessions::usage`].
#[derive(Debug, Clone, Copy)]
pub struct UsageRecords<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn usage(&self) -> UsageRecords<'_> {
        UsageRecords { pools: &self.pools }
    }
}

impl UsageRecords<'_> {
    /// Adds usage that arises after a run's end, for example for a summary, to the run's cost and
    /// to its budgets.
    pub async fn charge(
        self,
        tenant: TenantId,
        run: RunId,
        usage: &Usage,
        spent: &WriteCost,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update session.runs
            set input_tokens = input_tokens + $3, cached_tokens = cached_tokens + $4,
                output_tokens = output_tokens + $5, cost_micros = cost_micros + $6
            where tenant_id = $1 and run_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(to_column(usage.input))
            .bind(to_column(usage.cached))
            .bind(to_column(usage.output))
            .bind(to_column(spent.run_micros))
            .execute(tx.conn())
            .await?;
        spent.charge_budgets(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the amounts used today by each agent; `None` is the whole tenant.
    pub async fn today(self, tenant: TenantId, of: &[Option<AgentId>]) -> Result<Spending, Error> {
        const SQL: &str = "
            with now as (select clock_timestamp() at time zone 'utc' as at)
            select u.scope, coalesce(s.tokens, 0) as tokens, coalesce(s.micros, 0) as micros,
                   extract(epoch from date_trunc('day', now.at) + interval '1 day' - now.at)::float8
                       as renews_in,
                   (date_trunc('day', now.at) + interval '1 day') at time zone 'utc' as renews_at
            from now cross join unnest($2::uuid[]) as u (scope)
            left join session.spending s
                   on s.tenant_id = $1 and s.scope = u.scope and s.day = now.at::date";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, i64, i64, f64, jiff_sqlx::Timestamp)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(of.iter().map(|agent| scope(*agent)).collect::<Vec<_>>())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let renews_in = rows.first().map(|row| row.3).unwrap_or_default();
        let renews_at = rows.first().map(|row| row.4.to_jiff());
        let used = |(scope, tokens, micros, ..): (Uuid, i64, i64, f64, jiff_sqlx::Timestamp)| {
            let charge = Charge { tokens: tokens.unsigned_abs(), micros: micros.unsigned_abs() };
            (agent(scope), charge)
        };
        Ok(Spending {
            used: rows.into_iter().map(used).collect(),
            renews_in: Duration::try_from_secs_f64(renews_in).unwrap_or_default(),
            renews_at,
        })
    }

    /// Initialises a new budget with what was used earlier today, before the budget existed.
    pub async fn open_budget(self, tenant: TenantId, of: Option<AgentId>) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.spending as s (tenant_id, scope, day, tokens, micros)
            select $1, $2, (clock_timestamp() at time zone 'utc')::date,
                   coalesce(sum(input_tokens + output_tokens), 0), coalesce(sum(cost_micros), 0)
            from session.runs
            where tenant_id = $1 and ($2 = '00000000-0000-0000-0000-000000000000' or agent_id = $2)
              and finished_at >= date_trunc('day', clock_timestamp() at time zone 'utc')
                                 at time zone 'utc'
            on conflict (tenant_id, scope, day) do update
                set tokens = greatest(s.tokens, excluded.tokens),
                    micros = greatest(s.micros, excluded.micros)";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(scope(of)).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the usage of the last `days` days including today, newest first.
    pub async fn by_day(
        self,
        tenant: TenantId,
        of: Option<AgentId>,
        days: u32,
    ) -> Result<Vec<UsageLine>, Error> {
        #[derive(FromRow)]
        struct Row {
            day: String,
            agent_id: Uuid,
            model: String,
            runs: i64,
            input: i64,
            cached: i64,
            output: i64,
            micros: i64,
        }
        const SQL: &str = "
            select to_char(finished_at at time zone 'utc', 'YYYY-MM-DD') as day, agent_id, model,
                   count(*) as runs, sum(input_tokens)::bigint as input,
                   sum(cached_tokens)::bigint as cached, sum(output_tokens)::bigint as output,
                   sum(cost_micros)::bigint as micros
            from session.runs
            where tenant_id = $1 and ($2::uuid is null or agent_id = $2)
              and finished_at >= (date_trunc('day', clock_timestamp() at time zone 'utc')
                                  - ($3::integer - 1) * interval '1 day') at time zone 'utc'
            group by 1, 2, 3
            order by day desc, micros desc, input desc
            limit 2000";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(of.map(|agent| agent.as_uuid()))
            .bind(i32::try_from(days.max(1)).unwrap_or(i32::MAX))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let line = |row: Row| UsageLine {
            day: row.day,
            agent: row.agent_id.into(),
            model: row.model,
            runs: row.runs.unsigned_abs(),
            usage: Usage {
                input: row.input.unsigned_abs(),
                cached: row.cached.unsigned_abs(),
                output: row.output.unsigned_abs(),
            },
            micros: row.micros.unsigned_abs(),
        };
        Ok(rows.into_iter().map(line).collect())
    }
}
