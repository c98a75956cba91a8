//! Renewal of this runner, so that others leave it the sessions whose state it holds.

use std::{sync::Arc, time::Duration};

use holdfast_pg::FailureLog;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::worker::Worker;

/// Retry delay after a failed renewal.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Renews this runner, and what it holds, until `stop`; then others may claim its sessions.
pub(crate) async fn renew_runner(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("this runner is not recorded as alive");
    let usual = worker.config.lease / 3;
    loop {
        let wait = match worker.held.renew().await {
            Ok(()) => {
                trouble.on_success();
                usual
            }
            Err(error) => {
                trouble.on_failure(&error);
                RETRY_DELAY.min(usual)
            }
        };
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            break;
        }
    }
    if let Err(error) = worker.sessions.stop_runner(worker.id).await {
        debug!(error = &error as &dyn std::error::Error, "this runner is not recorded as stopped");
    }
    worker.bus.wake_run(0);
}
