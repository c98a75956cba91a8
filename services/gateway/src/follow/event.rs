//! What can happen to a message on its way to its answer.

use holdfast_session::{Awaited, Outcome};
use holdfast_types::{RunId, Usage};

/// Something that happened to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The turn.
    pub run: Option<RunId>,
    /// Its step; unknown if the journal told.
    pub step: Option<u32>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A step began; `again` if text of it was told before, which is void now.
    StepStarted {
        /// It was begun before.
        again: bool,
    },
    /// More text of the step.
    Text(String),
    /// More of what the model thinks in it, where that is shown.
    Thought(String),
    /// A tool is being called.
    ToolStarted {
        /// The call.
        call: String,
        /// The tool.
        tool: String,
    },
    /// The call has ended.
    ToolEnded {
        /// The call.
        call: String,
        /// Whether it failed.
        failed: bool,
    },
    /// A call waits for a person's word, and the turn with it.
    Approval(Awaited),
    /// These surfaces beside the conversation have changed.
    Canvas(Vec<String>),
    /// The end.
    Done(Finished),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// In which way.
    pub outcome: Outcome,
    /// The whole answer.
    pub text: String,
    /// Why, unless it was completed.
    pub reason: Option<String>,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, where that is known.
    pub model: String,
}

impl Finished {
    /// What somebody is told who cannot be kept waiting: that a person must say something first.
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

/// How a turn ended, in the journal's words.
pub const fn journalled(outcome: holdfast_bus::Outcome) -> Outcome {
    match outcome {
        holdfast_bus::Outcome::Completed => Outcome::Completed,
        holdfast_bus::Outcome::Failed => Outcome::Failed,
        holdfast_bus::Outcome::Cancelled => Outcome::Cancelled,
        holdfast_bus::Outcome::Interrupted => Outcome::Interrupted,
        holdfast_bus::Outcome::Dead => Outcome::Dead,
    }
}
