//! Skills of agents: their own, their tenant's and the built-in ones (docs/skills.md).
//!
//! ```text
//! workspace files ─▶ headers (path, hash) ── unchanged? ─▶ the same shelf
//!                                          └─ else ──────▶ texts ─▶ a new shelf
//! shelf ─▶ the prompt's list · skills/<name>/SKILL.md for `read` · /name
//! ```
//!
//! Headers are read together with the bootstrap files, texts only when a header changed. So an
//! ordinary turn needs no extra query.

mod secrets;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_directory::Directory;
use holdfast_skills::{Manifest, SkillEnvironment, SkillLibrary, SkillSet};
use holdfast_types::{AgentId, Fault as _, TenantId};
use holdfast_workspace::SkillHead;

pub(crate) use secrets::Secrets;

use crate::error::Error;

/// Folders of commands in a sandbox, as in its `PATH`.
const COMMAND_FOLDERS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Time for which a tenant's settings and secrets are cached.
const SETTINGS_TTL: Duration = Duration::from_secs(60);

/// Skills of an agent as last loaded.
#[derive(Debug)]
pub(crate) struct AgentSkills {
    heads: Vec<SkillHead>,
    pub(crate) skill_set: Arc<SkillSet>,
    /// Secrets of the usable skills.
    pub(crate) secrets: Arc<Secrets>,
    /// Time of loading settings and secrets; `None` if no skill needs any.
    settings_loaded_at: Option<Instant>,
}

impl AgentSkills {
    /// Paths of the skills that may have text from outside.
    pub(crate) fn outside_paths(&self) -> impl Iterator<Item = &str> {
        self.heads.iter().filter(|head| head.outside).map(|head| head.path.as_str())
    }
}

/// Loads the skills of agents.
#[derive(Debug, Clone)]
pub(crate) struct SkillLoader {
    library: SkillLibrary,
    directory: Directory,
    /// Conditions that hold for every tenant.
    surroundings: Arc<SkillEnvironment>,
    /// Skills of an agent that has only the built-in ones.
    built_in: Arc<AgentSkills>,
}

impl SkillLoader {
    /// `bins` are the commands that a sandbox has.
    pub(crate) fn new(library: SkillLibrary, directory: Directory, bins: BTreeSet<String>) -> Self {
        let os = std::env::consts::OS.to_owned();
        let here = SkillEnvironment { os, bins, ..SkillEnvironment::default() };
        let skill_set = Arc::new(SkillSet::from_files(holdfast_skills::builtin(), &here));
        let secrets = Arc::default();
        let shipped = Arc::new(AgentSkills {
            heads: Vec::new(),
            skill_set,
            secrets,
            settings_loaded_at: None,
        });
        Self { library, directory, surroundings: Arc::new(here), built_in: shipped }
    }

    /// Returns names and texts of an agent's usable skills, without their headers. Texts from outside
    /// are left out: they are never part of instructions.
    pub(crate) async fn texts(
        &self,
        (tenant, agent): (TenantId, AgentId),
        skills: &AgentSkills,
        names: &[String],
    ) -> Result<Vec<(String, String)>, Error> {
        let mut texts = Vec::new();
        for name in names {
            let Some(skill) = skills.skill_set.find(name).filter(|skill| skill.is_usable()) else {
                continue;
            };
            if skills.outside_paths().any(|path| path == skill.location) {
                continue;
            }
            let (text, _) =
                self.library.skill_text(tenant, agent, skill).await.map_err(Error::skills)?;
            texts.push((skill.name().to_owned(), without_header(&text).to_owned()));
        }
        Ok(texts)
    }

    /// Loads the skills of these headers, or returns `before` if nothing has changed.
    pub(crate) async fn load(
        &self,
        tenant: TenantId,
        heads: Vec<SkillHead>,
        before: Option<&Arc<AgentSkills>>,
    ) -> Result<Arc<AgentSkills>, Error> {
        if heads.is_empty() {
            return Ok(Arc::clone(&self.built_in));
        }
        let is_fresh = |known: &&Arc<AgentSkills>| {
            known.heads == heads
                && known.settings_loaded_at.is_none_or(|at| at.elapsed() < SETTINGS_TTL)
        };
        if let Some(known) = before.filter(is_fresh) {
            return Ok(Arc::clone(known));
        }
        let skill_set = self
            .library
            .load_skills(tenant, &heads, &self.surroundings)
            .await
            .map_err(Error::skills)?;
        let any =
            |asks: fn(&Manifest) -> bool| skill_set.skills().any(|skill| asks(&skill.manifest));
        let of_config = any(|manifest| !manifest.requires.config.is_empty());
        let of_env = any(|manifest| manifest.variables().next().is_some());
        if !of_config && !of_env {
            let (skill_set, secrets) = (Arc::new(skill_set), Arc::default());
            return Ok(Arc::new(AgentSkills {
                heads,
                skill_set,
                secrets,
                settings_loaded_at: None,
            }));
        }
        let config = if of_config { self.tenant_settings(tenant).await? } else { BTreeSet::new() };
        let open = match of_env {
            true => self.directory.skill_env().open(tenant).await.map_err(Error::directory)?,
            false => Vec::new(),
        };
        let here = SkillEnvironment {
            config,
            env: secrets::variable_names(&open),
            ..(*self.surroundings).clone()
        };
        let skill_set =
            self.library.load_skills(tenant, &heads, &here).await.map_err(Error::skills)?;
        let secrets = Arc::new(Secrets::of(&skill_set, open));
        Ok(Arc::new(AgentSkills {
            heads,
            skill_set: Arc::new(skill_set),
            secrets,
            settings_loaded_at: Some(Instant::now()),
        }))
    }

    /// Settings of a tenant that a skill may require: the channels with an enabled account.
    async fn tenant_settings(&self, tenant: TenantId) -> Result<BTreeSet<String>, Error> {
        let accounts =
            self.directory.accounts().list(tenant, None).await.map_err(Error::directory)?;
        let enabled = accounts.into_iter().filter(|account| account.enabled);
        Ok(enabled.map(|account| format!("channels.{}", account.channel)).collect())
    }
}

/// The text of a `SKILL.md` after its header.
fn without_header(text: &str) -> &str {
    let body = text.strip_prefix("---").and_then(|rest| rest.split_once("\n---"));
    body.map_or(text, |(_, body)| body).trim()
}

/// Names of the commands that a sandbox on this machine has. Nothing is executed.
pub(crate) fn sandbox_commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in COMMAND_FOLDERS {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            // Metadata of the target, if it is a link.
            let is_command = fs::metadata(entry.path())
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
            if let Some(name) = entry.file_name().to_str().filter(|_| is_command) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

impl Error {
    pub(crate) fn skills(error: holdfast_skills::Error) -> Self {
        let kind = error.kind();
        Self::AgentUnavailable(error.into(), kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_among_the_commands_and_a_file_that_cannot_be_run_is_not() {
        let commands = sandbox_commands();

        assert!(commands.contains("sh") && commands.contains("ls"), "{commands:?}");
        assert!(!commands.contains("passwd.conf") && !commands.contains("."));
    }
}
