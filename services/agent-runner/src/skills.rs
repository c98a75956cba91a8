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
//!
//! | file | contents |
//! |---|---|
//! | `home.rs` | workspace access of `find_skills` and `install_skill` |
//! | `called.rs` | skills that users invoke by name, and that models read |
//! | `dispatched.rs` | skills whose command goes directly to a tool |
//! | `recommended.rs` | skills that may fit a message |
//! | `secrets.rs` | secrets of skills: set for commands, removed from texts |

mod called;
mod dispatched;
mod home;
mod recommended;
mod secrets;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_directory::Directory;
use holdfast_skills::{Library, Manifest, Shelf, Surroundings};
use holdfast_types::{Fault as _, TenantId};
use holdfast_workspace::SkillHead;

pub(crate) use called::Called;
pub(crate) use home::Home;
pub(crate) use secrets::Secrets;

use crate::error::Error;

/// Folders of commands in a sandbox, as in its `PATH`.
const BINS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Time for which a tenant's settings and secrets are cached.
const SETTINGS_KEPT: Duration = Duration::from_secs(60);

/// Skills of an agent as last loaded.
#[derive(Debug)]
pub(crate) struct Known {
    heads: Vec<SkillHead>,
    pub(crate) shelf: Arc<Shelf>,
    /// Secrets of the usable skills.
    pub(crate) secrets: Arc<Secrets>,
    /// Time of loading settings and secrets; `None` if no skill needs any.
    at: Option<Instant>,
}

/// Loads the skills of agents.
#[derive(Debug, Clone)]
pub(crate) struct Shelves {
    library: Library,
    directory: Directory,
    /// Conditions that hold for every tenant.
    here: Arc<Surroundings>,
    /// Skills of an agent that has only the built-in ones.
    shipped: Arc<Known>,
}

impl Shelves {
    /// `bins` are the commands that a sandbox has.
    pub(crate) fn new(library: Library, directory: Directory, bins: BTreeSet<String>) -> Self {
        let os = std::env::consts::OS.to_owned();
        let here = Surroundings { os, bins, ..Surroundings::default() };
        let shelf = Arc::new(Shelf::of(holdfast_skills::builtin(), &here));
        let secrets = Arc::default();
        let shipped = Arc::new(Known { heads: Vec::new(), shelf, secrets, at: None });
        Self { library, directory, here: Arc::new(here), shipped }
    }

    /// Loads the skills of these headers, or returns `before` if nothing has changed.
    pub(crate) async fn find(
        &self,
        tenant: TenantId,
        heads: Vec<SkillHead>,
        before: Option<&Arc<Known>>,
    ) -> Result<Arc<Known>, Error> {
        if heads.is_empty() {
            return Ok(Arc::clone(&self.shipped));
        }
        let is_fresh = |known: &&Arc<Known>| {
            known.heads == heads && known.at.is_none_or(|at| at.elapsed() < SETTINGS_KEPT)
        };
        if let Some(known) = before.filter(is_fresh) {
            return Ok(Arc::clone(known));
        }
        let shelf = self.library.shelf(tenant, &heads, &self.here).await.map_err(Error::skills)?;
        let any = |asks: fn(&Manifest) -> bool| shelf.skills().any(|skill| asks(&skill.manifest));
        let of_config = any(|manifest| !manifest.requires.config.is_empty());
        let of_env = any(|manifest| manifest.variables().next().is_some());
        if !of_config && !of_env {
            let (shelf, secrets) = (Arc::new(shelf), Arc::default());
            return Ok(Arc::new(Known { heads, shelf, secrets, at: None }));
        }
        let config = if of_config { self.config(tenant).await? } else { BTreeSet::new() };
        let open = match of_env {
            true => self.directory.open_skill_env(tenant).await.map_err(Error::directory)?,
            false => Vec::new(),
        };
        let here = Surroundings { config, env: secrets::names(&open), ..(*self.here).clone() };
        let shelf = self.library.shelf(tenant, &heads, &here).await.map_err(Error::skills)?;
        let secrets = Arc::new(Secrets::of(&shelf, open));
        Ok(Arc::new(Known { heads, shelf: Arc::new(shelf), secrets, at: Some(Instant::now()) }))
    }

    /// Settings of a tenant that a skill may require: the channels with an enabled account.
    async fn config(&self, tenant: TenantId) -> Result<BTreeSet<String>, Error> {
        let accounts = self.directory.accounts(tenant, None).await.map_err(Error::directory)?;
        let enabled = accounts.into_iter().filter(|account| account.enabled);
        Ok(enabled.map(|account| format!("channels.{}", account.channel)).collect())
    }
}

/// Names of the commands that a sandbox on this machine has. Nothing is executed.
pub(crate) fn commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in BINS {
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
        Self::Agents(error.into(), kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_among_the_commands_and_a_file_that_cannot_be_run_is_not() {
        let commands = commands();

        assert!(commands.contains("sh") && commands.contains("ls"), "{commands:?}");
        assert!(!commands.contains("passwd.conf") && !commands.contains("."));
    }
}
