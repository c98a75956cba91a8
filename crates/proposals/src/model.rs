//! Types of proposals.

use std::{fmt, str::FromStr};

use holdfast_agent::behavior::Behavior;
use holdfast_directory::Actor;
use holdfast_skills::{Manifest, SkillName};
use holdfast_types::{AgentId, ProposalId, ProposalKind, SessionId};
use holdfast_work::Place;
use jiff::Timestamp;

use crate::Error;

/// Path of the file of [`ProposalKind::SelfFile`].
pub(crate) const SELF_FILE: &str = "self.md";

const MAX_CONTENT_BYTES: usize = 65_536;
const MAX_REASON_CHARS: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalState {
    Proposed,
    /// Decided, and not applied yet.
    Approved,
    Rejected,
    Applied,
    RolledBack,
    /// It could not be applied: its base is stale, or its text is not accepted any more.
    Failed,
}

impl ProposalState {
    const ALL: [Self; 6] = [
        Self::Proposed,
        Self::Approved,
        Self::Rejected,
        Self::Applied,
        Self::RolledBack,
        Self::Failed,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Applied => "applied",
            Self::RolledBack => "rolled_back",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for ProposalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProposalState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            Error::Invalid(format!(
                "`{shown}` is no state: write proposed, approved, rejected, applied, rolled_back or \
                 failed"
            ))
        })
    }
}

/// A change that an agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProposal {
    /// Idempotency key.
    pub key: String,
    /// Where the agent asks for it.
    pub place: Place,
    pub kind: ProposalKind,
    /// Name of the behaviour or skill; ignored for `self.md`.
    pub target: String,
    /// The whole new text.
    pub content: String,
    pub goal: String,
    pub risk: String,
    pub benefit: String,
    /// The conversation has read text from outside.
    pub outside: bool,
}

impl NewProposal {
    /// Checks the texts, and returns the name of what is changed.
    pub(crate) fn check(&self) -> Result<String, Error> {
        let reasons = [("goal", &self.goal), ("risk", &self.risk), ("benefit", &self.benefit)];
        for (name, text) in reasons {
            if text.trim().is_empty() {
                return Err(Error::Invalid(format!(
                    "`{name}` is missing: each proposal is explained"
                )));
            }
            if text.chars().count() > MAX_REASON_CHARS {
                return Err(Error::Invalid(format!(
                    "`{name}` has {MAX_REASON_CHARS} characters at most"
                )));
            }
        }
        let content = &self.content;
        if content.trim().is_empty() || content.contains('\0') {
            return Err(Error::Invalid("the new text is empty or has a NUL character".to_owned()));
        }
        if content.len() > MAX_CONTENT_BYTES {
            return Err(Error::Invalid(format!(
                "the new text has {} bytes, and {MAX_CONTENT_BYTES} is the most",
                content.len()
            )));
        }
        target_name(self.kind, &self.target, content)
    }
}

/// Checks that a text is what its kind needs, and returns the name of what it changes.
fn target_name(kind: ProposalKind, target: &str, content: &str) -> Result<String, Error> {
    let invalid = |error: &dyn fmt::Display| Error::Invalid(error.to_string());
    match kind {
        ProposalKind::SelfFile => Ok(SELF_FILE.to_owned()),
        ProposalKind::Behavior => {
            let name = target.trim();
            let behavior = Behavior::parse(content, name).map_err(|error| invalid(&error))?;
            if behavior.name != name {
                return Err(Error::Invalid(format!(
                    "the document is `{}`, and the proposal is about `{name}`",
                    behavior.name.chars().take(80).collect::<String>()
                )));
            }
            Ok(behavior.name)
        }
        ProposalKind::Skill => {
            let name: SkillName = target.trim().parse().map_err(|error| invalid(&error))?;
            let manifest = Manifest::read("SKILL.md", content.as_bytes());
            let manifest = manifest.map_err(|error| invalid(&error))?;
            if manifest.name != name {
                return Err(Error::Invalid(format!(
                    "the skill's front matter names `{}`, and the proposal is about `{name}`",
                    manifest.name
                )));
            }
            Ok(name.to_string())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub id: ProposalId,
    pub agent: AgentId,
    pub session: SessionId,
    pub kind: ProposalKind,
    /// Name of the behaviour or skill, or `self.md`.
    pub target: String,
    pub goal: String,
    pub risk: String,
    pub benefit: String,
    pub content: String,
    /// Text on which it is based; `None` if there was none.
    pub before: Option<String>,
    /// Hash of the file or version of the behaviour on which it is based; `none`.
    pub base: String,
    /// Difference, as a unified diff.
    pub diff: String,
    /// The conversation in which it was made had read text from outside.
    pub outside: bool,
    pub state: ProposalState,
    /// Why it was rejected or has failed.
    pub reason: String,
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    /// Revision of the files or version of the behaviour that has the change.
    pub applied_as: Option<String>,
    pub created_at: Timestamp,
    /// Root session, whose worklog tells of it.
    pub(crate) list: SessionId,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProposalFilter {
    pub agent: Option<AgentId>,
    pub state: Option<ProposalState>,
    pub limit: u32,
}

/// Who decides about a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decider(pub Actor);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_accepted_only_as_what_its_kind_needs() {
        let skill = "---\nname: tea\ndescription: Makes tea.\n---\nBoil water.\n";
        let behavior = "process_rule: Greet.\n";
        for (kind, target, content, expected) in [
            (ProposalKind::SelfFile, "", "## Identity\n\nAda\n", Some("self.md")),
            (ProposalKind::Skill, "tea", skill, Some("tea")),
            (ProposalKind::Skill, "coffee", skill, None),
            (ProposalKind::Skill, "../tea", skill, None),
            (ProposalKind::Skill, "tea", "Boil water.", None),
            (ProposalKind::Behavior, "greet", behavior, Some("greet")),
            (ProposalKind::Behavior, "greet", "name: other\nprocess_rule: x\n", None),
            (ProposalKind::Behavior, "greet", "process_rul: Greet.\n", None),
        ] {
            let name = target_name(kind, target, content).ok();
            assert_eq!(name.as_deref(), expected, "{kind} {target}");
        }
    }
}
