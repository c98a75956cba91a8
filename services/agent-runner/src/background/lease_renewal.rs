//! Lease renewal, and signals for the sessions that run here.
//!
//! One statement, every third of a lease, renews all leases of the process, on a connection of its
//! own. A lease that it finds locked is tried again soon; any other that it does not return is lost.
//! Renewal continues while the process stops, until the last turn has ended.

use std::{sync::Arc, time::Duration};

use holdfast_kit::boot_clock;
use holdfast_lock::SessionLock;
use holdfast_pg::FailureLog;
use holdfast_session::{Claim, RenewedLease};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{failpoints, leases::Lease, worker::Worker};

/// Retry delay after a failed renewal or subscription.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Renews all leases until `stop`.
pub(crate) async fn renew_leases(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("leases are not renewed");
    let usual = worker.config.lease / 3;
    let mut wait = usual;
    while stop.run_until_cancelled(sleep(wait)).await.is_some() {
        let holds = worker.leases.all();
        if holds.is_empty() {
            wait = usual;
            continue;
        }
        wait = match renew_once(&worker, &holds).await {
            Ok(locked) => {
                trouble.on_success();
                if locked == 0 { usual } else { RETRY_DELAY.min(usual) }
            }
            Err(error) => {
                trouble.on_failure(&error);
                RETRY_DELAY.min(usual)
            }
        };
        tokio::spawn(renew_locks(Arc::clone(&worker), holds));
    }
}

/// Returns the number of leases that other transactions have locked.
async fn renew_once(
    worker: &Worker,
    holds: &[Arc<Lease>],
) -> Result<usize, holdfast_session::Error> {
    let claims: Vec<Claim> = holds.iter().map(|lease| lease.claim.clone()).collect();
    // Taken before the request is sent: the new lease starts later than this.
    let asked = boot_clock::now();
    failpoints::point("runner.before_renew").await;
    let result = worker.sessions.renew(worker.id, &claims).await?;
    for lease in holds {
        let mine = |renewed: &&RenewedLease| {
            renewed.session == lease.claim.session && renewed.epoch == lease.claim.epoch
        };
        match result.renewed.iter().find(mine) {
            Some(renewed) => {
                lease.extend(asked);
                lease.update_signal(renewed);
            }
            None if result.locked.contains(&lease.claim.session) => {}
            // Lost, or its turn has ended meanwhile and nobody reads the token.
            None => lease.lost.cancel(),
        }
    }
    Ok(result.locked.len())
}

async fn renew_locks(worker: Arc<Worker>, holds: Vec<Arc<Lease>>) {
    let lock = |lease: &Arc<Lease>| SessionLock {
        tenant: lease.claim.tenant,
        session: lease.claim.session,
        epoch: lease.claim.epoch,
    };
    let live = |lease: &&Arc<Lease>| worker.leases.get(lease.claim.session).is_some();
    let locks: Vec<SessionLock> = holds.iter().filter(live).map(lock).collect();
    let Ok(lost) = worker.locks.renew_many(&locks).await else { return };
    for (lock, epoch) in lost.into_iter().filter(|(lock, epoch)| *epoch > lock.epoch) {
        for lease in holds.iter().filter(|lease| lease.claim.session == lock.session) {
            if lease.claim.epoch < epoch {
                lease.lost.cancel();
            }
        }
    }
}

/// Receives control messages for sessions that run here.
pub(crate) async fn receive_controls(worker: Arc<Worker>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let Ok(mut controls) = worker.bus.controls(worker.id).await else {
            let _ = timeout(RETRY_DELAY, stop.cancelled()).await;
            continue;
        };
        while let Some(Some(control)) = stop.run_until_cancelled(controls.next()).await {
            // A control message is only a hint: the turn reads the database.
            match worker.leases.get(control.session) {
                Some(lease) if lease.claim.epoch == control.epoch => lease.notify(),
                Some(_) => {}
                // Another runner left it to this one, which holds its state.
                None => worker.wake.notify_one(),
            }
        }
    }
}
