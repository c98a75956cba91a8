//! Claiming what is due, and sleeping until something is.
//!
//! Each replica does the same, and none knows of the others: rows that another
//! decides are skipped. Woken too early, or for nothing, a claim finds nothing
//! and writes nothing.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

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

use crate::meter;

/// The longest sleep: so late at most is what nobody told of.
const POLL: Duration = Duration::from_secs(1);

/// How long claims go on before what they took is delivered: what is due in one instant is on record
/// first, and goes out in larger parts.
const GATHER: Duration = Duration::from_millis(400);

/// How often it is looked for firings that nobody has, and for runs that take too long.
const SWEEP: Duration = Duration::from_secs(1);

/// How often jobs that are done for long are looked for.
const FORGET: Duration = Duration::from_secs(3600);

/// While what is due is another's to decide, or a later version's.
const HELD: Backoff = Backoff::new(Duration::from_millis(2), POLL);

/// While the database does not answer.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Firings that this replica has been handed and has not delivered. Cloning shares the count.
#[derive(Debug, Clone)]
pub struct Backlog {
    count: Arc<AtomicU32>,
    most: u32,
}

impl Backlog {
    /// None yet, and so many at most.
    pub fn of(most: u32) -> Self {
        Self { count: Arc::default(), most }
    }

    /// How many more there may be, beside those that are about to be added.
    fn room(&self, more: usize) -> u32 {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.most.saturating_sub(self.count.load(Ordering::Relaxed)).saturating_sub(more)
    }

    fn add(&self, count: usize) {
        self.count.fetch_add(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// So many are off our hands.
    pub fn done(&self, count: usize) {
        self.count.fetch_sub(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

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
    pub bus: Bus,
    pub batch: u32,
    pub keep_done: Duration,
    pub backlog: Backlog,
    pub firings: UnboundedSender<Handed>,
}

impl Clock {
    /// Claims until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut wakes = None;
        let (mut failures, mut held) = (0, 0);
        let (mut swept, mut forgot) = (None::<Instant>, None::<Instant>);
        while !stop.is_cancelled() {
            if wakes.is_none() {
                wakes = self.bus.schedule_wakes().await.ok();
            }
            let pause = match self.turn(&mut swept, &mut forgot).await {
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
                () = woken(&mut wakes) => swept = None,
            }
        }
    }

    /// Claims all that is due; `None` if there is no room.
    async fn turn(
        &self,
        swept: &mut Option<Instant>,
        forgot: &mut Option<Instant>,
    ) -> Result<Option<Turn>, Error> {
        let Some(claimed) = self.claim().await? else { return Ok(None) };
        if claimed.more {
            return Ok(Some(Turn { found: true, due: Duration::ZERO }));
        }
        let mut found = claimed.found;
        let mut due = self.jobs.next_due().await?.map_or(POLL, |due| due.min(POLL));
        if swept.is_none_or(|at| at.elapsed() >= SWEEP) || (due.is_zero() && !found) {
            *swept = Some(Instant::now());
            if self.sweep().await? {
                found = true;
                due = Duration::ZERO;
            }
        }
        if forgot.is_none_or(|at| at.elapsed() >= FORGET) {
            *forgot = Some(Instant::now());
            let count = self.jobs.forget_done(self.keep_done).await?;
            if count > 0 {
                info!(count, "jobs that were done were forgotten");
            }
        }
        Ok(Some(Turn { found, due }))
    }

    /// Claims for a while, and hands over what it was handed; `None` if there is no room.
    async fn claim(&self) -> Result<Option<Claims>, Error> {
        let begun = Instant::now();
        let mut gathered = Vec::new();
        let mut claims = None::<Claims>;
        let ended = loop {
            let limit = self.batch.min(self.backlog.room(gathered.len()));
            if limit == 0 {
                break Ok(());
            }
            // While the database decides some, what it said of others is planned: where there is
            // much to do, two claims go side by side. They pass over each other's.
            let second = async {
                match claims {
                    Some(_) => self.jobs.claim_due(limit).await,
                    None => Ok(Claimed::default()),
                }
            };
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

    /// Takes what nobody has; says whether there was anything.
    async fn sweep(&self) -> Result<bool, Error> {
        let limit = self.batch.min(self.backlog.room(0));
        if limit == 0 {
            return Ok(false);
        }
        let begun = Instant::now();
        let swept = self.jobs.sweep(limit).await?;
        if swept.ended > 0 {
            info!(count = swept.ended, "firings of which nothing was heard were given up");
        }
        let found = !swept.firings.is_empty() || swept.ended > 0;
        self.hand(swept.firings, begun);
        Ok(found)
    }

    fn hand(&self, firings: Vec<Firing>, at: Instant) {
        if firings.is_empty() {
            return;
        }
        self.backlog.add(firings.len());
        // Whoever takes them ends after this loop does; if it is gone all the same, others are
        // handed what is lost here.
        let _ = self.firings.send(Handed { firings, at });
    }
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
