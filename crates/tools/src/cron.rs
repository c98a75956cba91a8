//! `cron`: jobs that run at their times (spec CRN-001 to CRN-010, CRN-020).
//!
//! It speaks two dialects: jobs as they are stored, and the few words of smaller assistants, where a
//! message and one of `at_seconds`, `every_seconds`, `cron_expr` (in this order) are a job.

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Call, Tool, ToolError};

/// What the tool asks of the mesh. An error is a fault of ours: the turn ends and may be tried
/// again.
pub trait Crons: Send + Sync + 'static {
    /// Does it for the agent of the call, once for the same `call.key`; or why not, for the model.
    fn cron(
        &self,
        call: &Call,
        wish: CronWish,
    ) -> impl Future<Output = anyhow::Result<Result<Value, String>>> + Send;
}

/// What is asked of jobs.
#[derive(Debug, Clone, PartialEq)]
pub enum CronWish {
    /// How many there are, and when the next is due.
    Status,
    /// Those of the agent.
    List,
    /// Make one, as it is written.
    Add(Value),
    /// Make one of a few words.
    Say(Saying),
    /// Change one.
    Update {
        /// Its id.
        id: String,
        /// What is to be otherwise.
        patch: Value,
    },
    /// Take one away.
    Remove(String),
    /// Run one now.
    Run {
        /// Its id.
        id: String,
        /// Whether or not it is due.
        force: bool,
    },
    /// How it went.
    Runs(String),
    /// Tell the agent's main conversation something.
    Wake {
        /// What.
        text: String,
        /// At once, and not with its next turn.
        now: bool,
    },
}

/// A job in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saying {
    /// What is said, or what is to be done.
    pub message: String,
    /// When.
    pub when: When,
    /// The message is said as it is; else the agent does what it says.
    pub deliver: bool,
    /// A command that is run then.
    pub command: Option<String>,
}

/// When a job of a few words runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// In so many seconds.
    In(u32),
    /// Each so many seconds.
    Every(u32),
    /// By an expression, on the agent's clock.
    Cron(String),
}

/// Jobs of yours that run at their times: `status`, `list`, `add`, `update`, `remove`, `run`, `runs`,
/// and `wake`, which tells your main conversation something. To add one quickly give `message` and
/// one of `at_seconds`, `every_seconds`, `cron_expr`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CronInput {
    action: Action,
    /// `add`: {name, schedule, payload, …}; schedule is {kind: "at", at_ms} | {kind: "every",
    /// every_ms} | {kind: "cron", expr, tz}; payload is {kind: "systemEvent", message}, told to your
    /// main conversation, or, with session_target "isolated", {kind: "agentTurn", message, deliver,
    /// channel, to}.
    #[serde(default)]
    job: Option<Value>,
    /// Which job.
    #[serde(default, alias = "job_id", alias = "jobId")]
    id: Option<String>,
    /// `update`: the fields that are to be otherwise.
    #[serde(default)]
    patch: Option<Value>,
    /// `run`: `due` or `force`; `wake`: `now` or `next-heartbeat`.
    #[serde(default)]
    mode: Option<String>,
    /// What to say or do then; `wake`: what to tell.
    #[serde(default, alias = "text")]
    message: Option<String>,
    /// Once, in so many seconds.
    #[serde(default)]
    at_seconds: Option<u32>,
    #[serde(default)]
    every_seconds: Option<u32>,
    /// As `0 9 * * 1-5`.
    #[serde(default)]
    cron_expr: Option<String>,
    /// Say the message as it is (usual); false: do what it says.
    #[serde(default)]
    deliver: Option<bool>,
    /// A command to run then.
    #[serde(default)]
    command: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Status,
    List,
    Add,
    Update,
    Remove,
    Run,
    Runs,
    Wake,
}

/// Makes, changes and runs jobs.
#[derive(Debug)]
pub struct Cron<S>(pub Arc<S>);

impl<S: Crons> Tool for Cron<S> {
    const NAME: &'static str = "cron";
    const EFFECT: Effect = Effect::Writes;
    type Input = CronInput;

    async fn call(&self, call: Call, input: CronInput) -> Result<String, ToolError> {
        let wish = wish(input).map_err(ToolError::Tell)?;
        let told = self.0.cron(&call, wish).await?.map_err(ToolError::Tell)?;
        Ok(told.to_string())
    }
}

/// What an input asks for, or what it lacks.
fn wish(input: CronInput) -> Result<CronWish, String> {
    let CronInput { action, job, id, patch, mode, .. } = &input;
    let id = || id.clone().ok_or_else(|| "`id` is missing: which job?".to_owned());
    let mode = mode.as_deref().unwrap_or_default();
    Ok(match action {
        Action::Status => CronWish::Status,
        Action::List => CronWish::List,
        Action::Add => match job {
            Some(job) => CronWish::Add(object(job)?),
            None => CronWish::Say(saying(input)?),
        },
        Action::Update => {
            let patch = patch.as_ref().ok_or("`patch` is missing: what is to be otherwise?")?;
            CronWish::Update { id: id()?, patch: object(patch)? }
        }
        Action::Remove => CronWish::Remove(id()?),
        Action::Run => CronWish::Run {
            id: id()?,
            force: match mode {
                "" | "due" => false,
                "force" => true,
                _ => return Err("`mode` of `run` is `due` or `force`".to_owned()),
            },
        },
        Action::Runs => CronWish::Runs(id()?),
        Action::Wake => CronWish::Wake {
            now: match mode {
                "now" => true,
                "" | "next-heartbeat" => false,
                _ => return Err("`mode` of `wake` is `now` or `next-heartbeat`".to_owned()),
            },
            text: input.message.ok_or("`message` is missing: what is to be told?")?,
        },
    })
}

/// An object, also one that was written as a text.
fn object(value: &Value) -> Result<Value, String> {
    let read = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        value => value.clone(),
    };
    if read.is_object() { Ok(read) } else { Err("this is to be an object".to_owned()) }
}

fn saying(input: CronInput) -> Result<Saying, String> {
    let when = match (input.at_seconds, input.every_seconds, input.cron_expr) {
        (Some(seconds), ..) => When::In(seconds),
        (None, Some(seconds), _) => When::Every(seconds),
        (None, None, Some(expr)) => When::Cron(expr),
        (None, None, None) => {
            return Err(
                "when? give `job`, or one of `at_seconds`, `every_seconds`, `cron_expr`".to_owned()
            );
        }
    };
    let command = input.command.filter(|command| !command.trim().is_empty());
    let message = input.message.unwrap_or_default();
    if message.trim().is_empty() && command.is_none() {
        return Err("`message` is missing: what is to be said or done then?".to_owned());
    }
    Ok(Saying { message, when, deliver: input.deliver.unwrap_or(true), command })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(input: Value) -> Result<CronWish, String> {
        wish(serde_json::from_value(input).map_err(|error| error.to_string())?)
    }

    #[test]
    fn of_several_times_the_moment_goes_before_the_interval_and_that_before_the_expression() {
        let when = |input: Value| match read(input) {
            Ok(CronWish::Say(saying)) => Some(saying.when),
            _ => None,
        };
        let all = json!({"action": "add", "message": "m", "at_seconds": 5, "every_seconds": 6,
                         "cron_expr": "* * * * *"});
        let mut two = all.clone();
        two["at_seconds"] = Value::Null;
        let mut one = two.clone();
        one["every_seconds"] = Value::Null;
        let mut none = one.clone();
        none["cron_expr"] = Value::Null;

        assert_eq!(when(all), Some(When::In(5)));
        assert_eq!(when(two), Some(When::Every(6)));
        assert_eq!(when(one), Some(When::Cron("* * * * *".to_owned())));
        assert!(read(none).unwrap_err().starts_with("when?"));
    }

    #[test]
    fn each_action_is_asked_with_what_it_needs() {
        let job = json!({"name": "a"});
        assert_eq!(
            read(json!({"action": "add", "job": job.to_string()})),
            Ok(CronWish::Add(job.clone()))
        );
        assert_eq!(
            read(json!({"action": "update", "jobId": "x", "patch": job})),
            Ok(CronWish::Update { id: "x".to_owned(), patch: job })
        );
        assert_eq!(
            read(json!({"action": "run", "id": "x"})),
            Ok(CronWish::Run { id: "x".to_owned(), force: false })
        );
        let wake = CronWish::Wake { text: "t".to_owned(), now: true };
        assert_eq!(read(json!({"action": "wake", "text": "t", "mode": "now"})), Ok(wake));
        for wrong in [
            json!({"action": "run"}),
            json!({"action": "run", "id": "x", "mode": "soon"}),
            json!({"action": "wake"}),
            json!({"action": "update", "id": "x"}),
            json!({"action": "add", "job": [1]}),
            json!({"action": "add", "every_seconds": 5}),
            json!({"action": "stop"}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
