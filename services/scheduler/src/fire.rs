//! What a firing becomes: one table, a module for each kind of thing.
//!
//! | job | module | becomes |
//! |---|---|---|
//! | cron, every, at with `agentTurn` | [`turn`] | a message in a session of the run's own |
//! | cron, every, at with `systemEvent` | [`event`] | a system event of the main session, or a turn there |
//! | reminder | [`reminder`] | a message in the session in which it was asked for |
//! | heartbeat | [`heartbeat`] | a question in the heartbeat's session, or nothing and why |
//! | timer | [`timer`] | an event in a session, which wakes it if it waits for that |
//!
//! An arm decides and may look; the
//! messages of many firings are written together, by `deliver`. An arm that writes for itself must
//! write the same once however often it is asked: the key is the firing's
//! ([`FiringRef::idem_key`](holdfast_jobs::FiringRef::idem_key)).

mod event;
mod heartbeat;
mod place;
mod reminder;
mod timer;
mod turn;

use std::{sync::Arc, time::Duration};

use holdfast_bus::Bus;
use holdfast_directory::Directory;
use holdfast_jobs::{Firing, Job, JobKind, Jobs, Outcome};
use holdfast_schedule::Payload;
use holdfast_session::Sessions;
use holdfast_types::{AgentId, Body, QueueMode, SessionKey, SessionSettings, Target};

use crate::{agents::Agents, beats::Beats};

/// What arms may ask.
#[derive(Debug, Clone)]
pub struct Ctx {
    /// The jobs.
    pub jobs: Jobs,
    /// The sessions.
    pub sessions: Sessions,
    /// What tenants have.
    pub directory: Directory,
    /// Whom to wake.
    pub bus: Bus,
    /// The names of agents.
    pub agents: Arc<Agents>,
    /// What heartbeats ask besides.
    pub beats: Arc<Beats>,
}

/// What is to become of a firing.
#[derive(Debug)]
pub enum Fate {
    /// A message.
    Message(Box<Errand>),
    /// Nothing more: it was done already, or there was nothing to do.
    Done {
        /// How.
        outcome: Outcome,
        /// Why, in a word, unless it went well.
        class: Option<&'static str>,
    },
    /// It cannot be, whenever it is tried: an error of this class.
    Refused(&'static str),
    /// It cannot be now.
    Later(Duration),
}

/// A message that a firing becomes.
#[derive(Debug)]
pub struct Errand {
    /// The session it is for; made if it is not there.
    pub key: SessionKey,
    /// The agent that a new session gets.
    pub agent: AgentId,
    /// What a new session is set to.
    pub settings: SessionSettings,
    /// What is said.
    pub body: Body,
    /// Where the answer goes.
    pub target: Option<Target>,
    /// How it is taken while the session is busy.
    pub mode: QueueMode,
    /// When the firing has ended.
    pub ends: Ends,
}

/// When a firing that became a message has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// When the message is in its inbox.
    Accepted,
    /// When it was answered, or was not within this time.
    Answered(Duration),
    /// When it was answered within this time, and the answer has arrived.
    Arrived(Duration),
    /// When whoever looks after it says so, within this time.
    Told(Duration),
}

/// What becomes of a firing of a job.
pub async fn fate(ctx: &Ctx, firing: &Firing, job: &Job) -> Fate {
    match job.kind {
        JobKind::Cron | JobKind::Every | JobKind::At => match job.payload::<Payload>() {
            Ok(Payload::AgentTurn(what)) => turn::fate(ctx, firing, job, what).await,
            Ok(Payload::SystemEvent { message }) => event::fate(ctx, firing, job, message).await,
            Err(_) => UNREADABLE,
        },
        JobKind::Timer => timer::fate(job),
        JobKind::Reminder => reminder::fate(firing, job),
        JobKind::Heartbeat => heartbeat::fate(ctx, firing, job).await,
    }
}

/// When a firing is handed out again that found no database.
const AGAIN: Duration = Duration::from_secs(1);
/// What is stored of the job is not what this version can read.
const UNREADABLE: Fate = Fate::Refused("unreadable");
/// The job's agent is there no more.
const NO_AGENT: Fate = Fate::Refused("no_agent");
