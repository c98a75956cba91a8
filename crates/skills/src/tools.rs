//! Tools `find_skills` and `install_skill` (spec TOL-031, SKL-006, SKL-007).
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `find_skills` | reads | search skills in the registries |
//! | `install_skill` | writes | install one in the agent's workspace |
//!
//! They access the agent through [`Home`], which the runner implements.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use holdfast_tools::{Approval, Call, Tool, ToolError, untrusted};
use holdfast_types::{Effect, Fault as _, Kind, TreePath};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    DEFAULT_SEARCH_LIMIT, Error, Finder, Force, InstallRequest, Installation, Limits,
    MAX_SEARCH_LIMIT, Origin, Policy, SearchResult, library::now_millis, prepare_install,
};

/// Maximum length of the search result that a model gets, in characters.
const MAX_RESULT_CHARS: usize = 20_000;

/// Access to the agent that a tool is called for.
pub trait SkillTarget: Send + Sync + 'static {
    /// Checks whether skills may be installed in the conversation of this call. Called before any
    /// download.
    ///
    /// # Errors
    ///
    /// The refusal that the model gets.
    fn check(&self, call: &Call) -> Result<(), ToolError>;

    /// Policy of the agent's tenant for installations.
    fn policy(&self, call: &Call) -> impl Future<Output = anyhow::Result<Policy>> + Send;

    /// Paths below `skills/` in the agent's tree.
    fn present(&self, call: &Call) -> impl Future<Output = anyhow::Result<Vec<TreePath>>> + Send;

    /// Origin of the skill that this call has installed already: the call is repeated if its runner
    /// crashed.
    fn made(&self, call: &Call) -> impl Future<Output = anyhow::Result<Option<Origin>>> + Send;

    /// Writes the installation in one commit under the call's key, with a row for the audit.
    ///
    /// # Errors
    ///
    /// The message that the model gets if the tree refuses the change.
    fn keep(
        &self,
        call: &Call,
        installation: Installation,
    ) -> impl Future<Output = Result<(), ToolError>> + Send;
}

/// Extension of the tool registry.
pub trait WithSkillTools: Sized {
    /// Adds `find_skills` and `install_skill` to the registry.
    #[must_use]
    fn with_skills<H: SkillTarget>(self, home: Arc<H>, finder: Arc<Finder>, limits: Limits)
    -> Self;
}

impl WithSkillTools for holdfast_tools::Registry {
    fn with_skills<H: SkillTarget>(
        self,
        home: Arc<H>,
        finder: Arc<Finder>,
        limits: Limits,
    ) -> Self {
        self.with(FindSkills { home: Arc::clone(&home), finder: Arc::clone(&finder) })
            .with(InstallSkill { home, finder, limits })
    }
}

/// Find skills that could be installed. A skill is a text that teaches you how something is done,
/// with what it takes. Look at those you have first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindSkillsInput {
    /// What the skill should do, in a few words.
    query: String,
    /// How many, from 1 to 20.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 20))]
    limit: usize,
}

const fn five() -> usize {
    DEFAULT_SEARCH_LIMIT
}

/// Tool `find_skills`: searches the registries.
#[derive(Debug)]
pub struct FindSkills<H> {
    pub home: Arc<H>,
    pub finder: Arc<Finder>,
}

impl<H: SkillTarget> Tool for FindSkills<H> {
    const NAME: &'static str = "find_skills";
    const EFFECT: Effect = Effect::Reads;
    // A registry has a timeout of a minute, and two are asked at a time.
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(130));
    type Input = FindSkillsInput;

    async fn call(&self, call: Call, input: FindSkillsInput) -> Result<String, ToolError> {
        let policy = self.home.policy(&call).await?;
        let limit = input.limit.clamp(1, MAX_SEARCH_LIMIT);
        let found = self.finder.find(call.tenant, &policy, &input.query, limit).await;
        Ok(search_report(&call, &found.map_err(tool_error)?))
    }
}

fn search_report(call: &Call, found: &SearchResult) -> String {
    let mut list = String::new();
    for hit in &found.hits {
        let version = hit.version.as_deref().unwrap_or("no version");
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            list,
            "- slug `{}`, registry `{}`, {version}: {}: {}",
            hit.slug, hit.registry, hit.title, hit.summary
        );
    }
    let mut told = if list.is_empty() {
        "No skill was found: ask in other words.\n".to_owned()
    } else {
        untrusted(&call.key, "the registries of skills", &list, MAX_RESULT_CHARS)
    };
    for (_, why) in &found.failed {
        let _ = writeln!(told, "[not all were asked: {why}]");
    }
    told
}

/// Install a skill that `find_skills` found, so that it is among yours from the next message on.
/// Only when your person wants it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallSkillInput {
    /// Its slug, as `find_skills` gives it.
    slug: String,
    /// The registry, as `find_skills` gives it.
    registry: String,
    /// The version; the newest if left out.
    #[serde(default)]
    version: Option<String>,
    /// Whether to replace the one that is installed.
    #[serde(default)]
    force: bool,
}

/// Tool `install_skill`: installs a skill from a registry.
#[derive(Debug)]
pub struct InstallSkill<H> {
    pub home: Arc<H>,
    pub finder: Arc<Finder>,
    pub limits: Limits,
}

impl<H: SkillTarget> Tool for InstallSkill<H> {
    const NAME: &'static str = "install_skill";
    const EFFECT: Effect = Effect::Writes;
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(120));
    type Input = InstallSkillInput;

    async fn approval(&self, call: &Call, _: &InstallSkillInput) -> Result<Approval, ToolError> {
        // Nobody is asked about a call that fails anyway.
        self.home.check(call)?;
        Ok(Approval::Never)
    }

    async fn call(&self, call: Call, input: InstallSkillInput) -> Result<String, ToolError> {
        if let Some(made) = self.home.made(&call).await? {
            return Ok(installed_message(&made));
        }
        self.home.check(&call)?;
        let policy = self.home.policy(&call).await?;
        let registry = self.finder.registries().get(&input.registry).map_err(tool_error)?;
        let present = self.home.present(&call).await?;
        let wanted = InstallRequest {
            slug: &input.slug,
            version: input.version.as_deref(),
            force: if input.force { Force::Yes } else { Force::No },
            present_paths: &present,
            now: now_millis(),
        };
        let installation =
            prepare_install(registry, &wanted, &policy, &self.limits).await.map_err(tool_error)?;
        let mut said = installed_message(&installation.origin);
        if let Some(warning) = &installation.warning {
            let _ = write!(said, "\nWarning, tell your person: {warning}.");
        }
        self.home.keep(&call, installation).await?;
        Ok(said)
    }
}

fn installed_message(origin: &Origin) -> String {
    let Origin { slug, installed_version, registry, .. } = origin;
    format!(
        "The skill `{slug}` {installed_version} of the registry `{registry}` is installed. How it \
         is used is in skills/{slug}/SKILL.md."
    )
}

/// Converts an error for the model. Failures that only an operator can fix become
/// [`ToolError::Broken`].
#[must_use]
pub fn tool_error(error: Error) -> ToolError {
    match error {
        Error::Broken(cause) => ToolError::Broken(cause),
        Error::Tree(error) if error.kind().is_transient() || error.kind() == Kind::Internal => {
            ToolError::Broken(error.into())
        }
        told => ToolError::Tell(told.to_string()),
    }
}

#[cfg(test)]
mod tests;
