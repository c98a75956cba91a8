//! Decisions about due slots, written in a few statements for many jobs.

use std::{collections::HashSet, time::Duration};

use holdfast_pg::Connection;
use holdfast_types::TenantId;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::rows::wake;
use crate::store::{
    Due, Error, Firing, FiringRef, JobKind, JobState, Missed, Origin, Outcome, Overlap, Planner,
    ScheduledJob, Slot, SlotPlan, Unplannable,
    log::{self, Line, column},
    row::word,
};

/// Error class of slots that were missed and are not made up for.
const CLASS_MISSED: &str = "missed";
/// Error class of slots that came while an earlier firing ran.
const CLASS_OVERLAP: &str = "overlap";
/// Error class of a schedule that can no longer be followed.
const CLASS_UNPLANNABLE: &str = "unplannable";

/// Maximum firings of a job that wait for the running one; further slots are skipped.
const MAX_WAITING_FIRINGS: i64 = 100;

/// Due job: tenant, job, kind, spec, slot, overlap, whether a firing runs, number of waiting
/// firings, number of log lines, database time.
pub(crate) type DueRow = (
    Uuid,
    Uuid,
    String,
    Json<Value>,
    jiff_sqlx::Timestamp,
    String,
    bool,
    i64,
    i64,
    jiff_sqlx::Timestamp,
);

/// Decisions for many jobs, collected to be written in a few statements.
#[derive(Default)]
pub(crate) struct DecisionBatch {
    firings: Vec<NewFiring>,
    lines: Vec<Line>,
    jobs: Vec<JobAdvance>,
}

struct NewFiring {
    tenant: Uuid,
    job: Uuid,
    kind: JobKind,
    slot: Slot,
    at: jiff::Timestamp,
    /// Whether the firing is handed out now; otherwise it waits for the end of the one before.
    handed: bool,
}

struct JobAdvance {
    tenant: Uuid,
    job: Uuid,
    overlap: Overlap,
    turn: HandoutOrder,
    slot: Option<jiff_sqlx::Timestamp>,
    due: Option<jiff_sqlx::Timestamp>,
    state: JobState,
    logged: i64,
    /// Outcome and class of the last log line.
    last: Option<(Outcome, &'static str)>,
    running: Option<String>,
}

/// Order in which a job's new firings are handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandoutOrder {
    All,
    /// The first now, the others one after another.
    First,
    /// One after another, once the running one has ended.
    Later,
    /// Not at all: the slots are skipped.
    Never,
}

impl HandoutOrder {
    const fn of(overlap: Overlap, running: bool, waiting: i64) -> Self {
        match overlap {
            Overlap::Allow => Self::All,
            _ if !running => Self::First,
            Overlap::Queue if waiting < MAX_WAITING_FIRINGS => Self::Later,
            Overlap::Queue | Overlap::Skip => Self::Never,
        }
    }
}

impl DecisionBatch {
    pub fn add(&mut self, row: DueRow, planner: &dyn Planner) -> Result<(), Error> {
        let (tenant, job, kind, spec, slot, overlap, running, waiting, logged, now) = row;
        let (kind, overlap) = (word(JobKind::parse(&kind))?, word(Overlap::parse(&overlap))?);
        let scheduled =
            ScheduledJob { tenant: TenantId::from(tenant), job: job.into(), kind, spec: &spec.0 };
        let due = Due { job: scheduled, slot: slot.to_jiff(), now: now.to_jiff() };
        let planned = planner.plan(due).and_then(|planned| planned.checked(due.slot));

        let mut advanced = JobAdvance {
            tenant,
            job,
            overlap,
            turn: HandoutOrder::of(overlap, running, waiting),
            slot: None,
            due: None,
            state: JobState::Active,
            logged,
            last: None,
            running: None,
        };
        match planned {
            Ok(planned) => self.apply_plan(&mut advanced, kind, planned),
            Err(Unplannable(_)) => {
                advanced.state = JobState::Broken;
                let one = Missed { first: due.slot, last: due.slot, count: Some(1) };
                self.line(&mut advanced, Outcome::Error, CLASS_UNPLANNABLE, one);
            }
        }
        self.jobs.push(advanced);
        Ok(())
    }

    fn apply_plan(&mut self, job: &mut JobAdvance, kind: JobKind, planned: SlotPlan) {
        if let Some(missed) = planned.missed {
            self.line(job, Outcome::Skipped, CLASS_MISSED, missed);
        }
        match planned.fire.first() {
            Some(first) if job.turn == HandoutOrder::Never => {
                let last = planned.fire.last().copied().unwrap_or(*first);
                let count = u32::try_from(planned.fire.len()).ok();
                let skipped = Missed { first: *first, last, count };
                self.line(job, Outcome::Skipped, CLASS_OVERLAP, skipped);
            }
            _ => {
                for (place, at) in planned.fire.into_iter().enumerate() {
                    let handed = match job.turn {
                        HandoutOrder::All => true,
                        HandoutOrder::First => place == 0,
                        HandoutOrder::Later | HandoutOrder::Never => false,
                    };
                    let (tenant, id, slot) = (job.tenant, job.job, Slot::at(at));
                    self.firings.push(NewFiring { tenant, job: id, kind, slot, at, handed });
                }
            }
        }
        job.slot = planned.next.map(|next| next.slot.into());
        job.due = planned.next.map(|next| next.due.into());
    }

    /// Adds a log line for slots that do not fire.
    fn line(&mut self, job: &mut JobAdvance, outcome: Outcome, class: &'static str, slots: Missed) {
        job.logged += 1;
        job.last = Some((outcome, class));
        self.lines.push(Line {
            tenant: job.tenant,
            job: job.job,
            n: job.logged,
            slot: None,
            at: slots.first.into(),
            last: slots.last.into(),
            slots: slots.count.and_then(|count| i32::try_from(count.max(1)).ok()),
            origin: Origin::Due,
            outcome,
            class: Some(class.to_owned()),
            millis: None,
            run: None,
        });
    }

    pub async fn store(
        mut self,
        conn: &mut Connection,
        handover: Duration,
    ) -> Result<Vec<Firing>, Error> {
        let new = insert(conn, &self.firings, handover).await?;
        let mut handed = Vec::new();
        for firing in &self.firings {
            let id = FiringRef {
                tenant: firing.tenant.into(),
                job: firing.job.into(),
                slot: firing.slot,
            };
            if firing.handed && new.contains(&(firing.tenant, firing.job, id.slot.to_string())) {
                let (kind, at) = (firing.kind, firing.at);
                handed.push(Firing { id, kind, origin: Origin::Due, at, attempt: 1, lost: 0 });
            }
        }
        self.mark_running(&handed);
        advance(conn, &self.jobs, handover).await?;
        log::write(conn, &self.lines).await?;
        let logged: Vec<_> =
            self.jobs.iter().map(|job| (job.tenant, job.job, job.logged)).collect();
        log::prune(conn, &logged).await?;
        // If the first slot had been backfilled already, the next firing is not waiting for
        // anything: wake it.
        let out: HashSet<_> =
            handed.iter().map(|one| (one.id.tenant.as_uuid(), one.id.job.as_uuid())).collect();
        let queued = self.firings.iter().filter(|firing| !firing.handed);
        let mut stalled: Vec<_> = queued.map(|firing| (firing.tenant, firing.job)).collect();
        stalled.dedup();
        stalled.retain(|job| !out.contains(job));
        wake(conn, &stalled).await?;
        Ok(handed)
    }

    fn mark_running(&mut self, handed: &[Firing]) {
        let mut next = handed.iter().peekable();
        // Firings and jobs have the same order.
        for job in &mut self.jobs {
            while let Some(firing) = next.next_if(|firing| same(firing, (job.tenant, job.job))) {
                if job.overlap != Overlap::Allow {
                    job.running = Some(firing.id.slot.to_string());
                }
            }
        }
    }
}

fn same(firing: &Firing, (tenant, job): (Uuid, Uuid)) -> bool {
    firing.id.job.as_uuid() == job && firing.id.tenant.as_uuid() == tenant
}

/// Inserts firings. Returns those that are new.
async fn insert(
    conn: &mut Connection,
    firings: &[NewFiring],
    handover: Duration,
) -> Result<HashSet<(Uuid, Uuid, String)>, Error> {
    const SQL: &str = "
        insert into schedule.firings
            (tenant_id, job_id, slot, slot_at, origin, attempts, held, offer_at)
        select tenant_id, job_id, slot, slot_at, 'due', handed::integer, handed,
               case when handed then clock_timestamp() + $6 * interval '1 second' end
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::boolean[])
             as f (tenant_id, job_id, slot, slot_at, handed)
        on conflict (job_id, slot, tenant_id) do nothing
        returning tenant_id, job_id, slot";

    if firings.is_empty() {
        return Ok(HashSet::new());
    }
    let rows: Vec<(Uuid, Uuid, String)> = holdfast_pg::query_as(SQL)
        .bind(column(firings, |firing| firing.tenant))
        .bind(column(firings, |firing| firing.job))
        .bind(column(firings, |firing| firing.slot.to_string()))
        .bind(column(firings, |firing| jiff_sqlx::Timestamp::from(firing.at)))
        .bind(column(firings, |firing| firing.handed))
        .bind(handover.as_secs_f64())
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().collect())
}

/// Writes the next slots of jobs.
async fn advance(
    conn: &mut Connection,
    jobs: &[JobAdvance],
    handover: Duration,
) -> Result<(), Error> {
    const SQL: &str = "
        update schedule.jobs j
        set slot_at = d.slot_at, due_at = d.due_at, logged = d.logged,
            -- One that has no slot left is done with the last of its firings; is there none?
            state = case when d.state = 'active' and d.due_at is null and not exists (
                        select from schedule.firings f
                        where f.job_id = d.job_id and f.tenant_id = d.tenant_id
                          and f.state in ('pending', 'delivered'))
                    then 'done' else d.state end,
            running_slot = coalesce(d.running, j.running_slot),
            running_until = case when d.running is null then j.running_until
                                 else clock_timestamp() + $10 * interval '1 second' end,
            last_at = case when d.status is null then j.last_at else clock_timestamp() end,
            last_status = coalesce(d.status, j.last_status),
            last_class = case when d.status is null then j.last_class else d.class end,
            last_ms = case when d.status is null then j.last_ms end,
            updated_at = case when d.due_at is null then clock_timestamp() else j.updated_at end
        from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::text[],
                    $6::bigint[], $7::text[], $8::text[], $9::text[])
             as d (tenant_id, job_id, slot_at, due_at, state, logged, running, status, class)
        where j.job_id = d.job_id and j.tenant_id = d.tenant_id";

    holdfast_pg::query(SQL)
        .bind(column(jobs, |job| job.tenant))
        .bind(column(jobs, |job| job.job))
        .bind(column(jobs, |job| job.slot))
        .bind(column(jobs, |job| job.due))
        .bind(column(jobs, |job| job.state.as_str()))
        .bind(column(jobs, |job| job.logged))
        .bind(column(jobs, |job| job.running.clone()))
        .bind(column(jobs, |job| job.last.map(|(outcome, _)| outcome.as_str())))
        .bind(column(jobs, |job| job.last.map(|(_, class)| class)))
        .bind(handover.as_secs_f64())
        .execute(conn)
        .await?;
    Ok(())
}
