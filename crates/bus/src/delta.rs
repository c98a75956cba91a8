//! Streamed reply of a run.
//!
//! A listener follows only the highest epoch and uses `n` to detect gaps. Lost deltas can be read
//! from the journal.

use std::fmt;

use holdfast_types::{ApprovalId, ClientCall, RunId, SessionId, TenantId, Usage};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Bus, Error, Subject, Subscription};

/// The next piece of a run's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    pub run: RunId,
    /// Epoch of the runner's claim. A higher epoch makes the deltas of lower ones void.
    pub epoch: i64,
    /// Step of the run, from 0.
    pub step: u32,
    /// Number of the delta within its epoch, from 0. [`DeltaBody::StepProgress`] has that of the next
    /// delta, so its loss is no gap.
    pub n: u32,
    pub body: DeltaBody,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DeltaBody {
    /// A runner has started the run.
    Started,
    /// A step starts again on another runner. Its text so far is void.
    StepRestarted,
    Text {
        text: String,
    },
    /// More of the model's reasoning, for clients that requested it.
    Thought {
        text: String,
    },
    ToolStarted {
        call: String,
        tool: String,
    },
    ToolEnded {
        call: String,
        failed: bool,
    },
    /// A call waits for an approval, and the run with it.
    ApprovalRequested {
        approval: ApprovalId,
        tool: String,
        /// One line that says what the call would do.
        summary: String,
        /// Everything that the call would do, as it is approved.
        #[serde(default)]
        subject: String,
        /// Further calls that "always" would allow; empty is none.
        #[serde(default)]
        pattern: String,
        /// Time until the approval expires, in milliseconds.
        left_ms: u64,
    },
    /// The canvas beside the conversation has changed.
    Canvas {
        /// Names of the changed surfaces.
        surfaces: Vec<String>,
    },
    /// An agent that works by behaviours begins a step.
    StepProgress(StepProgress),
    Done {
        /// Seqs of the inbox messages that the run answers.
        seqs: Vec<i64>,
        /// The whole reply; authoritative if it differs from the deltas.
        text: String,
        outcome: Outcome,
        /// Reason, unless the run completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(default)]
        usage: Usage,
        /// Model that answered, as `provider:id`; empty if none did.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model: String,
        /// Calls of the client's tools with which the run ends.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ClientCall>,
    },
}

/// How far a turn has come that works by behaviours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepProgress {
    /// Behaviour of the step, without its parameters.
    pub behavior: String,
    /// Number of the step in its behaviour, from 0.
    pub step: u32,
    /// Code of the todo that the step works on; empty if there is none.
    pub todo: String,
    /// Todos that are done and checked.
    pub todos_done: u32,
    pub todos: u32,
    /// Cost of the turn so far, in millionths of a US dollar.
    pub cost_micros: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run ended with a reply.
    Completed,
    /// The run ended without a reply.
    Failed,
    /// The user cancelled the run.
    Cancelled,
    /// Newer input ended the run.
    Interrupted,
    /// The message was given up after too many attempts.
    Dead,
}

impl Outcome {
    /// Returns the name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for StepProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {}", self.step, self.behavior)?;
        if !self.todo.is_empty() {
            write!(f, ", {}", self.todo)?;
        }
        match self.todos {
            0 => Ok(()),
            todos => write!(f, ", {} of {todos} done", self.todos_done),
        }
    }
}

/// Deltas of one session, as they arrive.
#[derive(Debug)]
pub struct Deltas(Subscription);

impl Deltas {
    /// Returns the next delta; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Delta> {
        self.0.next_json().await
    }
}

/// Deltas of all sessions of one tenant, as they arrive.
#[derive(Debug)]
pub struct TenantDeltas(Subscription);

impl TenantDeltas {
    /// Returns the next delta and its session; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<(SessionId, Delta)> {
        loop {
            let message = self.0.next().await?;
            let session =
                message.subject.rsplit('.').next().and_then(|id| Uuid::try_parse(id).ok());
            // A delta that cannot be parsed comes from another version.
            let delta = serde_json::from_slice(&message.payload).ok();
            if let (Some(session), Some(delta)) = (session, delta) {
                return Some((session.into(), delta));
            }
        }
    }
}

impl Bus {
    /// Publishes a delta to all listeners of a session.
    pub fn publish_delta(&self, tenant: TenantId, session: SessionId, delta: &Delta) {
        self.publish_json(&Subject::deltas(tenant, session), delta);
    }

    /// Subscribes to the deltas of a session. Subscribe before the message is ingested, or the
    /// first deltas of its reply may be missed.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn subscribe_deltas(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Deltas, Error> {
        self.subscribe(&Subject::deltas(tenant, session)).await.map(Deltas)
    }

    /// Subscribes to the deltas of all sessions of a tenant.
    ///
    /// # Errors
    ///
    /// If the client has ended.
    pub async fn subscribe_tenant_deltas(&self, tenant: TenantId) -> Result<TenantDeltas, Error> {
        self.subscribe(&Subject::tenant_deltas(tenant)).await.map(TenantDeltas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_reads_back_and_is_short() {
        let delta = Delta {
            run: RunId::generate(),
            epoch: 3,
            step: 1,
            n: 7,
            body: DeltaBody::Text { text: "hel".into() },
        };

        let wire = serde_json::to_string(&delta).unwrap();

        assert_eq!(serde_json::from_str::<Delta>(&wire).unwrap(), delta);
        assert!(wire.contains(r#""body":{"kind":"text","text":"hel"}"#), "{wire}");
        assert!(wire.len() < 120, "{wire}");
    }

    #[test]
    fn an_end_reads_without_the_fields_that_later_versions_added() {
        let wire = r#"{"kind":"done","seqs":[1,2],"text":"hi","outcome":"completed"}"#;

        let DeltaBody::Done { usage, reason, outcome, .. } = serde_json::from_str(wire).unwrap()
        else {
            panic!("not an end");
        };

        assert_eq!((usage, reason, outcome.as_str()), (Usage::default(), None, "completed"));
    }
}
