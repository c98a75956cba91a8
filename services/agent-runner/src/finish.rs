//! Ends of a turn, each in one transaction.

use std::sync::Arc;

use holdfast_agent::is_silent;
use holdfast_bus::DeltaBody;
use holdfast_kit::trace;
use holdfast_session::{Completed, Completion, NewDelivery, Outcome};
use holdfast_types::{Entry, Note, Usage, Wait};
use tracing::{Span, info};

use crate::{
    agents::Brief,
    error::Error,
    journal::Replies,
    reply::{self, Failure},
    turn::Turn,
};

impl Turn<'_> {
    pub(crate) async fn answer(&mut self, thought: Entry) -> Result<Completed, Error> {
        let text = match &thought {
            Entry::Thought { text, .. } if !is_silent(text) => text.clone(),
            _ => String::new(),
        };
        self.end(Outcome::Completed, None, thought, text, self.unfinished()).await
    }

    /// Ends the turn with an entry other than a thought, and a text to send.
    pub(crate) async fn conclude(&mut self, last: Entry, text: String) -> Result<Completed, Error> {
        self.end(Outcome::Completed, None, last, text, self.unfinished()).await
    }

    /// Ends the turn with a text that says why there is no answer.
    pub(crate) async fn fail(&mut self, failure: &Failure<'_>) -> Result<Completed, Error> {
        let text = failure.tell(self.run, trace::current().as_deref());
        let reason = failure.class().to_owned();
        metrics::counter!("holdfast_runner_failures_total", "class" => failure.class())
            .increment(1);
        let note = Entry::noted(Note::Failed, text.as_str());
        if self.beat().is_some() {
            // Nobody asked: the failure is reported in the heartbeat's event only.
            let why = Some(failure.what().to_owned());
            return self.end(Outcome::Failed, why, note, String::new(), self.unfinished()).await;
        }
        self.end(Outcome::Failed, Some(reason), note, text, self.unfinished()).await
    }

    /// Ends a turn that was interrupted or cancelled.
    pub(crate) async fn cut_short(
        &mut self,
        note: Note,
        done: Vec<i64>,
    ) -> Result<Completed, Error> {
        let (outcome, reason) = match note {
            Note::Interrupted => (Outcome::Interrupted, "a newer message ended this turn"),
            Note::Cancelled => (Outcome::Cancelled, "the turn was cancelled"),
            Note::Failed
            | Note::DeadlinePassed
            | Note::Summary
            | Note::Flush
            | Note::Flushed
            | Note::Command
            | Note::Reset
            | Note::Asked
            | Note::Allowed
            | Note::Routed
            | Note::Told
            | Note::Posted
            | Note::Dispatched => (Outcome::Failed, "given up"),
        };
        let entry = Entry::noted(note, reason);
        self.end(outcome, Some(reason.to_owned()), entry, String::new(), done).await
    }

    pub(crate) async fn end(
        &mut self,
        outcome: Outcome,
        reason: Option<String>,
        last: Entry,
        text: String,
        done: Vec<i64>,
    ) -> Result<Completed, Error> {
        self.withdraw().await?;
        let is_reply = if text.is_empty() { Replies::No } else { Replies::Yes };
        let target = self.target();
        let answer = match is_reply {
            Replies::Yes => {
                let shown = self.aloud.as_ref().map_or(text.as_str(), |aloud| &aloud.text);
                let turn = self.journal.turn();
                let place = self.quoting(target.clone());
                let answer = reply::delivery(self.run, turn, place.as_ref(), shown);
                answer.filter(|answer| !answer.text.is_empty())
            }
            Replies::No => None,
        };
        let mut deliveries: Vec<NewDelivery> = answer.into_iter().collect();
        if outcome == Outcome::Completed {
            deliveries.extend(self.attachments(target.as_ref()));
        }
        let mut channels: Vec<String> =
            self.hold.desk().outbox.iter().map(|sent| sent.target.channel.clone()).collect();
        channels.extend(deliveries.iter().map(|sent| sent.target.channel.clone()));
        channels.sort_unstable();
        channels.dedup();
        if outcome == Outcome::Completed
            && let Some(posted) = self.posted(&text)
        {
            self.journal.hear(posted);
        }
        let completion = Completion {
            run: self.run,
            at: None,
            entries: Vec::new(),
            done: done.clone(),
            outcome,
            reason: reason.clone(),
            reply: None,
            deliveries,
            usage: Usage::default(),
            model: String::new(),
            steps: 0,
            started_at: self.clock.started_at,
            wait: Wait::Anything,
            last_target: target,
        };
        // Before the answer is visible: the next message must not find the old snapshot.
        self.forget_brief();
        let completed = self.journal.complete(last, is_reply, completion).await?;

        for channel in &channels {
            self.worker.bus.wake_deliver(channel);
        }
        self.stream.send(DeltaBody::Done {
            seqs: done,
            text,
            outcome: watched(outcome),
            reason,
            usage: self.journal.usage(),
            model: self.journal.model(),
        });
        self.count(outcome);
        Ok(completed)
    }

    /// Starts the background work that follows a turn.
    pub(crate) fn look_back(&self, brief: &Arc<Brief>, completed: &Completed) {
        self.forget_brief();
        // If another turn follows at once, it does this.
        if !completed.again {
            self.summarise_later(brief);
            self.extract_soon();
        }
    }

    /// Invalidates the agent's snapshot if this turn changed a file of the prompt.
    fn forget_brief(&self) {
        if std::mem::take(&mut self.hold.desk().is_brief_outdated) {
            self.worker.agents.forget(self.hold.claim.tenant, self.agent);
        }
    }

    fn count(&self, outcome: Outcome) {
        let all = self.clock.began.elapsed();
        let ours = all.saturating_sub(self.clock.model + self.clock.tools);
        metrics::counter!("holdfast_runner_turns_total", "outcome" => outcome.as_str())
            .increment(1);
        metrics::histogram!("holdfast_runner_turn_duration_seconds").record(all.as_secs_f64());
        metrics::histogram!("holdfast_runner_overhead_duration_seconds").record(ours.as_secs_f64());
        Span::current().record("outcome", outcome.as_str());
        let duration_ms = u64::try_from(all.as_millis()).unwrap_or(u64::MAX);
        let overhead_ms = u64::try_from(ours.as_millis()).unwrap_or(u64::MAX);
        info!(run.id = %self.run, outcome = outcome.as_str(), duration_ms, overhead_ms, "turn ended");
    }
}

const fn watched(outcome: Outcome) -> holdfast_bus::Outcome {
    match outcome {
        Outcome::Completed => holdfast_bus::Outcome::Completed,
        Outcome::Interrupted => holdfast_bus::Outcome::Interrupted,
        Outcome::Cancelled => holdfast_bus::Outcome::Cancelled,
        Outcome::Failed => holdfast_bus::Outcome::Failed,
        Outcome::Dead => holdfast_bus::Outcome::Dead,
    }
}
