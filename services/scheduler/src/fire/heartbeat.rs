//! Heartbeats: the checks before the model is asked (spec HBT-004 to HBT-010). `beats` handles the
//! answer.
//!
//! If a check fails, the outcome is recorded here and the firing is done. If the file is empty or
//! the heartbeat is off, the agent is also marked, so that its job is switched off: an agent
//! without anything to check is not due any more (decision 0032).

use std::time::Duration;

use holdfast_agent::person::OWNER;
use holdfast_directory::AgentState;
use holdfast_schedule::store::{Firing, Job, JobState, NewHeartbeatLine, Outcome};
use holdfast_schedule::{
    Zone,
    heartbeat::{
        AgentFacts, AskDecision, BUSY_RETRY_DELAY, HeartbeatConfig, HeartbeatEvent,
        HeartbeatTarget, HoursZone, Status, Zones, decide_ask, digest,
    },
};
use holdfast_session::ChannelConversation;
use holdfast_types::{
    Body, Fault as _, Heartbeat, Kind, QueueMode, SCHEDULE_SOURCE, SessionKey, SessionKind,
    SessionSettings, Source, Target,
};
use tokio::time::Instant;

use super::{EndCondition, FiringMessage, FiringOutcome};
use crate::{context::Ctx, heartbeats};

/// Retry delay if the maximum number of heartbeats is running.
const LIMIT_RETRY_DELAY: Duration = Duration::from_secs(5);

pub async fn prepare(ctx: &Ctx, firing: &Firing, job: &Job) -> anyhow::Result<FiringOutcome> {
    let (tenant, began) = (job.tenant, Instant::now());
    let agent = match ctx.directory.agents().by_id(tenant, job.agent).await {
        Err(error) if error.kind() == Kind::NotFound => {
            ctx.jobs.delete_heartbeat(tenant, job.agent).await?;
            return Ok(FiringOutcome::Done { outcome: Outcome::Skipped, class: Some("no_agent") });
        }
        agent => agent?,
    };
    let is_enabled = agent.settings.heartbeat.enabled && agent.state == AgentState::Enabled;
    let config = &HeartbeatConfig { enabled: is_enabled, ..agent.settings.heartbeat };
    let main = SessionKey::main(&agent.name);
    let key = config.session_key(&agent.name);
    if firing.attempt > 1 {
        // A replica that died may have asked already. The key then makes it the same message.
        let source = Source::Internal(SCHEDULE_SOURCE.to_owned());
        let key_of = firing.id.idem_key();
        if ctx.sessions.views().find_accepted(tenant, &source, &key_of).await?.is_some() {
            return Ok(FiringOutcome::Message(Box::new(firing_message(job, key, Body::default()))));
        }
    }
    let place = ctx.last_owner_place(tenant, job.agent).await?.filter(|place| {
        config.target == HeartbeatTarget::Last || place.key.kind() == SessionKind::Main
    });
    let told = place.as_ref().map_or_else(|| main.clone(), |place| place.key.clone());
    let file = ctx.heartbeats.file(tenant, job.agent).await?;
    // Time zone of the user who receives the heartbeat, if the active hours refer to it and the
    // user has set one.
    let user = match config.active_hours.as_ref().map(|hours| &hours.timezone) {
        Some(HoursZone::User) => {
            ctx.sessions.settings().zone_of(tenant, &told, job.agent, Some(OWNER)).await?
        }
        Some(HoursZone::Local | HoursZone::Named(_)) | None => None,
    };
    let local: Zone = agent.settings.time_zone.parse().unwrap_or_default();
    let zones = Zones { user: user.and_then(|name| name.parse().ok()), local };
    let facts = AgentFacts {
        in_flight: ctx.sessions.views().is_busy(tenant, &[&key, &told]).await?,
        file: file.as_deref(),
    };
    let (status, reason, retry) = match decide_ask(config, firing.at, &zones, facts) {
        AskDecision::Quiet { status, reason, retry } => (status, reason, retry),
        AskDecision::Ask { prompt } => {
            if !ctx.heartbeats.try_admit(&ctx.jobs).await? {
                return Ok(FiringOutcome::RetryAfter(LIMIT_RETRY_DELAY));
            }
            let heartbeat = heartbeat(config, job, place, &told);
            let body = Body { heartbeat: Some(Box::new(heartbeat)), ..Body::text(prompt) };
            return Ok(FiringOutcome::Message(Box::new(firing_message(job, key, body))));
        }
    };
    if retry && firing.attempt == 1 {
        return Ok(FiringOutcome::RetryAfter(
            Duration::try_from(BUSY_RETRY_DELAY).unwrap_or(LIMIT_RETRY_DELAY),
        ));
    }
    let is_idle = status == Status::OkEmpty || matches!(reason, "disabled" | "no-heartbeat-file");
    if is_idle && job.state == JobState::Active {
        ctx.jobs.mark_heartbeat(tenant, job.agent).await?;
    }
    let event = HeartbeatEvent::quiet(status, Some(reason), firing.at, began.elapsed());
    let line = NewHeartbeatLine { firing: &firing.id, agent: job.agent, event: &event, run: None };
    heartbeats::record_outcome(&ctx.jobs, &ctx.bus, line).await?;
    Ok(FiringOutcome::Done { outcome: Outcome::Skipped, class: Some(reason) })
}

fn heartbeat(
    config: &HeartbeatConfig,
    job: &Job,
    place: Option<ChannelConversation>,
    told: &SessionKey,
) -> Heartbeat {
    let target = place.map(|place| place.target);
    let to = target.as_ref().map_or_else(|| told.to_string(), address);
    Heartbeat {
        model: config.model.clone(),
        ack_max_chars: config.ack_max_chars,
        include_reasoning: config.include_reasoning,
        target,
        told: told.to_string(),
        recent: format!("{}:heartbeat:{}:{}", job.tenant, job.agent, digest(&to)),
    }
}

fn address(target: &Target) -> String {
    let thread = target.thread.as_deref().unwrap_or_default();
    format!("{}:{}:{}:{thread}", target.channel, target.account, target.chat)
}

fn firing_message(job: &Job, key: SessionKey, body: Body) -> FiringMessage {
    FiringMessage {
        key,
        agent: job.agent,
        settings: SessionSettings::default(),
        body,
        // Set in the heartbeat instead of the message: otherwise the target would also be told when
        // there is no answer.
        target: None,
        mode: QueueMode::Followup,
        end_condition: EndCondition::Recorded(heartbeats::MAX_HEARTBEAT_DURATION),
    }
}
