//! Detects ended firings by polling the state of their messages every second.
//!
//! If the answer has to be delivered, the firing ends only when its deliveries were sent or given
//! up.
//!
//! The inbox is the source of truth, and any replica may poll: the first one that records an end
//! wins, the others change nothing. A turn that exceeds its time is cancelled; a message that waits
//! for a runner continues to wait.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use holdfast_bus::{Control, ControlKind};
use holdfast_pg::FailureLog;
use holdfast_schedule::store::{
    AnsweredFiring, CLASS_UNSENT, DeliveryReport, Error as JobsError, FinishedFiring, OpenFiring,
    Outcome,
};
use holdfast_session::{
    DeliveryProgress, Error as SessionError, MessageOutcome, OverdueResult, TurnOutcome as Heard,
};
use holdfast_types::{Fault as _, Kind};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{context::Ctx, meter};

/// Time beyond a firing's limit before it counts as lost. In this period it is cancelled and
/// records its own end.
pub const CANCEL_GRACE: Duration = Duration::from_secs(60);

/// Maximum time for the delivery of an answer: longer than a bridge retries.
const MAX_DELIVERY_TIME: Duration = Duration::from_secs(7_200);

/// Minimum interval between polls.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Extension for a message whose turn has not begun, before it is checked again.
const QUEUED_EXTENSION: Duration = Duration::from_secs(60);

/// Number of firings checked per query.
const PAGE_SIZE: u32 = 2_000;

/// If polls are slow and no firing has ended, they take at most one tenth of the time, unless that
/// would exceed the maximum interval.
const POLL_DUTY_FACTOR: f64 = 10.0;
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Settle {
    ctx: Ctx,
    trouble: FailureLog,
}

impl Settle {
    pub fn new(ctx: Ctx) -> Self {
        Self { ctx, trouble: FailureLog::new("ends of firings are not seen") }
    }

    /// Polls until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let begun = Instant::now();
            let looked = self.poll().await;
            let pause = looked.pause(begun.elapsed());
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Checks all delivered firings once.
    pub async fn poll(&self) -> PollSummary {
        let mut looked = PollSummary::default();
        if let Err(error) = self.try_poll(&mut looked).await {
            // The next poll follows soon.
            self.trouble.on_failure(&error);
        } else {
            self.trouble.on_success();
        }
        looked
    }

    async fn try_poll(&self, looked: &mut PollSummary) -> Result<(), PollError> {
        let mut last = None;
        loop {
            let page = self.ctx.jobs.open_firings(last.as_ref(), PAGE_SIZE).await?;
            looked.count += page.len();
            looked.ended += self.settle(&page).await?;
            match page.last() {
                Some(end) if page.len() == PAGE_SIZE as usize => last = Some(*end),
                _ => break,
            }
        }
        meter::set_in_progress(looked.count);
        Ok(())
    }

    /// Records which of these firings have ended, and returns their number.
    async fn settle(&self, page: &[OpenFiring]) -> Result<usize, PollError> {
        let messages: Vec<_> =
            page.iter().map(|out| (out.firing.tenant, out.session, out.seq)).collect();
        let ends = self.ctx.sessions.views().message_outcomes(&messages).await?;
        let arrivals = self.arrivals(page, &ends).await?;
        let mut open = vec![true; page.len()];
        let (mut ended, mut ran, mut begun) = (Vec::new(), Vec::new(), Vec::new());
        let (mut answered, mut queued) = (Vec::new(), Vec::new());
        for end in ends {
            let Some(out) = page.get(end.place) else { continue };
            open[end.place] = false;
            let arrival = arrivals.get(&end.place).copied().unwrap_or(DeliveryProgress::Delivered);
            if arrival == DeliveryProgress::Pending && !(out.answered && out.left <= CANCEL_GRACE) {
                if !out.answered {
                    let (firing, run) = (out.firing, end.run);
                    answered.push(AnsweredFiring {
                        firing,
                        run,
                        patience: MAX_DELIVERY_TIME + CANCEL_GRACE,
                    });
                }
                continue;
            }
            if end.run.is_some() {
                ran.push(DeliveryReport { run: end.run, ..extended(out, CANCEL_GRACE) });
            }
            ended.push(ended_by_message(out, &end, arrival));
        }
        for (out, _) in
            page.iter().zip(open).filter(|(out, open)| *open && out.left <= CANCEL_GRACE)
        {
            match self.give_up(out).await {
                Ok(OverdueOutcome::GivenUp) => {
                    ended.push(ended_without_message(out, Outcome::Error, "timeout"))
                }
                // The message was answered and deleted long ago.
                Ok(OverdueOutcome::Gone) => {
                    ended.push(ended_without_message(out, Outcome::Skipped, "gone"))
                }
                Ok(OverdueOutcome::Waits) => queued.push(out.firing),
                Ok(OverdueOutcome::Begins(patience)) => begun.push(extended(out, patience)),
                Err(error) => warn!(%error, "a run that takes too long cannot be ended yet"),
            }
        }
        // The job's log names the run.
        self.ctx.jobs.mark_delivered(&ran).await?;
        self.ctx.jobs.mark_delivered(&begun).await?;
        self.ctx.jobs.extend_queued(&queued, CANCEL_GRACE + QUEUED_EXTENSION).await?;
        self.ctx.jobs.mark_answered(&answered).await?;
        for end in &ended {
            meter::ended(end.outcome);
        }
        self.ctx.jobs.finish(&ended).await?;
        Ok(ended.len())
    }

    /// Returns the delivery state of the answers that must be delivered, by index in `page`.
    async fn arrivals(
        &self,
        page: &[OpenFiring],
        ends: &[MessageOutcome],
    ) -> Result<HashMap<usize, DeliveryProgress>, SessionError> {
        let (mut places, mut runs) = (Vec::new(), Vec::new());
        for end in ends.iter().filter(|end| end.outcome == Heard::Completed) {
            let out = page.get(end.place).filter(|out| out.arrives);
            if let (Some(out), Some(run)) = (out, end.run) {
                places.push(end.place);
                runs.push((out.firing.tenant, out.session, run));
            }
        }
        let arrivals = self.ctx.sessions.deliveries().progress(&runs).await?;
        Ok(places.into_iter().zip(arrivals).collect())
    }

    /// Cancels a firing's turn that exceeds its time, if it has begun, and no other turn.
    async fn give_up(&self, out: &OpenFiring) -> Result<OverdueOutcome, SessionError> {
        let (sessions, tenant) = (&self.ctx.sessions, out.firing.tenant);
        let ended = match out.patience {
            None => sessions.end_overdue(tenant, out.session, out.seq).await,
            Some(_) => sessions.check_overdue(tenant, out.session, out.seq).await,
        };
        match ended {
            // The session was deleted, and the message with it.
            Err(error) if error.kind() == Kind::NotFound => Ok(OverdueOutcome::GivenUp),
            Err(error) => Err(error),
            Ok(OverdueResult::Stopped(running)) => {
                let kind = ControlKind::Cancel;
                let control = Control { session: out.session, kind, epoch: running.epoch };
                self.ctx.bus.control(running.owner, &control);
                info!(job.id = %out.firing.job, session.id = %out.session, "a run took too long");
                Ok(OverdueOutcome::GivenUp)
            }
            Ok(OverdueResult::Woken(wake)) => {
                if wake {
                    self.ctx.bus.wake_run(0);
                }
                Ok(OverdueOutcome::GivenUp)
            }
            // The message waited so long that its turn began only now.
            Ok(OverdueResult::Begun) => {
                Ok(OverdueOutcome::Begins(out.patience.unwrap_or(CANCEL_GRACE)))
            }
            Ok(OverdueResult::Waits) => Ok(OverdueOutcome::Waits),
            Ok(OverdueResult::Gone) => Ok(OverdueOutcome::Gone),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct PollSummary {
    /// Number of checked firings, and of those that have ended.
    count: usize,
    ended: usize,
}

impl PollSummary {
    /// Returns the delay before the next poll, after one that took `took`. Time spent to record
    /// ends is necessary; time spent to find that nothing has ended is limited.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn pause(self, took: Duration) -> Duration {
        let open = self.count.saturating_sub(self.ended) as f64 / self.count.max(1) as f64;
        took.mul_f64(POLL_DUTY_FACTOR * open).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
    }
}

/// Result of checking a firing that exceeds its time.
enum OverdueOutcome {
    GivenUp,
    Begins(Duration),
    Waits,
    Gone,
}

/// Returns the end of a firing whose message does not say how it ended.
fn ended_without_message(out: &OpenFiring, outcome: Outcome, class: &str) -> FinishedFiring {
    FinishedFiring { firing: out.firing, outcome, class: Some(class.to_owned()), took: None }
}

/// Extends the time of a firing in progress to `lease`.
fn extended(out: &OpenFiring, lease: Duration) -> DeliveryReport {
    let message = Some((out.session, out.seq));
    DeliveryReport { firing: out.firing, run: None, lease, message, arrives: out.arrives }
}

/// Returns the end of a firing from the end of its message. A cancelled or interrupted turn is not
/// an error, so it is not retried.
fn ended_by_message(
    out: &OpenFiring,
    end: &MessageOutcome,
    arrival: DeliveryProgress,
) -> FinishedFiring {
    let (outcome, class) = match end.outcome {
        Heard::Completed => match arrival {
            DeliveryProgress::Delivered => (Outcome::Ok, None),
            // The channel gave up the delivery.
            DeliveryProgress::Failed => (Outcome::Error, Some("undelivered")),
            // No bridge has fetched the answer yet, and one will when it is back. A retry would
            // send it twice.
            DeliveryProgress::Pending => (Outcome::Error, Some(CLASS_UNSENT)),
        },
        Heard::Interrupted => (Outcome::Skipped, Some("interrupted")),
        Heard::Cancelled => (Outcome::Skipped, Some("cancelled")),
        Heard::Failed => (Outcome::Error, Some("failed")),
        Heard::Dead => (Outcome::Error, Some("dead")),
    };
    let class = class.map(str::to_owned);
    FinishedFiring { firing: out.firing, outcome, class, took: Some(end.took) }
}

/// Failure of a poll.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error(transparent)]
    Jobs(#[from] JobsError),
    #[error(transparent)]
    Sessions(#[from] SessionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(count: usize, ended: usize, took: u64) -> Duration {
        PollSummary { count, ended }.pause(Duration::from_millis(took))
    }

    #[test]
    fn it_is_asked_seldom_only_where_asking_takes_long_and_little_has_ended() {
        assert_eq!(pause(0, 0, 2), MIN_POLL_INTERVAL);
        assert_eq!(pause(10, 0, 50), MIN_POLL_INTERVAL);
        assert_eq!(pause(1_000, 0, 300), Duration::from_secs(3));
        assert_eq!(pause(1_000, 500, 300), Duration::from_millis(1_500));
        assert_eq!(
            pause(40_000, 40_000, 8_000),
            MIN_POLL_INTERVAL,
            "all have ended: there may be more"
        );
        assert_eq!(pause(40_000, 0, 8_000), MAX_POLL_INTERVAL);
    }
}
