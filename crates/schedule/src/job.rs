//! Job as users write and read it: fields, changes and validation (spec CRN-003, 004, 006, 023).

mod id;
mod patch;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use self::patch::{patch_isolation, patch_payload, patch_schedule};
pub use self::{id::check_id, patch::JobPatch};
use crate::{
    error::{Error, bounds},
    missed_slots::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode, text},
    schedule::Schedule,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether a one-time job is deleted after a successful run.
    #[serde(default, alias = "deleteAfterRun")]
    pub delete_after_run: bool,
    #[serde(default = "Schedule::usual")]
    pub schedule: Schedule,
    /// Session that receives the payload.
    #[serde(default, alias = "sessionTarget")]
    pub session_target: SessionTarget,
    /// Time at which the payload is processed.
    #[serde(default, alias = "wakeMode")]
    pub wake_mode: WakeMode,
    pub payload: Payload,
    /// How an isolated run reports to the main session; `None` means not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Agent that runs the job; `None` means the tenant's default agent.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "agentId")]
    pub agent_id: Option<String>,
    /// Handling of slots that passed while nothing ran.
    #[serde(default)]
    pub missed: Missed,
    /// Handling of a slot that comes while the previous run goes on.
    #[serde(default)]
    pub overlap: Overlap,
}

/// Handling of a slot that comes while the previous run goes on. Two runs of a job never overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    #[default]
    Skip,
    /// The slot waits. If several wait, the newest runs and the others are skipped.
    Wait,
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleLimits {
    /// Minimum time between two slots.
    pub min_interval: SignedDuration,
    /// Maximum time by which the moment of a one-time job may be in the past.
    pub max_lateness: SignedDuration,
}

impl NewJob {
    /// Parses a job written by a caller. Without a schedule, a timer fires every 3 minutes and any
    /// other job runs every hour.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] says which field is unknown, missing or of the wrong type.
    pub fn from_json(json: Value) -> Result<Self, Error> {
        let has_schedule = json.get("schedule").is_some();
        let what: Self = read(json)?;
        let is_usual_timer = matches!(what.payload, Payload::Timer(_)) && !has_schedule;
        Ok(match is_usual_timer {
            true => Self { schedule: Schedule::usual_of_timer(), ..what },
            false => what,
        })
    }

    /// Validates all fields.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write instead.
    pub fn check(&self, now: Timestamp, allowed: ScheduleLimits) -> Result<(), Error> {
        text("name", &self.name, 200, "a text of 1 to 200 characters")?;
        let length = self.description.chars().count();
        if length > 2_000 {
            let given = format!("{length} characters long");
            return Err(bounds("description", given, "2000 characters or fewer"));
        }
        self.payload.check(self.session_target)?;
        if let Some(isolation) = &self.isolation {
            isolation.check()?;
        }
        self.schedule.check(now, allowed.min_interval, allowed.max_lateness)
    }
}

fn read<T: DeserializeOwned>(json: Value) -> Result<T, Error> {
    serde_json::from_value(json).map_err(|error| Error::Unreadable(error.to_string()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Ok,
    Error,
    Skipped,
}

/// Run state of a job (spec CRN-004).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobState {
    /// Time of the next run.
    pub next_run_at_ms: Option<i64>,
    pub running_at_ms: Option<i64>,
    /// Start of the last run.
    pub last_run_at_ms: Option<i64>,
    pub last_status: Option<RunStatus>,
    pub last_error: Option<String>,
    pub last_duration_ms: Option<u64>,
    pub consecutive_errors: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    #[serde(default)]
    pub state: JobState,
    #[serde(flatten)]
    pub what: NewJob,
}

impl Job {
    /// Applies a patch. The result is validated as a whole, as if it were added.
    ///
    /// If the schedule or `enabled` changes, the next run is recomputed and the error count is
    /// reset.
    ///
    /// # Errors
    ///
    /// As [`NewJob::check`]. The job is then unchanged.
    pub fn update(
        &mut self,
        patch: JobPatch,
        now: Timestamp,
        allowed: ScheduleLimits,
    ) -> Result<(), Error> {
        let mut what = self.what.clone();
        let schedule = patch.schedule.map(|fields| patch_schedule(&what.schedule, fields));
        let schedule = schedule.transpose()?;
        let payload = patch.payload.map(|fields| patch_payload(&what.payload, fields));
        let is_anew = schedule.as_ref().is_some_and(|new| *new != what.schedule)
            || patch.enabled.is_some_and(|new| new != what.enabled);
        set(&mut what.name, patch.name);
        set(&mut what.description, patch.description);
        set(&mut what.enabled, patch.enabled);
        set(&mut what.delete_after_run, patch.delete_after_run);
        set(&mut what.schedule, schedule);
        set(&mut what.session_target, patch.session_target);
        set(&mut what.wake_mode, patch.wake_mode);
        set(&mut what.payload, payload.transpose()?);
        set(&mut what.missed, patch.missed);
        set(&mut what.overlap, patch.overlap);
        if let Some(isolation) = patch.isolation {
            let was = what.isolation.take().unwrap_or_default();
            what.isolation = isolation.map(|fields| patch_isolation(&was, fields)).transpose()?;
        }
        // A one-time job whose time has passed may still be renamed or disabled.
        let late = if is_anew && what.enabled { allowed.max_lateness } else { SignedDuration::MAX };
        what.check(now, ScheduleLimits { max_lateness: late, ..allowed })?;
        let mut changed = Self { what, updated_at_ms: now.as_millisecond(), ..self.clone() };
        if is_anew {
            changed.state.consecutive_errors = 0;
            changed.reschedule(now, allowed);
            changed.check_has_next(now)?;
        }
        *self = changed;
        Ok(())
    }

    /// Refuses to enable a one-time job that has already run.
    fn check_has_next(&self, now: Timestamp) -> Result<(), Error> {
        let only = self.what.schedule.next_after(Timestamp::MIN);
        match (self.what.enabled, self.state.next_run_at_ms, only) {
            (true, None, Some(at)) => Err(Error::Past { at, now }),
            (true | false, Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// Recomputes the next run.
    fn reschedule(&mut self, now: Timestamp, allowed: ScheduleLimits) {
        self.what.schedule = self.what.schedule.clone().anchored(now);
        // For a one-time job, a time that has just passed counts if the job has not run since.
        let from = match self.what.schedule.is_once() {
            true => {
                let ran = self.state.last_run_at_ms.map(Timestamp::from_millisecond);
                let ran = ran.and_then(Result::ok).unwrap_or(Timestamp::MIN);
                let late = allowed.max_lateness.saturating_add(SignedDuration::from_millis(1));
                now.checked_sub(late).unwrap_or(now).max(ran)
            }
            false => now,
        };
        let next = self.what.enabled.then(|| self.what.schedule.next_after(from)).flatten();
        self.state.next_run_at_ms = next.map(Timestamp::as_millisecond);
    }
}

fn set<T>(field: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *field = new;
    }
}

#[cfg(test)]
mod tests;
