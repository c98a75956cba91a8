//! Timers (spec HBT-021): silent events that run no model by themselves. A session that waits for
//! the event is woken; any other session reads it in its next turn.

use holdfast_schedule::{Timer, store::Job};
use holdfast_types::{Body, QueueMode, SessionSettings};

use super::{
    EndCondition, FiringMessage, FiringOutcome, NO_AGENT, TRANSIENT_RETRY_DELAY, UNREADABLE,
};
use crate::context::Ctx;

pub async fn prepare(ctx: &Ctx, job: &Job, timer: &Timer) -> FiringOutcome {
    let Ok(agents) = ctx.agents.of(job.tenant).await else {
        return FiringOutcome::RetryAfter(TRANSIENT_RETRY_DELAY);
    };
    let Some(agent) = agents.get(&job.agent) else { return NO_AGENT };
    let Ok(key) = timer.session_of(&agent.name) else { return UNREADABLE };
    FiringOutcome::Message(Box::new(FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body: Body {
            event: Some(timer.event_name()),
            silent: true,
            ..Body::text(job.name.clone())
        },
        target: None,
        mode: QueueMode::Followup,
        end_condition: EndCondition::Accepted,
    }))
}
