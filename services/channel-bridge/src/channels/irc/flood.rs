//! Limit on the lines that are sent: servers disconnect clients that flood.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Lines that may be sent at once.
const BURST: u32 = 5;

/// Time in which one more line may be sent.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Token bucket over lines.
#[derive(Debug)]
pub(super) struct FloodLimit {
    /// When all lines of the burst are available again.
    full_at: Instant,
}

impl FloodLimit {
    pub(super) fn new() -> Self {
        Self { full_at: Instant::now() }
    }

    /// Waits until a line may be sent, and counts it.
    pub(super) async fn wait(&mut self) {
        let now = Instant::now();
        let allowed_at = self.full_at.checked_sub(LINE_INTERVAL * (BURST - 1)).unwrap_or(now);
        self.full_at = self.full_at.max(now) + LINE_INTERVAL;
        sleep_until(allowed_at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_a_line_a_second() {
        let (mut limit, began) = (FloodLimit::new(), Instant::now());
        for _ in 0..BURST {
            limit.wait().await;
        }
        assert!(began.elapsed() < Duration::from_millis(10));

        for _ in 0..3 {
            limit.wait().await;
        }

        assert!(began.elapsed() >= LINE_INTERVAL * 3, "{:?}", began.elapsed());
        tokio::time::advance(LINE_INTERVAL * 20).await;
        let rested = Instant::now();
        limit.wait().await;
        assert!(rested.elapsed() < Duration::from_millis(10));
    }
}
