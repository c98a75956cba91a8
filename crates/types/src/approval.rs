//! Approval decisions about tool calls, and the state of an approval (spec C-43).

use std::fmt;

/// Decision of a person about one tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Allows this call only.
    Once,
    /// Allows this call, and similar calls from now on without asking.
    Always,
    Deny,
}

impl ApprovalDecision {
    /// Parses the argument of a command, in any case.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "once" => Self::Once,
            "always" => Self::Always,
            "deny" => Self::Deny,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    Pending,
    AllowedOnce,
    AllowedAlways,
    Denied,
    /// Nobody decided before the deadline, or the turn ended first: the call is not made.
    Expired,
}

impl ApprovalState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::AllowedOnce => "allowed_once",
            Self::AllowedAlways => "allowed_always",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all =
            [Self::Pending, Self::AllowedOnce, Self::AllowedAlways, Self::Denied, Self::Expired];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

impl From<ApprovalDecision> for ApprovalState {
    fn from(verdict: ApprovalDecision) -> Self {
        match verdict {
            ApprovalDecision::Once => Self::AllowedOnce,
            ApprovalDecision::Always => Self::AllowedAlways,
            ApprovalDecision::Deny => Self::Denied,
        }
    }
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::AllowedOnce => "allowed once",
            Self::AllowedAlways => "allowed always",
            Self::Denied => "denied",
            Self::Expired => "expired",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_by_its_word() {
        for word in ["pending", "allowed_once", "allowed_always", "denied", "expired"] {
            assert_eq!(ApprovalState::parse(word).unwrap().as_str(), word);
        }
        assert_eq!(ApprovalState::parse("approved"), None);
    }
}
