//! State of a turn, and what it reads and writes of its session.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use holdfast_agent::{Picture, heard_seqs, outcome_of, policy::CompiledPolicy};
use holdfast_bus::DeltaBody;
use holdfast_llm::FailureLog;
use holdfast_session::{InboxMessage, LoadedSession, StepSignals, Subagent};
use holdfast_types::{
    AgentChoice, AgentId, DropPolicy, Entry, MessageOptions, Note, RunId, SessionKey, SessionKind,
    SessionSettings, StopReason, SystemEvent, Target, Wait,
};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    agents::{budget::Reservation, preferences::UserPreferences},
    error::Error,
    leases::{Lease, TurnSignal},
    scheduled_messages,
    tools::tool_set::ToolSet,
    turn::{
        approvals::outside_text,
        behavior::{BehaviorRun, LocalWorkspace},
        context::{media::SpokenAnswer, memory_prefetch::MemoryPrefetch},
        intake::{self, Intake, decide_intake},
        journal::Journal,
        reply::{
            deltas::DeltaStream,
            quotes::Quote,
            replies::{self},
        },
        run::TurnStart,
        skills::invocation::InvokedSkill,
    },
    worker::Worker,
};

#[derive(Debug)]
pub(crate) struct TurnState<'w> {
    pub(crate) worker: &'w Worker,
    pub(crate) lease: Arc<Lease>,
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
    /// The task, in a subagent's session.
    pub(crate) task: Option<Subagent>,
    /// The routing decision, if a model chose the agent.
    pub(crate) routing_choice: Option<AgentChoice>,
    /// Tools as of the last step.
    pub(crate) tools: Arc<ToolSet>,
    pub(crate) settings: SessionSettings,
    /// Time zone and language that the user has chosen, as of the last step.
    pub(crate) preferences: UserPreferences,
    /// Policy as of the last step.
    pub(crate) policy: Arc<CompiledPolicy>,
    pub(crate) journal: Journal,
    pub(crate) key: String,
    pub(crate) kind: SessionKind,
    pub(crate) inbox: Vec<InboxMessage>,
    pub(crate) cancel_upto: i64,
    /// The session was paused: stop after the current step.
    pub(crate) pause: bool,
    /// Next `seq` of the inbox when it was last read.
    pub(crate) next_in: i64,
    /// Hints received when the inbox was last read.
    pub(crate) hints: u64,
    pub(crate) stream: DeltaStream,
    pub(crate) last_target: Option<Target>,
    /// Target of unasked messages that a command of this turn has set.
    pub(crate) switched_target: Option<Target>,
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
    /// Failed requests to models since the last reply.
    pub(crate) failures: FailureLog,
    /// The model refused the conversation as too long, and a memory flush was started.
    pub(crate) is_too_long: bool,
    /// Why the last reply ended.
    pub(crate) stop: StopReason,
    /// The turn is in the journal, or has heard messages.
    pub(crate) open: bool,
    /// An earlier claim has begun the turn, or tried to.
    pub(crate) is_continued: bool,
    /// Another runner held state for the session when this turn was claimed.
    pub(crate) was_moved: bool,
    /// Events that the turn is told of before the model is asked again.
    pub(crate) pending_events: Vec<SystemEvent>,
    /// Set if the agent works by behaviours.
    pub(crate) behavior: Option<Box<BehaviorRun>>,
    /// Id of the session's local workspace.
    pub(crate) bound_workspace: Option<String>,
    /// The session's local workspace, if the conversation sees it.
    pub(crate) workspace: Option<LocalWorkspace>,
    /// Wait of the session after the turn.
    pub(crate) wait: Wait,
}

/// Time spent by a turn.
#[derive(Debug)]
pub(crate) struct TurnTiming {
    pub(crate) began: Instant,
    pub(crate) started_at: Timestamp,
    pub(crate) model: Duration,
    pub(crate) tools: Duration,
}

impl<'w> TurnState<'w> {
    pub(crate) fn new(
        worker: &'w Worker,
        lease: Arc<Lease>,
        loaded: LoadedSession,
        begun: TurnStart,
        mut journal: Journal,
        began: Instant,
        task: Option<Subagent>,
    ) -> Self {
        if let Some(text) = &begun.overdue {
            journal.add_unstored(Entry::noted(Note::DeadlinePassed, text.as_str()));
        }
        journal.set_inbox(&loaded.waiting);
        let stream = DeltaStream::new(worker.bus.clone(), lease.claim.clone(), begun.run);
        let kind = loaded.key.parse().map_or(SessionKind::Main, |key: SessionKey| key.kind());
        let own = task.as_ref().map_or(worker.config.turn_deadline, |task| task.left);
        let deadline = began + worker.config.turn_deadline.min(own);
        let context_tokens = worker.config.context_tokens;
        let hints = lease.subscribe().borrow().hints;
        let is_retried = lease.claim.attempts > 1;
        let clock = TurnTiming {
            began,
            started_at: Timestamp::now(),
            model: Duration::ZERO,
            tools: Duration::ZERO,
        };
        Self {
            worker,
            lease,
            run: begun.run,
            agent: loaded.agent,
            task,
            routing_choice: None,
            tools: Arc::clone(&worker.tools),
            settings: loaded.settings,
            preferences: UserPreferences::default(),
            // Allows nothing until the policy is loaded.
            policy: worker.tools.deny_all_policy(),
            journal,
            key: loaded.key,
            kind,
            inbox: loaded.waiting,
            cancel_upto: loaded.cancel_upto,
            pause: false,
            next_in: loaded.next_in,
            hints,
            stream,
            last_target: loaded.last_target,
            switched_target: None,
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
            stop: StopReason::End,
            failures: FailureLog::default(),
            open: begun.open || begun.overdue.is_some(),
            is_continued: begun.open || is_retried,
            was_moved: false,
            pending_events: Vec::new(),
            behavior: None,
            bound_workspace: loaded.workspace,
            workspace: None,
            wait: Wait::Anything,
        }
    }

    /// Tells those who follow the turn that this runner has it.
    pub(crate) fn announce(&self) {
        self.stream.begin_step(count_thoughts(self.journal.turn()));
        self.stream.send(DeltaBody::Started);
        if self.is_continued {
            self.stream.send(DeltaBody::StepRestarted);
        }
    }

    pub(crate) const fn is_outdated(&self, signal: TurnSignal) -> bool {
        signal.next_in > self.next_in || signal.hints > self.hints
    }

    pub(crate) async fn reload_inbox(&mut self) -> Result<(), Error> {
        self.hints = self.lease.subscribe().borrow().hints;
        let loaded = scheduled_messages::load(self.worker, &self.lease.claim, 0).await?;
        self.pause = loaded.paused;
        self.journal.set_inbox(&loaded.waiting);
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

    /// `seq`s of the messages that this turn has heard and finishes.
    pub(crate) fn unfinished_seqs(&self) -> Vec<i64> {
        let heard = self.heard_seqs();
        let first = intake::first_message(&self.inbox, &heard);
        let mine = self.inbox.iter().filter(|row| heard.contains(&row.seq));
        mine.filter(|row| !intake::is_for_later(row, first)).map(|row| row.seq).collect()
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

    /// Options of the newest message of the turn that came by a channel.
    pub(crate) fn message_options(&self) -> Option<&MessageOptions> {
        let heard = self.heard_seqs();
        let newest =
            self.inbox.iter().rev().find(|row| row.target.is_some() && heard.contains(&row.seq));
        newest?.body.options.as_deref()
    }

    pub(crate) fn hear_messages(&mut self, seqs: &[i64]) {
        let heard = self.heard_seqs();
        let (excess, policy) = match self.open {
            true => (Vec::new(), DropPolicy::default()),
            false => intake::excess_messages(&self.inbox, &heard),
        };
        for row in &self.inbox {
            if seqs.contains(&row.seq) && !heard.contains(&row.seq) {
                let mut body = row.body.clone();
                if excess.contains(&row.seq) {
                    body = intake::shortened(body, policy);
                }
                // The inbox has it for those who read it.
                body.response_fields = None;
                body.outside |= outside_text::is_of_guest(&self.policy, &body);
                self.journal.add_unstored(Entry::Heard { seq: row.seq, body });
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
        if self.lease.is_safe() {
            return Ok(());
        }
        // The periodic renewal is late: renew once here.
        let asked = holdfast_kit::boot_clock::now();
        let claims = [self.lease.claim.clone()];
        let result = self.worker.sessions.renew(self.worker.id, &claims).await?;
        if !result.locked.is_empty() {
            return Err(holdfast_session::Error::LeaseLocked.into());
        }
        match result.renewed.first() {
            Some(renewed) if !self.lease.lost.is_cancelled() => {
                self.lease.extend(asked);
                self.lease.update_signal(renewed);
                Ok(())
            }
            _ => Err(Error::Lost),
        }
    }
}

/// Number of thoughts in a turn, which is the number of its next step.
pub(crate) fn count_thoughts(turn: &[Entry]) -> usize {
    turn.iter().filter(|entry| matches!(entry, Entry::Thought { .. })).count()
}
