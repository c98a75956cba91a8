//! The skills of agents: their own, their tenant's, and those that everybody has (docs/skills.md).
//!
//! ```text
//! an agent's briefing ─▶ heads (path, hash) ── as before? ─▶ the same shelf
//!                                           └─ else ──────▶ texts ─▶ a new shelf
//! shelf ─▶ the prompt's list · skills/<name>/SKILL.md for `read` · /name
//! ```
//!
//! Which skills there are is read with the files that every prompt needs; what they say only where
//! one of them has changed. So an ordinary turn asks the database nothing more than it did.
//!
//! | file | what |
//! |---|---|
//! | `home.rs` | what `find_skills` and `install_skill` know of the agent |
//! | `called.rs` | skills that people call by their names, and that models read |
//! | `dispatched.rs` | those of them whose command goes to a tool as it was typed |
//! | `recommended.rs` | skills that seem to fit a message |
//! | `secrets.rs` | their variables: given to commands, and kept out of what is told |

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

/// Where a sandbox's commands are: what its `PATH` says.
const BINS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// For how long it is believed that a setting is on or off, and that a variable is what it was.
const SETTINGS_KEPT: Duration = Duration::from_secs(60);

/// The skills of an agent, as they were when they were looked up last.
#[derive(Debug)]
pub(crate) struct Known {
    heads: Vec<SkillHead>,
    pub(crate) shelf: Arc<Shelf>,
    /// The variables of those that can be used.
    pub(crate) secrets: Arc<Secrets>,
    /// When what they need was looked up, if one of them needs a setting or has variables.
    at: Option<Instant>,
}

/// Where agents' skills are looked up.
#[derive(Debug, Clone)]
pub(crate) struct Shelves {
    library: Library,
    directory: Directory,
    /// What there is for every tenant.
    here: Arc<Surroundings>,
    /// The skills of an agent that has none of its own.
    shipped: Arc<Known>,
}

impl Shelves {
    /// Skills of this library, whose commands run in a sandbox with these.
    pub(crate) fn new(library: Library, directory: Directory, bins: BTreeSet<String>) -> Self {
        let os = std::env::consts::OS.to_owned();
        let here = Surroundings { os, bins, ..Surroundings::default() };
        let shelf = Arc::new(Shelf::of(holdfast_skills::builtin(), &here));
        let secrets = Arc::default();
        let shipped = Arc::new(Known { heads: Vec::new(), shelf, secrets, at: None });
        Self { library, directory, here: Arc::new(here), shipped }
    }

    /// The skills that these heads stand for; those of `before` if nothing has changed.
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

    /// The settings of a tenant that a skill may need: the channels that it has an account on.
    async fn config(&self, tenant: TenantId) -> Result<BTreeSet<String>, Error> {
        let accounts = self.directory.accounts(tenant, None).await.map_err(Error::directory)?;
        let enabled = accounts.into_iter().filter(|account| account.enabled);
        Ok(enabled.map(|account| format!("channels.{}", account.channel)).collect())
    }
}

/// The commands that a sandbox on this machine has. Nothing is run to find out.
pub(crate) fn commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in BINS {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            // Of what a link leads to.
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
    /// The skills of an agent could not be read.
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
