//! Fixed messages (spec CRN-020): texts that are said as they are, without a model, in a session, so
//! that they are part of its history.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_schedule::FixedMessage;
use holdfast_schedule::store::{Firing, Job};
use holdfast_types::{QueueMode, SessionSettings};

use super::{EndCondition, FiringMessage, FiringOutcome, NO_AGENT, UNREADABLE, agent};
use crate::context::Ctx;

/// Maximum duration of the turn, its delivery included.
const MAX_TURN_DURATION: Duration = Duration::from_secs(3_600);

pub async fn prepare(
    ctx: &Ctx,
    firing: &Firing,
    job: &Job,
    message: &FixedMessage,
) -> anyhow::Result<FiringOutcome> {
    let Some(agent) = agent(ctx, job).await? else { return Ok(NO_AGENT) };
    let Ok(key) = message.session_of(&agent.name) else { return Ok(UNREADABLE) };
    let target = ctx
        .find_place_elsewhere(job, &key, job.author.as_ref())
        .await
        .context("the person's place")?;
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
