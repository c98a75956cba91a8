//! Turn: runs step by step until the session is idle.
//!
//! ```text
//! load ─▶ hear the inbox ─▶ next? ─▶ think ─▶ … call … ─▶ think ─▶ complete
//!              ▲                                │
//!              └────────── end of a step ───────┘  paused, stopping, cancelled, interrupted?
//! ```
//!
//! A turn without tools commits twice: the claim, and its end. A heard message is stored with the
//! thought that follows it; until then only this process knows that it was heard, and a successor
//! hears it again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_agent::{
    Came, Limits, Picture, Step, next, outcome_of, policy::Compiled, seen, sought,
};
use holdfast_bus::DeltaBody;
use holdfast_schedule::Zone;
use holdfast_session::{Appended, Completed, Loaded, Subagent, Waiting};
use holdfast_types::{
    AgentId, Choice, Command, Entry, Note, RunId, SessionKey, SessionKind, SessionSettings, Target,
    ToolCall, Wait,
};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{Instrument as _, info_span};

use crate::{
    agents::Brief,
    budget::Reserved,
    deltas::Stream,
    error::Error,
    fail,
    held::{Hold, Signal},
    intake::{Intake, intake},
    journal::Journal,
    mcp::{self, Look},
    media::Aloud,
    quoting::Quote,
    remembering::Recall,
    reply::{self, Failure},
    skills::Called,
    subagents::spent,
    take::Begun,
    worker::{Toolbox, Worker},
};

#[derive(Debug)]
pub(crate) struct Turn<'w> {
    pub(crate) worker: &'w Worker,
    pub(crate) hold: Arc<Hold>,
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
    /// The task, in a subagent's session.
    pub(crate) task: Option<Subagent>,
    /// The routing decision, if a model chose the agent.
    pub(crate) routed: Option<Choice>,
    /// Tools as of the last step.
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) settings: SessionSettings,
    /// Time zone that the user has set, as of the last step.
    pub(crate) zone: Option<Zone>,
    /// Policy as of the last step.
    pub(crate) policy: Arc<Compiled>,
    pub(crate) journal: Journal,
    pub(crate) key: String,
    pub(crate) kind: SessionKind,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) cancel_upto: i64,
    /// The session was paused: stop after the current step.
    pause: bool,
    /// Next `seq` of the inbox when it was last read.
    pub(crate) next_in: i64,
    /// Hints received when the inbox was last read.
    pub(crate) pokes: u64,
    pub(crate) stream: Stream,
    pub(crate) last_target: Option<Target>,
    pub(crate) deadline: Instant,
    pub(crate) context_tokens: usize,
    pub(crate) clock: Clock,
    /// Reservation for the answer in progress.
    pub(crate) reserved: Option<Reserved>,
    pub(crate) quote: Option<Quote>,
    /// The answer, if parts of it are spoken.
    pub(crate) aloud: Option<Aloud>,
    /// Images that the model was shown last.
    pub(crate) pictures: Vec<Picture>,
    /// Reasoning for the last answer, kept if a heartbeat sends it.
    pub(crate) mulled: Option<String>,
    pub(crate) recall: Recall,
    /// The skill that the newest message invokes.
    pub(crate) called: Option<Called>,
    /// Recommended skills; `None` before they are determined.
    pub(crate) recommended: Option<Vec<String>>,
    /// The model refused the conversation as too long, and a memory flush was started.
    pub(crate) is_refused: bool,
    /// The turn is in the journal, or has heard messages.
    open: bool,
}

/// Time spent by a turn.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) began: Instant,
    pub(crate) started_at: Timestamp,
    pub(crate) model: Duration,
    pub(crate) tools: Duration,
}

impl<'w> Turn<'w> {
    pub(crate) fn new(
        worker: &'w Worker,
        hold: Arc<Hold>,
        loaded: Loaded,
        begun: Begun,
        mut journal: Journal,
        began: Instant,
        task: Option<Subagent>,
    ) -> Self {
        if let Some(text) = &begun.overdue {
            journal.hear(Entry::noted(Note::DeadlinePassed, text.as_str()));
        }
        let stream = Stream::new(worker.bus.clone(), hold.claim.clone(), begun.run);
        stream.step(thoughts(journal.turn()));
        stream.send(DeltaBody::Started);
        if begun.open || hold.claim.attempts > 1 {
            stream.send(DeltaBody::StepRestarted);
        }
        let kind = loaded.key.parse().map_or(SessionKind::Main, |key: SessionKey| key.kind());
        let own = task.as_ref().map_or(worker.config.turn_deadline, |task| task.left);
        let deadline = began + worker.config.turn_deadline.min(own);
        let context_tokens = worker.config.context_tokens;
        let pokes = hold.signal().borrow().pokes;
        let clock = Clock {
            began,
            started_at: Timestamp::now(),
            model: Duration::ZERO,
            tools: Duration::ZERO,
        };
        Self {
            worker,
            hold,
            run: begun.run,
            agent: loaded.agent,
            task,
            routed: None,
            tools: Arc::clone(&worker.tools),
            settings: loaded.settings,
            zone: None,
            // Allows nothing until the policy is loaded.
            policy: worker.tools.nothing(),
            journal,
            key: loaded.key,
            kind,
            waiting: loaded.waiting,
            cancel_upto: loaded.cancel_upto,
            pause: false,
            next_in: loaded.next_in,
            pokes,
            stream,
            last_target: loaded.last_target,
            deadline,
            context_tokens,
            clock,
            reserved: None,
            aloud: None,
            quote: None,
            pictures: Vec::new(),
            mulled: None,
            recall: Recall::default(),
            called: None,
            recommended: None,
            is_refused: false,
            open: begun.open || begun.overdue.is_some(),
        }
    }

    /// Runs steps until the session is idle.
    pub(crate) async fn walk(&mut self, home: &Arc<Brief>) -> Result<Completed, Error> {
        let limits = self.worker.config.limits();
        let mut answers: Option<Arc<Brief>> = None;
        loop {
            if let Some(completed) = self.boundary().await? {
                return Ok(completed);
            }
            if let Some(command) = self.command()
                && !matches!(command, Command::Compact(_))
            {
                return self.obey(command).await;
            }
            if let Some(text) = self.said_as_it_is() {
                return self.say_as_it_is(text).await;
            }
            if let Some(completed) = self.is_over().await? {
                return Ok(completed);
            }
            if answers.is_none() {
                if let Some(completed) = self.dispatch_command(home).await? {
                    return Ok(completed);
                }
                let Some(found) = self.who_answers(home).await? else { continue };
                if let Some(completed) = self.dispatch_command(&found).await? {
                    return Ok(completed);
                }
                let window = usize::try_from(found.card.context).unwrap_or(usize::MAX);
                self.context_tokens = self.context_tokens.min(window);
                answers = Some(found);
            }
            let brief = answers.as_deref().unwrap_or(home);
            if let Some(unusable) = self.look_for_skill(brief) {
                return self.answer(unusable).await;
            }
            self.look_up_tools(brief, limits).await?;
            self.look_up_policy().await?;
            self.look_at_clock(brief.dm_scope).await?;
            if !self.is_dispatched() {
                self.begin_recall(brief);
            }
            if let Some(completed) = self.shorten(brief).await? {
                return Ok(completed);
            }
            let step = thoughts(self.journal.turn());
            let span = info_span!("step", step);
            let effect = |name: &str| self.tools.effect(name);
            let done = match next(self.journal.entries(), limits, effect) {
                Step::Rest => return self.put_down().await,
                Step::Think => self.think(brief, true).instrument(span).await?,
                Step::ThinkWithoutTools => self.think(brief, false).instrument(span).await?,
                Step::Call(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
                    self.call(brief, &calls).instrument(span).await?
                }
                Step::Await(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
                    self.wait_for_words(&calls).instrument(span).await?
                }
                Step::Unknown(call) => {
                    let call = call.clone();
                    let returned = self.recalled(brief, &call).await?;
                    self.append(vec![returned]).await?;
                    None
                }
                Step::Refuse(calls, limit) => {
                    let told = holdfast_agent::limit_reached(limits, limit);
                    let refused =
                        calls.iter().map(|call| Entry::returned(&call.id, told.clone(), true));
                    self.append(refused.collect()).await?;
                    None
                }
                Step::Answer(call, came) => {
                    let (call, output) = (call.clone(), came.output.to_owned());
                    let came = Came { output: &output, ..came };
                    Some(self.answer_command(&call, came).await?)
                }
                Step::Halt => Some(self.fail(&Failure::Halted).await?),
            };
            if let Some(completed) = done {
                return Ok(completed);
            }
        }
    }

    /// Loads the tools. Tools of MCP servers are refreshed only when they are needed.
    async fn look_up_tools(&mut self, brief: &Brief, limits: Limits) -> Result<(), Error> {
        let effect = |name: &str| self.tools.effect(name);
        let look = match next(self.journal.entries(), limits, effect) {
            Step::Call(calls) if calls.iter().any(|call| mcp::is_asked_for_by(&call.tool)) => {
                Look::First
            }
            Step::Think
                if brief.tools.as_deref().is_some_and(mcp::is_named_in)
                    || mcp::is_named_in(&sought(self.journal.entries())) =>
            {
                Look::First
            }
            Step::Call(_)
            | Step::Think
            | Step::Rest
            | Step::ThinkWithoutTools
            | Step::Await(_)
            | Step::Unknown(_)
            | Step::Refuse(..)
            | Step::Answer(..)
            | Step::Halt => Look::No,
        };
        self.find_tools(brief, look).await
    }

    pub(crate) async fn find_tools(&mut self, brief: &Brief, look: Look) -> Result<(), Error> {
        let (worker, tenant) = (self.worker, self.hold.claim.tenant);
        let found = worker.mcp.toolbox(&worker.tools, tenant, brief.agent, look);
        self.tools = tokio::select! {
            found = found => found?,
            () = self.hold.lost.cancelled() => return Err(Error::Lost),
            () = worker.giving_up.cancelled() => return Err(Error::AskedBack),
        };
        Ok(())
    }

    /// Ends the turn of a task that has ended or has reached a limit.
    async fn is_over(&mut self) -> Result<Option<Completed>, Error> {
        let Some(task) = &self.task else { return Ok(None) };
        if task.outcome.is_some() {
            // Messages that arrive after the end of the task are not part of it.
            let is_task = self.heard().contains(&1);
            return match is_task {
                true => Ok(Some(self.cut_short(Note::Cancelled, self.unfinished()).await?)),
                false => Ok(None),
            };
        }
        match spent(task, self.journal.turn()) {
            Some(budget) => Ok(Some(self.fail(&Failure::Budget(budget)).await?)),
            None => Ok(None),
        }
    }

    /// Ends a turn that cannot run, unless its user has cancelled it.
    pub(crate) async fn refuse(&mut self, failure: &Failure<'_>) -> Result<Completed, Error> {
        if let Some(completed) = self.boundary().await? {
            return Ok(completed);
        }
        if let Some(text) = self.said_as_it_is() {
            return self.say_as_it_is(text).await;
        }
        match self.command() {
            Some(command) => self.obey(command).await,
            None => self.fail(failure).await,
        }
    }

    /// End of a step: all signals from outside take effect here.
    async fn boundary(&mut self) -> Result<Option<Completed>, Error> {
        fail::point("runner.boundary").await;
        if self.worker.draining.is_cancelled() {
            return Err(Error::AskedBack);
        }
        let signal = *self.hold.signal().borrow();
        self.cancel_upto = self.cancel_upto.max(signal.cancel_upto);
        if self.is_outdated(signal) {
            self.refresh().await?;
        }
        if self.pause || signal.pause {
            return Err(Error::AskedBack);
        }
        self.hear_words().await?;
        self.desk();
        match self.intake() {
            Intake::Cancelled(seqs) => {
                self.hear_all(&seqs);
                // Messages that the turn has heard are cancelled with it.
                let heard = self.heard();
                let with = heard.iter().any(|seq| seqs.contains(seq));
                let all: BTreeSet<i64> =
                    seqs.into_iter().chain(heard.into_iter().filter(|_| with)).collect();
                Ok(Some(self.cut_short(Note::Cancelled, all.into_iter().collect()).await?))
            }
            Intake::Interrupted(seqs) => {
                self.hear_all(&seqs);
                Ok(Some(self.cut_short(Note::Interrupted, self.unfinished()).await?))
            }
            Intake::Hear(seqs) => {
                self.hear_all(&seqs);
                self.desk();
                if Instant::now() >= self.deadline {
                    return Ok(Some(self.fail(&Failure::TooLong).await?));
                }
                Ok(None)
            }
        }
    }

    pub(crate) const fn is_outdated(&self, signal: Signal) -> bool {
        signal.next_in > self.next_in || signal.pokes > self.pokes
    }

    pub(crate) async fn refresh(&mut self) -> Result<(), Error> {
        self.pokes = self.hold.signal().borrow().pokes;
        let loaded = self.worker.sessions.load(&self.hold.claim, 0).await?;
        self.pause = loaded.paused;
        self.waiting = loaded.waiting;
        self.next_in = loaded.next_in;
        self.cancel_upto = self.cancel_upto.max(loaded.cancel_upto);
        Ok(())
    }

    pub(crate) fn intake(&self) -> Intake {
        intake(&self.waiting, &self.heard(), self.open, self.cancel_upto)
    }

    /// `seq`s of the messages that this turn has heard.
    pub(crate) fn heard(&self) -> Vec<i64> {
        match outcome_of(self.journal.entries()) {
            holdfast_agent::Outcome::Open => seen(self.journal.entries()),
            holdfast_agent::Outcome::Replied(_)
            | holdfast_agent::Outcome::Silent
            | holdfast_agent::Outcome::Ended { .. } => Vec::new(),
        }
    }

    /// `seq`s of the messages that this turn has heard and that are not finished.
    pub(crate) fn unfinished(&self) -> Vec<i64> {
        let heard = self.heard();
        self.waiting.iter().map(|row| row.seq).filter(|seq| heard.contains(seq)).collect()
    }

    /// Target of this turn's answer.
    pub(crate) fn target(&self) -> Option<Target> {
        reply::target(&self.waiting, &self.heard())
            .or_else(|| {
                // A wait that has ended has no message of its own.
                let falls_back = self.heard().is_empty() || self.is_visited();
                falls_back.then(|| self.last_target.clone()).flatten()
            })
            .or_else(|| self.beat().and_then(|beat| beat.target.clone()))
    }

    pub(crate) fn hear_all(&mut self, seqs: &[i64]) {
        let heard = self.heard();
        for row in &self.waiting {
            if seqs.contains(&row.seq) && !heard.contains(&row.seq) {
                self.journal.hear(Entry::Heard { seq: row.seq, body: row.body.clone() });
                self.open |= !row.body.silent;
            }
        }
    }

    /// Gives tools the conversation's kind, target and message.
    fn desk(&self) {
        let place = self.target().or_else(|| self.last_target.clone());
        let heard = self.heard();
        let about = self.waiting.iter().rev().filter(|row| heard.contains(&row.seq));
        let about = about.into_iter().find_map(|row| row.body.message_id.clone());
        let mut desk = self.hold.desk();
        desk.kind = Some(self.kind);
        desk.place = place;
        desk.about = about;
    }

    /// Stores entries, and wakes the channels of the tools' messages.
    pub(crate) async fn append(&mut self, entries: Vec<Entry>) -> Result<Appended, Error> {
        let channels: BTreeSet<String> =
            self.hold.desk().outbox.iter().map(|sent| sent.target.channel.clone()).collect();
        let appended = self.journal.append(self.run, entries).await?;
        for channel in channels {
            self.worker.bus.wake_deliver(&channel);
        }
        self.cancel_upto = self.cancel_upto.max(appended.cancel_upto);
        // Checked at the end of the step: calls stored as begun are made first.
        self.pause |= appended.pause;
        if appended.next_in > self.next_in {
            self.refresh().await?;
        }
        Ok(appended)
    }

    /// Ensures that the session is still ours. Must be called before any effect on the outside
    /// world.
    pub(crate) async fn before_effect(&self) -> Result<(), Error> {
        if self.hold.is_safe() {
            return Ok(());
        }
        // The periodic renewal is late: renew once here.
        let asked = holdfast_kit::boot_clock::now();
        let claims = [self.hold.claim.clone()];
        let renewed = self.worker.sessions.renew(self.worker.id, &claims).await?;
        match renewed.first() {
            Some(renewed) if !self.hold.lost.is_cancelled() => {
                self.hold.extend(asked);
                self.hold.tell(renewed);
                Ok(())
            }
            _ => Err(Error::Lost),
        }
    }

    /// Ends the claim: there is no work.
    async fn put_down(&self) -> Result<Completed, Error> {
        Ok(self.worker.sessions.yield_to(&self.hold.claim, Wait::Anything).await?)
    }
}

/// Number of thoughts in a turn, which is the number of its next step.
pub(crate) fn thoughts(turn: &[Entry]) -> usize {
    turn.iter().filter(|entry| matches!(entry, Entry::Thought { .. })).count()
}
