//! Upkeep of connections to MCP servers.

use std::{sync::Arc, time::Duration};

use holdfast_bus::{McpProbe, McpProbeResult};
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Connects to the server of a probe and lists its tools.
pub(crate) async fn answer_probe(worker: Arc<Worker>, probe: McpProbe) -> McpProbeResult {
    worker.mcp.probe(probe.tenant, &probe.server).await
}

/// Closes idle connections until `stop`.
pub(crate) async fn close_idle_loop(worker: Arc<Worker>, stop: CancellationToken) {
    let every =
        (worker.config.mcp.idle / 4).clamp(Duration::from_millis(100), Duration::from_secs(30));
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => worker.mcp.close_idle().await,
            () = stop.cancelled() => return,
        }
    }
}
