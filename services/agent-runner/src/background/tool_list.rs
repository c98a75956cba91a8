//! Announcement of this runner's tools to the directory.

use std::{sync::Arc, time::Duration};

use holdfast_pg::FailureLog;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{jitter::jittered, worker::Worker};

/// Retry delay after a failed announcement.
const ANNOUNCE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Interval of announcing the tools; the directory drops them after three days.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Announces this runner's tools to the directory, which checks and explains policies with them.
pub(crate) async fn announce_tools(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = FailureLog::new("the tools are not announced");
    let tools = worker.tools.tool_lines();
    loop {
        let wait = match worker.directory.policies().announce_tools(&tools).await {
            Ok(()) => {
                trouble.on_success();
                jittered(ANNOUNCE_INTERVAL)
            }
            Err(error) => {
                trouble.on_failure(&error);
                ANNOUNCE_RETRY_DELAY
            }
        };
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return;
        }
    }
}
