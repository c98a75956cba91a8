//! System events in the agent's main conversation (spec CRN-007, CRN-022): added to its next turn,
//! or handled by a turn at once.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_schedule::WakeMode;
use holdfast_schedule::store::{Firing, Job, Outcome};
use holdfast_session::NewSystemEvent;
use holdfast_types::{QueueMode, SessionKey, SessionSettings, SignedAuthor};

use super::{
    EndCondition, FiringMessage, FiringOutcome, NO_AGENT, UNREADABLE, agent, is_outside_text,
};
use crate::context::Ctx;

/// Maximum duration of that turn. Its runner usually ends it sooner.
const MAX_TURN_DURATION: Duration = Duration::from_secs(3_600);

pub async fn prepare(ctx: &Ctx, firing: &Firing, job: &Job) -> anyhow::Result<FiringOutcome> {
    let Some(agent) = agent(ctx, job).await? else { return Ok(NO_AGENT) };
    let Ok(body) = job.message(firing.at) else { return Ok(UNREADABLE) };
    let key = SessionKey::main(&agent.name);
    Ok(match wake_mode(job) {
        WakeMode::NextHeartbeat => {
            let idem_key = firing.id.idem_key();
            let signature = body.job_signature.map(|signature| *signature);
            let signed = signature.map(|signature| SignedAuthor { author: body.author, signature });
            let outside = signed.is_none() || is_outside_text(ctx, job).await?;
            let event = NewSystemEvent { key, idem_key, text: body.text, outside, signed };
            ctx.sessions.add_system_event(job.tenant, &event).await.context("the event")?;
            FiringOutcome::Done { outcome: Outcome::Ok, class: None }
        }
        WakeMode::Now => FiringOutcome::Message(Box::new(FiringMessage {
            key,
            agent: job.agent,
            settings: SessionSettings::default(),
            body,
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
