//! Long-running tasks of a process, which all end when the first one ends.
//!
//! A service consists of a few loops: a gRPC server, a consumer, a sweeper. None is useful alone.
//! When one ends, for any reason, all are stopped and Kubernetes restarts the process. A loop that
//! may fail without harm does not belong here: it handles its own errors.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, anyhow};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span, info, warn};

#[derive(Debug)]
pub struct Tasks {
    stop: CancellationToken,
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
}

impl Tasks {
    /// Creates an empty set. Its tasks must end soon after `stop` is cancelled.
    #[must_use]
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, running: JoinSet::new() }
    }

    /// Starts a task. Each line that it logs carries `name`.
    pub fn spawn<F>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let task = task.instrument(error_span!("task", name));
        self.running.spawn(async move { (name, task.await) });
    }

    /// Waits until `stop` is cancelled or a task ends, then gives the remaining tasks `grace` to
    /// finish.
    ///
    /// # Errors
    ///
    /// The first failure. A task that ends before `stop` is cancelled is a failure too.
    pub async fn run(mut self, grace: Duration) -> anyhow::Result<()> {
        let first = self.wait_for_stop().await;
        self.finish_within(grace).await;
        first
    }

    /// As [`run`](Self::run), but cancels `cut` when `margin` of the grace period is left. However
    /// late that is, the remaining tasks have `margin` from then on.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_and_cut(
        mut self,
        grace: Duration,
        (cut, margin): (CancellationToken, Duration),
    ) -> anyhow::Result<()> {
        let first = self.wait_for_stop().await;
        if timeout(grace.saturating_sub(margin), self.drain()).await.is_err() {
            cut.cancel();
            self.finish_within(margin.min(grace)).await;
        }
        first
    }

    /// Waits until `stop` is cancelled or a task ends, and cancels it then.
    async fn wait_for_stop(&mut self) -> anyhow::Result<()> {
        let first = tokio::select! {
            () = self.stop.cancelled() => Ok(()),
            Some(ended) = self.running.join_next() => match ended {
                Ok((name, Ok(()))) if !self.stop.is_cancelled() => {
                    Err(anyhow!("task `{name}` ended early"))
                }
                Ok((name, outcome)) => outcome.with_context(|| format!("task `{name}` failed")),
                Err(panic) => Err(panic).context("a task panicked"),
            },
        };
        self.stop.cancel();
        first
    }

    async fn finish_within(&mut self, grace: Duration) {
        if timeout(grace, self.drain()).await.is_err() {
            warn!(left = self.running.len(), ?grace, "gave up waiting for tasks to finish");
        }
    }

    async fn drain(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            match ended {
                Ok((name, Ok(()))) => info!(name, "task finished"),
                Ok((name, Err(error))) => warn!(name, ?error, "task failed while stopping"),
                Err(error) => warn!(%error, "task panicked while stopping"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn stopping_lets_every_task_finish_its_work() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("polite", {
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                Ok(())
            }
        });

        stop.cancel();

        assert!(tasks.run(GRACE).await.is_ok());
    }

    #[tokio::test]
    async fn one_failure_stops_the_others() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("broken", async { Err(anyhow!("disk on fire")) });
        tasks.spawn("polite", {
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                Ok(())
            }
        });

        let error = tasks.run(GRACE).await.unwrap_err();

        assert_eq!(format!("{error:#}"), "task `broken` failed: disk on fire");
        assert!(stop.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_will_not_stop_is_left_behind_after_the_grace_period() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("deaf", pending());

        let started = tokio::time::Instant::now();
        stop.cancel();

        assert!(tasks.run(GRACE).await.is_ok());
        assert_eq!(started.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_can_be_told_to_end_before_the_grace_period_is_over() {
        let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("streams", {
            let cut = cut.clone();
            async move {
                cut.cancelled().await;
                Ok(())
            }
        });

        let started = tokio::time::Instant::now();
        stop.cancel();
        let margin = Duration::from_secs(1);

        assert!(tasks.run_and_cut(GRACE, (cut, margin)).await.is_ok());
        assert_eq!(started.elapsed(), GRACE - margin);
    }
}
