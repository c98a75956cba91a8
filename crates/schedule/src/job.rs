//! A job: its fields, what may be changed of it, and what is checked whenever it is
//! (spec CRN-003, 004, 006, 023).

mod id;
mod patch;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::{
    id::{JobKind, check_id, job_id},
    patch::JobPatch,
};
use crate::{
    error::{Error, bounds},
    missed::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode, text},
    run::{Overlap, RunStatus},
    schedule::Schedule,
};

/// What a job is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// What it is called.
    pub name: String,
    /// What it is about.
    #[serde(default)]
    pub description: String,
    /// Whether it runs.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether a job that is due once goes after a run that went well.
    #[serde(default, alias = "deleteAfterRun")]
    pub delete_after_run: bool,
    /// When it is due.
    #[serde(default = "Schedule::usual")]
    pub schedule: Schedule,
    /// Which session it speaks to.
    #[serde(default, alias = "sessionTarget")]
    pub session_target: SessionTarget,
    /// When what it says is heard.
    #[serde(default, alias = "wakeMode")]
    pub wake_mode: WakeMode,
    /// What it does.
    pub payload: Payload,
    /// What of an isolated run is told to the main session; absent is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// The agent whose it is; the tenant's usual one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "agentId")]
    pub agent_id: Option<String>,
    /// What is done about slots that nobody was there for.
    #[serde(default)]
    pub missed: Missed,
    /// What becomes of a slot while the run before it goes on.
    #[serde(default)]
    pub overlap: Overlap,
}

const fn yes() -> bool {
    true
}

/// What an operator allows of schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// The least time between two slots.
    pub floor: SignedDuration,
    /// How long ago the moment of a job that is due once may be.
    pub late: SignedDuration,
}

impl NewJob {
    /// Reads what a caller wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] says which field is unknown, missing or of another kind.
    pub fn from_json(json: Value) -> Result<Self, Error> {
        read(json)
    }

    /// Whether it may be added.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write instead.
    pub fn check(&self, now: Timestamp, allowed: Allowed) -> Result<(), Error> {
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
        self.schedule.check(now, allowed.floor, allowed.late)
    }
}

fn read<T: DeserializeOwned>(json: Value) -> Result<T, Error> {
    serde_json::from_value(json).map_err(|error| Error::Unreadable(error.to_string()))
}

/// What the runs of a job left (spec CRN-004).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobState {
    /// When it is next due.
    pub next_run_at_ms: Option<i64>,
    /// Since when it runs.
    pub running_at_ms: Option<i64>,
    /// When it last began to run.
    pub last_run_at_ms: Option<i64>,
    /// How that ended.
    pub last_status: Option<RunStatus>,
    /// Why it failed.
    pub last_error: Option<String>,
    /// How long it took.
    pub last_duration_ms: Option<u64>,
    /// How many runs in a row have failed.
    pub consecutive_errors: u32,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// When it was added.
    pub created_at_ms: i64,
    /// When it was last changed.
    pub updated_at_ms: i64,
    /// What its runs left.
    #[serde(default)]
    pub state: JobState,
    /// What it is.
    #[serde(flatten)]
    pub what: NewJob,
}

impl Job {
    /// A job that is added now.
    ///
    /// Its interval is counted from now, unless it names an anchor, and its next run is known at
    /// once (spec CRN-012).
    ///
    /// # Errors
    ///
    /// See [`check_id`] and [`NewJob::check`].
    pub fn add(id: &str, what: NewJob, now: Timestamp, allowed: Allowed) -> Result<Self, Error> {
        check_id(id)?;
        what.check(now, allowed)?;
        let at = now.as_millisecond();
        let mut job = Self {
            id: id.to_owned(),
            created_at_ms: at,
            updated_at_ms: at,
            state: JobState::default(),
            what,
        };
        job.reschedule(now, allowed);
        Ok(job)
    }

    /// The job as a patch makes it; as a whole it is checked as if it were added.
    ///
    /// Its next run is counted anew if its schedule or whether it runs changed, and so are its
    /// failures.
    ///
    /// # Errors
    ///
    /// See [`NewJob::check`]. The job stays as it was.
    pub fn update(
        &mut self,
        patch: JobPatch,
        now: Timestamp,
        allowed: Allowed,
    ) -> Result<(), Error> {
        let mut what = self.what.clone();
        let is_anew = patch.schedule.as_ref().is_some_and(|new| *new != what.schedule)
            || patch.enabled.is_some_and(|new| new != what.enabled);
        set(&mut what.name, patch.name);
        set(&mut what.description, patch.description);
        set(&mut what.enabled, patch.enabled);
        set(&mut what.delete_after_run, patch.delete_after_run);
        set(&mut what.schedule, patch.schedule);
        set(&mut what.session_target, patch.session_target);
        set(&mut what.wake_mode, patch.wake_mode);
        set(&mut what.payload, patch.payload);
        set(&mut what.missed, patch.missed);
        set(&mut what.overlap, patch.overlap);
        set(&mut what.isolation, patch.isolation);
        // A job whose only moment is over may still be renamed or disabled.
        let late = if is_anew && what.enabled { allowed.late } else { SignedDuration::MAX };
        what.check(now, Allowed { late, ..allowed })?;
        let mut changed = Self { what, updated_at_ms: now.as_millisecond(), ..self.clone() };
        if is_anew {
            changed.state.consecutive_errors = 0;
            changed.reschedule(now, allowed);
            changed.check_has_next(now)?;
        }
        *self = changed;
        Ok(())
    }

    /// Refuses to enable what has run at the only moment that it has.
    fn check_has_next(&self, now: Timestamp) -> Result<(), Error> {
        let only = self.what.schedule.next_after(Timestamp::MIN);
        match (self.what.enabled, self.state.next_run_at_ms, only) {
            (true, None, Some(at)) => Err(Error::Past { at, now }),
            (true | false, Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    /// When it is due next, counted anew.
    fn reschedule(&mut self, now: Timestamp, allowed: Allowed) {
        self.what.schedule = self.what.schedule.clone().anchored(now);
        // A moment that is just over counts, if it is the only one and the job has not run since.
        let from = match self.what.schedule.is_once() {
            true => {
                let ran = self.state.last_run_at_ms.map(Timestamp::from_millisecond);
                let ran = ran.and_then(Result::ok).unwrap_or(Timestamp::MIN);
                let late = allowed.late.saturating_add(SignedDuration::from_millis(1));
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
