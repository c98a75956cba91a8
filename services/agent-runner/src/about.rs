//! Answering what this runner is asked about itself: where commands run here, or why none do.

use std::time::Duration;

use holdfast_bus::{Bus, RunnerAbout, Subject};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How soon it listens again if it could not.
const AGAIN: Duration = Duration::from_secs(5);

/// Answers until `stop`.
pub(crate) async fn answer(bus: Bus, about: RunnerAbout, stop: CancellationToken) {
    while !stop.is_cancelled() {
        if let Ok(mut questions) = bus.questions(&Subject::about_runners()).await {
            while let Some(Some(((), asker))) = stop.run_until_cancelled(questions.next()).await {
                asker.answer(&about).await;
            }
        }
        stop.run_until_cancelled(sleep(AGAIN)).await;
    }
}
