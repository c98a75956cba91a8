//! Claiming what is due, and sleeping until something is.
//!
//! Each replica does the same, and none knows of the others: rows that another
//! decides are skipped. Woken too early, or for nothing, a claim finds nothing
//! and writes nothing.
//!
//! What is due is taken by time. While there is more of it than one claim takes,
//! a claim goes by turns now and then: one of each tenant, then the next of each.

use std::{future::pending, time::Duration};

use holdfast_bus::{Bus, Subscription};
use holdfast_jobs::{Claimed, Error, Firing, Jobs};
use holdfast_kit::Backoff;
use jiff::Timestamp;
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{abandoned::Abandoned, backlog::Backlog, meter};

/// The longest sleep: so late at most is what nobody told of.
const POLL: Duration = Duration::from_secs(1);

/// How long claims go on before what they took is delivered: what is due in one instant is on record
/// first, and goes out in larger parts.
const GATHER: Duration = Duration::from_millis(800);

/// How often is claimed by turns while there is much to do, or no room: that ranks all that is due.
const TURNS: Duration = Duration::from_millis(100);

/// How often it is looked for firings that nobody has, and for runs that take too long.
const SWEEP: Duration = Duration::from_secs(1);

/// Beside how many batches in hand what nobody has is taken.
const BESIDE: usize = 4;

/// How often jobs that are done for long are looked for.
const FORGET: Duration = Duration::from_secs(3600);

/// While what is due is another's to decide, or a later version's.
const HELD: Backoff = Backoff::new(Duration::from_millis(2), POLL);

/// While the database does not answer.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Firings that were handed out together, and when.
#[derive(Debug)]
pub struct Handed {
    pub firings: Vec<Firing>,
    pub at: Instant,
}

/// The loop.
#[derive(Debug)]
pub struct Clock {
    pub jobs: Jobs,
    pub abandoned: Abandoned,
    pub bus: Bus,
    pub batch: u32,
    /// For how long what was handed out is ours.
    pub handover: Duration,
    pub keep_done: Duration,
    pub backlog: Backlog,
    pub firings: UnboundedSender<Handed>,
}

impl Clock {
    /// Claims until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut wakes = None;
        let (mut failures, mut held) = (0, 0);
        let mut last = Last::default();
        while !stop.is_cancelled() {
            if wakes.is_none() {
                wakes = self.bus.schedule_wakes().await.ok();
            }
            let pause = match self.turn(&mut last).await {
                Ok(Some(Turn { found, due })) => {
                    failures = 0;
                    held = if found || !due.is_zero() { 0 } else { held + 1 };
                    // Due, and nothing was found: somebody else has it.
                    if held > 0 { HELD.delay(held) } else { due }
                }
                // There is no room for more until some are delivered.
                Ok(None) => Duration::from_millis(5),
                Err(error) => {
                    if failures == 0 {
                        warn!(%error, "jobs wait for the database; trying again");
                    }
                    failures += 1;
                    BACKOFF.delay(failures - 1)
                }
            };
            if pause.is_zero() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
                // Somebody asks for a job, which the sweep hands out.
                () = woken(&mut wakes) => last.swept = None,
            }
        }
    }

    /// Claims all that is due; `None` if there is no room.
    async fn turn(&self, last: &mut Last) -> Result<Option<Turn>, Error> {
        let Some(claimed) = self.claim(last).await? else {
            self.squeeze(last).await?;
            return Ok(None);
        };
        last.was_more = claimed.more;
        if claimed.more {
            // However long that goes on, what others asked for by hand or handed back has its time.
            if is_past(last.swept, SWEEP) {
                self.sweep(last).await?;
            }
            return Ok(Some(Turn { found: true, due: Duration::ZERO }));
        }
        let mut found = claimed.found;
        let mut due = self.jobs.next_due().await?.map_or(POLL, |due| due.min(POLL));
        let is_time = is_past(last.swept, SWEEP) || (due.is_zero() && !found);
        if is_time && self.sweep(last).await? {
            found = true;
            due = Duration::ZERO;
        }
        if is_past(last.forgot, FORGET) {
            last.forgot = Some(Instant::now());
            let count = self.jobs.forget_done(self.keep_done).await?;
            if count > 0 {
                info!(count, "jobs that were done were forgotten");
            }
        }
        Ok(Some(Turn { found, due }))
    }

    /// Takes what is due to tenants who have little in hand, though there is no room: of the others
    /// nothing.
    async fn squeeze(&self, last: &mut Last) -> Result<(), Error> {
        if is_past(last.turned, TURNS) {
            last.turned = Some(Instant::now());
            let crowd = self.backlog.crowd();
            let asked = Instant::now();
            let claimed = self.jobs.claim_in_turn(self.batch, &crowd).await?;
            if let Some(now) = claimed.at {
                measure(&claimed.firings, now, asked.elapsed());
            }
            self.hand(claimed.firings, asked);
            if is_past(last.swept, SWEEP) {
                self.sweep(last).await?;
            }
        }
        Ok(())
    }

    /// Claims for a while, and hands over what it was handed; `None` if there is no room.
    async fn claim(&self, last: &mut Last) -> Result<Option<Claims>, Error> {
        let begun = Instant::now();
        let mut gathered = Vec::new();
        let mut claims = None::<Claims>;
        let ended = loop {
            let limit = self.batch.min(self.backlog.room(gathered.len()));
            if limit == 0 {
                break Ok(());
            }
            // While the database decides some, what it said of others is planned: where there is
            // much to do, two claims go side by side, of which one goes by turns now and then. They
            // pass over each other's.
            let is_much = last.was_more || claims.is_some();
            let in_turn = is_much && is_past(last.turned, TURNS);
            let second = async {
                match (is_much, in_turn) {
                    (true, true) => self.jobs.claim_in_turn(limit, &[]).await,
                    (true, false) => self.jobs.claim_due(limit).await,
                    (false, _) => Ok(Claimed::default()),
                }
            };
            if in_turn {
                last.turned = Some(Instant::now());
            }
            let asked = Instant::now();
            let (first, second) = tokio::join!(self.jobs.claim_due(limit), second);
            let (mut more, mut found) = (false, claims.is_some());
            let mut failed = None;
            for claimed in [first, second] {
                match claimed {
                    Ok(claimed) => {
                        if let Some(now) = claimed.at {
                            measure(&claimed.firings, now, asked.elapsed());
                        }
                        gathered.extend(claimed.firings);
                        more |= claimed.jobs == limit as usize;
                        found |= claimed.jobs > 0;
                    }
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                break Err(error);
            }
            claims = Some(Claims { found, more });
            if !more || begun.elapsed() > GATHER {
                break Ok(());
            }
        };
        // What was claimed before an error is ours all the same.
        self.hand(gathered, begun);
        ended.map(|()| claims)
    }

    /// Takes what nobody has; says whether there was anything. By time and by turns, one after the
    /// other, as long as there is more than one sweep takes.
    ///
    /// Who is behind takes nothing of the tenants of whom it has much: it would have that for so long
    /// that it were handed out again, and would be busy with that alone.
    async fn sweep(&self, last: &mut Last) -> Result<bool, Error> {
        let begun = Instant::now();
        last.swept = Some(begun);
        let crowd = match self.backlog.is_behind(BESIDE * self.batch as usize, self.handover / 4) {
            true => self.backlog.crowd(),
            false => Vec::new(),
        };
        let room = if crowd.is_empty() { self.backlog.room(0) } else { self.batch };
        let limit = self.batch.min(room);
        if limit == 0 {
            return Ok(false);
        }
        let in_turn = last.was_full || !crowd.is_empty();
        let swept = match in_turn {
            true => self.jobs.sweep_in_turn(limit, &crowd).await?,
            false => self.jobs.sweep(limit).await?,
        };
        last.was_full = !in_turn && swept.firings.len() == limit as usize;
        let found = !swept.firings.is_empty() || !swept.abandoned.is_empty() || swept.ended > 0;
        // First: they are ours already, whatever becomes of the others.
        self.hand(swept.firings, begun);
        let ended = swept.ended + self.abandoned.part(&swept.abandoned).await?;
        if ended > 0 {
            info!(count = ended, "firings of which nothing was heard were given up");
        }
        Ok(found)
    }

    fn hand(&self, firings: Vec<Firing>, at: Instant) {
        if firings.is_empty() {
            return;
        }
        self.backlog.add(&firings, at);
        // Whoever takes them ends after this loop does; if it is gone all the same, others are
        // handed what is lost here.
        let _ = self.firings.send(Handed { firings, at });
    }
}

/// What was done when.
#[derive(Debug, Default)]
struct Last {
    swept: Option<Instant>,
    forgot: Option<Instant>,
    /// Claimed by turns.
    turned: Option<Instant>,
    /// The last claim took as many as it may.
    was_more: bool,
    /// The last sweep did so too, and went by time.
    was_full: bool,
}

fn is_past(last: Option<Instant>, pause: Duration) -> bool {
    last.is_none_or(|at| at.elapsed() >= pause)
}

/// What claims came to.
#[derive(Debug, Clone, Copy)]
struct Claims {
    /// Something was due.
    found: bool,
    /// There may be more.
    more: bool,
}

/// What a turn of the loop came to.
struct Turn {
    /// There was something.
    found: bool,
    /// Until the next may be.
    due: Duration,
}

/// Counts how late firings were recorded: by the database's clock up to its `now`, by ours, which
/// may be set wrong but runs as it should, from there.
fn measure(firings: &[Firing], now: Timestamp, since: Duration) {
    for firing in firings {
        let late = now.duration_since(firing.at);
        let late = Duration::try_from(late).unwrap_or_default() + since;
        meter::recorded(firing.kind, late);
    }
}

/// Waits for a token. One that can never come is waited for all the same: a poll is near.
async fn woken(wakes: &mut Option<Subscription>) {
    let token = match wakes {
        Some(subscription) => subscription.next().await,
        None => None,
    };
    if token.is_none() {
        *wakes = None;
        pending::<()>().await;
    }
}
