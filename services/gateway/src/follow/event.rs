//! Events of a message on its way to its answer.

use holdfast_session::{Awaited, Outcome};
use holdfast_types::{RunId, Usage};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub run: Option<RunId>,
    /// `None` if the event comes from the journal.
    pub step: Option<u32>,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    StepStarted {
        /// Text of the step was reported before and is void now.
        again: bool,
    },
    /// Next part of the step's text.
    Text(String),
    /// Next part of the model's thinking, where it is shown.
    Thought(String),
    ToolStarted {
        call: String,
        tool: String,
    },
    ToolEnded {
        call: String,
        failed: bool,
    },
    /// A tool call waits for an approval, and the turn with it.
    Approval(Awaited),
    /// Names of surfaces of the canvas that changed.
    Canvas(Vec<String>),
    Done(Finished),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub outcome: Outcome,
    /// Complete answer of the turn, also if it was streamed.
    pub text: String,
    /// `None` if the turn was completed.
    pub reason: Option<String>,
    pub usage: Usage,
    /// Model that answered; empty if unknown.
    pub model: String,
}

impl Finished {
    /// Answer for clients that cannot wait for an approval: tells that one is needed, and how to go
    /// on.
    pub fn waits(awaited: &Awaited) -> Self {
        let Awaited { approval, tool, summary, left_ms } = awaited;
        let slug = approval.slug();
        let seconds = left_ms.div_ceil(1_000);
        let text = format!(
            "This needs approval before it goes on ({slug}): {tool} – {summary}\n\nTo decide, within \
             {seconds} s: `holdfast approvals allow {slug}` or `holdfast approvals deny {slug}`. Then \
             ask again; the same request with the same Idempotency-Key gets the answer."
        );
        Self {
            outcome: Outcome::Completed,
            text,
            reason: Some("approval needed".to_owned()),
            usage: Usage::default(),
            model: String::new(),
        }
    }
}

/// Converts an outcome from the bus's type to the journal's.
pub const fn journalled(outcome: holdfast_bus::Outcome) -> Outcome {
    match outcome {
        holdfast_bus::Outcome::Completed => Outcome::Completed,
        holdfast_bus::Outcome::Failed => Outcome::Failed,
        holdfast_bus::Outcome::Cancelled => Outcome::Cancelled,
        holdfast_bus::Outcome::Interrupted => Outcome::Interrupted,
        holdfast_bus::Outcome::Dead => Outcome::Dead,
    }
}
