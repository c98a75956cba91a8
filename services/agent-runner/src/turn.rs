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
    CallResult, Limits, Picture, Step, heard_seqs, next, outcome_of, policy::CompiledPolicy,
    recently_used_tools,
};
use holdfast_bus::DeltaBody;
use holdfast_schedule::Zone;
use holdfast_session::{CompletionResult, InboxMessage, LoadedSession, StepSignals, Subagent};
use holdfast_types::{
    AgentChoice, AgentId, Command, Entry, Note, RunId, SessionKey, SessionKind, SessionSettings,
    Target, ToolCall, Wait,
};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{Instrument as _, info_span};

use crate::{
    agents::AgentSnapshot,
    budget::Reservation,
    deltas::DeltaStream,
    error::Error,
    failpoints,
    intake::{Intake, decide_intake},
    journal::Journal,
    leases::{Lease, TurnSignal},
    mcp::{self, ToolRefresh},
    media::SpokenAnswer,
    memory_prefetch::MemoryPrefetch,
    quotes::Quote,
    replies::{self, Failure},
    run::TurnStart,
    skills::InvokedSkill,
    subagents::reached_limit,
    worker::{ToolSet, Worker},
};

#[derive(Debug)]
pub(crate) struct Turn<'w> {
    pub(crate) worker: &'w Worker,
    pub(crate) hold: Arc<Lease>,
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
    /// The task, in a subagent's session.
    pub(crate) task: Option<Subagent>,
    /// The routing decision, if a model chose the agent.
    pub(crate) routing_choice: Option<AgentChoice>,
    /// Tools as of the last step.
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) settings: SessionSettings,
    /// Time zone that the user has set, as of the last step.
    pub(crate) zone: Option<Zone>,
    /// Policy as of the last step.
    pub(crate) policy: Arc<CompiledPolicy>,
    pub(crate) journal: Journal,
    pub(crate) key: String,
    pub(crate) kind: SessionKind,
    pub(crate) inbox: Vec<InboxMessage>,
    pub(crate) cancel_upto: i64,
    /// The session was paused: stop after the current step.
    pause: bool,
    /// Next `seq` of the inbox when it was last read.
    pub(crate) next_in: i64,
    /// Hints received when the inbox was last read.
    pub(crate) hints: u64,
    pub(crate) stream: DeltaStream,
    pub(crate) last_target: Option<Target>,
    pub(crate) deadline: Instant,
    pub(crate) context_tokens: usize,
    pub(crate) timing: TurnTiming,
    /// Reservation for the answer in progress.
    pub(crate) reservation: Option<Reservation>,
    pub(crate) quote: Option<Quote>,
    /// The answer, if parts of it are spoken.
    pub(crate) spoken: Option<SpokenAnswer>,
    /// Images that the model was shown last.
    pub(crate) pictures: Vec<Picture>,
    /// Reasoning for the last answer, kept if a heartbeat sends it.
    pub(crate) reasoning: Option<String>,
    pub(crate) prefetch: MemoryPrefetch,
    /// The skill that the newest message invokes.
    pub(crate) invoked_skill: Option<InvokedSkill>,
    /// Recommended skills; `None` before they are determined.
    pub(crate) recommended: Option<Vec<String>>,
    /// The model refused the conversation as too long, and a memory flush was started.
    pub(crate) is_too_long: bool,
    /// The turn is in the journal, or has heard messages.
    open: bool,
}

/// Time spent by a turn.
#[derive(Debug)]
pub(crate) struct TurnTiming {
    pub(crate) began: Instant,
    pub(crate) started_at: Timestamp,
    pub(crate) model: Duration,
    pub(crate) tools: Duration,
}

impl<'w> Turn<'w> {
    pub(crate) fn new(
        worker: &'w Worker,
        hold: Arc<Lease>,
        loaded: LoadedSession,
        begun: TurnStart,
        mut journal: Journal,
        began: Instant,
        task: Option<Subagent>,
    ) -> Self {
        if let Some(text) = &begun.overdue {
            journal.add_unstored(Entry::noted(Note::DeadlinePassed, text.as_str()));
        }
        let stream = DeltaStream::new(worker.bus.clone(), hold.claim.clone(), begun.run);
        stream.begin_step(count_thoughts(journal.turn()));
        stream.send(DeltaBody::Started);
        if begun.open || hold.claim.attempts > 1 {
            stream.send(DeltaBody::StepRestarted);
        }
        let kind = loaded.key.parse().map_or(SessionKind::Main, |key: SessionKey| key.kind());
        let own = task.as_ref().map_or(worker.config.turn_deadline, |task| task.left);
        let deadline = began + worker.config.turn_deadline.min(own);
        let context_tokens = worker.config.context_tokens;
        let pokes = hold.subscribe().borrow().hints;
        let clock = TurnTiming {
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
            routing_choice: None,
            tools: Arc::clone(&worker.tools),
            settings: loaded.settings,
            zone: None,
            // Allows nothing until the policy is loaded.
            policy: worker.tools.deny_all_policy(),
            journal,
            key: loaded.key,
            kind,
            inbox: loaded.waiting,
            cancel_upto: loaded.cancel_upto,
            pause: false,
            next_in: loaded.next_in,
            hints: pokes,
            stream,
            last_target: loaded.last_target,
            deadline,
            context_tokens,
            timing: clock,
            reservation: None,
            spoken: None,
            quote: None,
            pictures: Vec::new(),
            reasoning: None,
            prefetch: MemoryPrefetch::default(),
            invoked_skill: None,
            recommended: None,
            is_too_long: false,
            open: begun.open || begun.overdue.is_some(),
        }
    }

    /// Runs steps until the session is idle.
    pub(crate) async fn run_steps(
        &mut self,
        home: &Arc<AgentSnapshot>,
    ) -> Result<CompletionResult, Error> {
        let limits = self.worker.config.limits();
        let mut answers: Option<Arc<AgentSnapshot>> = None;
        loop {
            if let Some(completed) = self.end_of_step().await? {
                return Ok(completed);
            }
            if let Some(command) = self.command()
                && !matches!(command, Command::Compact(_))
            {
                return self.execute_command(command).await;
            }
            if let Some(text) = self.fixed_text() {
                return self.finish_with_fixed_text(text).await;
            }
            if let Some(completed) = self.finish_task().await? {
                return Ok(completed);
            }
            if answers.is_none() {
                if let Some(completed) = self.dispatch_command(home).await? {
                    return Ok(completed);
                }
                let Some(found) = self.answering_agent(home).await? else { continue };
                if let Some(completed) = self.dispatch_command(&found).await? {
                    return Ok(completed);
                }
                let window = usize::try_from(found.card.context).unwrap_or(usize::MAX);
                self.context_tokens = self.context_tokens.min(window);
                answers = Some(found);
            }
            let brief = answers.as_deref().unwrap_or(home);
            if let Some(unusable) = self.find_invoked_skill(brief) {
                return self.finish_with_answer(unusable).await;
            }
            self.refresh_tools(brief, limits).await?;
            self.load_policy().await?;
            self.load_zone(brief.dm_scope).await?;
            if !self.is_dispatched() {
                self.start_prefetch(brief);
            }
            if let Some(completed) = self.run_compact_command(brief).await? {
                return Ok(completed);
            }
            let step = count_thoughts(self.journal.turn());
            let span = info_span!("step", step);
            let effect = |name: &str| self.tools.effect(name);
            let done = match next(self.journal.entries(), limits, effect) {
                Step::Rest => return self.yield_session().await,
                Step::Think => self.think_and_release(brief, true).instrument(span).await?,
                Step::ThinkWithoutTools => {
                    self.think_and_release(brief, false).instrument(span).await?
                }
                Step::Call(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
                    self.run_calls(brief, &calls).instrument(span).await?
                }
                Step::Await(calls) => {
                    let calls: Vec<ToolCall> = calls.into_iter().cloned().collect();
                    self.settle_approvals(&calls).instrument(span).await?
                }
                Step::Unknown(call) => {
                    let call = call.clone();
                    let returned = self.recover_result(brief, &call).await?;
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
                    let came = CallResult { output: &output, ..came };
                    Some(self.finish_dispatched(&call, came).await?)
                }
                Step::Halt => Some(self.finish_with_failure(&Failure::ToolLoop).await?),
            };
            if let Some(completed) = done {
                return Ok(completed);
            }
        }
    }

    /// Loads the tools. Tools of MCP servers are refreshed only when they are needed.
    async fn refresh_tools(&mut self, brief: &AgentSnapshot, limits: Limits) -> Result<(), Error> {
        let effect = |name: &str| self.tools.effect(name);
        let look = match next(self.journal.entries(), limits, effect) {
            Step::Call(calls) if calls.iter().any(|call| mcp::may_need_servers(&call.tool)) => {
                ToolRefresh::Refresh
            }
            Step::Think
                if brief.tools.as_deref().is_some_and(mcp::names_server_tools)
                    || mcp::names_server_tools(&recently_used_tools(self.journal.entries())) =>
            {
                ToolRefresh::Refresh
            }
            Step::Call(_)
            | Step::Think
            | Step::Rest
            | Step::ThinkWithoutTools
            | Step::Await(_)
            | Step::Unknown(_)
            | Step::Refuse(..)
            | Step::Answer(..)
            | Step::Halt => ToolRefresh::UseCached,
        };
        self.load_tools(brief, look).await
    }

    pub(crate) async fn load_tools(
        &mut self,
        brief: &AgentSnapshot,
        look: ToolRefresh,
    ) -> Result<(), Error> {
        let (worker, tenant) = (self.worker, self.hold.claim.tenant);
        let found = worker.mcp.toolbox(&worker.tools, tenant, brief.agent, look);
        self.tools = tokio::select! {
            found = found => found?,
            () = self.hold.lost.cancelled() => return Err(Error::Lost),
            () = worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
        };
        Ok(())
    }

    /// Ends the turn of a task that has ended or has reached a limit.
    async fn finish_task(&mut self) -> Result<Option<CompletionResult>, Error> {
        let Some(task) = &self.task else { return Ok(None) };
        if task.outcome.is_some() {
            // Messages that arrive after the end of the task are not part of it.
            let is_task = self.heard_seqs().contains(&1);
            return match is_task {
                true => Ok(Some(self.finish_early(Note::Cancelled, self.unfinished_seqs()).await?)),
                false => Ok(None),
            };
        }
        match reached_limit(task, self.journal.turn()) {
            Some(budget) => Ok(Some(self.finish_with_failure(&Failure::TaskLimit(budget)).await?)),
            None => Ok(None),
        }
    }

    /// Ends a turn that cannot run, unless its user has cancelled it.
    pub(crate) async fn finish_without_model(
        &mut self,
        failure: &Failure<'_>,
    ) -> Result<CompletionResult, Error> {
        if let Some(completed) = self.end_of_step().await? {
            return Ok(completed);
        }
        if let Some(text) = self.fixed_text() {
            return self.finish_with_fixed_text(text).await;
        }
        match self.command() {
            Some(command) => self.execute_command(command).await,
            None => self.finish_with_failure(failure).await,
        }
    }

    /// End of a step: all signals from outside take effect here.
    async fn end_of_step(&mut self) -> Result<Option<CompletionResult>, Error> {
        failpoints::point("runner.boundary").await;
        if self.worker.draining.is_cancelled() {
            return Err(Error::ReleaseRequested);
        }
        let signal = *self.hold.subscribe().borrow();
        self.cancel_upto = self.cancel_upto.max(signal.cancel_upto);
        if self.is_outdated(signal) {
            self.reload_inbox().await?;
        }
        if self.pause || signal.pause {
            return Err(Error::ReleaseRequested);
        }
        self.process_decisions().await?;
        match self.decide_intake() {
            Intake::Cancelled(seqs) => {
                self.hear_messages(&seqs);
                // Messages that the turn has heard are cancelled with it.
                let heard = self.heard_seqs();
                let with = heard.iter().any(|seq| seqs.contains(seq));
                let all: BTreeSet<i64> =
                    seqs.into_iter().chain(heard.into_iter().filter(|_| with)).collect();
                Ok(Some(self.finish_early(Note::Cancelled, all.into_iter().collect()).await?))
            }
            Intake::Interrupted(seqs) => {
                self.hear_messages(&seqs);
                Ok(Some(self.finish_early(Note::Interrupted, self.unfinished_seqs()).await?))
            }
            Intake::Hear(seqs) => {
                self.hear_messages(&seqs);
                if Instant::now() >= self.deadline {
                    return Ok(Some(self.finish_with_failure(&Failure::TurnTimedOut).await?));
                }
                Ok(None)
            }
        }
    }

    pub(crate) const fn is_outdated(&self, signal: TurnSignal) -> bool {
        signal.next_in > self.next_in || signal.hints > self.hints
    }

    pub(crate) async fn reload_inbox(&mut self) -> Result<(), Error> {
        self.hints = self.hold.subscribe().borrow().hints;
        let loaded = self.worker.sessions.load(&self.hold.claim, 0).await?;
        self.pause = loaded.paused;
        self.inbox = loaded.waiting;
        self.next_in = loaded.next_in;
        self.cancel_upto = self.cancel_upto.max(loaded.cancel_upto);
        Ok(())
    }

    pub(crate) fn decide_intake(&self) -> Intake {
        decide_intake(&self.inbox, &self.heard_seqs(), self.open, self.cancel_upto)
    }

    /// `seq`s of the messages that this turn has heard.
    pub(crate) fn heard_seqs(&self) -> Vec<i64> {
        match outcome_of(self.journal.entries()) {
            holdfast_agent::Outcome::Open => heard_seqs(self.journal.entries()),
            holdfast_agent::Outcome::Replied(_)
            | holdfast_agent::Outcome::Silent
            | holdfast_agent::Outcome::Ended { .. } => Vec::new(),
        }
    }

    /// `seq`s of the messages that this turn has heard and that are not finished.
    pub(crate) fn unfinished_seqs(&self) -> Vec<i64> {
        let heard = self.heard_seqs();
        self.inbox.iter().map(|row| row.seq).filter(|seq| heard.contains(seq)).collect()
    }

    /// Target of this turn's answer.
    pub(crate) fn reply_target(&self) -> Option<Target> {
        replies::reply_target(&self.inbox, &self.heard_seqs())
            .or_else(|| {
                // A wait that has ended has no message of its own.
                let falls_back = self.heard_seqs().is_empty() || self.is_firing_in_user_session();
                falls_back.then(|| self.last_target.clone()).flatten()
            })
            .or_else(|| self.heartbeat().and_then(|beat| beat.target.clone()))
    }

    pub(crate) fn hear_messages(&mut self, seqs: &[i64]) {
        let heard = self.heard_seqs();
        for row in &self.inbox {
            if seqs.contains(&row.seq) && !heard.contains(&row.seq) {
                self.journal.add_unstored(Entry::Heard { seq: row.seq, body: row.body.clone() });
                self.open |= !row.body.silent;
            }
        }
    }

    /// Target of the conversation, if it is on a channel.
    pub(crate) fn conversation_target(&self) -> Option<Target> {
        self.reply_target().or_else(|| self.last_target.clone())
    }

    /// The platform's id of the newest message of the turn that has one.
    pub(crate) fn platform_message(&self) -> Option<String> {
        let heard = self.heard_seqs();
        let mut newest = self.inbox.iter().rev().filter(|row| heard.contains(&row.seq));
        newest.find_map(|row| row.body.message_id.clone())
    }

    /// Stores entries, and wakes the channels of the tools' messages.
    pub(crate) async fn append(&mut self, entries: Vec<Entry>) -> Result<StepSignals, Error> {
        let channels: BTreeSet<String> = self.journal.outbox_channels().collect();
        let appended = self.journal.append(self.run, entries).await?;
        for channel in channels {
            self.worker.bus.wake_deliver(&channel);
        }
        self.cancel_upto = self.cancel_upto.max(appended.cancel_upto);
        // Checked at the end of the step: calls stored as begun are made first.
        self.pause |= appended.pause;
        if appended.next_in > self.next_in {
            self.reload_inbox().await?;
        }
        Ok(appended)
    }

    /// Ensures that the session is still ours. Must be called before any effect on the outside
    /// world.
    pub(crate) async fn ensure_owned(&self) -> Result<(), Error> {
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
                self.hold.update_signal(renewed);
                Ok(())
            }
            _ => Err(Error::Lost),
        }
    }

    /// Ends the claim: there is no work.
    async fn yield_session(&self) -> Result<CompletionResult, Error> {
        Ok(self.worker.sessions.yield_session(&self.hold.claim, Wait::Anything).await?)
    }
}

/// Number of thoughts in a turn, which is the number of its next step.
pub(crate) fn count_thoughts(turn: &[Entry]) -> usize {
    turn.iter().filter(|entry| matches!(entry, Entry::Thought { .. })).count()
}
