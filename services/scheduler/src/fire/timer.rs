//! Timers (spec HBT-021): silent events that run no model by themselves. A session that waits for
//! the event is woken; any other session reads it in its next turn.

use holdfast_schedule::Timer;
use holdfast_schedule::store::{Firing, Job};
use holdfast_types::{Body, QueueMode, SessionSettings};

use super::{
    EndCondition, FiringMessage, FiringOutcome, NO_AGENT, UNREADABLE, agent, is_outside_text,
};
use crate::context::Ctx;

pub async fn prepare(
    ctx: &Ctx,
    firing: &Firing,
    job: &Job,
    timer: &Timer,
) -> anyhow::Result<FiringOutcome> {
    let Some(agent) = agent(ctx, job).await? else { return Ok(NO_AGENT) };
    let Ok(key) = timer.session_of(&agent.name) else { return Ok(UNREADABLE) };
    let Ok(body) = job.message(firing.at) else { return Ok(UNREADABLE) };
    Ok(FiringOutcome::Message(Box::new(FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body: Body { outside: is_outside_text(ctx, job).await?, ..body },
        target: None,
        mode: QueueMode::Followup,
        end_condition: EndCondition::Accepted,
    })))
}
