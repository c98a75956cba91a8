//! Events of a message on its way to its answer.

use holdfast_bus::StepProgress;
use holdfast_session::{MessageStatus, PendingApproval, TurnOutcome};
use holdfast_types::{ClientCall, RunId, StopReason, Usage};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub run: Option<RunId>,
    /// `None` if the event comes from the journal.
    pub step: Option<u32>,
    pub kind: EventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    StepStarted {
        /// Text of the step was reported before and is void now.
        again: bool,
    },
    /// Next part of the step's text.
    Text(String),
    /// Next part of the model's thinking, where it is shown.
    Thinking(String),
    ToolStarted {
        call: String,
        tool: String,
    },
    ToolEnded {
        call: String,
        failed: bool,
    },
    /// A tool call waits for an approval, and the turn with it.
    Approval(PendingApproval),
    /// Names of surfaces of the canvas that changed.
    Canvas(Vec<String>),
    /// A step of a behaviour begins.
    Progress(StepProgress),
    Done(TurnResult),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    pub outcome: TurnOutcome,
    /// Complete answer of the turn, also if it was streamed.
    pub text: String,
    /// Of a completed turn only if its answer is not whole.
    pub reason: Option<String>,
    pub usage: Usage,
    /// Model that answered; empty if unknown.
    pub model: String,
    /// Calls of the client's tools with which the turn ended.
    pub calls: Vec<ClientCall>,
}

impl TurnResult {
    /// Result of a message; `None` if it is not finished.
    pub fn of_status(status: MessageStatus) -> Option<Self> {
        let MessageStatus { outcome, text, reason, usage, model, handover, .. } = status;
        let calls = handover.map_or_else(Vec::new, |handover| handover.calls);
        Some(Self { outcome: outcome?, text, reason, usage, model, calls })
    }

    /// Why the answer ended early; `None` if it is whole.
    pub fn early_end(&self) -> Option<EarlyEnd> {
        match StopReason::of_early_end(self.reason.as_deref()?)? {
            StopReason::End | StopReason::ToolUse => None,
            StopReason::MaxTokens | StopReason::ContextWindow | StopReason::PauseTurn => {
                Some(EarlyEnd::Length)
            }
            StopReason::Filtered | StopReason::Refusal => Some(EarlyEnd::ContentFilter),
        }
    }

    /// Beginning of an answer that tells that an approval is needed.
    pub const APPROVAL_PREFIX: &str = "This needs approval before it goes on (";

    /// Answer for clients that cannot wait for an approval: tells that one is needed, and how to go
    /// on.
    pub fn approval_needed(awaited: &PendingApproval) -> Self {
        let PendingApproval { approval, tool, subject, left_ms, .. } = awaited;
        let slug = approval.slug();
        let seconds = left_ms.div_ceil(1_000);
        let text = format!(
            "{}{slug}): {tool}\n```\n{subject}\n```\nTo decide, \
             within {seconds} s: `holdfast approvals allow {slug}` or `holdfast approvals deny {slug}`. Then \
             ask again; the same request with the same Idempotency-Key gets the answer.",
            Self::APPROVAL_PREFIX,
        );
        Self {
            outcome: TurnOutcome::Completed,
            text,
            reason: Some("approval needed".to_owned()),
            usage: Usage::default(),
            model: String::new(),
            calls: Vec::new(),
        }
    }
}

/// Why an answer ended early, as OpenAI's APIs tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    Length,
    ContentFilter,
}

/// Converts an outcome from the bus's type to the journal's.
pub const fn journal_outcome(outcome: holdfast_bus::Outcome) -> TurnOutcome {
    match outcome {
        holdfast_bus::Outcome::Completed => TurnOutcome::Completed,
        holdfast_bus::Outcome::Failed => TurnOutcome::Failed,
        holdfast_bus::Outcome::Cancelled => TurnOutcome::Cancelled,
        holdfast_bus::Outcome::Interrupted => TurnOutcome::Interrupted,
        holdfast_bus::Outcome::Dead => TurnOutcome::Dead,
    }
}
