//! Answers to operators' questions about this runner: its sandbox, or why it runs no commands, and
//! how much it does.

use std::{sync::Arc, time::Duration};

use holdfast_bus::{Bus, ProcessReport, RunnerReport, Subject};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Delay before subscribing again after a failed subscription.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(5);

pub(crate) async fn serve_runner_report(bus: Bus, about: RunnerReport, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok(mut questions) = bus.questions(&Subject::runner_reports()).await {
            while let Some(Some(((), asker))) = stop.run_until_cancelled(questions.next()).await {
                asker.answer(&about).await;
            }
        }
        stop.run_until_cancelled(sleep(RESUBSCRIBE_DELAY)).await;
    }
}

/// Answers until the last turn has ended, so that operators see a runner that stops.
pub(crate) async fn serve_process_report(
    worker: Arc<Worker>,
    about: RunnerReport,
    ended: CancellationToken,
) {
    let starting = ProcessReport::starting("agent-runner", worker.id, env!("CARGO_PKG_VERSION"));
    let report = || ProcessReport {
        pool: worker.config.pool.clone(),
        running: u32::try_from(worker.leases.len()).unwrap_or(u32::MAX),
        capacity: worker.config.slots,
        sandbox: about.sandbox.clone(),
        no_commands: about.no_commands.clone(),
        is_hosted: Some(worker.config.sandbox.hosted),
        is_stopping: worker.draining.is_cancelled(),
        ..starting.clone()
    };
    ProcessReport::serve(&worker.bus, report, ended).await;
}
