//! Reminders (spec REM-005, REM-006): messages in the conversation in which they were requested, so
//! that they are part of its history. From a conversation that is on no channel, a reminder is sent to
//! where its person last wrote on one.
//!
//! | `auto_continue` | turn |
//! |---|---|
//! | no | sends the text, without a model |
//! | yes | asks the agent, which may set the next reminder |

use std::time::Duration;

use anyhow::Context as _;
use holdfast_schedule::store::{Firing, Job, Reminder};
use holdfast_types::{QueueMode, SessionKey, SessionSettings};

use crate::context::Ctx;

use super::{EndCondition, FiringMessage, FiringOutcome, UNREADABLE};

/// Maximum duration of the turn. Its runner usually ends it sooner.
const MAX_TURN_DURATION: Duration = Duration::from_secs(3_600);

pub async fn prepare(ctx: &Ctx, firing: &Firing, job: &Job) -> anyhow::Result<FiringOutcome> {
    let Ok(reminder) = job.payload::<Reminder>() else { return Ok(UNREADABLE) };
    let Ok(key) = reminder.session.parse::<SessionKey>() else { return Ok(UNREADABLE) };
    let target = match &reminder.target {
        Some(target) => Some(target.clone()),
        None => ctx
            .find_place_elsewhere(job, &key, reminder.author.as_ref())
            .await
            .context("the person's place")?,
    };
    let Ok(body) = job.message(firing.at) else { return Ok(UNREADABLE) };
    Ok(FiringOutcome::Message(Box::new(FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body,
        target,
        mode: QueueMode::Followup,
        end_condition: EndCondition::Arrived(MAX_TURN_DURATION),
    })))
}
