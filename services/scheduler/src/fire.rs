//! Conversion of firings into messages, with one module for each kind of job.
//!
//! | job | module | becomes |
//! |---|---|---|
//! | cron, every, at with `agentTurn` | [`turn`] | a message in a session of its own |
//! | cron, every, at with `systemEvent` | [`event`] | a system event of the main session, or a turn there |
//! | cron, every, at with `message` | [`message`] | a message in a session, said as it is |
//! | reminder | [`reminder`] | a message in the session in which it was requested |
//! | heartbeat | [`heartbeat`] | a question in the heartbeat's session, or a skipped firing with its reason |
//! | timer (any schedule with `timer`) | [`timer`] | an event in a session, which wakes the session if it waits for that event |
//!
//! These modules decide, and may read. `deliver` writes the messages of many firings together. A
//! module that writes by itself must be idempotent, with the firing's key
//! ([`FiringRef::idem_key`](holdfast_schedule::store::FiringRef::idem_key)).

mod answer_target;
mod event;
mod heartbeat;
mod message;
mod reminder;
mod timer;
mod turn;

use std::time::Duration;

use anyhow::Context as _;

use holdfast_directory::{AgentState, RoutedAgent};
use holdfast_schedule::Payload;
use holdfast_schedule::store::{Firing, Job, JobKind, Outcome};
use holdfast_types::{AgentId, Body, QueueMode, SessionKey, SessionSettings, Target};

use tracing::{error, warn};

use crate::{
    context::Ctx,
    failure::{self, FailureKind},
};

/// Outcome of preparing a firing.
#[derive(Debug)]
pub enum FiringOutcome {
    Message(Box<FiringMessage>),
    /// Nothing more to do: it was done already, or there was nothing to do.
    Done {
        outcome: Outcome,
        /// One word for the reason; `None` if it succeeded.
        class: Option<&'static str>,
    },
    /// Permanent failure, with the error class.
    Refused(&'static str),
    /// To be tried again after this delay.
    RetryAfter(Duration),
}

/// The message that a firing becomes.
#[derive(Debug)]
pub struct FiringMessage {
    /// Session of the message; created if it does not exist.
    pub key: SessionKey,
    /// Agent of a new session.
    pub agent: AgentId,
    /// Settings of a new session.
    pub settings: SessionSettings,
    pub body: Body,
    pub target: Option<Target>,
    /// Queue mode for a session that runs a turn.
    pub mode: QueueMode,
    pub end_condition: EndCondition,
}

/// Condition under which a delivered firing ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCondition {
    /// The message is in its inbox.
    Accepted,
    /// The message is answered, or this time has passed.
    Answered(Duration),
    /// The message is answered within this time, and the answer is delivered.
    Arrived(Duration),
    /// Another component records the end, within this time.
    Recorded(Duration),
}

/// Prepares a firing of any kind of job. A failure ends the firing as an error, unless it may pass.
pub async fn prepare(ctx: &Ctx, firing: &Firing, job: &Job) -> FiringOutcome {
    match try_prepare(ctx, firing, job).await {
        Ok(outcome) => outcome,
        Err(error) => {
            let error: &(dyn std::error::Error + 'static) = error.as_ref();
            match FailureKind::of(error) {
                FailureKind::Permanent(class) => {
                    error!(error, job.id = %job.id, class, "a firing cannot be prepared");
                    FiringOutcome::Refused(class)
                }
                FailureKind::Transient => {
                    warn!(error, job.id = %job.id, "a firing cannot be prepared yet; trying again");
                    FiringOutcome::RetryAfter(failure::retry_delay(firing))
                }
            }
        }
    }
}

async fn try_prepare(ctx: &Ctx, firing: &Firing, job: &Job) -> anyhow::Result<FiringOutcome> {
    if matches!(job.kind, JobKind::Cron | JobKind::Every) && is_disabled(ctx, job).await? {
        return Ok(AGENT_DISABLED);
    }
    match job.kind {
        JobKind::Cron | JobKind::Every | JobKind::At | JobKind::Timer => {
            match job.payload::<Payload>() {
                Ok(Payload::AgentTurn(what)) => turn::prepare(ctx, firing, job, what).await,
                Ok(Payload::SystemEvent { .. }) => event::prepare(ctx, firing, job).await,
                Ok(Payload::Message(what)) => message::prepare(ctx, firing, job, &what).await,
                Ok(Payload::Timer(timer)) => timer::prepare(ctx, firing, job, &timer).await,
                Err(_) => Ok(UNREADABLE),
            }
        }
        JobKind::Reminder => reminder::prepare(ctx, firing, job).await,
        JobKind::Heartbeat => heartbeat::prepare(ctx, firing, job).await,
    }
}

/// Whether the job's agent is disabled. A job with one slot is not asked about: its message waits
/// for the agent, as a person's does.
async fn is_disabled(ctx: &Ctx, job: &Job) -> anyhow::Result<bool> {
    let agent = agent(ctx, job).await?;
    Ok(agent.is_some_and(|agent| agent.state != AgentState::Enabled))
}

/// Returns the job's agent, if it exists.
async fn agent(ctx: &Ctx, job: &Job) -> anyhow::Result<Option<RoutedAgent>> {
    let agents = ctx.agents.of(job.tenant).await.context("the tenant's agents")?;
    Ok(agents.get(&job.agent).cloned())
}

/// Whether a job's text is not to become an instruction where it is only read. The mesh's and an
/// owner's was approved by a person, or written before any text from outside.
async fn is_outside_text(ctx: &Ctx, job: &Job) -> anyhow::Result<bool> {
    let Some(author) = &job.author else { return Ok(false) };
    let authors = std::slice::from_ref(author);
    Ok(!ctx.are_owners(job.tenant, job.agent, authors).await.context("the policy")?)
}

/// The job's agent is disabled; the next slot is as usual.
const AGENT_DISABLED: FiringOutcome =
    FiringOutcome::Done { outcome: Outcome::Skipped, class: Some("agent_disabled") };
/// This version cannot read the stored job.
const UNREADABLE: FiringOutcome = FiringOutcome::Refused("unreadable");
/// The job's agent does not exist any more.
const NO_AGENT: FiringOutcome = FiringOutcome::Refused("no_agent");
