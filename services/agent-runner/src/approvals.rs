//! Tool calls that need an approval: detection, request, and continuation after the decision.
//!
//! ```text
//! call ─▶ needs an approval? ── no ─▶ made
//!            │ yes, and no "always" rule covers it
//!            ▼
//!         request: record, entries, deliveries, wait ── one transaction; no runner has the session
//!            ⋮   a decision, or its deadline
//!         any runner claims it ─▶ settle ─▶ allowed: noted, checked again, made once
//!                                      └──▶ denied, expired: the model is told
//! ```
//!
//! A call is checked again right before it is made: its subject must equal what the person saw,
//! byte for byte.
//!
//! | file | contents |
//! |---|---|
//! | `judge.rs` | which calls need an approval |
//! | `remembered.rs` | matching of "always" rules; pure |
//! | `request.rs` | texts for people and models; pure |
//! | `words.rs` | decisions: who may make them, and their execution |

mod judge;
mod remembered;
mod request;
mod words;

use holdfast_agent::{unheard, untouched};
use holdfast_bus::DeltaBody;
use holdfast_session::{Completed, NewApproval, NewDelivery, Settled, Word};
use holdfast_types::{ApprovalId, ApprovalState, DeliveryId, Entry, Note, Target, ToolCall};

use self::judge::{Judged, Wanted};
use crate::{agents::Brief, error::Error, turn::Turn, turn::thoughts};

pub(crate) enum Cleared {
    /// Calls that may be made. The results of the others are in the journal.
    Make(Vec<ToolCall>),
    /// A person was asked. The session is released.
    Asked(Completed),
}

impl Turn<'_> {
    /// Checks whether calls may be made. If one needs an approval, none is made: the person is
    /// asked about all calls of the step that need one.
    pub(crate) async fn clear(
        &mut self,
        brief: &Brief,
        calls: &[ToolCall],
    ) -> Result<Cleared, Error> {
        let (mut make, mut refused, mut wants) = (Vec::new(), Vec::new(), false);
        for call in calls {
            match self.judged(brief, call).await? {
                Judged::Free => make.push(call.clone()),
                Judged::Refused(output) => refused.push(returned(call, output)),
                Judged::Wanted(_) => wants = true,
            }
        }
        if wants {
            return self.ask_a_person(brief).await.map(Cleared::Asked);
        }
        if !refused.is_empty() {
            self.append(refused).await?;
        }
        Ok(Cleared::Make(make))
    }

    /// Requests an approval for every call of the step that needs one.
    async fn ask_a_person(&mut self, brief: &Brief) -> Result<Completed, Error> {
        let limits = self.worker.config.limits();
        let new = untouched(self.journal.entries(), limits);
        let new: Vec<ToolCall> = new.into_iter().cloned().collect();
        let place = self.person().await?;
        let mut approvals = Vec::new();
        for call in &new {
            if let Judged::Wanted(wanted) = self.judged(brief, call).await? {
                approvals.push(self.approval_of(brief, call, wanted, place.as_ref()));
            }
        }
        let asked = |new: &NewApproval| Entry::noted(Note::Asked, new.call.as_str());
        let entries = approvals.iter().map(asked).collect();
        let completed = self.journal.ask(self.run, entries, approvals.clone()).await?;
        if let Some(place) = place {
            self.worker.bus.wake_deliver(&place.channel);
        }
        metrics::counter!("holdfast_runner_approvals_requested_total")
            .increment(approvals.len() as u64);
        for new in approvals {
            let left_ms = u64::try_from(new.timeout.as_millis()).unwrap_or(u64::MAX);
            let NewApproval { id: approval, tool, summary, .. } = new;
            self.stream.send(DeltaBody::ApprovalRequested { approval, tool, summary, left_ms });
        }
        Ok(completed)
    }

    fn approval_of(
        &self,
        brief: &Brief,
        call: &ToolCall,
        wanted: Wanted,
        place: Option<&Target>,
    ) -> NewApproval {
        let Wanted { tool, subject, summary, pattern } = wanted;
        let (id, timeout) = (ApprovalId::generate(), brief.approval_timeout);
        let asked = request::Request {
            slug: &id.slug(),
            agent: brief.name.as_str(),
            tool: &tool,
            summary: &summary,
            pattern: pattern.as_deref(),
            timeout,
        };
        let request = place.map(|target| NewDelivery {
            target: target.clone(),
            text: asked.text(),
            act: None,
            id: DeliveryId::generate(),
        });
        NewApproval {
            id,
            step: self.step(),
            call: call.id.clone(),
            tool,
            subject,
            summary,
            pattern,
            timeout,
            request,
        }
    }

    /// Where a person can be asked: this turn's target, else the last target of the session that
    /// requested the task.
    async fn person(&self) -> Result<Option<Target>, Error> {
        let own = self.target().or_else(|| self.last_target.clone());
        if own.is_some() {
            return Ok(own);
        }
        let Some(task) = &self.task else { return Ok(None) };
        let parent = self.worker.sessions.session(self.hold.claim.tenant, task.parent).await;
        match parent {
            Ok(parent) => Ok(parent.last_target),
            Err(holdfast_session::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Continues with the approval decisions, or waits until there is one.
    pub(crate) async fn wait_for_words(
        &mut self,
        calls: &[ToolCall],
    ) -> Result<Option<Completed>, Error> {
        let claim = &self.hold.claim;
        let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        crate::fail::point("runner.before_settle").await;
        let settled =
            self.worker.sessions.settle_approvals(claim, self.run, self.step(), &ids).await?;
        crate::fail::point("runner.after_settle").await;
        let words = match settled {
            Settled::Waits(completed) => return Ok(Some(completed)),
            Settled::Heard(words) => words,
        };
        for word in &words {
            metrics::counter!(
                "holdfast_runner_approvals_settled_total", "state" => word.state.as_str()
            )
            .increment(1);
        }
        self.append(words.into_iter().map(entry).collect()).await?;
        Ok(None)
    }

    /// Withdraws the pending approvals of a turn that ends.
    pub(crate) async fn withdraw(&self) -> Result<(), Error> {
        if unheard(self.journal.entries()).is_empty() {
            return Ok(());
        }
        Ok(self.worker.sessions.withdraw_approvals(&self.hold.claim, self.run).await?)
    }

    /// Index of the current step in the turn, from 0.
    pub(crate) fn step(&self) -> i32 {
        let step = thoughts(self.journal.turn()).saturating_sub(1);
        i32::try_from(step).unwrap_or(i32::MAX)
    }
}

/// Journal entry for an approval decision.
fn entry(word: Word) -> Entry {
    let told = match word.state {
        ApprovalState::AllowedOnce | ApprovalState::AllowedAlways => {
            return Entry::noted(Note::Allowed, word.call);
        }
        ApprovalState::Denied => request::DENIED,
        ApprovalState::Expired | ApprovalState::Pending => request::EXPIRED,
    };
    Entry::returned(word.call, told, true)
}

fn returned(call: &ToolCall, output: String) -> Entry {
    Entry::returned(&call.id, output, true)
}
