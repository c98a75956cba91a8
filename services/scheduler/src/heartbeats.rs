//! Heartbeats: switching their jobs on and off, and recording their outcomes (spec HBT, decision
//! 0032).
//!
//! | every second | action |
//! |---|---|
//! | marks | agents whose file or settings changed: their jobs are switched on or off |
//! | ends | heartbeats whose turns have ended and whose news was delivered: the outcome is recorded and announced; the next one of a sleeping agent is delayed |
//!
//! All of it may be done twice, by two replicas or after a crash: it writes the same under the same
//! key.

use std::time::Duration;

use bytes::Bytes;
use holdfast_bus::{Bus, Subject};
use holdfast_directory::AgentState;
use holdfast_lock::RecentMessage;
use holdfast_pg::FailureLog;
use holdfast_schedule::heartbeat::{
    AnswerKind as Means, HeartbeatAnswer as Said, HeartbeatConfig, HeartbeatEvent, MOST_RECENT,
    RECENT, SLEEP_AFTER, Status, classify_answer, delivered_event, digest, is_empty,
    sleep_interval,
};
use holdfast_schedule::store::{
    Error as JobsError, FinishedFiring, HeartbeatMark, Jobs, NewHeartbeatLine, Outcome,
    RunningHeartbeat,
};
use holdfast_session::{DeliveryStatus, MessageStatus, NewMessage, TurnOutcome as Heard};
use holdfast_types::{
    AgentId, Body, Fault as _, HEARTBEAT_SOURCE, Heartbeat, Kind, QueueMode, SCHEDULE_SOURCE,
    SessionKey, Source, TenantId,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::context::Ctx;

/// Maximum duration of a heartbeat, including the delivery of its news.
pub const MAX_HEARTBEAT_DURATION: Duration = Duration::from_secs(3_600);

/// Interval between two passes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of marks processed at once.
const MARKS_PER_PASS: u32 = 100;

/// Maximum number of running heartbeats checked per pass.
const MAX_ENDS_PER_PASS: u32 = 500;

/// Makes a pass every second until `stop` is cancelled.
pub async fn run(ctx: Ctx, stop: CancellationToken) {
    let trouble = FailureLog::new("heartbeats are not seen to");
    while stop.run_until_cancelled(sleep(POLL_INTERVAL)).await.is_some() {
        match run_pass(&ctx).await {
            Ok(()) => trouble.on_success(),
            // Pending work is done when the database is back.
            Err(error) => trouble.on_failure(error.as_ref()),
        }
    }
}

/// Handles all marks and running heartbeats. One that fails does not hold up the others; returns the
/// first failure.
async fn run_pass(ctx: &Ctx) -> anyhow::Result<()> {
    let mut failure = None;
    loop {
        let marks = ctx.jobs.take_heartbeat_marks(MARKS_PER_PASS).await?;
        for mark in &marks {
            if let Err(error) = update_heartbeat_job(ctx, mark).await {
                failure.get_or_insert(error.context(format!("the heartbeat of {}", mark.agent)));
            }
        }
        if marks.len() < MARKS_PER_PASS as usize {
            break;
        }
    }
    for beating in ctx.jobs.running_heartbeats(MAX_ENDS_PER_PASS).await? {
        if let Err(error) = record_end(ctx, &beating).await {
            let heartbeat = format!("the end of the heartbeat {}", beating.firing.job);
            failure.get_or_insert(error.context(heartbeat));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Switches an agent's heartbeat on if its file has content and it is enabled, and off otherwise.
async fn update_heartbeat_job(ctx: &Ctx, mark: &HeartbeatMark) -> anyhow::Result<()> {
    let (tenant, agent) = (mark.tenant, mark.agent);
    let config = match ctx.directory.agents().by_id(tenant, agent).await {
        Ok(found) => HeartbeatConfig {
            enabled: found.settings.heartbeat.enabled && found.state == AgentState::Enabled,
            ..found.settings.heartbeat
        },
        Err(error) if error.kind() == Kind::NotFound => {
            ctx.jobs.delete_heartbeat(tenant, agent).await?;
            return Ok(ctx.jobs.clear_heartbeat_mark(mark).await?);
        }
        Err(error) => return Err(error.into()),
    };
    let file = ctx.heartbeats.file(tenant, agent).await?;
    let beats = config.enabled && file.is_some_and(|content| !is_empty(&content));
    let floor =
        SignedDuration::try_from(ctx.heartbeats.min_interval).unwrap_or(SignedDuration::ZERO);
    match ctx.jobs.update_heartbeat_job(tenant, agent, &config, beats, floor).await {
        Ok(changed) => {
            if changed {
                ctx.bus.wake_schedule();
            }
        }
        // A refused schedule is tried again when the file or the settings change.
        Err(error) if error.is_refusal() => {
            warn!(%error, tenant.id = %tenant, agent.id = %agent, "a heartbeat cannot be kept");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ctx.jobs.clear_heartbeat_mark(mark).await?)
}

/// Records the outcome of a heartbeat, if it has ended and its news was delivered.
async fn record_end(ctx: &Ctx, beating: &RunningHeartbeat) -> anyhow::Result<()> {
    let RunningHeartbeat { firing, took, now } = *beating;
    let (tenant, agent) = (firing.tenant, AgentId::from(firing.job.as_uuid()));
    let source = Source::Internal(SCHEDULE_SOURCE.to_owned());
    let Some(asked) =
        ctx.sessions.views().find_accepted(tenant, &source, &firing.idem_key()).await?
    else {
        anyhow::bail!("its message is gone");
    };
    let answer = ctx.sessions.views().answer(tenant, asked.message).await?;
    let came = match heartbeat_progress(ctx, tenant, &answer, took).await? {
        HeartbeatProgress::Pending if took < MAX_HEARTBEAT_DURATION - Duration::from_secs(60) => {
            return Ok(());
        }
        HeartbeatProgress::Pending => HeartbeatProgress::NothingSent(
            Status::Failed,
            Some("it took longer than an hour".to_owned()),
        ),
        came => came,
    };
    let event = match came {
        HeartbeatProgress::Pending => return Ok(()),
        HeartbeatProgress::NothingSent(status, reason) => {
            HeartbeatEvent::quiet(status, reason.as_deref(), now, took)
        }
        HeartbeatProgress::Sent(news) => {
            remember(ctx, &news, now).await;
            add_to_conversation(ctx, tenant, (agent, &firing.idem_key()), &answer, &news).await?;
            let (channel, to) = match &news.sending {
                Some(sending) => (sending.channel.as_str(), sending.chat.as_str()),
                None => ("session", news.heartbeat.told.as_str()),
            };
            delivered_event(&news.text, channel, to, news.has_media, now, took)
        }
    };
    let line = NewHeartbeatLine { firing: &firing, agent, event: &event, run: answer.run };
    record_outcome(&ctx.jobs, &ctx.bus, line).await?;
    let (outcome, class) = match event.status {
        Status::Sent | Status::OkEmpty | Status::OkToken => (Outcome::Ok, None),
        Status::Skipped => (Outcome::Skipped, event.reason.clone()),
        Status::Failed => (Outcome::Error, Some("failed".to_owned())),
    };
    let ended = FinishedFiring { firing, outcome, class, took: Some(took) };
    ctx.jobs.finish(&[ended]).await?;
    if let Err(error) = slow_down(ctx, (tenant, agent), now).await {
        let error: &(dyn std::error::Error + 'static) = error.as_ref();
        debug!(error, agent.id = %agent, "the next heartbeat comes at its usual time");
    }
    Ok(())
}

/// Delays the next heartbeat of an agent whom nobody has needed for a day (spec STM-021). The next
/// heartbeat after some input is followed by the usual interval again.
async fn slow_down(
    ctx: &Ctx,
    (tenant, agent): (TenantId, AgentId),
    now: Timestamp,
) -> anyhow::Result<()> {
    let Some(active) = ctx.sessions.views().last_activity(tenant, agent).await? else {
        return Ok(());
    };
    let asleep_since = active + SLEEP_AFTER;
    if asleep_since > now {
        return Ok(());
    }
    let config = ctx.directory.agents().by_id(tenant, agent).await?.settings.heartbeat;
    let floor =
        SignedDuration::try_from(ctx.heartbeats.min_interval).unwrap_or(SignedDuration::ZERO);
    let count = ctx.jobs.heartbeats_since(tenant, agent, asleep_since).await?;
    let pause = sleep_interval(config.interval(floor), count);
    Ok(ctx.jobs.delay_heartbeat(tenant, agent, pause).await?)
}

/// Progress of a heartbeat's turn.
enum HeartbeatProgress {
    /// The turn or its delivery is not finished.
    Pending,
    /// The turn ended and nothing was sent.
    NothingSent(Status, Option<String>),
    /// News was sent.
    Sent(Box<SentNews>),
}

/// News that a heartbeat sent.
struct SentNews {
    text: String,
    heartbeat: Heartbeat,
    /// `None` if it was written to a session only.
    sending: Option<DeliveryStatus>,
    has_media: bool,
}

async fn heartbeat_progress(
    ctx: &Ctx,
    tenant: TenantId,
    answer: &MessageStatus,
    took: Duration,
) -> anyhow::Result<HeartbeatProgress> {
    let reason = answer.reason.clone();
    match answer.outcome {
        None => return Ok(HeartbeatProgress::Pending),
        Some(Heard::Completed) => {}
        Some(Heard::Failed | Heard::Dead) => {
            return Ok(HeartbeatProgress::NothingSent(Status::Failed, reason));
        }
        Some(Heard::Interrupted) => return Ok(nothing_sent(Status::Skipped, "interrupted")),
        Some(Heard::Cancelled) => return Ok(nothing_sent(Status::Skipped, "cancelled")),
    }
    match reason.as_deref() {
        None => {}
        Some("ok-token") => return Ok(HeartbeatProgress::NothingSent(Status::OkToken, None)),
        Some("duplicate") => return Ok(HeartbeatProgress::NothingSent(Status::Skipped, reason)),
        Some(_) => return Ok(HeartbeatProgress::NothingSent(Status::OkEmpty, reason)),
    }
    let sent = match answer.run {
        Some(run) => ctx.sessions.deliveries().statuses(tenant, answer.session, run).await?,
        None => Vec::new(),
    };
    let is = |state: &str| sent.iter().find(|one| one.state == state);
    if (is("pending").is_some() || is("sending").is_some()) && took < MAX_HEARTBEAT_DURATION {
        return Ok(HeartbeatProgress::Pending);
    }
    if let Some(lost) = is("dead").or_else(|| is("unknown")) {
        let why = lost.reason.clone().unwrap_or_else(|| "it did not arrive".to_owned());
        return Ok(HeartbeatProgress::NothingSent(Status::Failed, Some(why)));
    }
    let heartbeat =
        ctx.sessions.views().heartbeat_of(tenant, answer.message).await?.unwrap_or_default();
    let has_media = sent.iter().any(|one| one.is_act);
    // Removes the heartbeat tokens like the turn did. The turn has already decided that the text is
    // news.
    let text = match classify_answer(Said { text: &answer.text, has_media }, 0) {
        Means::News(news) => news.to_owned(),
        Means::Nothing | Means::Ok => String::new(),
    };
    let sending = sent.into_iter().find(|one| one.state == "sent");
    Ok(HeartbeatProgress::Sent(Box::new(SentNews { text, heartbeat, sending, has_media })))
}

fn nothing_sent(status: Status, reason: &str) -> HeartbeatProgress {
    HeartbeatProgress::NothingSent(status, Some(reason.to_owned()))
}

/// Remembers the hash of delivered news, so that it is not sent again within a day (C-12).
async fn remember(ctx: &Ctx, news: &SentNews, now: Timestamp) {
    if news.text.is_empty() {
        return;
    }
    let lately = RecentMessage {
        hash: &digest(&news.text),
        sent_at_ms: now.as_millisecond(),
        window: Duration::try_from(RECENT).unwrap_or(MAX_HEARTBEAT_DURATION),
        max_kept: MOST_RECENT,
    };
    if let Err(error) = ctx.heartbeats.locks.remember_message(&news.heartbeat.recent, lately).await
    {
        debug!(%error, "what a heartbeat said is not remembered");
    }
}

/// Adds the sent text to the conversation in which the person reads it (C-13), so that the agent
/// understands an answer to it.
async fn add_to_conversation(
    ctx: &Ctx,
    tenant: TenantId,
    (agent, idem_key): (AgentId, &str),
    answer: &MessageStatus,
    news: &SentNews,
) -> anyhow::Result<()> {
    let Ok(key) = news.heartbeat.told.parse::<SessionKey>() else { return Ok(()) };
    let is_there = ctx.sessions.views().find(tenant, &key).await? == Some(answer.session);
    if is_there || news.text.is_empty() {
        return Ok(());
    }
    let body =
        Body { role: Some("assistant".to_owned()), silent: true, ..Body::text(news.text.clone()) };
    let message = NewMessage {
        key,
        agent,
        label: None,
        source: Source::Internal(HEARTBEAT_SOURCE.to_owned()),
        idem_key: idem_key.to_owned(),
        body,
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    match ctx.sessions.ingest(tenant, message).await {
        Ok(_) => Ok(()),
        // The text was sent. If its session is full, the heartbeat must still end, or the next one
        // could not start.
        Err(error) if !error.kind().is_transient() => {
            warn!(%error, agent.id = %agent, "a conversation is not told what a heartbeat said");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Stores the outcome of a heartbeat, and publishes an event without the text.
pub async fn record_outcome(
    jobs: &Jobs,
    bus: &Bus,
    line: NewHeartbeatLine<'_>,
) -> Result<(), JobsError> {
    if !jobs.note_heartbeat(line).await? {
        return Ok(());
    }
    metrics::counter!("holdfast_scheduler_heartbeats_total", "status" => status_label(line.event.status))
        .increment(1);
    let told = HeartbeatEvent { preview: None, ..line.event.clone() };
    let payload = serde_json::to_vec(&told).unwrap_or_default();
    let subject = Subject::heartbeat(line.firing.tenant, line.agent);
    let (bus, id) = (bus.clone(), format!("heartbeat-{}", line.firing.idem_key()));
    // Nobody waits for the event to be published.
    tokio::spawn(async move {
        if let Err(error) = bus.publish_event(&subject, &id, Bytes::from(payload)).await {
            debug!(%error, "what came of a heartbeat is not on the bus");
        }
    });
    Ok(())
}

const fn status_label(status: Status) -> &'static str {
    match status {
        Status::Sent => "sent",
        Status::OkEmpty => "ok-empty",
        Status::OkToken => "ok-token",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}
