//! Storage of skills: agents' trees, tenants' shared trees, and the built-in skills (spec SKL-001,
//! SKL-007, SKL-012).
//!
//! ```text
//! heads (path, hash) ──▶ skill set ──▶ a skill ──▶ its files
//! install · put · remove ──▶ one commit of a tree, with a row for the audit
//! ```
//!
//! A change of a skill is one transaction, so a crash leaves either the old or the new skill.
//! Concurrent changes are serialized by the lock on the tree's row. The second overwrites existing
//! files of the skill; it is refused if a file that it creates exists, or one that it deletes does
//! not.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use holdfast_types::{AgentId, TenantId, TreePath};
use holdfast_workspace::{
    Base, ChangeAuthor, CommitOutcome, ContentHash, Edit, File, SkillAction, SkillChange,
    SkillHead, Workspaces,
};

use crate::{
    Download, Error, Finder, Force, InstallRequest, Installation, Limits, Manifest, Origin, Policy,
    Registry, SKILLS_FOLDER, Scope, Skill, SkillEnvironment, SkillFile, SkillName, SkillSet,
    archive::unpack,
    install::{content_digest, prepare_install},
    name::paths_of_skill,
};

/// Request to install a skill.
#[derive(Debug, Clone)]
pub struct InstallOrder<'a> {
    pub registry: &'a Arc<dyn Registry>,
    /// Name of the skill in the registry.
    pub slug: &'a str,
    /// `None` is the newest version.
    pub version: Option<&'a str>,
    pub force: Force,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFileEntry {
    pub path: TreePath,
    /// Size of the file, in bytes.
    pub size: u64,
}

/// Storage of skills. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SkillLibrary {
    trees: Workspaces,
    finder: Arc<Finder>,
    limits: Limits,
}

impl SkillLibrary {
    #[must_use]
    pub fn new(trees: Workspaces, finder: Arc<Finder>) -> Self {
        // Refuse files during extraction that the tree would refuse.
        let file = trees.limits().file;
        Self { trees, finder, limits: Limits { file, ..Limits::default() } }
    }

    #[must_use]
    pub const fn finder(&self) -> &Arc<Finder> {
        &self.finder
    }

    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    #[must_use]
    pub const fn trees(&self) -> &Workspaces {
        &self.trees
    }

    /// Loads the skills of an agent from the list of its own and its tenant's `SKILL.md`s.
    pub async fn load_skills(
        &self,
        tenant: TenantId,
        heads: &[SkillHead],
        here: &SkillEnvironment,
    ) -> Result<SkillSet, Error> {
        let mut hashes: Vec<ContentHash> = heads.iter().map(|head| head.hash).collect();
        hashes.sort();
        hashes.dedup();
        let texts: HashMap<ContentHash, Vec<u8>> = match hashes.is_empty() {
            true => HashMap::new(),
            false => self.trees.content_heads(tenant, &hashes).await?.into_iter().collect(),
        };
        let kept = heads.iter().filter_map(|head| {
            let scope = if head.is_shared { Scope::Tenant } else { Scope::Workspace };
            let folder = head.path.parts().nth(1)?.to_owned();
            let text = trim_partial_char(texts.get(&head.hash)?).to_vec();
            Some(SkillFile { scope, folder, text })
        });
        Ok(SkillSet::from_files(kept.chain(crate::builtin()), here))
    }

    /// Loads the current skills of an agent; without an agent, those that the tenant shares.
    pub async fn load_current_skills(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        here: &SkillEnvironment,
    ) -> Result<SkillSet, Error> {
        let agent = agent.unwrap_or_else(|| Workspaces::shared_tree(tenant));
        let mut heads = self.trees.turn_files(tenant, agent, &[]).await?.skills;
        if agent == Workspaces::shared_tree(tenant) {
            heads.retain(|head| head.is_shared);
        }
        self.load_skills(tenant, &heads, here).await
    }

    /// Reads a file of a shared or built-in skill; `None` if there is no such file, or if the skill
    /// is in the agent's own tree.
    pub async fn read(
        &self,
        tenant: TenantId,
        skill: &Skill,
        path: &TreePath,
    ) -> Result<Option<File>, Error> {
        match skill.scope {
            Scope::Workspace => Ok(None),
            Scope::Tenant => {
                let shared = Workspaces::shared_tree(tenant);
                Ok(self.trees.read(tenant, shared, path, None).await?)
            }
            Scope::Platform => Ok(builtin_file(skill, path)),
        }
    }

    pub async fn files(
        &self,
        tenant: TenantId,
        agent: AgentId,
        skill: &Skill,
    ) -> Result<Vec<SkillFileEntry>, Error> {
        let folder: TreePath = skill.folder().parse()?;
        let tree = match skill.scope {
            Scope::Workspace => agent,
            Scope::Tenant => Workspaces::shared_tree(tenant),
            Scope::Platform => {
                let path: TreePath = skill.location.parse()?;
                let size = builtin_file(skill, &path).map_or(0, |file| file.content.len() as u64);
                return Ok(vec![SkillFileEntry { path, size }]);
            }
        };
        let listed = self.trees.list(tenant, tree, None, Some(&folder)).await?;
        Ok(listed
            .into_iter()
            .map(|file| SkillFileEntry { path: file.path, size: file.size })
            .collect())
    }

    /// Text of a skill's `SKILL.md`, and a list of its files.
    pub async fn skill_text(
        &self,
        tenant: TenantId,
        agent: AgentId,
        skill: &Skill,
    ) -> Result<(String, Vec<SkillFileEntry>), Error> {
        let path: TreePath = skill.location.parse()?;
        let found = match skill.scope {
            Scope::Workspace => self.trees.read(tenant, agent, &path, None).await?,
            Scope::Tenant | Scope::Platform => self.read(tenant, skill, &path).await?,
        };
        let text = found.and_then(|file| file.text().map(str::to_owned)).unwrap_or_default();
        Ok((text, self.files(tenant, agent, skill).await?))
    }

    /// Loads a tenant's policy for installations. An unreadable stored policy forbids all.
    pub async fn policy(&self, tenant: TenantId) -> Result<Policy, Error> {
        Ok(match self.trees.skill_policy(tenant).await? {
            None => Policy::default(),
            Some(document) => serde_json::from_value(document)
                .unwrap_or_else(|_| Policy { enabled: false, ..Policy::default() }),
        })
    }

    /// Stores a tenant's policy for installations.
    ///
    /// # Errors
    ///
    /// [`Error::Name`] if a listed name is not valid for a registry.
    pub async fn set_policy(
        &self,
        tenant: TenantId,
        actor: &str,
        policy: &Policy,
    ) -> Result<(), Error> {
        for name in policy.registries.iter().flatten() {
            let _: SkillName = name.parse()?;
        }
        let document = serde_json::to_value(policy).map_err(|error| Error::Broken(error.into()))?;
        Ok(self.trees.set_skill_policy(tenant, actor, &document).await?)
    }

    /// Paths below `skills/` in a tree.
    pub async fn skill_paths(
        &self,
        tenant: TenantId,
        tree: AgentId,
    ) -> Result<Vec<TreePath>, Error> {
        let folder: TreePath = SKILLS_FOLDER.parse()?;
        let listed = self.trees.list(tenant, tree, None, Some(&folder)).await?;
        Ok(listed.into_iter().map(|file| file.path).collect())
    }

    /// Installs a skill in an agent's or the tenant's tree. `by` must have a key, under which the
    /// skill is installed once.
    ///
    /// # Errors
    ///
    /// Those of [`prepare_install`], and [`Error::Tree`].
    pub async fn install(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &ChangeAuthor,
        order: &InstallOrder<'_>,
    ) -> Result<Installation, Error> {
        let policy = self.policy(tenant).await?;
        let present = self.skill_paths(tenant, tree).await?;
        let InstallOrder { registry, slug, version, force } = *order;
        let wanted =
            InstallRequest { slug, version, force, present_paths: &present, now: now_millis() };
        let installation = prepare_install(registry, &wanted, &policy, &self.limits).await?;
        self.write_installation(tenant, tree, by, &installation).await?;
        Ok(installation)
    }

    /// Writes an installation in one commit, with a row for the audit. Its files are marked as text
    /// from outside.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`] if a limit is exceeded, or a concurrent change created or deleted a file.
    pub async fn write_installation(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &ChangeAuthor,
        installation: &Installation,
    ) -> Result<CommitOutcome, Error> {
        let Origin { registry, slug, installed_version, .. } = &installation.origin;
        let change = SkillChange {
            action: SkillAction::Install,
            skill: slug.to_string(),
            registry: registry.clone(),
            version: installed_version.clone(),
            sha256: installation.sha256.clone(),
            warning: installation.warning.clone().unwrap_or_default(),
        };
        let files = installation.files.iter().cloned();
        let edits = replacing_edits(files, &installation.replaced);
        let by = by.clone().from_outside(true);
        Ok(self.trees.change_skill(tenant, tree, &by, edits, &change).await?)
    }

    /// Origin of the skill that the change with this key has installed; `None` if there was none.
    pub async fn installed_origin(
        &self,
        tenant: TenantId,
        tree: AgentId,
        key: &str,
    ) -> Result<Option<Origin>, Error> {
        let found = self.trees.skill_change_by_key(tenant, tree, key).await?;
        let Some(found) = found.filter(|found| found.change.action == SkillAction::Install) else {
            return Ok(None);
        };
        Ok(Some(Origin {
            version: Origin::VERSION,
            registry: found.change.registry,
            slug: found.change.skill.parse()?,
            installed_version: found.change.version,
            installed_at: found.at.as_millisecond(),
        }))
    }

    /// Writes an uploaded skill to a tree and replaces the one of the same name. There is no
    /// verdict and no policy check: the caller must be authorized.
    ///
    /// # Errors
    ///
    /// If the files are not a valid skill, or [`Error::Tree`].
    pub async fn put_skill(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &ChangeAuthor,
        download: Download,
    ) -> Result<Manifest, Error> {
        let limits = self.limits;
        let unpacked = tokio::task::spawn_blocking(move || unpack(download, &limits)).await;
        let unpacked = unpacked.map_err(|error| Error::Broken(error.into()))??;
        let text = unpacked.iter().find(|(path, _)| path.as_str() == "SKILL.md");
        let Some((path, text)) = text else {
            return Err(Error::Archive(
                "it has no `SKILL.md` at its top: put one there".to_owned(),
            ));
        };
        let manifest = Manifest::read(path.as_str(), text)?;
        let name = &manifest.name;
        let present = self.skill_paths(tenant, tree).await?;
        let replaced: Vec<TreePath> = paths_of_skill(&present, name).cloned().collect();
        let change = SkillChange {
            action: SkillAction::Put,
            skill: name.to_string(),
            registry: String::new(),
            version: manifest.version.clone().unwrap_or_default(),
            sha256: content_digest(&unpacked),
            warning: String::new(),
        };
        let mut files = Vec::with_capacity(unpacked.len());
        for (path, content) in unpacked {
            files.push((format!("{SKILLS_FOLDER}/{name}/{path}").parse()?, content));
        }
        let edits = replacing_edits(files.into_iter(), &replaced);
        self.trees.change_skill(tenant, tree, by, edits, &change).await?;
        Ok(manifest)
    }

    /// Removes a skill from a tree.
    ///
    /// # Errors
    ///
    /// [`Error::NoSkill`] if there is none of that name, unless this key has removed it already.
    pub async fn remove_skill(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &ChangeAuthor,
        name: &str,
    ) -> Result<(), Error> {
        let name: SkillName = name.parse()?;
        let present = self.skill_paths(tenant, tree).await?;
        let edits: Vec<Edit> = paths_of_skill(&present, &name)
            .map(|path| Edit::Delete { path: path.clone(), base: Base::Any })
            .collect();
        if edits.is_empty() {
            let key = by.key.as_deref().unwrap_or_default();
            // A repeated request: the first one has removed the skill.
            return match self.trees.skill_change_by_key(tenant, tree, key).await? {
                Some(made) if made.change.action == SkillAction::Remove => Ok(()),
                Some(_) | None => Err(Error::NoSkill { name }),
            };
        }
        let change = SkillChange {
            action: SkillAction::Remove,
            skill: name.to_string(),
            registry: String::new(),
            version: String::new(),
            sha256: String::new(),
            warning: String::new(),
        };
        self.trees.change_skill(tenant, tree, by, edits, &change).await?;
        Ok(())
    }
}

/// Edits that replace a skill's files. Old files that are not written again are deleted.
fn replacing_edits(
    files: impl Iterator<Item = (TreePath, Vec<u8>)>,
    replaced: &[TreePath],
) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut kept = Vec::new();
    for (path, content) in files {
        let is_there = replaced.contains(&path);
        let base = if is_there { Base::Any } else { Base::Absent };
        kept.extend(is_there.then(|| path.clone()));
        edits.push(Edit::Put { path, content, base });
    }
    let gone = replaced.iter().filter(|path| !kept.contains(path));
    edits.extend(gone.map(|path| Edit::Delete { path: path.clone(), base: Base::Any }));
    edits
}

/// File of a built-in skill.
fn builtin_file(skill: &Skill, path: &TreePath) -> Option<File> {
    let (_, text) = crate::BUILTIN.iter().find(|(name, _)| skill.manifest.name.is_same(name))?;
    let content = (path.as_str() == skill.location).then(|| text.as_bytes().to_vec())?;
    Some(File { hash: ContentHash::of(&content), content, revision: 0.into(), outside: false })
}

/// Drops an incomplete UTF-8 character at the end of a truncated text.
fn trim_partial_char(text: &[u8]) -> &[u8] {
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() => &text[..error.valid_up_to()],
        Ok(_) | Err(_) => text,
    }
}

pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_in_the_middle_of_a_letter_is_read_up_to_it() {
        let text = "a pl\u{e4}nt".as_bytes();

        assert_eq!(trim_partial_char(&text[..5]), b"a pl");
        assert_eq!(trim_partial_char(&text[..6]), "a pl\u{e4}".as_bytes());
        assert_eq!(trim_partial_char(b"a\xff b"), b"a\xff b", "what is no text stays none");
    }

    #[test]
    fn what_a_new_skill_does_not_write_goes_and_what_is_new_must_not_be_there() {
        let path = |path: &str| -> TreePath { path.parse().unwrap() };
        let old = [path("skills/x/SKILL.md"), path("skills/x/old.md")];
        let new = ["skills/x/SKILL.md", "skills/x/new.md"].map(|name| (path(name), Vec::new()));

        let edits = replacing_edits(new.into_iter(), &old);

        let told: Vec<(&str, bool, Base)> = edits
            .iter()
            .map(|edit| match edit {
                Edit::Put { path, base, .. } => (path.as_str(), true, *base),
                Edit::Delete { path, base } => (path.as_str(), false, *base),
            })
            .collect();
        assert_eq!(
            told,
            [
                ("skills/x/SKILL.md", true, Base::Any),
                ("skills/x/new.md", true, Base::Absent),
                ("skills/x/old.md", false, Base::Any),
            ]
        );
    }
}
