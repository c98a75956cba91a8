//! Announcements of ended subagents to the sessions that started them.

use std::sync::Arc;

use holdfast_agent::subagent::{SubagentOutcome as Told, stats_line, trigger_message};
use holdfast_bus::{Control, ControlKind};
use holdfast_pg::FailureLog;
use holdfast_session::{Subagent, SubagentOutcome};
use holdfast_types::{Fault as _, Kind, SessionId, TenantId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    failpoints,
    jitter::jittered,
    tools::{chains::ChainRunner, patches},
    worker::Worker,
};

/// Ended subagents per read.
const ANNOUNCE_BATCH_SIZE: i64 = 64;

/// Announces ended subagents to their requesters, until `stop`: those that may have ended in this
/// process at once, and all others while it holds the duty of upkeep.
pub(crate) async fn run_announcements(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("ends of subagents are not announced");
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = worker.ended.notified() => {}
            () = sleep(jittered(worker.config.sweep)) => {
                if !worker.upkeep.is_held() {
                    continue;
                }
            }
        }
        match announce_all(&worker, &stop).await {
            Ok(()) => trouble.on_success(),
            Err(error) => trouble.on_failure(&error),
        }
    }
}

/// Announces all ended subagents. One that cannot be announced holds up no other; the first
/// failure is returned after all were tried.
async fn announce_all(
    worker: &Worker,
    stop: &CancellationToken,
) -> Result<(), holdfast_session::Error> {
    let (mut last, mut failed) = (None, None);
    loop {
        let ended = worker.sessions.subagents().ended(last, ANNOUNCE_BATCH_SIZE).await?;
        for (tenant, session) in &ended {
            if let Err(error) = announce_or_postpone(worker, *tenant, *session).await {
                debug!(%error, session.id = %session, "an end is not announced yet");
                failed.get_or_insert(error);
            }
            if stop.is_cancelled() {
                return Ok(());
            }
        }
        match ended.last() {
            Some((_, session)) => last = Some(*session),
            None => return failed.map_or(Ok(()), Err),
        }
    }
}

/// Announces the end of one subagent. If that fails, it is tried again after a delay that grows.
async fn announce_or_postpone(
    worker: &Worker,
    tenant: TenantId,
    session: SessionId,
) -> Result<(), holdfast_session::Error> {
    let outcome = announce_end(worker, tenant, session).await;
    if let Ok(AnnouncementState::Done) = outcome {
        return Ok(());
    }
    worker.sessions.subagents().postpone(tenant, session).await?;
    outcome.map(drop)
}

/// Whether an end was announced, or has to be tried again.
enum AnnouncementState {
    Done,
    Later,
}

/// Announces the end of one subagent, or continues the chain to which it belongs.
async fn announce_end(
    worker: &Worker,
    tenant: TenantId,
    session: SessionId,
) -> Result<AnnouncementState, holdfast_session::Error> {
    let child = worker.sessions.subagents().get(tenant, session).await?;
    if let Some(place) = child.as_ref().and_then(|child| child.place.clone()) {
        let (sessions, directory, bus) = (&worker.sessions, &worker.directory, &worker.bus);
        let chains = ChainRunner { sessions, directory, bus };
        return match chains.continue_chain(tenant, session, &place).await {
            Ok(true) => Ok(AnnouncementState::Done),
            Ok(false) => Ok(AnnouncementState::Later),
            Err(error) => {
                let error: &dyn std::error::Error = error.as_ref();
                warn!(error, run.id = %place.run, "a chain does not go on; it is tried again");
                Ok(AnnouncementState::Later)
            }
        };
    }
    failpoints::point("runner.before_announce").await;
    let patch = match &child {
        Some(child) => changes_note(worker, tenant, child).await,
        None => None,
    };
    let say = |ended: &Subagent| announcement_text(ended) + patch.as_deref().unwrap_or_default();
    let announced = match worker.sessions.subagents().announce(tenant, session, say).await {
        // The requester's inbox is full: it is told later.
        Err(error) if error.kind() == Kind::Exhausted => return Ok(AnnouncementState::Later),
        announced => announced?,
    };
    failpoints::point("runner.after_announce").await;
    let Some(announced) = announced else { return Ok(AnnouncementState::Done) };
    if let Some(running) = announced.running {
        send_control(worker, session, running, ControlKind::Cancel);
    }
    if let Some(accepted) = announced.accepted {
        metrics::counter!("holdfast_runner_subagents_announced_total").increment(1);
        if accepted.wake.is_some() {
            worker.bus.wake_run(0);
        }
        if let Some(running) = accepted.running {
            send_control(worker, accepted.session, running, ControlKind::Input);
        }
    }
    Ok(AnnouncementState::Done)
}

/// Note about a subagent's changes to its copy of the workspace. A failure is only logged: the end
/// must be announced, and the changes can be looked at later.
async fn changes_note(worker: &Worker, tenant: TenantId, child: &Subagent) -> Option<String> {
    child.given.branch?;
    let told = async {
        let parent = worker.sessions.views().session(tenant, child.parent).await?;
        anyhow::Ok(patches::patch_note_for(&worker.workspaces, tenant, parent.agent, child).await?)
    };
    told.await.unwrap_or_else(|error| {
        let error: &dyn std::error::Error = error.as_ref();
        warn!(error, session.id = %child.session, "a patch is not told with its end");
        None
    })
}

fn send_control(
    worker: &Worker,
    session: SessionId,
    running: holdfast_session::SessionOwner,
    kind: ControlKind,
) {
    worker.bus.control(running.owner, &Control { session, kind, epoch: running.epoch });
}

/// Text of an announcement.
fn announcement_text(ended: &Subagent) -> String {
    let outcome = match ended.outcome {
        Some(SubagentOutcome::Ok) => Told::Ok,
        Some(SubagentOutcome::Error) => Told::Error,
        Some(SubagentOutcome::Timeout) => Told::Timeout,
        Some(SubagentOutcome::Unknown) | None => Told::Unknown,
    };
    let said = if ended.result.is_empty() { &ended.error } else { &ended.result };
    let tokens = u64::try_from(ended.tokens).ok().filter(|tokens| *tokens > 0);
    trigger_message(&ended.label, outcome, Some(said), &stats_line(ended.took, tokens))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tools::subagents::tests::task;

    #[test]
    fn a_failure_is_told_as_one_and_an_empty_end_too() {
        let ended = Subagent {
            outcome: Some(SubagentOutcome::Error),
            error: "budget exceeded: steps".into(),
            took: Duration::from_millis(1500),
            ..task()
        };
        let told = announcement_text(&ended);
        assert!(told.contains("\"count\" just failed"), "{told}");
        assert!(told.contains("budget exceeded: steps"), "{told}");
        assert!(told.contains("[Stats: duration=1.5s]"), "{told}");
        let silent = Subagent { outcome: Some(SubagentOutcome::Unknown), ..task() };
        assert!(announcement_text(&silent).contains("(no output)"));
    }
}
