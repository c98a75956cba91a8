//! A person's word on a call that needs one (spec C-43).

use std::fmt;

/// What a person decides of a call that waits for their word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// This call is made, and nothing else.
    Once,
    /// This call is made, and those like it from now on without asking.
    Always,
    /// It is not made.
    Deny,
}

impl Verdict {
    /// The verdict that a word of a command names.
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

/// How a call that needs a person's word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has said anything yet.
    Pending,
    /// It may be made.
    AllowedOnce,
    /// It may be made, and those like it.
    AllowedAlways,
    /// It may not.
    Denied,
    /// Nobody said anything in time, or the turn ended before: it may not.
    Expired,
}

impl ApprovalState {
    /// The word that the database and the API use.
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

    /// The state that a word names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all =
            [Self::Pending, Self::AllowedOnce, Self::AllowedAlways, Self::Denied, Self::Expired];
        all.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the call may be made.
    #[must_use]
    pub const fn allows(self) -> bool {
        matches!(self, Self::AllowedOnce | Self::AllowedAlways)
    }
}

impl From<Verdict> for ApprovalState {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Once => Self::AllowedOnce,
            Verdict::Always => Self::AllowedAlways,
            Verdict::Deny => Self::Denied,
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
    fn a_state_reads_back_by_its_word_and_only_what_was_allowed_allows() {
        for (word, allows) in [
            ("pending", false),
            ("allowed_once", true),
            ("allowed_always", true),
            ("denied", false),
            ("expired", false),
        ] {
            let state = ApprovalState::parse(word).unwrap();
            assert_eq!((state.as_str(), state.allows()), (word, allows));
        }
        assert_eq!(ApprovalState::parse("approved"), None);
    }
}
