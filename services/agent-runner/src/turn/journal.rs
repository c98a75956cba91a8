//! Journal of one session as its turn sees it: stored entries, and new ones that are stored with
//! the next write.
//!
//! **What can go wrong.** If the database fails during a commit, its outcome is unknown. Nobody
//! else writes under this claim, so the next `seq` of the journal tells: if it grew, the write was
//! made. If it shrank, or a message that was read is gone, a failover lost commits: the turn ends, and
//! the session is read again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_agent::{behavior::RESULT_TOOL, has_lost_call};
use holdfast_kit::Backoff;
use holdfast_session::{
    ApprovalBatch, Charge, Completion, CompletionResult, InboxMessage, LoadedSession, NewApproval,
    NewDelivery, Sessions, StepEffects, StepSignals, StepWrite, WriteCost,
};
use holdfast_types::{Body, Entry, Fault as _, MessageId, RunId, Transcription, Usage};
use tracing::warn;

use crate::{
    agents::budget::Ledger,
    error::Error,
    failpoints,
    leases::Lease,
    tools::tool_usage::ToolUsage,
    turn::{
        approvals::outside_text,
        budget::hit_points::{HitPointLevel, HitPointMeter},
    },
};

fn count_cost(spent: &WriteCost) {
    metrics::counter!("holdfast_runner_cost_microdollars_total").increment(spent.charge.micros);
}

const NO_CHARGE: Charge = Charge { tokens: 0, micros: 0, platform_micros: 0 };

const fn add(one: Charge, other: Charge) -> Charge {
    Charge {
        tokens: one.tokens.saturating_add(other.tokens),
        micros: one.micros.saturating_add(other.micros),
        platform_micros: one.platform_micros.saturating_add(other.platform_micros),
    }
}

/// Delay between attempts of a write.
const WRITE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

#[derive(Debug)]
pub(crate) struct Journal {
    sessions: Sessions,
    lease: Arc<Lease>,
    entries: Vec<Entry>,
    /// Number of stored entries.
    stored: usize,
    /// Index of the turn's first entry.
    turn: usize,
    next_entry: i64,
    /// Newest message of the inbox that the turn has read, with its `seq`.
    newest: Option<(i64, MessageId)>,
    /// Prices and budgets; without them nothing is priced.
    ledger: Option<Arc<Ledger>>,
    /// Charges for usage that is in no thought: those not stored yet, and the total of the turn.
    other_charges: Mutex<(Charge, Charge)>,
    /// Messages of tools, to be stored with the next write.
    outbox: Vec<NewDelivery>,
    /// Entries before the loaded ones brought text from outside.
    outside: bool,
    /// The mark of text from outside is to be stored by itself.
    is_mark_due: bool,
    /// What the next write stores besides the journal.
    effects: Option<Arc<dyn StepEffects>>,
    /// Set if work costs the agent hit points.
    hit_points: Option<HitPointMeter>,
}

impl Journal {
    /// `turn` is the index of the open turn's first entry, or the number of entries if none is
    /// open.
    pub(crate) const fn new(
        sessions: Sessions,
        lease: Arc<Lease>,
        entries: Vec<Entry>,
        turn: usize,
        next_entry: i64,
    ) -> Self {
        let stored = entries.len();
        let besides = Mutex::new((NO_CHARGE, NO_CHARGE));
        Self {
            sessions,
            lease,
            entries,
            stored,
            turn,
            next_entry,
            newest: None,
            ledger: None,
            other_charges: besides,
            outbox: Vec::new(),
            outside: false,
            is_mark_due: false,
            effects: None,
            hit_points: None,
        }
    }

    /// Records that the conversation has read text from outside before the loaded entries.
    pub(crate) const fn set_outside(&mut self) {
        self.outside = true;
    }

    /// Records that the prompt has text from outside. The turn's messages take the mark to the
    /// database, or, if they are stored already, the next write does.
    pub(crate) fn mark_prompt_outside(&mut self) {
        let mut has_carrier = self.outside;
        self.outside = true;
        for entry in &mut self.entries[self.stored..] {
            if let Entry::Heard { body, .. } = entry {
                body.outside = true;
                has_carrier = true;
            }
        }
        self.is_mark_due |= !has_carrier;
    }

    /// Stores the mark that no entry takes to the database. Before the entries, so that none is read
    /// without it.
    async fn store_mark(&mut self) -> Result<(), Error> {
        let mut tried = 0;
        while self.is_mark_due {
            match self.sessions.mark_prompt_outside(&self.lease.claim).await {
                Ok(()) => self.is_mark_due = false,
                Err(error) => {
                    self.resolve_failed_write(error, &mut tried).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the conversation has read text from outside since it began anew.
    pub(crate) fn has_outside_text(&self) -> bool {
        self.outside || outside_text::is_among(&self.entries)
    }

    /// Sets the prices and budgets of the turn.
    pub(crate) fn set_budgets(&mut self, ledger: Arc<Ledger>) {
        self.ledger = Some(ledger);
    }

    /// Sets what the turn's work costs in hit points.
    pub(crate) fn set_hit_points(&mut self, meter: Option<HitPointMeter>) {
        self.hit_points = meter;
    }

    /// Hit points after the last write.
    pub(crate) fn hit_points(&self) -> HitPointLevel {
        self.hit_points.as_ref().map_or(HitPointLevel::Enough, HitPointMeter::level)
    }

    /// What the next write stores besides the journal, with the hit points that it costs.
    fn take_effects(&mut self, spent: &WriteCost) -> Option<Arc<dyn StepEffects>> {
        let effects = self.effects.take();
        match &self.hit_points {
            Some(meter) => meter.charge(effects, &self.entries[self.stored..], spent.charge.tokens),
            None => effects,
        }
    }

    /// Remembers which messages the turn has read: its writes are refused if the database loses them.
    pub(crate) fn set_inbox(&mut self, waiting: &[InboxMessage]) {
        let is_replaced =
            |(seq, message)| waiting.iter().any(|row| row.seq == seq && row.message != message);
        if !self.newest.is_some_and(is_replaced) {
            self.newest = self.newest.max(waiting.last().map(|row| (row.seq, row.message)));
        }
    }

    /// Sets what the next step or end of the turn stores besides the journal.
    pub(crate) fn set_effects(&mut self, effects: Arc<dyn StepEffects>) {
        self.effects = Some(effects);
    }

    /// Adds a message that is stored with the next write.
    pub(crate) fn enqueue(&mut self, deliveries: impl IntoIterator<Item = NewDelivery>) {
        self.outbox.extend(deliveries);
    }

    /// Channels of the messages that the next write stores; may repeat.
    pub(crate) fn outbox_channels(&self) -> impl Iterator<Item = String> {
        self.outbox.iter().map(|sent| sent.target.channel.clone())
    }

    pub(crate) const fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Adds a charge that is in no thought. Stored with the next write.
    pub(crate) fn charge(&self, charge: Charge) {
        let mut besides = self.other_charges.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, all) = &mut *besides;
        for sum in [due, all] {
            *sum = add(*sum, charge);
        }
    }

    /// Charges a model's answer that is in no thought.
    pub(crate) fn charge_reply(&self, model: &str, usage: &Usage) {
        let Some(ledger) = &self.ledger else { return };
        self.charge(ledger.charge(model, usage));
    }

    pub(crate) fn charge_used(&self, used: &ToolUsage) {
        let Some(ledger) = &self.ledger else { return };
        let tokens = used.usage.input.saturating_add(used.usage.output);
        // Tools are never served with keys of the installation.
        self.charge(Charge { tokens, micros: used.cost_micros(ledger), platform_micros: 0 });
    }

    /// Cost of a call's usage, in millionths of a US dollar.
    pub(crate) fn cost_micros(&self, used: &[ToolUsage]) -> u64 {
        let cost = |ledger: &Arc<Ledger>| used.iter().map(|used| used.cost_micros(ledger)).sum();
        self.ledger.as_ref().map_or(0, cost)
    }

    /// Cost of an answer of a model, in millionths of a US dollar.
    pub(crate) fn micros(&self, model: &str, usage: &Usage) -> u64 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.micros(model, usage))
    }

    /// Cost of the turn so far, and the charges that the next write stores.
    fn take_spent(&self) -> WriteCost {
        let Some(ledger) = &self.ledger else { return WriteCost::default() };
        let sum = |entries: &[Entry]| {
            let thoughts = entries.iter().filter_map(|entry| match entry {
                Entry::Thought { usage, model, .. } => Some(ledger.charge(model, usage)),
                Entry::Heard { .. }
                | Entry::Called { .. }
                | Entry::Returned { .. }
                | Entry::Noted { .. } => None,
            });
            thoughts.fold(NO_CHARGE, add)
        };
        let mut besides = self.other_charges.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, all) = (std::mem::take(&mut besides.0), besides.1);
        let charge = add(sum(&self.entries[self.stored..]), due);
        let run = add(sum(self.turn()), all);
        WriteCost {
            run_micros: run.micros,
            run_platform_micros: run.platform_micros,
            charge,
            budgets: ledger.owners(),
        }
    }

    /// All entries, oldest first; the newest may not be stored yet.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) const fn is_stored(&self) -> bool {
        self.stored == self.entries.len()
    }

    /// `seq` of the first loaded entry.
    pub(crate) fn first_entry(&self) -> i64 {
        self.next_entry - i64::try_from(self.stored).unwrap_or(i64::MAX)
    }

    /// `seq` of the next entry.
    pub(crate) const fn next_entry(&self) -> i64 {
        self.next_entry
    }

    pub(crate) fn turn(&self) -> &[Entry] {
        &self.entries[self.turn..]
    }

    /// Model that answered last in this turn, or else the one that failed; empty if there is none.
    pub(crate) fn model(&self) -> String {
        turn_cost(self.turn()).2
    }

    /// Tool lists of this turn's messages; each narrows the tools.
    pub(crate) fn tool_limits(&self) -> Vec<Vec<String>> {
        let named = self.turn().iter().filter_map(|entry| match entry {
            Entry::Heard { body, .. } => body.tools.clone(),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        named.collect()
    }

    /// Usage of the turn so far.
    pub(crate) fn usage(&self) -> Usage {
        turn_cost(self.turn()).1
    }

    /// Cost of the turn so far, in millionths of a US dollar.
    pub(crate) fn turn_micros(&self) -> u64 {
        let thoughts = self.turn().iter().filter_map(|entry| match entry {
            Entry::Thought { usage, model, .. } => Some(self.micros(model, usage)),
            Entry::Heard { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        let besides = self.other_charges.lock().unwrap_or_else(PoisonError::into_inner).1;
        thoughts.fold(besides.micros, u64::saturating_add)
    }

    /// Adds an entry that a successor could obtain again. Stored with the next write, without a
    /// commit of its own.
    pub(crate) fn add_unstored(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Prices and budgets of the turn, if it has an agent.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    /// A message that was heard, as it is stored.
    pub(crate) fn heard_body(&self, seq: i64) -> Option<&Body> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Heard { seq: heard, body } if *heard == seq => Some(body),
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        })
    }

    /// Messages that the next write stores, with their indexes.
    pub(crate) fn unstored_messages(&self) -> impl Iterator<Item = (usize, &Body)> {
        let unstored = self.entries.iter().enumerate().skip(self.stored);
        unstored.filter_map(|(at, entry)| match entry {
            Entry::Heard { body, .. } => Some((at, body)),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        })
    }

    /// Adds what was heard in an attachment to a message that the next write stores.
    pub(crate) fn set_transcription(
        &mut self,
        (entry, attachment): (usize, usize),
        transcription: Transcription,
    ) {
        if entry >= self.stored
            && let Some(Entry::Heard { body, .. }) = self.entries.get_mut(entry)
            && let Some(attachment) = body.attachments.get_mut(attachment)
        {
            attachment.transcription = Some(Box::new(transcription));
        }
    }

    /// Stores entries, together with those that were added without a write.
    pub(crate) async fn append(
        &mut self,
        run: RunId,
        entries: Vec<Entry>,
    ) -> Result<StepSignals, Error> {
        self.store_mark().await?;
        self.entries.extend(entries);
        let spent = self.take_spent();
        let append = StepWrite {
            run: Some(run),
            at: Some(self.next_entry),
            newest: self.newest,
            entries: self.entries[self.stored..].to_vec(),
            seen: heard_seqs(&self.entries[self.stored..]),
            deliveries: std::mem::take(&mut self.outbox),
            // A model may repeat an acting call that kills each runner: a new thought about the
            // lost call must not hide that.
            no_progress: has_lost_call(self.turn()),
            effects: self.take_effects(&spent),
        };
        failpoints::point("runner.before_append").await;
        let mut tried = 0;
        let appended = loop {
            let error = match self
                .sessions
                .append_with_cost(&self.lease.claim, append.clone(), &spent)
                .await
            {
                Ok(appended) => break appended,
                Err(error) => error,
            };
            if let Some(loaded) = self.resolve_failed_write(error, &mut tried).await? {
                break StepSignals {
                    pause: loaded.paused,
                    cancel_upto: loaded.cancel_upto,
                    next_in: loaded.next_in,
                    next_entry: loaded.next_entry,
                };
            }
        };
        failpoints::point("runner.after_append").await;
        count_cost(&spent);
        self.stored = self.entries.len();
        self.next_entry = appended.next_entry;
        Ok(appended)
    }

    /// Ends the turn.
    ///
    /// Fills in the completion's entries, the index of the reply, steps, usage and the tools'
    /// deliveries.
    pub(crate) async fn complete(
        &mut self,
        last: Entry,
        is_reply: ReplyKind,
        mut completion: Completion,
    ) -> Result<CompletionResult, Error> {
        self.store_mark().await?;
        self.entries.push(last);
        completion.at = Some(self.next_entry);
        completion.newest = self.newest;
        completion.entries = self.entries[self.stored..].to_vec();
        completion.reply = match is_reply {
            ReplyKind::Yes => completion.entries.len().checked_sub(1),
            ReplyKind::No => None,
        };
        (completion.steps, completion.usage, completion.model) = turn_cost(self.turn());
        completion.tools = tool_calls(self.turn());
        let spent = self.take_spent();
        completion.effects = self.take_effects(&spent);
        let tools = std::mem::take(&mut self.outbox);
        completion.deliveries.splice(0..0, tools);
        failpoints::point("runner.before_complete").await;
        let mut tried = 0;
        let completed = loop {
            let ended =
                self.sessions.complete_with_cost(&self.lease.claim, completion.clone(), &spent);
            let error = match ended.await {
                Ok(completed) => break completed,
                Err(error) => error,
            };
            if self.resolve_failed_write(error, &mut tried).await?.is_some() {
                // The result is unknown; checking the session again is cheap.
                break CompletionResult { wake: true, again: true };
            }
        };
        failpoints::point("runner.after_complete").await;
        count_cost(&spent);
        self.next_entry += i64::try_from(completion.entries.len()).unwrap_or(i64::MAX);
        self.stored = self.entries.len();
        Ok(completed)
    }

    /// Requests approvals and releases the session until one is decided.
    pub(crate) async fn request_approvals(
        &mut self,
        run: RunId,
        entries: Vec<Entry>,
        approvals: Vec<NewApproval>,
    ) -> Result<CompletionResult, Error> {
        self.store_mark().await?;
        self.entries.extend(entries);
        let ask = ApprovalBatch {
            run,
            at: self.next_entry,
            newest: self.newest,
            entries: self.entries[self.stored..].to_vec(),
            seen: heard_seqs(&self.entries[self.stored..]),
            deliveries: std::mem::take(&mut self.outbox),
            approvals,
        };
        failpoints::point("runner.before_ask").await;
        let mut tried = 0;
        let completed = loop {
            let error = match self.sessions.approvals().ask(&self.lease.claim, ask.clone()).await {
                Ok(completed) => break completed,
                Err(error) => error,
            };
            if self.resolve_failed_write(error, &mut tried).await?.is_some() {
                // The result is unknown; checking the session again is cheap.
                break CompletionResult { wake: true, again: true };
            }
        };
        failpoints::point("runner.after_ask").await;
        self.stored = self.entries.len();
        Ok(completed)
    }

    /// Waits after a failed write. Returns the session if the write was made after all, or `None`
    /// to try again.
    async fn resolve_failed_write(
        &self,
        error: holdfast_session::Error,
        tried: &mut u32,
    ) -> Result<Option<LoadedSession>, Error> {
        if error.is_fenced() {
            metrics::counter!("holdfast_runner_fenced_writes_total").increment(1);
        }
        let mut error = error;
        loop {
            if !error.kind().is_transient() || !self.lease.is_safe() {
                return Err(error.into());
            }
            warn!(
                attempt = *tried,
                error = &error as &dyn std::error::Error,
                "a write failed; trying again"
            );
            tokio::select! {
                () = self.lease.lost.cancelled() => return Err(Error::Lost),
                () = tokio::time::sleep(WRITE_BACKOFF.delay(*tried)) => {}
            }
            *tried += 1;
            match self.sessions.load(&self.lease.claim, 0).await {
                Ok(loaded) if loaded.next_entry > self.next_entry => return Ok(Some(loaded)),
                // A failover of the database lost entries or messages that this turn has read.
                Ok(loaded)
                    if loaded.next_entry < self.next_entry
                        || matches!(error, holdfast_session::Error::JournalMoved) =>
                {
                    return Err(holdfast_session::Error::JournalMoved.into());
                }
                Ok(_) => return Ok(None),
                Err(again) => error = again,
            }
        }
    }
}

/// Whether the last entry of a turn is its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    Yes,
    No,
}

fn heard_seqs(entries: &[Entry]) -> Vec<i64> {
    let place = |entry: &Entry| match entry {
        Entry::Heard { seq, .. } => Some(*seq),
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    };
    entries.iter().filter_map(place).collect()
}

/// Id and tool of each tool call of a turn.
fn tool_calls(turn: &[Entry]) -> Vec<(String, String)> {
    let thoughts = turn.iter().filter_map(|entry| match entry {
        Entry::Thought { calls, .. } => Some(calls),
        _ => None,
    });
    let made = thoughts.flatten().filter(|call| call.tool != RESULT_TOOL);
    made.map(|call| (call.id.clone(), call.tool.clone())).collect()
}

/// Steps, usage and last model of a turn: the one that answered, or else the one that failed. A thought
/// with calls counts as two steps.
fn turn_cost(turn: &[Entry]) -> (i32, Usage, String) {
    let (mut steps, mut total, mut last) = (0, Usage::default(), String::new());
    for entry in turn {
        if let Entry::Thought { calls, usage, model, .. } = entry {
            steps += if calls.is_empty() { 1 } else { 2 };
            total += *usage;
            last.clone_from(model);
        }
    }
    if last.is_empty()
        && let Some(failure) = turn.iter().flat_map(Entry::provider_failures).last()
    {
        last.clone_from(&failure.model);
    }
    (steps, total, last)
}
