//! Classes of failed turns and model requests, as runs, metrics and API errors name them.

use std::str::FromStr;

macro_rules! failure_classes {
    ($($(#[$doc:meta])* $class:ident = $word:literal,)*) => {
        /// Class of a failure; `docs/models.md` describes each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FailureClass {
            $($(#[$doc])* $class,)*
        }

        impl FailureClass {
            pub const ALL: &[Self] = &[$(Self::$class,)*];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$class => $word,)*
                }
            }
        }
    };
}

failure_classes! {
    /// Address of a provider that may not be called.
    Address = "address",
    /// All models of a fallback failed, for different reasons.
    AllFailed = "all_failed",
    /// The answer has not the form that the client asked for.
    AnswerFormat = "answer_format",
    Auth = "auth",
    BadRequest = "bad_request",
    BudgetSpent = "budget_spent",
    Cancelled = "cancelled",
    ContextOverflow = "context_overflow",
    Empty = "empty",
    Filtered = "filtered",
    /// The model did not stop calling tools.
    Halted = "halted",
    Interrupted = "interrupted",
    Malformed = "malformed",
    NoAgent = "no_agent",
    NoModel = "no_model",
    NoProvider = "no_provider",
    /// The subagent's task is deleted.
    NoTask = "no_task",
    Quota = "quota",
    RateLimited = "rate_limited",
    Setup = "setup",
    TaskSteps = "budget exceeded: steps",
    TaskTime = "budget exceeded: time",
    TaskTokens = "budget exceeded: tokens",
    Timeout = "timeout",
    TooLong = "too_long",
    /// A tool of the client has the name of a tool of the agent.
    ToolNameTaken = "tool_name_taken",
    TurnTooLong = "turn_too_long",
    Unavailable = "unavailable",
    /// The model's provider does not take an option that the client asked for.
    UnsupportedParameter = "unsupported_parameter",
}

/// A word that is no class of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no class of a failure")]
pub struct UnknownFailureClass;

impl FromStr for FailureClass {
    type Err = UnknownFailureClass;

    fn from_str(word: &str) -> Result<Self, UnknownFailureClass> {
        let known = Self::ALL.iter().copied().find(|class| class.as_str() == word);
        known.ok_or(UnknownFailureClass)
    }
}
