//! Calls that need a person's word: finding them, asking, and going on with what was said.
//!
//! ```text
//! call ─▶ needs a word? ── no ─▶ made
//!            │ yes, and nobody said "always"
//!            ▼
//!         ask: records, notes, messages, rest ── one transaction; no runner has the session
//!            ⋮   a word, or its time is over
//!         any runner claims it ─▶ settle ─▶ allowed: noted, judged again, made once
//!                                      └──▶ denied, expired: the model is told
//! ```
//!
//! A call is judged again right before it is made: what it would do must be, to
//! the byte, what the person saw.
//!
//! | file | what |
//! |---|---|
//! | `judge.rs` | which calls need a word, by their tool or by the policy |
//! | `remembered.rs` | what "always" covers; pure |
//! | `request.rs` | what people and models are told; pure |
//! | `words.rs` | who may say something, and what becomes of it |

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

/// What came of looking at calls before they are made.
pub(crate) enum Cleared {
    /// These may be made; the others were answered.
    Make(Vec<ToolCall>),
    /// A person was asked, and the session is nobody's now.
    Asked(Completed),
}

impl Turn<'_> {
    /// Looks whether calls may be made. If one of them needs a person's word, they are asked about
    /// all calls of the step that do, and none is made.
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

    /// Asks a person about every call of the step that needs it.
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

    /// Where somebody can be asked: where this turn's answer goes, else where the one who gave the
    /// task was last spoken to.
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

    /// Goes on with what was said of calls, or rests until something is.
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

    /// The turn ends: what nobody has said anything of is not waited for any more.
    pub(crate) async fn withdraw(&self) -> Result<(), Error> {
        if unheard(self.journal.entries()).is_empty() {
            return Ok(());
        }
        Ok(self.worker.sessions.withdraw_approvals(&self.hold.claim, self.run).await?)
    }

    /// Which thought of the turn asked for the calls at hand, from 0.
    pub(crate) fn step(&self) -> i32 {
        let step = thoughts(self.journal.turn()).saturating_sub(1);
        i32::try_from(step).unwrap_or(i32::MAX)
    }
}

/// What the journal says of a word.
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
