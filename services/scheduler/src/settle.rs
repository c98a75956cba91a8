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
use holdfast_jobs::{Answered, Delivered, Ended, Error as JobsError, Out, Outcome, UNSENT};
use holdfast_session::{Arrival, End, Error as SessionError, Outcome as Heard, Overdue};
use holdfast_types::{Fault as _, Kind};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{fire::Ctx, meter};

/// Time beyond a firing's limit before it counts as lost. In this period it is cancelled and
/// records its own end.
pub const GRACE: Duration = Duration::from_secs(60);

/// Maximum time for the delivery of an answer: longer than a bridge retries.
const ARRIVAL: Duration = Duration::from_secs(7_200);

/// Minimum interval between polls.
const EACH: Duration = Duration::from_secs(1);

/// Extension for a message whose turn has not begun, before it is checked again.
const MORE: Duration = Duration::from_secs(60);

/// Number of firings checked per query.
const PAGE: u32 = 2_000;

/// If polls are slow and no firing has ended, they take at most one tenth of the time, unless that
/// would exceed the maximum interval.
const PART: f64 = 10.0;
const SELDOM: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Settle {
    pub ctx: Ctx,
}

impl Settle {
    /// Polls until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let begun = Instant::now();
            let looked = self.look().await;
            let pause = looked.pause(begun.elapsed());
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Checks all delivered firings once.
    pub async fn look(&self) -> Looked {
        let mut looked = Looked::default();
        if let Err(error) = self.try_look(&mut looked).await {
            // The claim loop logs the failure. The next poll follows soon.
            debug!(error = &error as &dyn std::error::Error, "ends cannot be asked for");
        }
        looked
    }

    async fn try_look(&self, looked: &mut Looked) -> Result<(), Failed> {
        let mut last = None;
        loop {
            let page = self.ctx.jobs.out(last.as_ref(), PAGE).await?;
            looked.count += page.len();
            looked.ended += self.settle(&page).await?;
            match page.last() {
                Some(end) if page.len() == PAGE as usize => last = Some(*end),
                _ => break,
            }
        }
        meter::out(looked.count);
        Ok(())
    }

    /// Records which of these firings have ended, and returns their number.
    async fn settle(&self, page: &[Out]) -> Result<usize, Failed> {
        let messages: Vec<_> =
            page.iter().map(|out| (out.firing.tenant, out.session, out.seq)).collect();
        let ends = self.ctx.sessions.ends(&messages).await?;
        let arrivals = self.arrivals(page, &ends).await?;
        let mut open = vec![true; page.len()];
        let (mut ended, mut ran, mut begun) = (Vec::new(), Vec::new(), Vec::new());
        let (mut answered, mut queued) = (Vec::new(), Vec::new());
        for end in ends {
            let Some(out) = page.get(end.place) else { continue };
            open[end.place] = false;
            let arrival = arrivals.get(&end.place).copied().unwrap_or(Arrival::Arrived);
            if arrival == Arrival::OnItsWay && !(out.answered && out.left <= GRACE) {
                if !out.answered {
                    let (firing, run) = (out.firing, end.run);
                    answered.push(Answered { firing, run, patience: ARRIVAL + GRACE });
                }
                continue;
            }
            if end.run.is_some() {
                ran.push(Delivered { run: end.run, ..again(out, GRACE) });
            }
            ended.push(how(out, &end, arrival));
        }
        for (out, _) in page.iter().zip(open).filter(|(out, open)| *open && out.left <= GRACE) {
            match self.give_up(out).await {
                Ok(Late::GivenUp) => ended.push(over(out, Outcome::Error, "timeout")),
                // The message was answered and deleted long ago.
                Ok(Late::Gone) => ended.push(over(out, Outcome::Skipped, "gone")),
                Ok(Late::Waits) => queued.push(out.firing),
                Ok(Late::Begins(patience)) => begun.push(again(out, patience)),
                Err(error) => warn!(%error, "a run that takes too long cannot be ended yet"),
            }
        }
        // The job's log names the run.
        self.ctx.jobs.delivered(&ran).await?;
        self.ctx.jobs.delivered(&begun).await?;
        self.ctx.jobs.queued(&queued, GRACE + MORE).await?;
        self.ctx.jobs.answered(&answered).await?;
        for end in &ended {
            meter::ended(end.outcome);
        }
        self.ctx.jobs.finished(&ended).await?;
        Ok(ended.len())
    }

    /// Returns the delivery state of the answers that must be delivered, by index in `page`.
    async fn arrivals(
        &self,
        page: &[Out],
        ends: &[End],
    ) -> Result<HashMap<usize, Arrival>, SessionError> {
        let (mut places, mut runs) = (Vec::new(), Vec::new());
        for end in ends.iter().filter(|end| end.outcome == Heard::Completed) {
            let out = page.get(end.place).filter(|out| out.arrives);
            if let (Some(out), Some(run)) = (out, end.run) {
                places.push(end.place);
                runs.push((out.firing.tenant, out.session, run));
            }
        }
        let arrivals = self.ctx.sessions.arrivals(&runs).await?;
        Ok(places.into_iter().zip(arrivals).collect())
    }

    /// Cancels a firing's turn that exceeds its time, if it has begun, and no other turn.
    async fn give_up(&self, out: &Out) -> Result<Late, SessionError> {
        let (sessions, tenant) = (&self.ctx.sessions, out.firing.tenant);
        let ended = match out.patience {
            None => sessions.end_overdue(tenant, out.session, out.seq).await,
            Some(_) => sessions.look_overdue(tenant, out.session, out.seq).await,
        };
        match ended {
            // The session was deleted, and the message with it.
            Err(error) if error.kind() == Kind::NotFound => Ok(Late::GivenUp),
            Err(error) => Err(error),
            Ok(Overdue::Stopped(running)) => {
                let kind = ControlKind::Cancel;
                let control = Control { session: out.session, kind, epoch: running.epoch };
                self.ctx.bus.control(running.owner, &control);
                info!(job.id = %out.firing.job, session.id = %out.session, "a run took too long");
                Ok(Late::GivenUp)
            }
            Ok(Overdue::Woken(wake)) => {
                if wake {
                    self.ctx.bus.wake_run(0);
                }
                Ok(Late::GivenUp)
            }
            // The message waited so long that its turn began only now.
            Ok(Overdue::Begun) => Ok(Late::Begins(out.patience.unwrap_or(GRACE))),
            Ok(Overdue::Waits) => Ok(Late::Waits),
            Ok(Overdue::Gone) => Ok(Late::Gone),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    /// Number of checked firings, and of those that have ended.
    count: usize,
    ended: usize,
}

impl Looked {
    /// Returns the delay before the next poll, after one that took `took`. Time spent to record
    /// ends is necessary; time spent to find that nothing has ended is limited.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn pause(self, took: Duration) -> Duration {
        let open = self.count.saturating_sub(self.ended) as f64 / self.count.max(1) as f64;
        took.mul_f64(PART * open).clamp(EACH, SELDOM)
    }
}

/// Result of checking a firing that exceeds its time.
enum Late {
    GivenUp,
    Begins(Duration),
    Waits,
    Gone,
}

/// Returns the end of a firing whose message does not say how it ended.
fn over(out: &Out, outcome: Outcome, class: &str) -> Ended {
    Ended { firing: out.firing, outcome, class: Some(class.to_owned()), took: None }
}

/// Extends the time of a firing in progress to `lease`.
fn again(out: &Out, lease: Duration) -> Delivered {
    let message = Some((out.session, out.seq));
    Delivered { firing: out.firing, run: None, lease, message, arrives: out.arrives }
}

/// Returns the end of a firing from the end of its message. A cancelled or interrupted turn is not
/// an error, so it is not retried.
fn how(out: &Out, end: &End, arrival: Arrival) -> Ended {
    let (outcome, class) = match end.outcome {
        Heard::Completed => match arrival {
            Arrival::Arrived => (Outcome::Ok, None),
            // The channel gave up the delivery.
            Arrival::Lost => (Outcome::Error, Some("undelivered")),
            // No bridge has fetched the answer yet, and one will when it is back. A retry would
            // send it twice.
            Arrival::OnItsWay => (Outcome::Error, Some(UNSENT)),
        },
        Heard::Interrupted => (Outcome::Skipped, Some("interrupted")),
        Heard::Cancelled => (Outcome::Skipped, Some("cancelled")),
        Heard::Failed => (Outcome::Error, Some("failed")),
        Heard::Dead => (Outcome::Error, Some("dead")),
    };
    let class = class.map(str::to_owned);
    Ended { firing: out.firing, outcome, class, took: Some(end.took) }
}

/// Failure of a poll.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Jobs(#[from] JobsError),
    #[error(transparent)]
    Sessions(#[from] SessionError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(count: usize, ended: usize, took: u64) -> Duration {
        Looked { count, ended }.pause(Duration::from_millis(took))
    }

    #[test]
    fn it_is_asked_seldom_only_where_asking_takes_long_and_little_has_ended() {
        assert_eq!(pause(0, 0, 2), EACH);
        assert_eq!(pause(10, 0, 50), EACH);
        assert_eq!(pause(1_000, 0, 300), Duration::from_secs(3));
        assert_eq!(pause(1_000, 500, 300), Duration::from_millis(1_500));
        assert_eq!(pause(40_000, 40_000, 8_000), EACH, "all have ended: there may be more");
        assert_eq!(pause(40_000, 0, 8_000), SELDOM);
    }
}
