//! The `cron` tool: jobs that run at given times (spec CRN-001 to CRN-010, CRN-020).
//!
//! There are two forms of a job: as it is stored, and the short form of smaller assistants: a
//! message and one of `at_seconds`, `every_seconds`, `cron_expr` (in this order of precedence).

use std::{future::Future, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Call, Tool, ToolError};

/// Access of the tool to jobs. An error is an internal failure: the turn ends and may be retried.
pub trait CronJobs: Send + Sync + 'static {
    /// Executes the request for the call's agent, once for the same `call.key`. The inner error is
    /// a reason for the model.
    fn cron(
        &self,
        call: &Call,
        wish: CronRequest,
    ) -> impl Future<Output = anyhow::Result<Result<Value, String>>> + Send;
}

#[derive(Debug, Clone, PartialEq)]
pub enum CronRequest {
    /// The number of jobs, and the time of the next slot.
    Status,
    List,
    /// Creates a job in the stored form.
    Add(Value),
    /// Creates a job in the short form.
    AddShort(ShortJob),
    Update {
        id: String,
        patch: Value,
    },
    Remove(String),
    Run {
        id: String,
        /// Run it even if it is not due.
        force: bool,
    },
    /// Past runs of a job.
    Runs(String),
    /// Sends a text to the agent's main conversation.
    Wake {
        text: String,
        /// At once, instead of with its next turn.
        now: bool,
    },
}

/// Job in the short form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortJob {
    /// Text to send, or task for the agent.
    pub message: String,
    pub when: JobTime,
    /// Whether the message is sent as it is; else it is a task for the agent.
    pub deliver: bool,
    /// Command to run, if any.
    pub command: Option<String>,
}

/// Time of a job in the short form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobTime {
    /// Once, in so many seconds.
    In(u32),
    /// Repeatedly, with this interval in seconds.
    Every(u32),
    /// By a cron expression, in the agent's time zone.
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
    /// channel, to}, or {kind: "message", message, session}: said as it is in this conversation or
    /// `session`, or {kind: "timer", event, session}: a silent event `timer.<event>` in this
    /// conversation or `session`, every 3 minutes without a schedule, which runs no turn unless the
    /// session waits for it.
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

#[derive(Debug)]
pub struct Cron<S>(pub Arc<S>);

impl<S: CronJobs> Tool for Cron<S> {
    const NAME: &'static str = "cron";
    const EFFECT: Effect = Effect::Writes;
    type Input = CronInput;

    async fn call(&self, call: Call, input: CronInput) -> Result<String, ToolError> {
        let wish = parse_request(input).map_err(ToolError::Tell)?;
        let told = self.0.cron(&call, wish).await?.map_err(ToolError::Tell)?;
        Ok(told.to_string())
    }
}

/// Converts an input to a request, or explains what is missing.
fn parse_request(input: CronInput) -> Result<CronRequest, String> {
    let CronInput { action, job, id, patch, mode, .. } = &input;
    let id = || id.clone().ok_or_else(|| "`id` is missing: which job?".to_owned());
    let mode = mode.as_deref().unwrap_or_default();
    Ok(match action {
        Action::Status => CronRequest::Status,
        Action::List => CronRequest::List,
        Action::Add => match job {
            Some(job) => CronRequest::Add(object(job)?),
            None => CronRequest::AddShort(parse_short_job(input)?),
        },
        Action::Update => {
            let patch = patch.as_ref().ok_or("`patch` is missing: what is to be otherwise?")?;
            CronRequest::Update { id: id()?, patch: object(patch)? }
        }
        Action::Remove => CronRequest::Remove(id()?),
        Action::Run => CronRequest::Run {
            id: id()?,
            force: match mode {
                "" | "due" => false,
                "force" => true,
                _ => return Err("`mode` of `run` is `due` or `force`".to_owned()),
            },
        },
        Action::Runs => CronRequest::Runs(id()?),
        Action::Wake => CronRequest::Wake {
            now: match mode {
                "now" => true,
                "" | "next-heartbeat" => false,
                _ => return Err("`mode` of `wake` is `now` or `next-heartbeat`".to_owned()),
            },
            text: input.message.ok_or("`message` is missing: what is to be told?")?,
        },
    })
}

/// Returns an object; parses it if it was written as a text.
fn object(value: &Value) -> Result<Value, String> {
    let read = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        value => value.clone(),
    };
    if read.is_object() { Ok(read) } else { Err("this is to be an object".to_owned()) }
}

fn parse_short_job(input: CronInput) -> Result<ShortJob, String> {
    let when = match (input.at_seconds, input.every_seconds, input.cron_expr) {
        (Some(seconds), ..) => JobTime::In(seconds),
        (None, Some(seconds), _) => JobTime::Every(seconds),
        (None, None, Some(expr)) => JobTime::Cron(expr),
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
    Ok(ShortJob { message, when, deliver: input.deliver.unwrap_or(true), command })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(input: Value) -> Result<CronRequest, String> {
        parse_request(serde_json::from_value(input).map_err(|error| error.to_string())?)
    }

    #[test]
    fn of_several_times_the_moment_goes_before_the_interval_and_that_before_the_expression() {
        let when = |input: Value| match read(input) {
            Ok(CronRequest::AddShort(saying)) => Some(saying.when),
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

        assert_eq!(when(all), Some(JobTime::In(5)));
        assert_eq!(when(two), Some(JobTime::Every(6)));
        assert_eq!(when(one), Some(JobTime::Cron("* * * * *".to_owned())));
        assert!(read(none).unwrap_err().starts_with("when?"));
    }

    #[test]
    fn each_action_is_asked_with_what_it_needs() {
        let job = json!({"name": "a"});
        assert_eq!(
            read(json!({"action": "add", "job": job.to_string()})),
            Ok(CronRequest::Add(job.clone()))
        );
        assert_eq!(
            read(json!({"action": "update", "jobId": "x", "patch": job})),
            Ok(CronRequest::Update { id: "x".to_owned(), patch: job })
        );
        assert_eq!(
            read(json!({"action": "run", "id": "x"})),
            Ok(CronRequest::Run { id: "x".to_owned(), force: false })
        );
        let wake = CronRequest::Wake { text: "t".to_owned(), now: true };
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
