//! The `self` tool: what an agent says of itself, in `self.md`, by sections (spec SLF-002 to SLF-005),
//! and proposals to change its `self.md`, behaviours and skills (spec SLF-011).
//!
//! A change has goal, risk and benefit. The policy decides whether a person approves it; then it is
//! stored as a version, unless the file was changed since the agent read it.
//!
//! A proposal waits without a turn until a person decides about it, at a console or because the agent
//! asks to apply it.

pub(crate) mod proposals;

use std::{future::Future, sync::Arc};

use holdfast_types::{Effect, ProposalKind};
use schemars::JsonSchema;
use serde::Deserialize;

use self::proposals::{NewSelfProposal, SelfProposals};
use crate::{Approval, Call, FileChanges, FileEdit, Files, FilesError, Tool, ToolError};

const PATH: &str = "self.md";

/// Base of a change if there is no file yet.
const NO_BASE: &str = "none";

const MAX_SECTION_CHARS: usize = 4_000;

/// A change of `self.md` that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfChange {
    pub section: &'static str,
    pub goal: String,
    pub risk: String,
    pub benefit: String,
    /// Version of the agent's files that has the change.
    pub revision: String,
    /// Difference, as a unified diff.
    pub diff: String,
}

/// Record of changes. An error is an internal failure: the turn ends and may be retried.
pub trait SelfLog: Send + Sync + 'static {
    /// Records a change, once for the same `call.key`.
    fn record_self_change(
        &self,
        call: &Call,
        change: SelfChange,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What you are, in `self.md`, and how you change. `show` tells its sections and the base for a change;
/// `change` replaces the text of one section, with goal, risk and benefit. A person decides about
/// changes, and always about `constraints` and `budget_strategy`. `propose` stores a change of yourself
/// that nobody has to decide about now: a section of `self.md`, a behaviour, or a skill. `read` tells
/// the text in effect of a behaviour or a skill, `proposals` lists your proposals, and `apply` asks a
/// person to apply one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelfInput {
    action: Action,
    /// `change`: the base that `show` told.
    #[serde(default)]
    base: String,
    /// `change`, and `propose` without `kind`: which section.
    #[serde(default)]
    section: Option<Section>,
    /// `change`, `propose`: the whole new text of the section, without headings; of the behaviour, in
    /// YAML; or of the skill's `SKILL.md`.
    #[serde(default)]
    text: String,
    /// `change`, `propose`: why.
    #[serde(default)]
    goal: String,
    /// `change`, `propose`: what may go wrong.
    #[serde(default)]
    risk: String,
    /// `change`, `propose`: what is better afterwards.
    #[serde(default)]
    benefit: String,
    /// `propose`, `read`: what is changed, unless it is a section of `self.md`.
    #[serde(default)]
    kind: Option<Kind>,
    /// `propose`, `read`: name of the behaviour or skill.
    #[serde(default)]
    name: String,
    /// `apply`: id of the proposal.
    #[serde(default)]
    proposal: String,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Show,
    Change,
    Propose,
    Read,
    Proposals,
    Apply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Kind {
    Behavior,
    Skill,
}

impl Kind {
    const fn proposed(self) -> ProposalKind {
        match self {
            Self::Behavior => ProposalKind::Behavior,
            Self::Skill => ProposalKind::Skill,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Section {
    Identity,
    Objectives,
    Constraints,
    Preferences,
    Capabilities,
    BudgetStrategy,
    Commitments,
}

impl Section {
    const fn title(self) -> &'static str {
        match self {
            Self::Identity => "Identity",
            Self::Objectives => "Objectives",
            Self::Constraints => "Constraints",
            Self::Preferences => "Preferences",
            Self::Capabilities => "Capabilities",
            Self::BudgetStrategy => "Budget Strategy",
            Self::Commitments => "Commitments",
        }
    }
}

#[derive(Debug)]
pub struct SelfTool<F, L, P> {
    pub files: Arc<F>,
    pub log: Arc<L>,
    pub proposals: Arc<P>,
}

impl<F: Files, L: SelfLog, P: SelfProposals> Tool for SelfTool<F, L, P> {
    const NAME: &'static str = "self";
    const EFFECT: Effect = Effect::Writes;
    type Input = SelfInput;

    async fn approval(&self, call: &Call, input: &SelfInput) -> Result<Approval, ToolError> {
        match input.action {
            Action::Apply => Ok(self.proposals.approval(call, input.proposal.trim()).await?),
            // The policy decides.
            Action::Show | Action::Change | Action::Propose | Action::Read | Action::Proposals => {
                Ok(Approval::Never)
            }
        }
    }

    async fn call(&self, call: Call, input: SelfInput) -> Result<String, ToolError> {
        let told = match input.action {
            Action::Show => {
                let found = self.read(&call).await?;
                let (base, text) = found.unwrap_or((NO_BASE.to_owned(), String::new()));
                return Ok(format!("base: {base}\nyour DID: {}\n\n{text}", call.agent.did()));
            }
            Action::Change => return self.change(&call, input).await,
            Action::Propose => {
                let proposal = self.proposal(&call, input).await?;
                self.proposals.propose(&call, proposal).await?
            }
            Action::Read => {
                let kind = input.kind.ok_or_else(|| missing("kind"))?.proposed();
                self.proposals.read(&call, kind, input.name.trim()).await?
            }
            Action::Proposals => return Ok(self.proposals.list(&call).await?),
            Action::Apply => self.proposals.apply(&call, input.proposal.trim()).await?,
        };
        told.map_err(ToolError::Tell)
    }
}

fn missing(field: &str) -> ToolError {
    ToolError::Tell(format!("`{field}` is missing"))
}

impl<F: Files, L: SelfLog, P: SelfProposals> SelfTool<F, L, P> {
    /// The proposal that a call asks for. A section of `self.md` is made the whole new file.
    async fn proposal(&self, call: &Call, input: SelfInput) -> Result<NewSelfProposal, ToolError> {
        let (kind, content) = match input.kind {
            Some(kind) => (kind.proposed(), input.text),
            None => {
                let section = check(&input).map_err(ToolError::Tell)?;
                let found = self.read(call).await?;
                let text = found.as_ref().map_or("", |(_, text)| text);
                (ProposalKind::SelfFile, with_section(text, section, &input.text))
            }
        };
        let SelfInput { name, goal, risk, benefit, .. } = input;
        Ok(NewSelfProposal { kind, name, content, goal, risk, benefit })
    }

    /// Returns hash and text of the file.
    async fn read(&self, call: &Call) -> Result<Option<(String, String)>, ToolError> {
        let found = self.files.read(call, PATH).await.map_err(tool_error)?;
        Ok(found.map(|file| (file.hash, String::from_utf8_lossy(&file.content).into_owned())))
    }

    async fn change(&self, call: &Call, input: SelfInput) -> Result<String, ToolError> {
        let section = check(&input).map_err(ToolError::Tell)?;
        let stored = match self.files.committed(call).await.map_err(tool_error)? {
            Some(stored) => stored,
            None => {
                let found = self.read(call).await?;
                let base = found.as_ref().map_or(NO_BASE, |(hash, _)| hash);
                if base != input.base.trim() {
                    return Err(ToolError::Tell(format!(
                        "`{PATH}` was changed since you read it: show it again, then decide again"
                    )));
                }
                let text = found.as_ref().map_or("", |(_, text)| text);
                let edit = FileEdit {
                    path: PATH.to_owned(),
                    base: found.as_ref().map(|(hash, _)| hash.clone()),
                    content: Some(with_section(text, section, &input.text).into_bytes()),
                };
                let reason = format!("self, {}: {}", section.title(), one_line(&input.goal));
                let changes = FileChanges { edits: vec![edit], reason };
                self.files.commit(call, changes).await.map_err(tool_error)?
            }
        };
        let told = format!("Changed. Version {}.\n{}", stored.revision, stored.diff);
        let change = SelfChange {
            section: section.title(),
            goal: input.goal,
            risk: input.risk,
            benefit: input.benefit,
            revision: stored.revision,
            diff: stored.diff,
        };
        self.log.record_self_change(call, change).await?;
        Ok(told)
    }
}

fn tool_error(error: FilesError) -> ToolError {
    match error {
        FilesError::Broken(error) => ToolError::Broken(error),
        told => ToolError::Tell(told.to_string()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

/// Checks a change. The error is a text for the model.
fn check(input: &SelfInput) -> Result<Section, String> {
    let section = input.section.ok_or("`section` says what is changed")?;
    for (name, text) in [("goal", &input.goal), ("risk", &input.risk), ("benefit", &input.benefit)]
    {
        if text.trim().is_empty() {
            return Err(format!("`{name}` is missing: each change is explained"));
        }
    }
    if input.text.chars().count() > MAX_SECTION_CHARS {
        return Err(format!("a section has {MAX_SECTION_CHARS} characters at most"));
    }
    // A heading would be another section, about which nobody was asked.
    if input.text.lines().any(|line| line.trim_start().starts_with('#')) {
        return Err("`text` is one section: it has no headings".to_owned());
    }
    Ok(section)
}

/// Replaces or appends a section.
fn with_section(text: &str, section: Section, new: &str) -> String {
    let heading = format!("## {}", section.title());
    let is_heading = |line: &str| line.trim_end().eq_ignore_ascii_case(&heading);
    let is_end = |line: &str| line.starts_with("# ") || line.starts_with("## ");
    let mut made = String::new();
    let (mut is_inside, mut is_written) = (false, false);
    for line in text.lines() {
        if is_heading(line) && !is_written {
            made.push_str(&format!("{heading}\n\n{}\n\n", new.trim()));
            (is_inside, is_written) = (true, true);
            continue;
        }
        is_inside &= !is_end(line) || is_heading(line);
        if !is_inside {
            made.push_str(line);
            made.push('\n');
        }
    }
    if !is_written {
        if !made.is_empty() && !made.ends_with("\n\n") {
            made.push('\n');
        }
        made.push_str(&format!("{heading}\n\n{}\n", new.trim()));
    }
    format!("{}\n", made.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay() {
        let text = "# Me\n\n## Objectives\n\nold\nlines\n\n## Constraints\n\nnone\n";
        let replaced = with_section(text, Section::Objectives, "new\n");
        assert_eq!(replaced, "# Me\n\n## Objectives\n\nnew\n\n## Constraints\n\nnone\n");
        let appended = with_section(text, Section::BudgetStrategy, "thrift");
        assert_eq!(appended, format!("{text}\n## Budget Strategy\n\nthrift\n"));
        assert_eq!(with_section("", Section::Identity, "i"), "## Identity\n\ni\n");
        // A second section of the same name goes with the first.
        let twice = "## Identity\n\na\n\n## Identity\n\nb\n";
        assert_eq!(with_section(twice, Section::Identity, "c"), "## Identity\n\nc\n");
    }

    #[test]
    fn no_section_is_smuggled_in_and_each_change_is_explained() {
        let input = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut input = json!({
                "action": "change", "base": "none", "section": "objectives", "text": "t",
                "goal": "g", "risk": "r", "benefit": "b",
            });
            change(&mut input);
            check(&serde_json::from_value(input).unwrap())
        };
        assert_eq!(input(&|_| {}), Ok(Section::Objectives));
        for smuggled in ["x\n## Constraints\nnone", "  ## Constraints", "# all"] {
            assert!(input(&|one| one["text"] = json!(smuggled)).is_err(), "{smuggled}");
        }
        for field in ["goal", "risk", "benefit"] {
            assert!(input(&|one| one[field] = json!(" ")).unwrap_err().contains(field));
        }
        assert!(input(&|one| one["section"] = json!(null)).is_err());
    }
}
