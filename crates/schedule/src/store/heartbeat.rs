//! Heartbeat jobs: one for each agent that has something to check, with the log of its last
//! heartbeats (decision 0032).
//!
//! An agent with an empty `HEARTBEAT.md` has no job, or a paused one: nothing is due and nothing is
//! written. A change of the file or of the settings sets a *mark* in its own transaction; a
//! scheduler takes marks and updates the job.
//!
//! ## What can go wrong
//!
//! The file changes while a scheduler reads it. The mark's version then differs from the one that
//! was taken, so the mark stays and is taken again later. No other scheduler takes it meanwhile, so
//! older settings cannot overwrite newer ones.

use std::time::Duration;

use crate::{
    Missed,
    heartbeat::{HeartbeatConfig, HeartbeatEvent, Indicator, Status},
};
use holdfast_types::{AgentId, JobId, Kind, RunId, TenantId};
use jiff::{SignedDuration, Timestamp};
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use uuid::Uuid;

use crate::store::{
    Changes, Error, FiringRef, Job, JobKind, JobState, Jobs, NewJob, NewSchedule, Overlap, Spec,
    row::firing_ref,
};

/// Time for which a taken mark is not offered to other schedulers.
const MARK_HOLD: Duration = Duration::from_secs(30);

/// Number of heartbeat events kept per agent.
const MAX_EVENTS_PER_AGENT: i64 = 100;

/// Maximum characters of an event's reason.
const MAX_REASON_CHARS: usize = 1000;

/// Agent whose heartbeat job must be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatMark {
    pub tenant: TenantId,
    pub agent: AgentId,
    /// Version at the time the mark was taken.
    pub version: i64,
}

/// Heartbeat that was delivered and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningHeartbeat {
    pub firing: FiringRef,
    /// Time since the delivery, by the database's clock; a replica's own clock may be wrong.
    pub took: Duration,
    pub now: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub struct NewHeartbeatLine<'a> {
    /// Firing of the heartbeat; stored once per firing.
    pub firing: &'a FiringRef,
    pub agent: AgentId,
    pub event: &'a HeartbeatEvent,
    /// Run of the heartbeat's turn, if there was one.
    pub run: Option<RunId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatLine {
    /// Number of the entry; grows with each.
    pub n: i64,
    pub event: HeartbeatEvent,
    /// Run of the heartbeat's turn, if there was one.
    pub run: Option<RunId>,
}

/// Returns the job id of an agent's heartbeat. Each agent has one.
#[must_use]
pub fn heartbeat_job(agent: AgentId) -> JobId {
    JobId::from(agent.as_uuid())
}

impl Jobs {
    /// Adds, updates or pauses an agent's heartbeat job to match its settings. Returns whether
    /// anything changed.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] if the job was changed at the same time: read the settings again.
    pub async fn update_heartbeat_job(
        &self,
        tenant: TenantId,
        agent: AgentId,
        config: &HeartbeatConfig,
        beats: bool,
        floor: SignedDuration,
    ) -> Result<bool, Error> {
        let id = heartbeat_job(agent);
        let there = match self.get(tenant, id).await {
            Ok(job) => Some(job),
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let spec = || {
            let schedule = config.schedule(&agent.to_string(), floor);
            let schedule = schedule
                .map_err(|error| Error::Field { field: "schedule", problem: error.to_string() })?;
            Ok::<_, Error>(Spec { missed: Missed::Skip, ..Spec::of(schedule) }.to_json())
        };
        let Some(job) = there else {
            if !beats {
                return Ok(false);
            }
            let new = NewJob {
                id,
                external_id: Some(format!("heartbeat:{agent}")),
                kind: JobKind::Heartbeat,
                agent,
                owner: None,
                author: None,
                name: "heartbeat".to_owned(),
                description: String::new(),
                enabled: true,
                spec: spec()?,
                payload: settings(config),
                session_target: None,
                wake_mode: None,
                isolation: None,
                overlap: Overlap::Skip,
                delete_after_run: false,
            };
            self.add(tenant, new).await?;
            return Ok(true);
        };
        let spec = if beats { spec()? } else { job.spec.clone() };
        let is_on = job.state == JobState::Active;
        let is_same = !beats || (spec == job.spec && settings(config) == job.payload);
        if is_on == beats && is_same {
            return Ok(false);
        }
        let schedule = (beats && spec != job.spec).then_some(NewSchedule { kind: None, spec });
        let changes = Changes {
            enabled: Some(beats),
            schedule,
            payload: beats.then(|| settings(config)),
            ..Changes::default()
        };
        self.change(tenant, id, Some(job.version), changes).await?;
        Ok(true)
    }

    /// Returns the agent's heartbeat job; `None` if it never had one.
    pub async fn heartbeat(&self, tenant: TenantId, agent: AgentId) -> Result<Option<Job>, Error> {
        match self.get(tenant, heartbeat_job(agent)).await {
            Ok(job) => Ok(Some(job)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts the heartbeats of an agent whose model was asked since a time; of the last 100.
    pub async fn heartbeats_since(
        &self,
        tenant: TenantId,
        agent: AgentId,
        since: Timestamp,
    ) -> Result<u32, Error> {
        const SQL: &str = "
            select count(*) from schedule.heartbeat_events
            where agent_id = $2 and tenant_id = $1 and at > $3 and run_id is not null";

        let mut tx = self.pools.tenant(tenant).await?;
        let count: i64 = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(jiff_sqlx::Timestamp::from(since))
            .fetch_one(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Delays an agent's next heartbeat until this time from now at least.
    pub async fn delay_heartbeat(
        &self,
        tenant: TenantId,
        agent: AgentId,
        pause: SignedDuration,
    ) -> Result<(), Error> {
        const SQL: &str = "
            update schedule.jobs
            set due_at = greatest(due_at, clock_timestamp() + $3 * interval '1 second')
            where job_id = $2 and tenant_id = $1 and due_at is not null";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(heartbeat_job(agent).as_uuid())
            .bind(pause.as_secs_f64())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Sets the mark that makes a scheduler update the agent's heartbeat job.
    pub async fn mark_heartbeat(&self, tenant: TenantId, agent: AgentId) -> Result<(), Error> {
        const SQL: &str = "
            insert into schedule.heartbeat_marks as m (tenant_id, agent_id) values ($1, $2)
            on conflict (agent_id, tenant_id) do update
                set version = m.version + 1, marked_at = clock_timestamp()";

        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }

    /// Takes up to `limit` marks, of all tenants. If there are none, nothing is written.
    pub async fn take_heartbeat_marks(&self, limit: u32) -> Result<Vec<HeartbeatMark>, Error> {
        const SQL: &str = "
            with due as materialized (
                select agent_id, tenant_id from schedule.heartbeat_marks
                where held_until is null or held_until < clock_timestamp()
                order by marked_at limit $1
                for update skip locked)
            update schedule.heartbeat_marks m
            set held_until = clock_timestamp() + $2 * interval '1 second'
            from due where m.agent_id = due.agent_id and m.tenant_id = due.tenant_id
            returning m.tenant_id, m.agent_id, m.version";

        let mut once = self.pools.system_connection().await?;
        let rows: Vec<(Uuid, Uuid, i64)> = holdfast_pg::query_as(SQL)
            .bind(i64::from(limit))
            .bind(MARK_HOLD.as_secs_f64())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let mark = |(tenant, agent, version): (Uuid, Uuid, i64)| HeartbeatMark {
            tenant: tenant.into(),
            agent: agent.into(),
            version,
        };
        Ok(rows.into_iter().map(mark).collect())
    }

    /// Deletes a processed mark. A mark that was set again meanwhile stays and becomes available.
    ///
    /// # Errors
    ///
    /// If the database fails; the mark is then taken again later.
    pub async fn clear_heartbeat_mark(&self, mark: &HeartbeatMark) -> Result<(), Error> {
        const SQL: &str = "
            with gone as (
                delete from schedule.heartbeat_marks
                where agent_id = $2 and tenant_id = $1 and version = $3)
            update schedule.heartbeat_marks set held_until = null
            where agent_id = $2 and tenant_id = $1 and version <> $3";

        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(SQL)
            .bind(mark.tenant.as_uuid())
            .bind(mark.agent.as_uuid())
            .bind(mark.version)
            .execute(once.conn())
            .await?;
        once.done();
        Ok(())
    }

    /// Returns delivered heartbeats that have not ended, of all tenants, oldest first.
    pub async fn running_heartbeats(&self, limit: u32) -> Result<Vec<RunningHeartbeat>, Error> {
        const SQL: &str = "
            select f.tenant_id, f.job_id, f.slot,
                   extract(epoch from clock_timestamp() - f.delivered_at)::float8,
                   clock_timestamp()
            from schedule.firings f
            join schedule.jobs j on j.job_id = f.job_id and j.tenant_id = f.tenant_id
            where f.state = 'delivered' and j.kind = 'heartbeat'
            order by f.delivered_at limit $1";

        let mut once = self.pools.system_connection().await?;
        let rows: Vec<RunningHeartbeatRow> =
            holdfast_pg::query_as(SQL).bind(i64::from(limit)).fetch_all(once.conn()).await?;
        once.done();
        let beating = |(tenant, job, slot, took, now): RunningHeartbeatRow| {
            let took = Duration::try_from_secs_f64(took).unwrap_or_default();
            Ok(RunningHeartbeat {
                firing: firing_ref(tenant, job, &slot)?,
                took,
                now: now.to_jiff(),
            })
        };
        rows.into_iter().map(beating).collect()
    }

    /// Stores a heartbeat's result. Returns whether it is new. The last 100 are kept.
    pub async fn note_heartbeat(&self, line: NewHeartbeatLine<'_>) -> Result<bool, Error> {
        const NOTE: &str = "
            insert into schedule.heartbeat_events
                (tenant_id, agent_id, slot, at, status, reason, channel, recipient, preview,
                 duration_ms, has_media, run_id)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
            on conflict on constraint heartbeat_events_slot_key do nothing";
        const PRUNE: &str = "
            delete from schedule.heartbeat_events
            where agent_id = $2 and tenant_id = $1 and event_id <= (
                select event_id from schedule.heartbeat_events
                where agent_id = $2 and tenant_id = $1
                order by event_id desc offset $3 limit 1)";

        let NewHeartbeatLine { firing, agent, event, run } = line;
        let at = Timestamp::from_millisecond(event.ts).unwrap_or_default();
        let reason = event.reason.as_deref().map(|text| truncated(text, MAX_REASON_CHARS));
        let mut tx = self.pools.tenant(firing.tenant).await?;
        let new = holdfast_pg::query(NOTE)
            .bind(firing.tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(firing.slot.to_string())
            .bind(jiff_sqlx::Timestamp::from(at))
            .bind(word(event.status))
            .bind(reason)
            .bind(event.channel.as_deref().map(|text| truncated(text, 200)))
            .bind(event.to.as_deref().map(|text| truncated(text, 200)))
            .bind(event.preview.as_deref().map(|text| truncated(text, 100)))
            .bind(i64::try_from(event.duration_ms).unwrap_or(i64::MAX))
            .bind(event.has_media)
            .bind(run.map(RunId::as_uuid))
            .execute(tx.conn())
            .await?
            .rows_affected();
        holdfast_pg::query(PRUNE)
            .bind(firing.tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(MAX_EVENTS_PER_AGENT)
            .execute(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(new == 1)
    }

    /// Returns the results of an agent's last heartbeats, newest first.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if a stored result cannot be read.
    pub async fn heartbeat_lines(
        &self,
        tenant: TenantId,
        agent: AgentId,
        limit: u32,
    ) -> Result<Vec<HeartbeatLine>, Error> {
        const SQL: &str = "
            select event_id, at, status, reason, channel, recipient, preview, duration_ms, has_media,
                   run_id
            from schedule.heartbeat_events
            where agent_id = $2 and tenant_id = $1
            order by event_id desc limit $3";

        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<LineRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .bind(i64::from(limit))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter().map(line).collect()
    }

    /// Deletes a deleted agent's heartbeat job and results.
    pub async fn delete_heartbeat(&self, tenant: TenantId, agent: AgentId) -> Result<(), Error> {
        const SQL: &str =
            "delete from schedule.heartbeat_events where agent_id = $2 and tenant_id = $1";

        self.remove(tenant, heartbeat_job(agent)).await?;
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(agent.as_uuid())
            .execute(tx.conn())
            .await?;
        Ok(tx.commit().await?)
    }
}

fn settings(config: &HeartbeatConfig) -> serde_json::Value {
    serde_json::to_value(config).unwrap_or_default()
}

/// Removes NUL, which Postgres cannot store, and truncates.
fn truncated(text: &str, most: usize) -> String {
    text.chars().filter(|c| *c != '\0').take(most).collect()
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Sent => "sent",
        Status::OkEmpty => "ok-empty",
        Status::OkToken => "ok-token",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}

fn read<T: DeserializeOwned>(word: &str) -> Result<T, Error> {
    let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        word.into_deserializer();
    T::deserialize(word).map_err(|_| Error::Corrupt("heartbeat"))
}

type RunningHeartbeatRow = (Uuid, Uuid, String, f64, jiff_sqlx::Timestamp);

type LineRow = (
    i64,
    jiff_sqlx::Timestamp,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    i64,
    bool,
    Option<Uuid>,
);

fn line(row: LineRow) -> Result<HeartbeatLine, Error> {
    let (n, at, status, reason, channel, to, preview, duration, has_media, run) = row;
    let status: Status = read(&status)?;
    let indicator_type: Indicator = status.indicator();
    let event = HeartbeatEvent {
        ts: at.to_jiff().as_millisecond(),
        status,
        to,
        preview,
        duration_ms: u64::try_from(duration).unwrap_or(0),
        has_media,
        reason,
        channel,
        silent: status != Status::Sent,
        indicator_type,
    };
    Ok(HeartbeatLine { n, event, run: run.map(RunId::from) })
}

impl Error {
    /// Returns whether the tenant has to act and a retry is useless.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        use holdfast_types::Fault as _;
        matches!(self.kind(), Kind::Invalid | Kind::Exhausted | Kind::NotFound | Kind::Forbidden)
    }
}
