//! Kinds of proposals: what an agent wants to change about itself.

use std::{fmt, str::FromStr};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProposalKind {
    /// The agent's `self.md`.
    SelfFile,
    /// A behaviour in the agent's layer.
    Behavior,
    /// The `SKILL.md` of a skill in the agent's files.
    Skill,
}

impl ProposalKind {
    pub const ALL: [Self; 3] = [Self::SelfFile, Self::Behavior, Self::Skill];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SelfFile => "self",
            Self::Behavior => "behavior",
            Self::Skill => "skill",
        }
    }
}

impl fmt::Display for ProposalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownProposalKind;

impl FromStr for ProposalKind {
    type Err = UnknownProposalKind;

    fn from_str(text: &str) -> Result<Self, UnknownProposalKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownProposalKind)
    }
}
