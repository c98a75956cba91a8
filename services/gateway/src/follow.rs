//! Following a message to its answer, for all APIs.
//!
//! A turn is reported by two sources. Deltas arrive over NATS while it runs, and may be lost; the
//! journal in Postgres has the answer reliably. So the journal is queried after each second without
//! a delta: losing NATS delays an answer and never hangs.
//!
//! **What can go wrong.** The subscription of a slow client fills up and loses deltas; the step
//! concerned is then not streamed (see `merge`), and no other client is affected. A client that
//! disconnects drops its follower state, and with it the subscription; the turn goes on.

mod event;
mod merge;

pub use event::{Event, Finished, What};
#[cfg(test)]
pub use merge::finished;

use std::{collections::VecDeque, time::Duration};

use holdfast_bus::{Bus, Delta, Deltas};
use holdfast_session::{Accepted, Answer, Sessions};
use holdfast_types::{ApprovalId, Fault as _, MessageId, RunId, SessionId, TenantId};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::Error;
use merge::{Merge, Taken};

/// Time without a delta after which the journal is queried.
const PATIENCE: Duration = Duration::from_secs(1);

/// Follows messages. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Follower {
    sessions: Sessions,
    bus: Bus,
    stop: CancellationToken,
}

impl Follower {
    /// When `stop` is cancelled, followers get [`Error::Stopping`].
    #[must_use]
    pub const fn new(sessions: Sessions, bus: Bus, stop: CancellationToken) -> Self {
        Self { sessions, bus, stop }
    }

    /// Follows a message that was just accepted. Call it before a runner is woken, so that no delta
    /// is missed. `runs` are the turns that the message may begin.
    pub async fn accepted(
        &self,
        tenant: TenantId,
        accepted: &Accepted,
        runs: Vec<RunId>,
    ) -> Follow {
        let deltas = self.listen(tenant, accepted.session).await;
        let mut follow = self.follow(tenant, accepted.message, accepted.session, deltas);
        follow.merge = Merge::new(accepted.seq, runs);
        if accepted.duplicate {
            // The turn of a repeated message may have ended already.
            follow.look_at = Instant::now();
        }
        follow
    }

    /// Follows an older message, whether its turn has ended or not.
    ///
    /// # Errors
    ///
    /// If the tenant has no such message.
    pub async fn message(&self, tenant: TenantId, message: MessageId) -> Result<Follow, Error> {
        let answer = self.sessions.answer(tenant, message).await?;
        let over = answer.outcome.is_some();
        let deltas = if over { None } else { self.listen(tenant, answer.session).await };
        let mut follow = self.follow(tenant, message, answer.session, deltas);
        follow.merge = Merge::new(answer.seq, vec![message.into()]);
        follow.heed(answer);
        // The turn may have ended since the query.
        follow.look_at = Instant::now();
        Ok(follow)
    }

    fn follow(
        &self,
        tenant: TenantId,
        message: MessageId,
        session: SessionId,
        deltas: Option<Deltas>,
    ) -> Follow {
        Follow {
            of: self.clone(),
            tenant,
            message,
            session,
            deltas,
            merge: Merge::new(0, Vec::new()),
            unsure: None,
            told: VecDeque::new(),
            asked: Vec::new(),
            look_at: Instant::now() + PATIENCE,
            over: false,
        }
    }

    async fn listen(&self, tenant: TenantId, session: SessionId) -> Option<Deltas> {
        match self.bus.subscribe_deltas(tenant, session).await {
            Ok(deltas) => Some(deltas),
            Err(error) => {
                debug!(%error, "following by the journal alone");
                None
            }
        }
    }
}

#[derive(Debug)]
pub struct Follow {
    of: Follower,
    tenant: TenantId,
    message: MessageId,
    session: SessionId,
    deltas: Option<Deltas>,
    merge: Merge,
    /// Delta that waits until the journal tells whether its turn has seen the message.
    unsure: Option<Delta>,
    told: VecDeque<Event>,
    /// Approvals that were reported already.
    asked: Vec<ApprovalId>,
    look_at: Instant,
    over: bool,
}

enum Heard {
    Delta(Option<Delta>),
    Silence,
    Stop,
}

impl Follow {
    #[must_use]
    pub const fn message(&self) -> MessageId {
        self.message
    }

    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the next event; `None` after the end, which is reported exactly once.
    ///
    /// Cancel safe: dropping the future loses no event.
    ///
    /// # Errors
    ///
    /// If the message was deleted, or the process stops. The turn goes on.
    pub async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.told.pop_front() {
                // The bus and the journal both report an approval.
                if let What::Approval(awaited) = &event.what {
                    if self.asked.contains(&awaited.approval) {
                        continue;
                    }
                    self.asked.push(awaited.approval);
                }
                if matches!(event.what, What::Done(_)) {
                    self.over = true;
                    self.told.clear();
                    self.deltas = None;
                }
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            if let Err(error) = self.listen().await {
                self.over = true;
                self.deltas = None;
                return Some(Err(error));
            }
        }
    }

    /// Waits for the end, or for an approval request, which counts as the end.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next); or no answer within `patience`.
    pub async fn finish(mut self, patience: Duration) -> Result<Finished, Error> {
        let end = async {
            while let Some(event) = self.next().await {
                match event?.what {
                    What::Done(finished) => return Ok(finished),
                    What::Approval(awaited) => return Ok(Finished::waits(&awaited)),
                    What::StepStarted { .. }
                    | What::Text(_)
                    | What::Thought(_)
                    | What::ToolStarted { .. }
                    | What::ToolEnded { .. }
                    | What::Canvas(_) => {}
                }
            }
            Err(Error::Stopping)
        };
        match tokio::time::timeout(patience, end).await {
            Ok(end) => end,
            Err(_) => Err(Error::Unanswered { waited: patience }),
        }
    }

    async fn listen(&mut self) -> Result<(), Error> {
        if self.unsure.is_some() {
            return self.find_out().await;
        }
        let heard = tokio::select! {
            biased;
            () = self.of.stop.cancelled() => Heard::Stop,
            delta = next(&mut self.deltas) => Heard::Delta(delta),
            () = sleep_until(self.look_at) => Heard::Silence,
        };
        match heard {
            Heard::Delta(Some(delta)) => self.take(delta),
            Heard::Delta(None) => self.deltas = None,
            Heard::Silence => self.look().await?,
            Heard::Stop => return Err(Error::Stopping),
        }
        Ok(())
    }

    fn take(&mut self, delta: Delta) {
        let told = &mut self.told;
        // Cloning is limited to deltas that have to be processed twice: one per step.
        let again = self.merge.is_unsure(&delta).then(|| delta.clone());
        match self.merge.take(delta, &mut |event| told.push_back(event)) {
            Taken::Unsure => self.unsure = again,
            Taken::Yes => self.look_at = Instant::now() + PATIENCE,
            Taken::No => {}
        }
    }

    /// Queries the journal for whether a turn has seen the message, then processes the waiting
    /// delta again.
    async fn find_out(&mut self) -> Result<(), Error> {
        self.look().await?;
        if let Some(delta) = self.unsure.take() {
            self.take(delta);
        }
        Ok(())
    }

    /// Queries the journal for the state of the message.
    async fn look(&mut self) -> Result<(), Error> {
        let asked = self.of.sessions.answer(self.tenant, self.message).await;
        self.look_at = Instant::now() + PATIENCE;
        match asked {
            Ok(answer) => self.heed(answer),
            // The message is stored, so its follower can wait until the database is back.
            Err(error) if error.kind().is_transient() => {
                debug!(%error, "the journal does not answer; asking again");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn heed(&mut self, answer: Answer) {
        let Answer { run, outcome, text, reason, usage, model, awaited, .. } = answer;
        if let Some(run) = run {
            self.merge.adopt(run);
        }
        for awaited in awaited {
            self.told.push_back(Event { run, step: None, what: What::Approval(awaited) });
        }
        if let Some(outcome) = outcome {
            let finished = Finished { outcome, text, reason, usage, model };
            self.told.push_back(Event { run, step: None, what: What::Done(finished) });
        }
    }
}

/// Next delta; pending forever without a subscription.
async fn next(deltas: &mut Option<Deltas>) -> Option<Delta> {
    match deltas {
        Some(deltas) => deltas.next().await,
        None => std::future::pending().await,
    }
}
