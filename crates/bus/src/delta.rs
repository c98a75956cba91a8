//! A reply as it is written.
//!
//! A listener follows the highest epoch only, and takes `n` to see gaps: what it
//! missed is in the journal.

use holdfast_types::{ApprovalId, RunId, SessionId, TenantId, Usage};
use serde::{Deserialize, Serialize};

use crate::{Bus, Error, Subject, Subscription};

/// A little more of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Which run.
    pub run: RunId,
    /// The claim it is written under: a higher one makes what came before it void.
    pub epoch: i64,
    /// Which step of the run, from 0.
    pub step: u32,
    /// Which delta of this epoch, from 0.
    pub n: u32,
    /// What.
    pub body: DeltaBody,
}

/// What there is more of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DeltaBody {
    /// A runner has begun.
    Started,
    /// A step begins anew, on another runner: its text so far is void.
    StepRestarted,
    /// More text.
    Text {
        /// The text to add.
        text: String,
    },
    /// More of what the model thinks, for those who asked to see it.
    Thought {
        /// What to add.
        text: String,
    },
    /// A tool is being called.
    ToolStarted {
        /// The call's id.
        call: String,
        /// The tool's name.
        tool: String,
    },
    /// The call has ended.
    ToolEnded {
        /// The call's id.
        call: String,
        /// Whether it failed.
        failed: bool,
    },
    /// A call waits for a person's word, and the run with it.
    ApprovalRequested {
        /// The approval.
        approval: ApprovalId,
        /// The tool.
        tool: String,
        /// What it would do, in a line.
        summary: String,
        /// How long a word is waited for, in milliseconds.
        left_ms: u64,
    },
    /// What is shown beside the conversation has changed.
    Canvas {
        /// Which surfaces, by name.
        surfaces: Vec<String>,
    },
    /// The run has ended.
    Done {
        /// The inbox messages that it answers.
        seqs: Vec<i64>,
        /// The whole reply.
        text: String,
        /// How it ended.
        outcome: Outcome,
        /// Why, unless it was completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What it cost.
        #[serde(default)]
        usage: Usage,
        /// The model that answered, as `provider:id`; empty if none did.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model: String,
    },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a reply.
    Completed,
    /// Without one.
    Failed,
    /// Its user cancelled it.
    Cancelled,
    /// Newer input ended it.
    Interrupted,
    /// Its message was given up after too many attempts.
    Dead,
}

impl Outcome {
    /// The word on the wire.
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

/// The deltas of one session, as they arrive.
#[derive(Debug)]
pub struct Deltas(Subscription);

impl Deltas {
    /// The next one; `None` once the process' connection has been closed for good.
    pub async fn next(&mut self) -> Option<Delta> {
        self.0.next_json().await
    }
}

impl Bus {
    /// Sends a delta to whoever listens.
    pub fn publish_delta(&self, tenant: TenantId, session: SessionId, delta: &Delta) {
        self.publish_json(&Subject::deltas(tenant, session), delta);
    }

    /// Listens to a session. Do so before the message is ingested whose reply is wanted.
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
