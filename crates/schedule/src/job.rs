//! A job: its fields, what may be changed of it, and what is checked whenever it is
//! (spec CRN-003, 004, 006, 023).

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    error::{Error, bounds, shown},
    missed::Missed,
    payload::{Isolation, Payload, SessionTarget, WakeMode, text},
    run::{Overlap, RunStatus},
    schedule::Schedule,
};

/// The longest id, in bytes: others' ids are kept when their jobs are imported.
const LONGEST_ID: usize = 128;

/// What a job is for (C-18): one table and one loop serve all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// An agent looks whether something needs doing.
    Heartbeat,
    /// What a person or an agent scheduled.
    Cron,
    /// What a person is to be reminded of.
    Reminder,
    /// An agent is woken, without a model being asked.
    Timer,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Heartbeat, Self::Cron, Self::Reminder, Self::Timer];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Cron => "cron",
            Self::Reminder => "reminder",
            Self::Timer => "timer",
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of a new job: `cron_` and eight digits, of random bits that the caller has.
#[must_use]
pub fn job_id(bits: u32) -> String {
    format!("cron_{bits:08x}")
}

/// Whether an id that another system gave may stay as it is.
///
/// # Errors
///
/// If it is empty, longer than 128 bytes or has more in it than letters, digits and `_-.:@`.
pub fn check_id(id: &str) -> Result<(), Error> {
    let is_fine = |c: char| c.is_alphanumeric() || "_-.:@".contains(c);
    if (1..=LONGEST_ID).contains(&id.len()) && id.chars().all(is_fine) {
        return Ok(());
    }
    Err(bounds("id", format!("`{}`", shown(id)), "1 to 128 letters, digits and `_-.:@`"))
}

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

/// What is to be another thing about a job; what is absent stays.
///
/// The fields are those that may be changed, and no others (CRN-023): not the id, whose it is, or
/// what its runs left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobPatch {
    /// See [`NewJob::name`].
    pub name: Option<String>,
    /// See [`NewJob::description`].
    pub description: Option<String>,
    /// See [`NewJob::enabled`].
    pub enabled: Option<bool>,
    /// See [`NewJob::delete_after_run`].
    #[serde(alias = "deleteAfterRun")]
    pub delete_after_run: Option<bool>,
    /// See [`NewJob::schedule`].
    pub schedule: Option<Schedule>,
    /// See [`NewJob::session_target`].
    #[serde(alias = "sessionTarget")]
    pub session_target: Option<SessionTarget>,
    /// See [`NewJob::wake_mode`].
    #[serde(alias = "wakeMode")]
    pub wake_mode: Option<WakeMode>,
    /// See [`NewJob::payload`].
    pub payload: Option<Payload>,
    /// See [`NewJob::isolation`].
    pub isolation: Option<Isolation>,
    /// See [`NewJob::missed`].
    pub missed: Option<Missed>,
    /// See [`NewJob::overlap`].
    pub overlap: Option<Overlap>,
}

impl JobPatch {
    /// Reads what a caller wrote.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`] says which field cannot be changed, and which can.
    pub fn from_json(json: Value) -> Result<Self, Error> {
        read(json)
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
        what.isolation = patch.isolation.or(what.isolation);
        // A job whose only moment is over may still be renamed or disabled.
        let late = if is_anew && what.enabled { allowed.late } else { SignedDuration::MAX };
        what.check(now, Allowed { late, ..allowed })?;
        self.what = what;
        self.updated_at_ms = now.as_millisecond();
        if is_anew {
            self.state.consecutive_errors = 0;
            self.reschedule(now, allowed);
        }
        Ok(())
    }

    /// When it is due next, counted anew.
    fn reschedule(&mut self, now: Timestamp, allowed: Allowed) {
        self.what.schedule = self.what.schedule.clone().anchored(now);
        // A moment that is just over counts, if it is the only one.
        let from = match self.what.schedule.is_once() {
            true => now.checked_sub(allowed.late).unwrap_or(now),
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
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_767_225_600_000;

    fn now() -> Timestamp {
        Timestamp::from_millisecond(NOW).unwrap()
    }

    fn allowed() -> Allowed {
        Allowed { floor: SignedDuration::from_secs(10), late: SignedDuration::from_mins(5) }
    }

    fn job() -> Job {
        let what = NewJob::from_json(json!({
            "name": "tea", "payload": {"kind": "systemEvent", "message": "tea is ready"}
        }));
        Job::add(&job_id(0x1a2b), what.unwrap(), now(), allowed()).unwrap()
    }

    fn patch(json: Value) -> Result<Job, Error> {
        let mut job = job();
        job.update(JobPatch::from_json(json)?, now(), allowed())?;
        Ok(job)
    }

    #[test]
    fn a_job_of_which_little_is_said_is_the_seeds_usual_one() {
        let written = serde_json::to_value(job()).unwrap();

        assert_eq!(
            written,
            json!({
                "id": "cron_00001a2b", "name": "tea", "description": "", "enabled": true,
                "delete_after_run": false, "created_at_ms": NOW, "updated_at_ms": NOW,
                "schedule": {"kind": "every", "every_ms": 3_600_000, "anchor_ms": NOW},
                "session_target": "main", "wake_mode": "next-heartbeat",
                "payload": {"kind": "systemEvent", "message": "tea is ready"},
                "missed": {"policy": "skip"}, "overlap": "skip",
                "state": {
                    "next_run_at_ms": NOW + 3_600_000, "running_at_ms": null,
                    "last_run_at_ms": null, "last_status": null, "last_error": null,
                    "last_duration_ms": null, "consecutive_errors": 0
                }
            })
        );
        assert_eq!(serde_json::from_value::<Job>(written).unwrap(), job());
    }

    #[test]
    fn what_a_job_does_not_have_is_refused_and_named() {
        for (json, why) in [
            (
                json!({"name": "a", "payload": {"kind": "systemEvent", "message": "m"}, "id": "x"}),
                "unknown field `id`",
            ),
            (json!({"name": "a"}), "missing field `payload`"),
            (json!({"payload": {"kind": "systemEvent", "message": "m"}}), "missing field `name`"),
            (
                json!({"name": "a", "payload": {"kind": "systemEvent", "message": "m"}, "schedule": {"kind": "at"}}),
                "missing field `at_ms`",
            ),
        ] {
            let error = NewJob::from_json(json).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn only_what_may_be_changed_can_be() {
        for field in ["id", "state", "created_at_ms", "updated_at_ms", "agent_id", "tenant_id"] {
            let error = JobPatch::from_json(json!({ field: "x" })).unwrap_err().to_string();
            assert!(error.contains(&format!("unknown field `{field}`")), "{error}");
            assert!(error.contains("expected one of `name`"), "{error}");
        }
        let changed = patch(json!({
            "name": "coffee", "description": "at ten", "delete_after_run": true,
            "wake_mode": "now", "missed": {"policy": "once"}, "overlap": "wait",
        }));
        let changed = changed.unwrap();
        assert_eq!((changed.what.name.as_str(), changed.what.wake_mode), ("coffee", WakeMode::Now));
        assert_eq!(changed.state, job().state);
    }

    #[test]
    fn a_job_is_checked_as_a_whole_when_it_is_changed() {
        assert_eq!(patch(json!({"session_target": "isolated"})), Err(Error::IsolatedTakesTurns));
        let turn = json!({"kind": "agentTurn", "message": "look"});
        assert_eq!(patch(json!({"payload": turn})), Err(Error::MainTakesEvents));
        assert!(patch(json!({"payload": turn, "session_target": "isolated"})).is_ok());
        assert!(patch(json!({"schedule": {"kind": "every", "every_ms": 9_999}})).is_err());
        assert!(patch(json!({"name": ""})).is_err());
    }

    #[test]
    fn a_job_that_could_not_be_changed_stays_as_it_was() {
        let mut changed = job();
        let patch = JobPatch::from_json(json!({"name": "b", "session_target": "isolated"}));

        assert!(changed.update(patch.unwrap(), now(), allowed()).is_err());

        assert_eq!(changed, job());
    }

    #[test]
    fn the_next_run_is_known_at_once_when_a_job_is_added_changed_or_enabled() {
        let schedule = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"});
        let changed = patch(json!({ "schedule": schedule })).unwrap();
        assert_eq!(changed.state.next_run_at_ms, Some(NOW + 24 * 3_600_000));

        let mut off = patch(json!({"enabled": false})).unwrap();
        assert_eq!(off.state.next_run_at_ms, None);
        off.state.consecutive_errors = 4;
        let on = JobPatch { enabled: Some(true), ..JobPatch::default() };
        off.update(on, now(), allowed()).unwrap();
        assert_eq!(off.state.next_run_at_ms, Some(NOW + 3_600_000));
        assert_eq!(off.state.consecutive_errors, 0);
    }

    #[test]
    fn a_moment_that_is_just_over_still_runs_and_one_long_over_is_refused() {
        let at = |ms: i64| patch(json!({"schedule": {"kind": "at", "at_ms": ms}}));

        assert_eq!(at(NOW - 60_000).unwrap().state.next_run_at_ms, Some(NOW - 60_000));
        assert!(matches!(at(NOW - 600_000), Err(Error::Past { .. })));
        let mut over = at(NOW).unwrap();
        let later = now().checked_add(SignedDuration::from_hours(1)).unwrap();
        let off = JobPatch { enabled: Some(false), ..JobPatch::default() };
        assert_eq!(over.update(off, later, allowed()), Ok(()));
    }

    #[test]
    fn an_id_that_another_system_gave_may_stay() {
        assert!(["cron_12ab34cd", "a.b:c@d-1", "任务1"].iter().all(|id| check_id(id).is_ok()));
        assert!(
            ["", "a b", "a\n", "../x", &"x".repeat(129)].iter().all(|id| check_id(id).is_err())
        );
    }
}
