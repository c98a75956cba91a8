//! Daily spending against budgets, and the cost of runs.
//!
//! The amounts are written in the transaction that stores the `thought` they paid for, so that each
//! is counted once. A day is a UTC day of the database's clock.

mod direct;
mod groups;

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, RunId, TenantId, Usage};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use sqlx::FromRow;
use uuid::Uuid;

pub use direct::DirectRequest;
pub use groups::{UsageGroup, UsageSum};

use crate::{Error, Sessions};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charge {
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub micros: u64,
    /// The part of `micros` that was used with keys of the installation.
    pub platform_micros: u64,
}

/// Cost of one write of a turn. The default is zero, and writes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteCost {
    /// Cost of the whole run, in millionths of a US dollar; recorded when the run ends.
    pub run_micros: u64,
    /// The part of it that was used with keys of the installation.
    pub run_platform_micros: u64,
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
    /// Cost of the whole tenant since the beginning of the UTC month, in millionths of a US dollar.
    /// Counted while there is a budget of the whole tenant.
    pub month_micros: u64,
    /// Time until the next month begins.
    pub month_renews_in: Duration,
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
    /// The part of it that was used with keys of the installation.
    pub platform_micros: u64,
}

/// The commands of a tenant's plan are used up for today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandsSpent {
    pub limit: u64,
}

/// Amounts that a tenant uses of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageLevels {
    pub tenant: TenantId,
    pub sessions: u64,
    /// Sessions that are ready or running.
    pub parallel_runs: u64,
    pub tokens_today: u64,
    /// In millionths of a US dollar, since the beginning of the UTC month.
    pub month_micros: u64,
    pub commands_today: u64,
}

/// Usage of one agent and model on one day, for an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportLine {
    pub line: UsageLine,
    /// Messages that the turns answered.
    pub messages: u64,
    /// Commands that were begun.
    pub commands: u64,
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

/// Columns of a [`UsageLine`].
#[derive(FromRow)]
struct LineRow {
    day: String,
    agent_id: Uuid,
    model: String,
    runs: i64,
    input: i64,
    cached: i64,
    output: i64,
    micros: i64,
    platform_micros: i64,
}

impl LineRow {
    fn read(self) -> UsageLine {
        UsageLine {
            day: self.day,
            agent: self.agent_id.into(),
            model: self.model,
            runs: self.runs.unsigned_abs(),
            usage: Usage {
                input: self.input.unsigned_abs(),
                cached: self.cached.unsigned_abs(),
                output: self.output.unsigned_abs(),
                ..Usage::default()
            },
            micros: self.micros.unsigned_abs(),
            platform_micros: self.platform_micros.unsigned_abs(),
        }
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
                output_tokens = output_tokens + $5, cost_micros = cost_micros + $6,
                platform_micros = platform_micros + $7
            where tenant_id = $1 and run_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(run.as_uuid())
            .bind(to_column(usage.input))
            .bind(to_column(usage.cached))
            .bind(to_column(usage.output))
            .bind(to_column(spent.run_micros))
            .bind(to_column(spent.run_platform_micros))
            .execute(tx.conn())
            .await?;
        spent.charge_budgets(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Charges budgets with usage that belongs to no run.
    pub async fn charge_budgets(self, tenant: TenantId, spent: &WriteCost) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        spent.charge_budgets(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the amounts used today by each agent; `None` is the whole tenant.
    pub async fn today(self, tenant: TenantId, of: &[Option<AgentId>]) -> Result<Spending, Error> {
        const SQL: &str = "
            with now as (select clock_timestamp() at time zone 'utc' as at),
            month as materialized (
                select coalesce(sum(s.micros), 0)::bigint as micros
                from session.spending s, now
                where s.tenant_id = $1 and s.scope = '00000000-0000-0000-0000-000000000000'
                  and s.day >= date_trunc('month', now.at)::date)
            select u.scope, coalesce(s.tokens, 0) as tokens, coalesce(s.micros, 0) as micros,
                   extract(epoch from date_trunc('day', now.at) + interval '1 day' - now.at)::float8
                       as renews_in,
                   (date_trunc('day', now.at) + interval '1 day') at time zone 'utc' as renews_at,
                   month.micros,
                   extract(epoch from date_trunc('month', now.at) + interval '1 month' - now.at)::float8
            from now cross join month cross join unnest($2::uuid[]) as u (scope)
            left join session.spending s
                   on s.tenant_id = $1 and s.scope = u.scope and s.day = now.at::date";

        let mut tx = self.pools.tenant(tenant).await?;
        type Row = (Uuid, i64, i64, f64, jiff_sqlx::Timestamp, i64, f64);
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(of.iter().map(|agent| scope(*agent)).collect::<Vec<_>>())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let renews_in = rows.first().map(|row| row.3).unwrap_or_default();
        let renews_at = rows.first().map(|row| row.4.to_jiff());
        let month = rows.first().map(|row| (row.5.unsigned_abs(), row.6)).unwrap_or_default();
        let used = |(scope, tokens, micros, ..): Row| {
            let (tokens, micros) = (tokens.unsigned_abs(), micros.unsigned_abs());
            (agent(scope), Charge { tokens, micros, ..Charge::default() })
        };
        Ok(Spending {
            used: rows.into_iter().map(used).collect(),
            renews_in: Duration::try_from_secs_f64(renews_in).unwrap_or_default(),
            renews_at,
            month_micros: month.0,
            month_renews_in: Duration::try_from_secs_f64(month.1).unwrap_or_default(),
        })
    }

    /// Initialises a new budget with what was used earlier in this month, before it existed.
    pub async fn open_budget(self, tenant: TenantId, of: Option<AgentId>) -> Result<(), Error> {
        const SQL: &str = "
            insert into session.spending as s (tenant_id, scope, day, tokens, micros)
            select $1, $2, (finished_at at time zone 'utc')::date,
                   sum(input_tokens + output_tokens), sum(cost_micros)
            from session.runs
            where tenant_id = $1 and ($2 = '00000000-0000-0000-0000-000000000000' or agent_id = $2)
              and finished_at >= date_trunc('month', clock_timestamp() at time zone 'utc')
                                 at time zone 'utc'
            group by 3
            on conflict (tenant_id, scope, day) do update
                set tokens = greatest(s.tokens, excluded.tokens),
                    micros = greatest(s.micros, excluded.micros)";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(scope(of)).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Counts a command that an agent is about to begin. `Err` if the tenant has used up the commands
    /// of its plan today. Commands at the same moment may exceed the limit by as many.
    pub async fn count_command(
        self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Result<(), CommandsSpent>, Error> {
        const SQL: &str = "
            with today as materialized (
                select (clock_timestamp() at time zone 'utc')::date as day,
                       control.tenant_limit($1, 'commands_per_day') as most),
            used as materialized (
                select coalesce(sum(c.commands), 0)::bigint as commands
                from session.command_counts c, today
                where c.tenant_id = $1 and c.day = today.day),
            counted as (
                insert into session.command_counts as c (tenant_id, day, agent_id, commands)
                select $1, today.day, $2, 1 from today, used
                where today.most is null or used.commands < today.most
                on conflict (tenant_id, day, agent_id) do update set commands = c.commands + 1
                returning 1)
            select exists (select from counted), coalesce(today.most, 0) from today";

        let mut tx = self.pools.tenant(tenant).await?;
        let (is_counted, limit): (bool, i64) = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(if is_counted { Ok(()) } else { Err(CommandsSpent { limit: limit.unsigned_abs() }) })
    }

    /// Returns what tenants use of their limits now; or one tenant. Tokens and cost are known of
    /// tenants with a budget only.
    pub async fn levels(self, tenant: Option<TenantId>) -> Result<Vec<UsageLevels>, Error> {
        const SQL: &str = "
            with now as (select clock_timestamp() at time zone 'utc' as at)
            select tenant_id, sum(sessions)::bigint, sum(in_flight)::bigint, sum(tokens)::bigint,
                   sum(micros)::bigint, sum(commands)::bigint
            from (
                select tenant_id, sessions, in_flight, 0 as tokens, 0 as micros, 0 as commands
                from session.tenant_flight
                union all
                select s.tenant_id, 0, 0, case when s.day = now.at::date then s.tokens else 0 end,
                       s.micros, 0
                from session.spending s, now
                where s.scope = '00000000-0000-0000-0000-000000000000'
                  and s.day >= date_trunc('month', now.at)::date
                union all
                select c.tenant_id, 0, 0, 0, 0, c.commands from session.command_counts c, now
                where c.day = now.at::date) parts
            where $1::uuid is null or tenant_id = $1
            group by tenant_id";
        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, i64, i64, i64, i64, i64)> = holdfast_pg::query_as(SQL)
            .bind(tenant.map(|tenant| tenant.as_uuid()))
            .fetch_all(once.conn())
            .await?;
        once.done();
        // Sums of counters may be negative for a moment.
        let count = |sum: i64| u64::try_from(sum).unwrap_or(0);
        Ok(rows
            .into_iter()
            .map(|(tenant, sessions, in_flight, tokens, micros, commands)| UsageLevels {
                tenant: tenant.into(),
                sessions: count(sessions),
                parallel_runs: count(in_flight),
                tokens_today: count(tokens),
                month_micros: count(micros),
                commands_today: count(commands),
            })
            .collect())
    }

    /// Returns the usage of a tenant from the first to the last day, both included, by day, agent
    /// and model. Commands are in lines without a model.
    pub async fn export(
        self,
        tenant: TenantId,
        (first, last): (jiff::civil::Date, jiff::civil::Date),
    ) -> Result<Vec<ExportLine>, Error> {
        #[derive(FromRow)]
        struct Row {
            #[sqlx(flatten)]
            line: LineRow,
            messages: i64,
            commands: i64,
        }
        const SQL: &str = "
            select to_char(day, 'YYYY-MM-DD') as day, agent_id, model, sum(runs)::bigint as runs,
                   sum(messages)::bigint as messages, sum(input)::bigint as input,
                   sum(cached)::bigint as cached, sum(output)::bigint as output,
                   sum(micros)::bigint as micros, sum(platform_micros)::bigint as platform_micros,
                   sum(commands)::bigint as commands
            from (
                select (finished_at at time zone 'utc')::date as day, agent_id, model, 1 as runs,
                       messages, input_tokens as input, cached_tokens as cached,
                       output_tokens as output, cost_micros as micros, platform_micros,
                       0 as commands
                from session.runs
                where tenant_id = $1 and finished_at >= $2::date::timestamp at time zone 'utc'
                  and finished_at < ($3::date + 1)::timestamp at time zone 'utc'
                union all
                select day, agent_id, '', 0, 0, 0, 0, 0, 0, 0, commands from session.command_counts
                where tenant_id = $1 and day between $2::date and $3::date) parts
            group by parts.day, agent_id, model order by parts.day, agent_id, model";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(first.to_sqlx())
            .bind(last.to_sqlx())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let line = |row: Row| ExportLine {
            line: row.line.read(),
            messages: row.messages.unsigned_abs(),
            commands: row.commands.unsigned_abs(),
        };
        Ok(rows.into_iter().map(line).collect())
    }

    /// Deletes counts of commands that are older than so many days.
    pub async fn prune_commands(self, days: u16) -> Result<(), Error> {
        const SQL: &str = "
            delete from session.command_counts
            where day < (clock_timestamp() at time zone 'utc')::date - $1::integer";
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(SQL).bind(i32::from(days)).execute(once.conn()).await?;
        once.done();
        Ok(())
    }
}
