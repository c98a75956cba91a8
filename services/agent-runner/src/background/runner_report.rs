//! Answers to operators' questions about this runner: its sandbox, or why it runs no commands.

use std::time::Duration;

use holdfast_bus::{Bus, RunnerReport, Subject};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

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
