//! Upkeep of connections to MCP servers.

use std::{sync::Arc, time::Duration};

use holdfast_bus::McpProbe;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::worker::Worker;

pub(crate) async fn answer_probes(worker: Arc<Worker>, stop: CancellationToken) {
    let probes = tokio::select! {
        probes = worker.bus.mcp_probes(&worker.config.pool) => probes,
        () = stop.cancelled() => return,
    };
    let mut probes = match probes {
        Ok(probes) => probes,
        Err(error) => {
            debug!(%error, "nobody can ask this runner about mcp servers");
            return;
        }
    };
    loop {
        let asked = tokio::select! {
            asked = probes.next::<McpProbe>() => asked,
            () = stop.cancelled() => return,
        };
        let Some((probe, asker)) = asked else { return };
        let worker = Arc::clone(&worker);
        tokio::spawn(async move {
            let probed = worker.mcp.probe(probe.tenant, &probe.server).await;
            asker.answer(&probed).await;
        });
    }
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
