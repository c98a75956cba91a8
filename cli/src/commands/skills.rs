//! `holdfast skills`.

mod env;

use std::{fs, path::Path};

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    FindSkillsRequest, GetSkillPolicyRequest, GetSkillRequest, InstallSkillRequest,
    ListSkillChangesRequest, ListSkillsRequest, PutSkillPolicyRequest, PutSkillRequest,
    RemoveSkillRequest, Skill, SkillChange, SkillFile, SkillPolicy,
};
use serde_json::{Value, json};

use self::env::Env;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const SKILL_COLUMNS: [&str; 4] = ["name", "scope", "version", "description"];
const SEARCH_COLUMNS: [&str; 4] = ["slug", "registry", "version", "summary"];
const CHANGE_COLUMNS: [&str; 7] =
    ["at", "action", "skill", "version", "registry", "agent", "actor"];
const POLICY_COLUMNS: [&str; 3] = ["enabled", "registries", "allow_unjudged"];

/// Maximum depth of nested folders in a skill.
const MAX_FOLDER_DEPTH: usize = 16;

#[derive(Debug, Subcommand)]
pub enum Skills {
    /// List the skills of an agent, or those shared by the tenant
    List {
        #[command(flatten)]
        of: SkillsOwner,
    },
    /// Show a skill: its SKILL.md and its files
    Show {
        #[command(flatten)]
        of: SkillsOwner,
        /// Name of the skill, as `list` shows it
        name: String,
    },
    /// Search the registries for skills to install
    Find {
        /// Purpose of the skill, in a few words
        query: Vec<String>,
        /// Maximum number of results, up to 20
        #[arg(long, default_value_t = 5)]
        limit: u32,
    },
    /// Install a skill from a registry
    Install {
        #[command(flatten)]
        of: SkillsOwner,
        /// Name (slug) of the skill in the registry
        slug: String,
        /// Name of the registry, as `find` shows it
        #[arg(
            long,
            required_unless_present = "archive",
            default_value = "",
            hide_default_value = true
        )]
        registry: String,
        /// URL of a ZIP archive, instead of a registry
        #[arg(long, conflicts_with = "registry")]
        archive: Option<String>,
        /// Version to install [default: the newest]
        #[arg(long, default_value = "", hide_default_value = true)]
        at: String,
        /// Replace the skill if it is already installed
        #[arg(long)]
        force: bool,
    },
    /// Create or replace a skill from a local folder or ZIP
    Publish {
        #[command(flatten)]
        of: SkillsOwner,
        /// Folder that contains the SKILL.md, or a ZIP archive of it
        from: String,
    },
    /// Remove a skill by its name
    Rm {
        #[command(flatten)]
        of: SkillsOwner,
        /// Name of the skill, as `list` shows it
        name: String,
    },
    /// Manage secrets that commands of skills use
    #[command(subcommand)]
    Env(Env),
    /// List who installed, published or removed which skill, and its source
    Audit {
        /// Maximum number of changes to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Show only changes before this one, by its id
        #[arg(long, default_value = "", hide_default_value = true)]
        before: String,
    },
    /// Show or change the policy for installing skills; options that are not given stay unchanged
    Policy {
        /// Whether skills may be installed: yes or no
        #[arg(long, value_parser = ["yes", "no"])]
        install: Option<String>,
        /// Registries from which skills may be installed, separated by commas; `all` or `none`
        #[arg(long, value_delimiter = ',')]
        registries: Option<Vec<String>>,
        /// Whether skills without a security verdict may be installed: yes or no
        #[arg(long, value_parser = ["yes", "no"])]
        unjudged: Option<String>,
    },
}

/// The agent whose skills are meant
#[derive(Debug, Args)]
pub struct SkillsOwner {
    /// Name or id of the agent [default: the skills that all agents of the tenant share]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
}

impl Skills {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { of } => {
                let request = client.request(ListSkillsRequest { agent: of.agent });
                let listed = client.answer(client.skills().list_skills(request).await)?;
                for skipped in listed.skipped {
                    screen.note(&skipped.why)?;
                }
                for skill in &listed.skills {
                    for lack in &skill.lacks {
                        screen.note(&format!("{} cannot be used: {lack}", skill.name))?;
                    }
                }
                screen.list(&SKILL_COLUMNS, listed.skills.iter().map(view).collect())
            }
            Self::Show { of, name } => {
                let request = client.request(GetSkillRequest { agent: of.agent, name });
                let found = client.answer(client.skills().get_skill(request).await)?;
                if !screen.is_json() {
                    return screen.print(&found.text);
                }
                let mut shown = view(&found.skill.unwrap_or_default());
                shown["text"] = found.text.into();
                shown["files"] = found.files.into();
                screen.one(&SKILL_COLUMNS, &shown)
            }
            Self::Find { query, limit } => {
                let request = client.request(FindSkillsRequest { query: query.join(" "), limit });
                let found = client.answer(client.skills().find_skills(request).await)?;
                for why in found.failed.into_values() {
                    screen.note(&why)?;
                }
                let found = found.skills.iter().map(|one| {
                    json!({
                        "slug": one.slug, "registry": one.registry, "title": one.title,
                        "summary": one.summary, "version": one.version, "score": one.score,
                    })
                });
                screen.list(&SEARCH_COLUMNS, found.collect())
            }
            Self::Install { of, slug, registry, archive, at, force } => {
                let url = archive.unwrap_or_default();
                let request = InstallSkillRequest {
                    agent: of.agent,
                    slug,
                    registry,
                    version: at,
                    force,
                    url,
                    ..InstallSkillRequest::default()
                };
                let request = client.request(request);
                let done = client.answer(client.skills().install_skill(request).await)?;
                if !done.warning.is_empty() {
                    screen.note(&done.warning)?;
                }
                let told = format!("installed {} {}", done.name, done.version);
                screen.done(
                    &told,
                    &json!({
                        "name": done.name, "version": done.version, "registry": done.registry,
                        "sha256": done.sha256, "warning": done.warning,
                    }),
                )
            }
            Self::Publish { of, from } => {
                let request =
                    PutSkillRequest { agent: of.agent, ..read_local_skill(Path::new(&from))? };
                let request = client.request(request);
                let put = client.answer(client.skills().put_skill(request).await)?;
                screen.done("published", &json!({ "published": put.name }))
            }
            Self::Rm { of, name } => {
                let removed = name.clone();
                let request = RemoveSkillRequest { agent: of.agent, name, ..Default::default() };
                let request = client.request(request);
                client.answer(client.skills().remove_skill(request).await)?;
                screen.done("removed", &json!({ "removed": removed }))
            }
            Self::Env(env) => env.run(client, screen).await,
            Self::Audit { limit, before } => {
                let request = client.request(ListSkillChangesRequest { before, limit });
                let listed = client.answer(client.skills().list_skill_changes(request).await)?;
                screen.list(&CHANGE_COLUMNS, listed.changes.iter().map(change).collect())
            }
            Self::Policy { install, registries, unjudged } => {
                let request = client.request(GetSkillPolicyRequest {});
                let found = client.answer(client.skills().get_skill_policy(request).await)?.policy;
                let mut policy = found.unwrap_or_default();
                let changes = install.is_some() || registries.is_some() || unjudged.is_some();
                if let Some(install) = install {
                    policy.disabled = install == "no";
                }
                if let Some(unjudged) = unjudged {
                    policy.allow_unjudged = unjudged == "yes";
                }
                match registries {
                    None => {}
                    Some(all) if all == ["all"] => {
                        (policy.registries_given, policy.registries) = (false, Vec::new());
                    }
                    Some(none) if none == ["none"] => {
                        (policy.registries_given, policy.registries) = (true, Vec::new());
                    }
                    Some(some) => (policy.registries_given, policy.registries) = (true, some),
                }
                let shown = shown_policy(&policy);
                if changes {
                    let request = client.request(PutSkillPolicyRequest { policy: Some(policy) });
                    client.answer(client.skills().put_skill_policy(request).await)?;
                }
                screen.one(&POLICY_COLUMNS, &shown)
            }
        }
    }
}

/// Reads a skill from a local folder or ZIP.
fn read_local_skill(from: &Path) -> Result<PutSkillRequest, Error> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Error::Usage(format!("cannot read {}: {error}", path.display()))
    };
    if from.is_file() {
        let archive = fs::read(from).map_err(|error| unreadable(from, error))?;
        return Ok(PutSkillRequest { archive, ..PutSkillRequest::default() });
    }
    let mut files = Vec::new();
    let mut folders = vec![(from.to_owned(), String::new(), 0)];
    while let Some((folder, below, depth)) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| unreadable(&folder, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&folder, error))?;
            let (at, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else {
                return Err(Error::Usage(format!("{} has a name that is not UTF-8", at.display())));
            };
            let path = format!("{below}{name}");
            // Type of the entry itself: a link's target is not part of the skill.
            let kind = entry.file_type().map_err(|error| unreadable(&at, error))?;
            if kind.is_dir() && depth < MAX_FOLDER_DEPTH {
                folders.push((at, format!("{path}/"), depth + 1));
            } else if kind.is_file() {
                let content = fs::read(&at).map_err(|error| unreadable(&at, error))?;
                files.push(SkillFile { path, content });
            } else {
                let shown = at.display();
                return Err(Error::Usage(format!("{shown} is a link, a device or too deep")));
            }
        }
    }
    Ok(PutSkillRequest { files, ..PutSkillRequest::default() })
}

fn view(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "scope": skill.scope,
        "version": skill.version,
        "description": skill.description,
        "location": skill.location,
        "tags": skill.tags,
        "user_invocable": skill.user_invocable,
        "model_invocable": skill.model_invocable,
        "needs": skill.needs,
        "lacks": skill.lacks,
    })
}

fn change(change: &SkillChange) -> Value {
    json!({
        "id": change.id,
        "at": time(change.at.as_ref()),
        "action": change.action,
        "skill": change.skill,
        "agent": change.agent,
        "actor": change.actor,
        "registry": change.registry,
        "version": change.version,
        "sha256": change.sha256,
        "warning": change.warning,
        "revision": change.revision,
    })
}

fn shown_policy(policy: &SkillPolicy) -> Value {
    json!({
        "enabled": !policy.disabled,
        "registries": policy.registries_given.then_some(&policy.registries),
        "allow_unjudged": policy.allow_unjudged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_with_what_is_below_it_and_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("more")).unwrap();
        fs::write(folder.path().join("SKILL.md"), "a").unwrap();
        fs::write(folder.path().join("more/x.md"), "b").unwrap();

        let mut files = read_local_skill(folder.path()).unwrap().files;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["SKILL.md", "more/x.md"]);

        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("p")).unwrap();
        assert!(read_local_skill(folder.path()).unwrap_err().to_string().contains("is a link"));
    }
}
