//! Upkeep of todo lists and of the ledger, by the runner with the duty of upkeep: tells waiting
//! sessions of changed todos and files, frees workspaces that sessions kept for their todos, and writes the chains
//! of the tenants' ledgers.
//!
//! Both happen outside of turns. A change that was told is removed afterwards; after a crash in
//! between it is told again under the same idempotency key.

use std::sync::Arc;

use holdfast_bus::{Control, ControlKind};
use holdfast_pg::FailureLog;
use holdfast_session::{Acceptance, FamilyEvent, FamilyResult};
use holdfast_types::{Fault as _, Kind, TenantId};
use holdfast_work::Wakeup;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::file_watches;
use crate::{jitter::jittered, worker::Worker};

/// Event of a changed todo list.
const TODO_EVENT: &str = "todo.changed";

/// Ledger entries that one transaction chains.
const ENTRIES_PER_CHAIN: u32 = 500;

/// Tells of changes and writes chains, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let untold = FailureLog::new("changes of todos are not told");
    let unseen = FailureLog::new("changes of files are not told");
    let kept = FailureLog::new("workspaces are not freed");
    let unchained = FailureLog::new("the ledger is not chained");
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(jittered(worker.config.relay)) => {}
        }
        if !worker.upkeep.is_held() {
            continue;
        }
        match tell_changes(&worker).await {
            Ok(()) => untold.on_success(),
            Err(error) => untold.on_failure(error.as_ref()),
        }
        match file_watches::tell_changes(&worker).await {
            Ok(()) => unseen.on_success(),
            Err(error) => unseen.on_failure(error.as_ref()),
        }
        match free_workspaces(&worker).await {
            Ok(()) => kept.on_success(),
            Err(error) => kept.on_failure(error.as_ref()),
        }
        match chain_ledgers(&worker).await {
            Ok(()) => unchained.on_success(),
            Err(error) => unchained.on_failure(&error),
        }
    }
}

async fn tell_changes(worker: &Worker) -> anyhow::Result<()> {
    let wakeups = worker.work.wakeups();
    for tenant in wakeups.tenants().await? {
        let mut done = Vec::new();
        for wakeup in wakeups.pending(tenant).await? {
            match tell_change(worker, tenant, &wakeup).await {
                Ok(true) => done.push(wakeup.id),
                // A session runs, and may wait for the change when its turn has ended.
                Ok(false) => {}
                // An inbox is full: its session is told later.
                Err(error) if error.kind() == Kind::Exhausted => {
                    debug!(%error, wakeup.id, "a change is not told yet");
                }
                Err(error) => return Err(error.into()),
            }
        }
        wakeups.remove(tenant, &done).await?;
    }
    Ok(())
}

/// Tells the sessions that wait for a change. Returns whether all that may wait were told.
async fn tell_change(
    worker: &Worker,
    tenant: TenantId,
    wakeup: &Wakeup,
) -> Result<bool, holdfast_session::Error> {
    let mut is_any_running = false;
    for root in &wakeup.roots {
        let event = FamilyEvent {
            name: TODO_EVENT,
            root: *root,
            cause: wakeup.changed_by,
            idem_key: format!("todo:{}", wakeup.id),
            text: format!("The todo list was changed.\n{}", wakeup.text),
            outside: wakeup.outside,
        };
        let result = worker.sessions.tell_family(tenant, &event).await?;
        is_any_running |= result.is_any_running;
        wake(worker, result);
    }
    Ok(!is_any_running)
}

/// Starts the turns of sessions that were told of an event.
pub(super) fn wake(worker: &Worker, result: FamilyResult) {
    for Acceptance { session, wake, running, .. } in result.told {
        if wake.is_some() {
            worker.wake.notify_one();
            worker.bus.wake_run(0);
        }
        if let Some(running) = running {
            let control = Control { session, kind: ControlKind::Input, epoch: running.epoch };
            worker.bus.control(running.owner, &control);
        }
    }
}

/// Frees the workspaces of sessions whose todos are finished.
async fn free_workspaces(worker: &Worker) -> anyhow::Result<()> {
    for (tenant, session) in worker.sessions.draining().await? {
        let counts = worker.work.view(tenant, session).await?.counts;
        if counts.wait + counts.in_progress + counts.check_failed == 0 {
            worker.sessions.end_draining(tenant, session).await?;
            worker.bus.wake_run(0);
        }
    }
    Ok(())
}

async fn chain_ledgers(worker: &Worker) -> Result<(), holdfast_work::Error> {
    let ledger = worker.work.ledger();
    for tenant in ledger.unchained().await? {
        let mut chained = ENTRIES_PER_CHAIN.into();
        while chained == u64::from(ENTRIES_PER_CHAIN) {
            chained = ledger.chain(tenant, ENTRIES_PER_CHAIN).await?;
        }
    }
    Ok(())
}
