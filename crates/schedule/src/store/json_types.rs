//! Typed content of a job's JSON columns, shared by the code that adds jobs and the code that fires
//! them.
//!
//! | column | of kind | type |
//! |---|---|---|
//! | `spec` | all | [`Spec`] |
//! | `payload` | cron, every, at, timer | [`crate::Payload`] |
//! | `payload` | reminder | [`Reminder`] |
//! | `payload` | heartbeat | the agent's heartbeat settings |
//! | `isolation` | cron, every, at | [`crate::Isolation`] |

use holdfast_types::{AgentId, AgentName, JobId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    JobPatch, Schedule, ScheduleLimits, job,
    store::{Changes, Error, Job, JobKind, JobState, NewJob, NewSchedule, Outcome, Overlap},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub schedule: Schedule,
    /// Handling of slots that passed while nothing ran.
    #[serde(default)]
    pub missed: crate::Missed,
    /// Range of the jitter in milliseconds. All slots of a job are delayed by the same part of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reminder {
    pub content: String,
    /// Key of the session in which the reminder was set and in which it fires.
    pub session: String,
    /// Whether the agent runs a turn and may set the next reminder; otherwise the user gets the
    /// text only.
    #[serde(default)]
    pub auto_continue: bool,
    /// The user's language, such as `zh-CN`; empty means English.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub locale: String,
    /// Target of the reminder; `None` means where the session was last active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<holdfast_types::Target>,
    /// Reminders in a row that set the next one without a message from the user (REM-013).
    #[serde(default)]
    pub renewals: u32,
    /// Who set the reminder, whose rights it has; `None` if the agent did by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<holdfast_types::Author>,
    /// The content may repeat text from outside, and no person has approved it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

impl Spec {
    /// Creates a spec without jitter and with the default handling of missed slots.
    #[must_use]
    pub fn of(schedule: Schedule) -> Self {
        Self { schedule, missed: crate::Missed::default(), jitter_ms: 0 }
    }

    /// Parses a job's `spec`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Unreadable`].
    pub fn read(spec: &Value) -> Result<Self, crate::Error> {
        read(spec)
    }

    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn read<T: DeserializeOwned>(json: &Value) -> Result<T, crate::Error> {
    T::deserialize(json).map_err(|error| crate::Error::Unreadable(error.to_string()))
}

fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the word that serde writes for an enum value.
fn word<T: Serialize>(choice: T) -> Option<String> {
    json(&choice).as_str().map(str::to_owned)
}

fn choice<T: DeserializeOwned>(word: Option<&str>) -> Option<T> {
    T::deserialize(Value::from(word?)).ok()
}

impl From<job::Overlap> for Overlap {
    fn from(overlap: job::Overlap) -> Self {
        match overlap {
            job::Overlap::Skip => Self::Skip,
            job::Overlap::Wait => Self::Queue,
        }
    }
}

impl Overlap {
    /// Returns the overlap as users write it; cron-service jobs never run twice at once.
    const fn written(self) -> job::Overlap {
        match self {
            Self::Queue => job::Overlap::Wait,
            Self::Skip | Self::Allow => job::Overlap::Skip,
        }
    }
}

impl NewJob {
    /// Creates a validated job of the cron service, without an author. An interval without an anchor
    /// is counted from `now`.
    ///
    /// # Errors
    ///
    /// What is wrong with a field and what to write instead.
    pub fn cron(
        id: JobId,
        agent: AgentId,
        owner: Option<String>,
        what: job::NewJob,
        now: Timestamp,
        allowed: ScheduleLimits,
    ) -> Result<Self, crate::Error> {
        what.check(now, allowed)?;
        let kind = kind_of(&what);
        let schedule = what.schedule.anchored(now);
        let spec = Spec { schedule, missed: what.missed, jitter_ms: 0 };
        Ok(Self {
            id,
            external_id: None,
            kind,
            agent,
            owner,
            author: None,
            name: what.name,
            description: what.description,
            enabled: what.enabled,
            spec: spec.to_json(),
            payload: json(&what.payload),
            session_target: word(what.session_target),
            wake_mode: word(what.wake_mode),
            isolation: what.isolation.as_ref().map(json),
            overlap: what.overlap.into(),
            delete_after_run: what.delete_after_run,
        })
    }

    /// Creates a reminder, which fires once and is then deleted.
    #[must_use]
    pub fn reminder(
        id: JobId,
        agent: AgentId,
        owner: String,
        at: Schedule,
        what: &Reminder,
    ) -> Self {
        let name = what.content.chars().take(80).collect();
        // A reminder is late rather than lost, however long nothing ran.
        let spec = Spec { missed: crate::Missed::Once, ..Spec::of(at) };
        Self {
            id,
            external_id: None,
            kind: JobKind::Reminder,
            agent,
            owner: Some(owner),
            author: what.author.clone(),
            name,
            description: String::new(),
            enabled: true,
            spec: spec.to_json(),
            payload: json(what),
            session_target: None,
            wake_mode: None,
            isolation: None,
            overlap: Overlap::Skip,
            delete_after_run: true,
        }
    }
}

/// Returns the kind of a cron-service job: by its payload for a timer, else by its schedule.
fn kind_of(what: &job::NewJob) -> JobKind {
    match &what.payload {
        crate::Payload::Timer(_) => JobKind::Timer,
        crate::Payload::SystemEvent { .. }
        | crate::Payload::AgentTurn(_)
        | crate::Payload::Message(_) => JobKind::of(&what.schedule),
    }
}

impl Job {
    /// Returns the parsed schedule.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn spec(&self) -> Result<Spec, Error> {
        Spec::read(&self.spec).map_err(|_| Error::Corrupt("schedule"))
    }

    /// Returns the payload as the type of the job's kind: a [`crate::Payload`] or a
    /// [`Reminder`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Error> {
        read(&self.payload).map_err(|_| Error::Corrupt("payload"))
    }

    /// Returns what an isolated run reports to the main session.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn isolation(&self) -> Result<Option<crate::Isolation>, Error> {
        let stored = self.isolation.as_ref();
        stored.map(|isolation| read(isolation).map_err(|_| Error::Corrupt("isolation"))).transpose()
    }

    /// Returns a cron-service job in the form that users read and write (CRN-003, CRN-004).
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn written(&self) -> Result<job::Job, Error> {
        let spec = self.spec()?;
        let ms = Timestamp::as_millisecond;
        let since = self.running.and_then(|running| match running.slot {
            crate::store::Slot::At(at) | crate::store::Slot::Again { at, .. } => Some(ms(at)),
            crate::store::Slot::Now(_) => None,
        });
        Ok(job::Job {
            id: self.external_id.clone(),
            created_at_ms: ms(self.created_at),
            updated_at_ms: ms(self.updated_at),
            state: job::JobState {
                next_run_at_ms: self.next_slot.map(ms),
                running_at_ms: since,
                last_run_at_ms: self.last.as_ref().map(|last| ms(last.at)),
                last_status: self.last.as_ref().map(|last| last.outcome.into()),
                last_error: self.last.as_ref().and_then(|last| last.class.clone()),
                last_duration_ms: self
                    .last
                    .as_ref()
                    .and_then(|last| last.took)
                    .map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                consecutive_errors: u32::try_from(self.errors).unwrap_or(0),
            },
            what: job::NewJob {
                name: self.name.clone(),
                description: self.description.clone(),
                enabled: matches!(self.state, JobState::Active),
                delete_after_run: self.delete_after_run,
                schedule: spec.schedule,
                session_target: choice(self.session_target.as_deref()).unwrap_or_default(),
                wake_mode: choice(self.wake_mode.as_deref()).unwrap_or_default(),
                payload: self.payload()?,
                isolation: self.isolation()?,
                agent_id: Some(self.agent.to_string()),
                missed: spec.missed,
                overlap: self.overlap.written(),
            },
        })
    }
}

impl From<Outcome> for job::RunStatus {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ok => Self::Ok,
            Outcome::Error => Self::Error,
            Outcome::Skipped => Self::Skipped,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The job would be invalid with the patch.
    #[error(transparent)]
    Wrong(#[from] crate::Error),
    /// The stored job cannot be read.
    #[error(transparent)]
    Stored(#[from] Error),
}

impl holdfast_types::Fault for PatchError {
    fn kind(&self) -> holdfast_types::Kind {
        match self {
            Self::Wrong(error) => error.kind(),
            Self::Stored(error) => error.kind(),
        }
    }
}

impl Changes {
    /// Computes the changes that a patch makes to a cron-service job.
    ///
    /// Apply them with the job's `version`: they were validated against that version.
    ///
    /// # Errors
    ///
    /// What would be invalid and what to write instead.
    pub fn of(
        job: &Job,
        patch: JobPatch,
        now: Timestamp,
        allowed: ScheduleLimits,
    ) -> Result<Self, PatchError> {
        let was = job.written()?;
        let mut new = was.clone();
        new.update(patch, now, allowed)?;
        let (was, new) = (was.what, new.what);
        let kind = kind_of(&new);
        let respecified =
            was.schedule != new.schedule || was.missed != new.missed || job.kind != kind;
        let spec = Spec { schedule: new.schedule, missed: new.missed, ..job.spec()? };
        let schedule = respecified.then(|| NewSchedule { kind: Some(kind), spec: spec.to_json() });
        let overlap = (was.overlap != new.overlap).then(|| new.overlap.into());
        Ok(Self {
            name: Some(new.name),
            description: Some(new.description),
            enabled: (was.enabled != new.enabled).then_some(new.enabled),
            schedule,
            payload: Some(json(&new.payload)),
            session_target: word(new.session_target),
            wake_mode: word(new.wake_mode),
            isolation: Some(new.isolation.as_ref().map(json)),
            delete_after_run: Some(new.delete_after_run),
            overlap,
            editor: None,
        })
    }

    /// Checks the session that the new payload names.
    ///
    /// # Errors
    ///
    /// The key is malformed, or of another agent's session.
    pub fn check_session(&self, agent: &AgentName) -> Result<(), crate::Error> {
        let payload = self.payload.as_ref().map(read::<crate::Payload>).transpose()?;
        payload.map_or(Ok(()), |payload| payload.check_session(agent))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    const ALLOWED: ScheduleLimits = ScheduleLimits {
        min_interval: SignedDuration::from_secs(60),
        max_lateness: SignedDuration::from_secs(60),
    };

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn made(what: Value) -> Result<Job, crate::Error> {
        let (id, agent) = (JobId::generate(), AgentId::generate());
        let new = NewJob::cron(id, agent, None, job::NewJob::from_json(what)?, now(), ALLOWED)?;
        Ok(Job {
            tenant: holdfast_types::TenantId::generate(),
            id,
            external_id: "cron_0a1b2c3d".to_owned(),
            short_id: "0a1b2c3d".to_owned(),
            kind: new.kind,
            agent,
            owner: None,
            author: None,
            signature: None,
            name: new.name,
            description: new.description,
            spec: new.spec,
            payload: new.payload,
            session_target: new.session_target,
            wake_mode: new.wake_mode,
            isolation: new.isolation,
            overlap: new.overlap,
            delete_after_run: new.delete_after_run,
            state: if new.enabled { JobState::Active } else { JobState::Paused },
            next_slot: None,
            next_due: None,
            running: None,
            errors: 2,
            last: None,
            version: 1,
            trace: None,
            created_at: now(),
            updated_at: now(),
        })
    }

    fn changes(job: &Job, patch: Value) -> Result<Changes, PatchError> {
        Changes::of(job, JobPatch::from_json(patch)?, now(), ALLOWED)
    }

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let job = made(json!({
            "name": "tea", "enabled": false, "session_target": "isolated", "overlap": "wait",
            "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"},
            "payload": {"kind": "agentTurn", "message": "tea?"}, "missed": {"policy": "once"},
            "isolation": {"postToMainMode": "full"}, "wake_mode": "now", "delete_after_run": true,
        }))
        .unwrap();

        let written = job.written().unwrap();

        assert_eq!((job.kind, job.overlap), (JobKind::Cron, Overlap::Queue));
        assert_eq!(written.id, "cron_0a1b2c3d");
        assert_eq!(written.state.consecutive_errors, 2);
        assert_eq!(
            serde_json::to_value(&written.what).unwrap(),
            json!({
                "name": "tea", "description": "", "enabled": false, "delete_after_run": true,
                "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"},
                "session_target": "isolated", "wake_mode": "now", "overlap": "wait",
                "payload": serde_json::to_value(&written.what.payload).unwrap(),
                "isolation": serde_json::to_value(&written.what.isolation).unwrap(),
                "missed": {"policy": "once"}, "agent_id": job.agent.to_string(),
            })
        );
    }

    #[test]
    fn a_timer_is_of_its_own_kind_whatever_its_schedule_and_may_become_another_job() {
        let every = json!({"kind": "every", "every_ms": 180_000});
        let timer = json!({"kind": "timer", "event": "tea"});
        let job = made(json!({"name": "tea", "schedule": every, "payload": timer})).unwrap();

        let changed =
            changes(&job, json!({"payload": {"kind": "systemEvent", "text": "tea"}})).unwrap();

        assert_eq!(job.kind, JobKind::Timer);
        assert_eq!(
            job.written().unwrap().what.payload,
            crate::Payload::Timer(crate::Timer { event: "tea".to_owned(), session: None })
        );
        assert_eq!(changed.schedule.map(|new| new.kind), Some(Some(JobKind::Every)));
    }

    #[test]
    fn an_interval_counts_from_when_its_job_was_made() {
        let tell = json!({"kind": "systemEvent", "text": "look"});
        let every = json!({"kind": "every", "every_ms": 90_000});
        let job = made(json!({"name": "look", "schedule": every, "payload": tell})).unwrap();

        let schedule = job.spec().unwrap().schedule;

        assert_eq!(
            schedule.next_after(now()),
            now().checked_add(SignedDuration::from_secs(90)).ok()
        );
    }

    #[test]
    fn a_patch_changes_what_it_names_and_the_job_must_be_right_with_it() {
        let tell = json!({"kind": "systemEvent", "message": "look"});
        let job = made(json!({"name": "look", "payload": tell})).unwrap();

        let renamed = changes(&job, json!({"name": "see"})).unwrap();
        let moved =
            changes(&job, json!({"schedule": {"kind": "at", "at_ms": 1_000_500_000}})).unwrap();
        let wrong = changes(&job, json!({"session_target": "isolated"})).unwrap_err();
        let fast =
            changes(&job, json!({"schedule": {"kind": "every", "every_ms": 5}})).unwrap_err();

        assert_eq!(
            (renamed.name.as_deref(), renamed.schedule, renamed.enabled),
            (Some("see"), None, None)
        );
        assert_eq!(moved.schedule.map(|new| new.kind), Some(Some(JobKind::At)));
        assert_eq!(wrong.to_string(), "isolated session must use agentTurn payload");
        assert!(fast.to_string().starts_with("every_ms is 5: it must be"));
    }
}
