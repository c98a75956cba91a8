//! Sums of runs by chosen fields: counts, usage, cost and duration.

use holdfast_types::{AgentId, TenantId, Usage};
use sqlx::FromRow;
use uuid::Uuid;

use super::UsageRecords;
use crate::Error;

/// Lines that a sum has at most.
const MAX_LINES: i64 = 2_000;

/// Field of runs by which they are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    /// UTC day of their end.
    Day,
    /// UTC hour of their end.
    Hour,
    Agent,
    Model,
    /// Kind of channel of the message that began them.
    Channel,
    /// Author of that message.
    Person,
}

impl UsageGroup {
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "day" => Self::Day,
            "hour" => Self::Hour,
            "agent" => Self::Agent,
            "model" => Self::Model,
            "channel" => Self::Channel,
            "person" => Self::Person,
            _ => return None,
        })
    }
}

/// Sum of runs. Fields by which they are not grouped are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// As `2026-11-22`, or `2026-11-22T14` for an hour.
    pub day: String,
    pub agent: Option<AgentId>,
    /// Model of the last reply; empty also if no model was used.
    pub model: String,
    pub channel: String,
    pub person: String,
    pub runs: u64,
    pub completed: u64,
    /// Runs that failed or were given up.
    pub failed: u64,
    pub usage: Usage,
    /// Cost in millionths of a US dollar.
    pub micros: u64,
    /// The part of it that was used with keys of the installation.
    pub platform_micros: u64,
    /// Median and 95th percentile of the durations.
    pub p50_ms: u64,
    pub p95_ms: u64,
}

impl UsageRecords<'_> {
    /// Returns sums of the runs of the last `days` days including today, the newest first, and of one
    /// day the most expensive first.
    pub async fn by_groups(
        self,
        tenant: TenantId,
        of: Option<AgentId>,
        days: u32,
        groups: &[UsageGroup],
    ) -> Result<Vec<UsageSum>, Error> {
        const SQL: &str = r#"
            select case when $5 then to_char(finished_at at time zone 'utc', 'YYYY-MM-DD"T"HH24')
                        when $4 then to_char(finished_at at time zone 'utc', 'YYYY-MM-DD')
                        else '' end as day,
                   case when $6 then agent_id end as agent_id,
                   case when $7 then model else '' end as model,
                   case when $8 then coalesce(channel, '') else '' end as channel,
                   case when $9 then coalesce(person, '') else '' end as person,
                   count(*) as runs, count(*) filter (where outcome = 'completed') as completed,
                   count(*) filter (where outcome in ('failed', 'dead')) as failed,
                   sum(input_tokens)::bigint as input, sum(cached_tokens)::bigint as cached,
                   sum(output_tokens)::bigint as output, sum(cost_micros)::bigint as micros,
                   sum(platform_micros)::bigint as platform_micros,
                   percentile_cont(array[0.5, 0.95]) within group (
                       order by extract(epoch from finished_at - started_at)::float8 * 1000) as durations
            from session.runs
            where tenant_id = $1 and ($2::uuid is null or agent_id = $2)
              and finished_at >= (date_trunc('day', clock_timestamp() at time zone 'utc')
                                  - ($3::integer - 1) * interval '1 day') at time zone 'utc'
            group by 1, 2, 3, 4, 5
            order by day desc, micros desc, input desc
            limit $10"#;

        let has = |group| groups.contains(&group);
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<SumRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(of.map(AgentId::as_uuid))
            .bind(i32::try_from(days.max(1)).unwrap_or(i32::MAX))
            .bind(has(UsageGroup::Day))
            .bind(has(UsageGroup::Hour))
            .bind(has(UsageGroup::Agent))
            .bind(has(UsageGroup::Model))
            .bind(has(UsageGroup::Channel))
            .bind(has(UsageGroup::Person))
            .bind(MAX_LINES)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(SumRow::read).collect())
    }
}

#[derive(FromRow)]
struct SumRow {
    day: String,
    agent_id: Option<Uuid>,
    model: String,
    channel: String,
    person: String,
    runs: i64,
    completed: i64,
    failed: i64,
    input: i64,
    cached: i64,
    output: i64,
    micros: i64,
    platform_micros: i64,
    durations: Vec<f64>,
}

impl SumRow {
    fn read(self) -> UsageSum {
        let millis = |at: usize| {
            let ms = self.durations.get(at).copied().unwrap_or(0.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let whole = ms.clamp(0.0, 1e15).round() as u64;
            whole
        };
        UsageSum {
            p50_ms: millis(0),
            p95_ms: millis(1),
            day: self.day,
            agent: self.agent_id.map(AgentId::from),
            model: self.model,
            channel: self.channel,
            person: self.person,
            runs: self.runs.unsigned_abs(),
            completed: self.completed.unsigned_abs(),
            failed: self.failed.unsigned_abs(),
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
