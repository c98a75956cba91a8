//! Job options of `holdfast cron add` and `edit`.

use clap::Args;
use holdfast_schedule::{Zone, parse_interval, reminder::parse_time};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{commands::option_values, error::Error};

/// Zone of a new schedule for which none is given.
pub const DEFAULT_ZONE: &str = "UTC";

/// Schedule of a job: at a time, at an interval, or by a cron expression
#[derive(Debug, Args)]
pub struct Schedule {
    /// Run once at a time: `2026-12-24 18:00`, `tomorrow 9:00`, `in 20 minutes`
    #[arg(long, value_name = "TIME", conflicts_with_all = ["every", "cron"])]
    at: Option<String>,
    /// Run at an interval, for example `90s`, `10m`, `6h`
    #[arg(long, value_name = "INTERVAL", conflicts_with = "cron")]
    every: Option<String>,
    /// Run by a cron expression of minute, hour, day, month and weekday, for example `0 9 * * 1-5`
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// Time zone of `--at` and `--cron`, for example `Europe/Oslo` [default: the job's when it is
    /// changed, otherwise UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
}

/// Settings of a job; options that are not given keep the default or the current value
#[derive(Debug, Args)]
pub struct JobOptions {
    #[command(flatten)]
    schedule: Schedule,
    /// Task for the agent, in a conversation of its own: text, `@file`, or `-` for stdin
    #[arg(long, short = 'm')]
    message: Option<String>,
    /// Event for the agent's main conversation, instead of a task: text, `@file`, or `-` for stdin
    #[arg(long, conflicts_with = "message")]
    event: Option<String>,
    /// Text that the agent says as it is, without a model: text, `@file`, or `-` for stdin
    #[arg(long, value_name = "TEXT", group = "in_session")]
    #[arg(conflicts_with_all = ["message", "event", "now"])]
    say: Option<String>,
    /// Send a silent event `timer.NAME`, which wakes a session only if it waits for that event;
    /// every 3 minutes unless an option says when
    #[arg(long, value_name = "NAME", group = "in_session")]
    #[arg(conflicts_with_all = ["message", "event", "now"])]
    timer: Option<String>,
    /// Session of `--say` or `--timer`, by its key [default: the agent's main conversation]
    #[arg(long, requires = "in_session")]
    session: Option<String>,
    /// Handle the event by a turn at once, instead of with the next turn
    #[arg(long)]
    now: bool,
    /// Model, as `provider:model` [default: the agent's]
    #[arg(long, requires = "message")]
    model: Option<String>,
    /// Thinking level: off, low, medium or high [default: medium]
    #[arg(long, requires = "message")]
    thinking: Option<String>,
    /// Maximum duration in seconds [default: 3600]
    #[arg(long, requires = "message")]
    timeout: Option<u32>,
    /// Channel of the answer, for example `telegram` [default: the last one used]
    #[arg(long, requires = "message")]
    channel: Option<String>,
    /// Chat of the answer, by the channel's id
    #[arg(long, requires = "message")]
    to: Option<String>,
    /// Do not deliver the answer
    #[arg(long, requires = "message", conflicts_with_all = ["channel", "to"])]
    no_deliver: bool,
    /// Run even if the target of the answer cannot be determined
    #[arg(long, requires = "message")]
    best_effort: bool,
    /// Copy the answer to the main conversation: its first paragraph, or all of it
    #[arg(long, value_parser = ["summary", "full"])]
    post: Option<String>,
    /// Description of the job's purpose
    #[arg(long)]
    description: Option<String>,
    /// Policy for missed times: `skip`, `once`, or the maximum lateness up to which they still run,
    /// for example `6h` [default: skip]
    #[arg(long)]
    missed: Option<String>,
    /// Policy for times at which the previous run is still going on [default: skip]
    #[arg(long, value_parser = ["skip", "wait"])]
    overlap: Option<String>,
    /// Delete a job that runs once after it has succeeded
    #[arg(long)]
    delete_after_run: bool,
}

impl Schedule {
    /// Whether the meaning of the options depends on the zone of the job that is changed.
    pub fn needs_zone(&self) -> bool {
        self.at.is_some() && self.tz.is_none()
    }

    /// Returns the given fields of the schedule as JSON; `None` if no option is given. `zone` is
    /// that of `--at` without `--tz`.
    pub fn json(&self, zone: &str) -> Result<Option<Value>, Error> {
        if let Some(at) = &self.at {
            let zone = self.tz.as_deref().unwrap_or(zone);
            let zone: Zone = zone.parse().map_err(usage_error)?;
            let at = parse_time(at, Timestamp::now(), &zone).map_err(usage_error)?;
            return Ok(Some(json!({"kind": "at", "at_ms": at.as_millisecond()})));
        }
        if let Some(every) = &self.every {
            let ms = milliseconds(every)?;
            return Ok(Some(json!({"kind": "every", "every_ms": ms})));
        }
        let mut fields = Map::new();
        if let Some(expr) = &self.cron {
            fields.insert("kind".to_owned(), "cron".into());
            fields.insert("expr".to_owned(), expr.as_str().into());
        }
        if let Some(zone) = &self.tz {
            fields.insert("tz".to_owned(), zone.as_str().into());
        }
        Ok((!fields.is_empty()).then_some(Value::Object(fields)))
    }
}

impl JobOptions {
    /// Returns a complete job. Fails if its task or its schedule is missing.
    pub fn new_job(&self, name: String) -> Result<Value, Error> {
        let mut job = self.fields(Some(name), DEFAULT_ZONE)?;
        if job.get("payload").is_none() {
            return Err(Error::Usage(
                "say what is to be done: `--message` for the agent, `--event` for its main \
                 conversation, `--say` for a text without a model, or `--timer` for a session \
                 that waits"
                    .to_owned(),
            ));
        }
        // A timer has an interval of its own.
        let schedule = job.get("schedule");
        if schedule.map_or(self.timer.is_none(), |schedule| schedule.get("kind").is_none()) {
            return Err(Error::Usage("say when: `--at`, `--every` or `--cron`".to_owned()));
        }
        job["enabled"] = Value::Bool(true);
        Ok(job)
    }

    /// Whether a change needs the zone of the job.
    pub fn needs_zone(&self) -> bool {
        self.schedule.needs_zone()
    }

    /// Returns the change of a job whose schedule has this zone.
    pub fn patch(&self, name: Option<String>, zone: &str) -> Result<Value, Error> {
        let mut patch = self.fields(name, zone)?;
        // The job may have been one whose answers are not delivered.
        if self.channel.is_some() || self.to.is_some() {
            patch["payload"]["deliver"] = Value::Bool(true);
        }
        Ok(patch)
    }

    /// Returns only the given fields.
    fn fields(&self, name: Option<String>, zone: &str) -> Result<Value, Error> {
        let mut patch = Map::new();
        let mut put = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                patch.insert(field.to_owned(), value);
            }
        };
        put("name", name.map(Value::from));
        put("description", self.description.clone().map(Value::from));
        put("schedule", self.schedule.json(zone)?);
        if let Some(message) = &self.message {
            put("payload", Some(self.turn(option_values::text(message)?)));
            put("session_target", Some("isolated".into()));
        }
        if let Some(event) = &self.event {
            put(
                "payload",
                Some(json!({"kind": "systemEvent", "message": option_values::text(event)?})),
            );
            put("session_target", Some("main".into()));
        }
        if let Some(mut payload) = self.payload_in_session()? {
            if let Some(session) = &self.session {
                payload["session"] = session.as_str().into();
            }
            put("payload", Some(payload));
            put("session_target", Some("main".into()));
        }
        put("wake_mode", self.now.then(|| "now".into()));
        put("isolation", self.post.as_ref().map(|mode| json!({"postToMainMode": mode})));
        put("missed", self.missed.as_deref().map(missed).transpose()?);
        put("overlap", self.overlap.clone().map(Value::from));
        put("delete_after_run", self.delete_after_run.then_some(Value::Bool(true)));
        if patch.is_empty() {
            return Err(Error::Usage("say what is to be otherwise".to_owned()));
        }
        Ok(Value::Object(patch))
    }

    /// Payload for a session of choice.
    fn payload_in_session(&self) -> Result<Option<Value>, Error> {
        Ok(match (&self.say, &self.timer) {
            (Some(text), _) => {
                Some(json!({"kind": "message", "message": option_values::text(text)?}))
            }
            (None, Some(event)) => Some(json!({"kind": "timer", "event": event})),
            (None, None) => None,
        })
    }

    fn turn(&self, message: String) -> Value {
        let mut turn = json!({"kind": "agentTurn", "message": message});
        for (field, value) in [
            ("model", self.model.clone().map(Value::from)),
            ("thinking", self.thinking.clone().map(Value::from)),
            ("timeout_seconds", self.timeout.map(Value::from)),
            ("channel", self.channel.clone().map(Value::from)),
            ("to", self.to.clone().map(Value::from)),
            ("deliver", self.no_deliver.then_some(Value::Bool(false))),
            ("best_effort_deliver", self.best_effort.then_some(Value::Bool(true))),
        ] {
            if let Some(value) = value {
                turn[field] = value;
            }
        }
        turn
    }
}

fn missed(word: &str) -> Result<Value, Error> {
    Ok(match word {
        "skip" | "once" => json!({"policy": word}),
        within => json!({"policy": "all", "within_ms": milliseconds(within)?}),
    })
}

fn milliseconds(interval: &str) -> Result<i64, Error> {
    // The library's error message describes the heartbeat syntax instead.
    let read = parse_interval(interval);
    read.map(|read| read.as_secs().saturating_mul(1_000)).map_err(|_| {
        let what =
            "write a whole number and s, m or h, as `10m` or `24h`; 8784h (366 days) at most";
        Error::Usage(format!("`{interval}` is not an interval: {what}"))
    })
}

fn usage_error(error: impl std::fmt::Display) -> Error {
    Error::Usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        what: JobOptions,
    }

    fn what(line: &[&str]) -> JobOptions {
        Line::try_parse_from([&["x"], line].concat()).unwrap().what
    }

    #[test]
    fn a_message_is_a_turn_of_its_own_and_an_event_is_told_to_the_main_conversation() {
        let turn = what(&["--every", "10m", "-m", "look", "--to", "42", "--channel", "telegram"]);
        let event =
            what(&["--cron", "0 9 * * *", "--tz", "Europe/Oslo", "--event", "tea", "--now"]);

        assert_eq!(
            turn.new_job("a".to_owned()).unwrap(),
            json!({
                "name": "a", "enabled": true, "session_target": "isolated",
                "schedule": {"kind": "every", "every_ms": 600_000},
                "payload": {"kind": "agentTurn", "message": "look", "channel": "telegram", "to": "42"},
            })
        );
        assert_eq!(
            event.new_job("b".to_owned()).unwrap(),
            json!({
                "name": "b", "enabled": true, "session_target": "main", "wake_mode": "now",
                "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"},
                "payload": {"kind": "systemEvent", "message": "tea"},
            })
        );
    }

    #[test]
    fn a_timer_is_for_the_main_conversation_or_the_named_one() {
        let timer = what(&["--every", "3m", "--timer", "tea", "--session", "agent:main:api:a"]);

        let job = timer.new_job("a".to_owned()).unwrap();

        let payload = json!({"kind": "timer", "event": "tea", "session": "agent:main:api:a"});
        assert_eq!(job["payload"], payload);
        assert_eq!(job["session_target"], "main");
        let usual = what(&["--timer", "tea"]).new_job("a".to_owned()).unwrap();
        assert_eq!(usual.get("schedule"), None, "the gateway knows the interval");
    }

    #[test]
    fn a_text_is_said_in_the_main_conversation_or_the_named_one() {
        let line = ["--every", "24h", "--say", "tea", "--session", "agent:main:api:a"];

        let named = what(&line).new_job("a".to_owned()).unwrap();
        let main = what(&line[..4]).new_job("a".to_owned()).unwrap();
        let nowhere = Line::try_parse_from(["x", "-m", "tea", "--session", "agent:main:api:a"]);

        let payload = json!({"kind": "message", "message": "tea", "session": "agent:main:api:a"});
        assert_eq!((&named["payload"], &named["session_target"]), (&payload, &json!("main")));
        assert_eq!(main["payload"], json!({"kind": "message", "message": "tea"}));
        assert!(nowhere.is_err(), "a task has a conversation of its own");
    }

    #[test]
    fn what_a_job_cannot_do_without_is_asked_for_and_a_change_says_something() {
        let told = |what: JobOptions| what.new_job("a".to_owned()).unwrap_err().to_string();

        assert!(told(what(&["--every", "10m"])).contains("--message"));
        assert!(told(what(&["-m", "look"])).contains("--cron"));
        assert!(told(what(&["-m", "look", "--every", "soon"])).contains("as `10m`"));
        assert!(told(what(&["-m", "look", "--tz", "Asia/Tokyo"])).contains("--cron"));
        assert!(what(&[]).patch(None, "UTC").is_err());
        let renamed = what(&[]).patch(Some("b".to_owned()), "UTC").unwrap();
        assert_eq!(renamed, json!({"name": "b"}));
        let late = what(&["--missed", "6h"]).patch(None, "UTC").unwrap();
        assert_eq!(late, json!({"missed": {"policy": "all", "within_ms": 21_600_000}}));
    }

    #[test]
    fn a_change_of_the_time_names_no_zone_unless_one_is_given() {
        let patch = |line: &[&str]| what(line).patch(None, "Asia/Tokyo").unwrap();

        let cron = json!({"kind": "cron", "expr": "0 11 * * *"});
        assert_eq!(patch(&["--cron", "0 11 * * *"]), json!({ "schedule": cron }));
        assert_eq!(patch(&["--tz", "Europe/Oslo"]), json!({"schedule": {"tz": "Europe/Oslo"}}));
        let at = json!({"kind": "at", "at_ms": 1_798_020_000_000_i64});
        assert_eq!(patch(&["--at", "2026-12-23 19:00"]), json!({ "schedule": at }));
        let to = patch(&["-m", "look", "--to", "42"]);
        assert_eq!(to["payload"]["deliver"], true);
    }
}
