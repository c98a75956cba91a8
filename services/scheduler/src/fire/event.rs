//! System events in the agent's main conversation (spec CRN-007, CRN-022): added to its next turn,
//! or handled by a turn at once.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_schedule::WakeMode;
use holdfast_schedule::store::{Firing, Job, Outcome};
use holdfast_session::NewSystemEvent;
use holdfast_types::{Body, JobFiring, QueueMode, SessionKey, SessionSettings};

use super::{EndCondition, FiringMessage, FiringOutcome, NO_AGENT, agent, is_outside_text};
use crate::context::Ctx;

/// Name of the event that begins a turn.
const EVENT_NAME: &str = "cron";

/// Maximum duration of that turn. Its runner usually ends it sooner.
const MAX_TURN_DURATION: Duration = Duration::from_secs(3_600);

pub async fn prepare(
    ctx: &Ctx,
    firing: &Firing,
    job: &Job,
    text: String,
) -> anyhow::Result<FiringOutcome> {
    let Some(agent) = agent(ctx, job).await? else { return Ok(NO_AGENT) };
    let key = SessionKey::main(&agent.name);
    Ok(match wake_mode(job) {
        WakeMode::NextHeartbeat => {
            let idem_key = firing.id.idem_key();
            let outside = is_outside_text(ctx, job).await?;
            let event = NewSystemEvent { key, idem_key, text, outside };
            ctx.sessions.add_system_event(job.tenant, &event).await.context("the event")?;
            FiringOutcome::Done { outcome: Outcome::Ok, class: None }
        }
        WakeMode::Now => FiringOutcome::Message(Box::new(FiringMessage {
            key,
            agent: job.agent,
            settings: SessionSettings::default(),
            body: Body {
                event: Some(EVENT_NAME.to_owned()),
                fired: Some(Box::new(JobFiring::new(job.id, firing.at.as_millisecond()))),
                author: job.author.clone(),
                ..Body::text(text)
            },
            target: None,
            mode: QueueMode::Followup,
            end_condition: EndCondition::Answered(MAX_TURN_DURATION),
        })),
    })
}

fn wake_mode(job: &Job) -> WakeMode {
    match job.wake_mode.as_deref() {
        Some("now") => WakeMode::Now,
        Some(_) | None => WakeMode::NextHeartbeat,
    }
}
