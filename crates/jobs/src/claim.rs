//! Deciding slots that have come: each once, in one transaction with the job's next slot.

use std::{collections::HashSet, time::Duration};

use holdfast_types::TenantId;
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{
    Due, Error, Firing, FiringRef, JobKind, JobState, Jobs, Origin, Outcome, Overlap, Planned,
    Planner, Scheduled, Slot, Unplannable,
    log::{self, Line, column},
    row::word,
    settle::wake,
};

/// What a claim found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// What is to be delivered, and then said to be.
    pub firings: Vec<Firing>,
    /// How many jobs were due; as many as were asked for means that there may be more.
    pub jobs: usize,
}

/// The class of slots that were not made up for.
const MISSED: &str = "missed";
/// The class of slots that came while an earlier one ran.
const OVERLAP: &str = "overlap";
/// The class of a schedule that can no longer be followed.
const UNPLANNABLE: &str = "unplannable";

type DueRow = (
    Uuid,
    Uuid,
    String,
    Json<Value>,
    jiff_sqlx::Timestamp,
    String,
    bool,
    i64,
    jiff_sqlx::Timestamp,
);

impl Jobs {
    /// Decides the slots of up to `limit` jobs that are due, whoever's they are, and hands out
    /// those that fire; they are this caller's for [`HANDOVER`](crate::HANDOVER).
    ///
    /// It waits for nobody: jobs that another replica is deciding are left to it. If nothing is
    /// due, nothing is written.
    ///
    /// # Errors
    ///
    /// If the database does not answer. If slots were decided all the same, the sweep hands them
    /// out.
    pub async fn claim_due(&self, limit: u32) -> Result<Claimed, Error> {
        const SQL: &str = "
            select tenant_id, job_id, kind, spec, slot_at, overlap,
                   coalesce(running_until > now(), false), logged, now()
            from schedule.jobs
            where due_at <= now()
            order by due_at
            limit $1
            for update skip locked";

        let mut tx = self.pools.system().await?;
        let rows: Vec<DueRow> =
            sqlx::query_as(SQL).bind(i64::from(limit)).fetch_all(tx.conn()).await?;
        let jobs = rows.len();
        if jobs == 0 {
            tx.commit().await?;
            return Ok(Claimed::default());
        }
        let mut decided = Decided::default();
        for row in rows {
            decided.add(row, self.planner.as_ref())?;
        }
        let firings = decided.store(tx.conn(), self.handover).await?;
        tx.commit().await?;
        Ok(Claimed { firings, jobs })
    }

    /// How long until something is due: a slot, a firing that nobody spoke of, a run that takes
    /// too long. `None` if there is nothing; zero if it is due already.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        const SQL: &str = "
            select (extract(epoch from least(
                (select min(due_at) from schedule.jobs where due_at is not null),
                (select min(offer_at) from schedule.firings where state = 'pending'),
                (select min(until) from schedule.firings where state = 'delivered'))
                - clock_timestamp()) * 1000)::bigint";

        let mut once = self.pools.once().await?;
        let millis: Option<i64> = sqlx::query_scalar(SQL).fetch_one(once.conn()).await?;
        once.done();
        Ok(millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
    }
}

/// What was decided of many jobs, to be written in a few statements.
#[derive(Default)]
struct Decided {
    firings: Vec<NewFiring>,
    lines: Vec<Line>,
    jobs: Vec<Advanced>,
}

struct NewFiring {
    tenant: Uuid,
    job: Uuid,
    kind: JobKind,
    slot: Slot,
    at: jiff::Timestamp,
    /// Whether it goes out at once, or waits for the end of the one before.
    handed: bool,
}

struct Advanced {
    tenant: Uuid,
    job: Uuid,
    overlap: Overlap,
    slot: Option<jiff_sqlx::Timestamp>,
    due: Option<jiff_sqlx::Timestamp>,
    state: JobState,
    logged: i64,
    /// How its last line says that it went, and why.
    last: Option<(Outcome, &'static str)>,
    running: Option<String>,
}

impl Decided {
    fn add(&mut self, row: DueRow, planner: &dyn Planner) -> Result<(), Error> {
        let (tenant, job, kind, spec, slot, overlap, running, logged, now) = row;
        let (kind, overlap) = (word(JobKind::parse(&kind))?, word(Overlap::parse(&overlap))?);
        let scheduled =
            Scheduled { tenant: TenantId::from(tenant), job: job.into(), kind, spec: &spec.0 };
        let due = Due { job: scheduled, slot: slot.to_jiff(), now: now.to_jiff() };
        let planned = planner.plan(due).and_then(|planned| planned.checked(due.slot));

        let mut advanced = Advanced {
            tenant,
            job,
            overlap,
            slot: None,
            due: None,
            state: JobState::Active,
            logged,
            last: None,
            running: None,
        };
        match planned {
            Ok(planned) => self.follow(&mut advanced, kind, running, planned),
            Err(Unplannable(_)) => {
                advanced.state = JobState::Broken;
                self.line(&mut advanced, Outcome::Error, UNPLANNABLE, (due.slot, 1));
            }
        }
        self.jobs.push(advanced);
        Ok(())
    }

    fn follow(&mut self, job: &mut Advanced, kind: JobKind, running: bool, planned: Planned) {
        if let Some(missed) = planned.missed {
            self.line(job, Outcome::Skipped, MISSED, (missed.first, missed.count));
        }
        let is_in_the_way = running && job.overlap == Overlap::Skip;
        let fires = !(planned.fire.is_empty() || is_in_the_way);
        match planned.fire.first() {
            Some(first) if !fires => {
                let count = u32::try_from(planned.fire.len()).unwrap_or(u32::MAX);
                self.line(job, Outcome::Skipped, OVERLAP, (*first, count));
            }
            _ => {
                for (place, at) in planned.fire.into_iter().enumerate() {
                    let handed = job.overlap == Overlap::Allow || (place == 0 && !running);
                    let (tenant, id, slot) = (job.tenant, job.job, Slot::at(at));
                    self.firings.push(NewFiring { tenant, job: id, kind, slot, at, handed });
                }
            }
        }
        job.slot = planned.next.map(|next| next.slot.into());
        job.due = planned.next.map(|next| next.due.into());
        if planned.next.is_none() && !fires && !running {
            // Nothing will end that could say that it is done.
            job.state = JobState::Done;
        }
    }

    /// Notes slots of which nothing becomes: the first, and how many.
    fn line(
        &mut self,
        job: &mut Advanced,
        outcome: Outcome,
        class: &'static str,
        (first, count): (jiff::Timestamp, u32),
    ) {
        job.logged += 1;
        job.last = Some((outcome, class));
        self.lines.push(Line {
            tenant: job.tenant,
            job: job.job,
            n: job.logged,
            slot: None,
            at: first.into(),
            slots: i32::try_from(count.max(1)).unwrap_or(i32::MAX),
            origin: Origin::Due,
            outcome,
            class: Some(class.to_owned()),
            millis: None,
            run: None,
        });
    }

    async fn store(
        mut self,
        conn: &mut PgConnection,
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
                handed.push(Firing { id, kind, origin: Origin::Due, at, attempt: 1 });
            }
        }
        self.mark_running(&handed);
        advance(conn, &self.jobs, handover).await?;
        log::write(conn, &self.lines).await?;
        let logged: Vec<_> =
            self.jobs.iter().map(|job| (job.tenant, job.job, job.logged)).collect();
        log::prune(conn, &logged).await?;
        // Of some the first slot had been caught up with already: the next one's turn has come.
        let stalled: Vec<(Uuid, Uuid)> = self
            .firings
            .iter()
            .filter(|firing| !firing.handed)
            .map(|firing| (firing.tenant, firing.job))
            .filter(|job| !handed.iter().any(|firing| same(firing, *job)))
            .collect::<HashSet<_>>()
            .into_iter()
            .collect();
        wake(conn, &stalled).await?;
        Ok(handed)
    }

    fn mark_running(&mut self, handed: &[Firing]) {
        let mut next = handed.iter().peekable();
        // Both are in the order of the jobs.
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

/// Records firings, and says which of them are new.
async fn insert(
    conn: &mut PgConnection,
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
    let rows: Vec<(Uuid, Uuid, String)> = sqlx::query_as(SQL)
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

/// Moves jobs on to their next slots.
async fn advance(
    conn: &mut PgConnection,
    jobs: &[Advanced],
    handover: Duration,
) -> Result<(), Error> {
    const SQL: &str = "
        update schedule.jobs j
        set slot_at = d.slot_at, due_at = d.due_at, state = d.state, logged = d.logged,
            running_slot = coalesce(d.running, j.running_slot),
            running_until = case when d.running is null then j.running_until
                                 else clock_timestamp() + $10 * interval '1 second' end,
            last_at = case when d.status is null then j.last_at else clock_timestamp() end,
            last_status = coalesce(d.status, j.last_status),
            last_class = case when d.status is null then j.last_class else d.class end,
            last_ms = case when d.status is null then j.last_ms end,
            updated_at = case when d.state = 'done' then clock_timestamp() else j.updated_at end
        from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::text[],
                    $6::bigint[], $7::text[], $8::text[], $9::text[])
             as d (tenant_id, job_id, slot_at, due_at, state, logged, running, status, class)
        where j.job_id = d.job_id and j.tenant_id = d.tenant_id";

    sqlx::query(SQL)
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
