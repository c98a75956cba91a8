//! Following a message to its answer, for all APIs.
//!
//! A turn is reported by two sources. Deltas arrive over NATS while it runs, and may be lost; the
//! journal in Postgres has the answer reliably. So the journal is queried after a second without a
//! delta, and then less often, as long as no delta can have been lost: losing NATS delays an answer
//! and never hangs.
//!
//! **What can go wrong.** The subscription of a slow client fills up and loses deltas; the step
//! concerned is then not streamed (see `merge`), and no other client is affected. A client that
//! disconnects drops its follower state, and with it the subscription; the turn goes on.

mod event;
mod merge;
mod replay;

pub use event::{EarlyEnd, Event, EventKind, TurnResult};
#[cfg(test)]
pub use merge::finished;

use std::{collections::VecDeque, time::Duration};

use futures::FutureExt as _;
use holdfast_bus::{Bus, Delta, Deltas};
use holdfast_session::{Acceptance, MessageStatus, Sessions};
use holdfast_types::{ApprovalId, Fault as _, MessageId, RunId, SessionId, TenantId};
use tokio::{
    sync::mpsc,
    task::unconstrained,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::Error;
use merge::{DeltaMerge, MergeOutcome};
use replay::Replay;

/// Time without a delta after which the journal is queried. Also the time between checks of the
/// bus.
const SILENCE_BEFORE_QUERY: Duration = Duration::from_secs(1);

/// Maximum time between queries of the journal while the bus works. It bounds the delay of an answer
/// whose runner ended before it could report it.
const MAX_SILENCE_BEFORE_QUERY: Duration = Duration::from_secs(5);

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
    pub async fn follow_accepted(
        &self,
        tenant: TenantId,
        accepted: &Acceptance,
        runs: Vec<RunId>,
    ) -> FollowedMessage {
        let deltas = self.subscribe(tenant, accepted.session).await;
        let mut follow = self.follow(tenant, accepted.message, accepted.session, deltas);
        follow.merge = DeltaMerge::new(accepted.seq, runs);
        if accepted.duplicate {
            // The turn of a repeated message may have ended already.
            follow.next_query = Instant::now();
        }
        follow
    }

    /// As [`follow_accepted`](Self::follow_accepted), with deltas that the caller has subscribed to.
    pub fn follow_accepted_with(
        &self,
        tenant: TenantId,
        accepted: &Acceptance,
        runs: Vec<RunId>,
        deltas: mpsc::Receiver<Delta>,
    ) -> FollowedMessage {
        let deltas = Some(DeltaSource::Shared(deltas));
        let mut follow = self.follow(tenant, accepted.message, accepted.session, deltas);
        follow.merge = DeltaMerge::new(accepted.seq, runs);
        if accepted.duplicate {
            follow.next_query = Instant::now();
        }
        follow
    }

    /// As [`message`](Self::message), with deltas that the caller has subscribed to.
    ///
    /// # Errors
    ///
    /// If the tenant has no such message.
    pub async fn message_with(
        &self,
        tenant: TenantId,
        message: MessageId,
        deltas: mpsc::Receiver<Delta>,
    ) -> Result<FollowedMessage, Error> {
        let answer = self.sessions.views().answer(tenant, message).await?;
        let deltas = Some(DeltaSource::Shared(deltas));
        let mut follow = self.follow(tenant, message, answer.session, deltas);
        follow.merge = DeltaMerge::new(answer.seq, vec![message.into()]);
        follow.apply_answer(answer);
        Ok(follow)
    }

    /// Follows an older message, whether its turn has ended or not.
    ///
    /// # Errors
    ///
    /// If the tenant has no such message.
    pub async fn message(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<FollowedMessage, Error> {
        let answer = self.sessions.views().answer(tenant, message).await?;
        let over = answer.outcome.is_some();
        let deltas = if over { None } else { self.subscribe(tenant, answer.session).await };
        let mut follow = self.follow(tenant, message, answer.session, deltas);
        follow.merge = DeltaMerge::new(answer.seq, vec![message.into()]);
        follow.apply_answer(answer);
        // The turn may have ended since the query.
        follow.next_query = Instant::now();
        Ok(follow)
    }

    /// As [`message`](Self::message), with the texts of all steps, also of those before this call.
    ///
    /// # Errors
    ///
    /// If the tenant has no such message.
    pub async fn message_from_start(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<FollowedMessage, Error> {
        let mut follow = self.message(tenant, message).await?;
        follow.replay = Some(Replay::default());
        Ok(follow)
    }

    fn follow(
        &self,
        tenant: TenantId,
        message: MessageId,
        session: SessionId,
        deltas: Option<DeltaSource>,
    ) -> FollowedMessage {
        FollowedMessage {
            follower: self.clone(),
            tenant,
            message,
            session,
            deltas,
            merge: DeltaMerge::new(0, Vec::new()),
            undecided: None,
            pending_events: VecDeque::new(),
            replay: None,
            reported_approvals: Vec::new(),
            next_query: Instant::now() + SILENCE_BEFORE_QUERY,
            silence: SILENCE_BEFORE_QUERY,
            losses: self.bus.losses(),
            is_over: false,
        }
    }

    async fn subscribe(&self, tenant: TenantId, session: SessionId) -> Option<DeltaSource> {
        match self.bus.subscribe_deltas(tenant, session).await {
            Ok(deltas) => Some(DeltaSource::Session(deltas)),
            Err(error) => {
                debug!(%error, "following by the journal alone");
                None
            }
        }
    }
}

/// Subscription that a follower reads.
#[derive(Debug)]
enum DeltaSource {
    /// Its own, to one session.
    Session(Deltas),
    /// Part of a subscription that several followers share. It loses deltas if it is full.
    Shared(mpsc::Receiver<Delta>),
}

#[derive(Debug)]
pub struct FollowedMessage {
    follower: Follower,
    tenant: TenantId,
    message: MessageId,
    session: SessionId,
    deltas: Option<DeltaSource>,
    merge: DeltaMerge,
    /// Delta that waits until the journal tells whether its turn has seen the message.
    undecided: Option<Delta>,
    pending_events: VecDeque<Event>,
    /// Set if the texts of all steps are reported.
    replay: Option<Replay>,
    /// Approvals that were reported already.
    reported_approvals: Vec<ApprovalId>,
    next_query: Instant,
    /// Time between the last query and the next one.
    silence: Duration,
    /// [`Bus::losses`] at the last query.
    losses: u64,
    is_over: bool,
}

#[expect(clippy::large_enum_variant, reason = "one at a time, and most are pieces")]
enum FollowSignal {
    Delta(Option<Delta>),
    Silence,
    Stop,
}

impl FollowedMessage {
    #[must_use]
    pub const fn message(&self) -> MessageId {
        self.message
    }

    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Position of the message in its session.
    #[must_use]
    pub const fn seq(&self) -> i64 {
        self.merge.seq()
    }

    /// Whether this process stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.follower.stop.is_cancelled()
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
            if let Err(error) = self.replay_steps().await {
                self.is_over = true;
                self.deltas = None;
                return Some(Err(error));
            }
            if let Some(event) = self.pending_events.pop_front() {
                // The bus and the journal both report an approval.
                if let EventKind::Approval(awaited) = &event.kind {
                    if self.reported_approvals.contains(&awaited.approval) {
                        continue;
                    }
                    self.reported_approvals.push(awaited.approval);
                }
                if matches!(event.kind, EventKind::Done(_)) {
                    self.is_over = true;
                    self.pending_events.clear();
                    self.deltas = None;
                }
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.wait_for_event().await {
                self.is_over = true;
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
    pub async fn finish(mut self, patience: Duration) -> Result<TurnResult, Error> {
        let end = async {
            while let Some(event) = self.next().await {
                match event?.kind {
                    EventKind::Done(finished) => return Ok(finished),
                    EventKind::Approval(awaited) => {
                        return Ok(TurnResult::approval_needed(&awaited));
                    }
                    EventKind::StepStarted { .. }
                    | EventKind::Text(_)
                    | EventKind::Thinking(_)
                    | EventKind::ToolStarted { .. }
                    | EventKind::ToolEnded { .. }
                    | EventKind::Canvas(_)
                    | EventKind::Progress(_) => {}
                }
            }
            Err(Error::Stopping)
        };
        match tokio::time::timeout(patience, end).await {
            Ok(end) => end,
            Err(_) => Err(Error::AnswerTimeout { waited: patience }),
        }
    }

    async fn wait_for_event(&mut self) -> Result<(), Error> {
        if self.undecided.is_some() {
            return self.query_journal().await;
        }
        let check = self.next_check();
        let heard = tokio::select! {
            biased;
            () = self.follower.stop.cancelled() => FollowSignal::Stop,
            delta = next(&mut self.deltas) => FollowSignal::Delta(delta),
            () = sleep_until(check) => FollowSignal::Silence,
        };
        match heard {
            FollowSignal::Delta(Some(delta)) => self.process_delta(delta),
            FollowSignal::Delta(None) => self.deltas = None,
            FollowSignal::Silence if self.may_lack_deltas() => self.query_journal().await?,
            FollowSignal::Silence if Instant::now() >= self.next_query => {
                self.query_journal().await?;
            }
            FollowSignal::Silence => {}
            FollowSignal::Stop => return Err(Error::Stopping),
        }
        Ok(())
    }

    fn next_check(&self) -> Instant {
        self.next_query.min(Instant::now() + SILENCE_BEFORE_QUERY)
    }

    fn may_lack_deltas(&self) -> bool {
        let bus = &self.follower.bus;
        self.deltas.is_none() || !bus.is_connected() || bus.losses() != self.losses
    }

    fn process_delta(&mut self, delta: Delta) {
        let told = &mut self.pending_events;
        // Cloning is limited to deltas that have to be processed twice: one per step.
        let again = self.merge.needs_query(&delta).then(|| delta.clone());
        match self.merge.process(delta, &mut |event| told.push_back(event)) {
            MergeOutcome::NeedsQuery => self.undecided = again,
            MergeOutcome::Processed => self.expect_deltas(SILENCE_BEFORE_QUERY),
            MergeOutcome::Ignored => {}
        }
    }

    /// Queries the journal next after `silence`.
    fn expect_deltas(&mut self, silence: Duration) {
        self.silence = silence;
        self.next_query = Instant::now() + silence;
    }

    /// Queries the journal for the state of the message, and for whether a turn has seen it.
    async fn query_journal(&mut self) -> Result<(), Error> {
        let silence = match self.may_lack_deltas() {
            true => SILENCE_BEFORE_QUERY,
            false => next_silence(self.silence),
        };
        self.losses = self.follower.bus.losses();
        let asked = self.follower.sessions.views().answer(self.tenant, self.message).await;
        self.expect_deltas(silence);
        let answer = match asked {
            Ok(answer) => Some(answer),
            // The message is stored, so its follower can wait until the database is back.
            Err(error) if error.kind().is_transient() => {
                debug!(%error, "the journal does not answer; asking again");
                None
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(run) = answer.as_ref().and_then(|answer| answer.run) {
            self.merge.adopt(run);
        }
        // First, since nothing is reported after an end.
        self.process_arrived_deltas();
        if let Some(answer) = answer {
            self.apply_answer(answer);
        }
        Ok(())
    }

    /// Processes the delta that waits for the journal and those that have arrived, up to one that
    /// needs another query.
    fn process_arrived_deltas(&mut self) {
        if let Some(delta) = self.undecided.take() {
            self.process_delta(delta);
        }
        // `unconstrained`, since a task that has used up its tokio budget would get no delta.
        while self.undecided.is_none()
            && let Some(Some(delta)) = unconstrained(next(&mut self.deltas)).now_or_never()
        {
            self.process_delta(delta);
        }
    }

    fn apply_answer(&mut self, answer: MessageStatus) {
        let (run, awaited, step) = (answer.run, answer.awaited.clone(), answer.last_step);
        if let Some(run) = run {
            self.merge.adopt(run);
        }
        for awaited in awaited {
            self.pending_events.push_back(Event {
                run,
                step: None,
                kind: EventKind::Approval(awaited),
            });
        }
        if let Some(finished) = TurnResult::of_status(answer) {
            self.pending_events.push_back(Event { run, step, kind: EventKind::Done(finished) });
        }
    }
}

/// Time until the journal is queried again, after a query that followed `silence` without a loss.
fn next_silence(silence: Duration) -> Duration {
    (silence * 2).min(MAX_SILENCE_BEFORE_QUERY)
}

/// Next delta; pending forever without a subscription.
async fn next(deltas: &mut Option<DeltaSource>) -> Option<Delta> {
    match deltas {
        Some(DeltaSource::Session(deltas)) => deltas.next().await,
        Some(DeltaSource::Shared(deltas)) => deltas.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_turn_is_asked_about_less_and_less_often() {
        let mut silences = vec![SILENCE_BEFORE_QUERY];
        for _ in 0..4 {
            silences.push(next_silence(silences[silences.len() - 1]));
        }

        assert_eq!(silences.iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2, 4, 5, 5]);
    }
}
