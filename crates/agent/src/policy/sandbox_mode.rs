//! Isolation that a conversation's commands need (C-40, C-41).

use holdfast_types::SessionKind;
use serde::{Deserialize, Serialize};

use super::{
    compiled_policy::{CompiledPolicy, Scope},
    subject::Subject,
};

/// Isolation that a conversation's commands need, in ascending order of strictness.
///
/// A mode is a requirement. The installation decides in which sandbox commands run, so no tenant
/// can turn its isolation off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// None: where the runner has no sandbox, commands run without one, each with an approval.
    Off,
    /// Commands run in a sandbox or not at all.
    Isolated,
    /// Commands run in a pod of a cluster or not at all.
    Pod,
    /// No commands, and no tools that write files.
    Restricted,
}

impl SandboxMode {
    /// Name in settings and explanations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Isolated => "isolated",
            Self::Pod => "pod",
            Self::Restricted => "restricted",
        }
    }

    /// Mode of a session: the strictest of the tenant's settings that apply to it, else the
    /// default of its kind. The agent's settings can only be stricter.
    ///
    /// By default the owner's main session has no requirement and all others are isolated. Groups,
    /// topics, subagents and job runs always are (SES-002).
    pub(crate) fn of(policy: &CompiledPolicy, subject: &Subject) -> Self {
        let asked = |scope: &Scope| {
            let rules = scope.chat_rules(subject).filter_map(|(rule, _)| rule.sandbox_mode);
            scope.sandbox_mode.into_iter().chain(rules).max()
        };
        let default = match subject.kind == SessionKind::Main && subject.is_owner {
            true => Self::Off,
            false => Self::Isolated,
        };
        let least = match subject.is_group() || subject.is_subagent() {
            true => Self::Isolated,
            false => Self::Off,
        };
        let base = asked(&policy.tenant).unwrap_or(default);
        asked(&policy.agent).unwrap_or(base).max(base).max(least)
    }
}
