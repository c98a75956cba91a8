//! Answers to operators' questions about this runner: its sandbox, or why it runs no commands.

use std::time::Duration;

use holdfast_bus::{Bus, RunnerAbout, Subject};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Delay before subscribing again after a failed subscription.
const AGAIN: Duration = Duration::from_secs(5);

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
