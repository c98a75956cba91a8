//! System events in the agent's main conversation (spec CRN-007, CRN-022): added to its next turn,
//! or handled by a turn at once.

use std::time::Duration;

use holdfast_jobs::{Firing, Job, Outcome};
use holdfast_schedule::WakeMode;
use holdfast_session::NewSystemEvent;
use holdfast_types::{Body, Fired, QueueMode, SessionKey, SessionSettings};
use tracing::warn;

use super::{AGAIN, Ctx, Ends, Errand, Fate, NO_AGENT};

/// Name of the event that begins a turn.
const EVENT: &str = "cron";

/// Maximum duration of that turn. Its runner usually ends it sooner.
const PATIENCE: Duration = Duration::from_secs(3_600);

pub async fn fate(ctx: &Ctx, firing: &Firing, job: &Job, text: String) -> Fate {
    let Ok(agents) = ctx.agents.of(job.tenant).await else { return Fate::Later(AGAIN) };
    let Some(agent) = agents.get(&job.agent) else { return NO_AGENT };
    let key = SessionKey::main(&agent.name);
    match wake_mode(job) {
        WakeMode::NextHeartbeat => {
            let event = NewSystemEvent { key, idem_key: firing.id.idem_key(), text };
            match ctx.sessions.add_system_event(job.tenant, &event).await {
                Ok(_) => Fate::Done { outcome: Outcome::Ok, class: None },
                Err(error) => {
                    warn!(%error, job.id = %job.id, "an event cannot be stored; trying again");
                    Fate::Later(AGAIN)
                }
            }
        }
        WakeMode::Now => Fate::Message(Box::new(Errand {
            key,
            agent: job.agent,
            settings: SessionSettings::default(),
            body: Body {
                event: Some(EVENT.to_owned()),
                fired: Some(Box::new(Fired::new(job.id, firing.at.as_millisecond()))),
                ..Body::text(text)
            },
            target: None,
            mode: QueueMode::Followup,
            ends: Ends::Answered(PATIENCE),
        })),
    }
}

fn wake_mode(job: &Job) -> WakeMode {
    match job.wake_mode.as_deref() {
        Some("now") => WakeMode::Now,
        Some(_) | None => WakeMode::NextHeartbeat,
    }
}
