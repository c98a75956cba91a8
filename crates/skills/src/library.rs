//! Where skills are kept: agents' trees, tenants' trees, and what is shipped (spec SKL-001, SKL-007,
//! SKL-012).
//!
//! ```text
//! heads (path, hash) ──▶ shelf ──▶ a skill ──▶ its files
//! install · put · remove ──▶ one commit of a tree, with its row for the audit
//! ```
//!
//! A change of a skill is one transaction: whoever dies in the midst of it leaves the old one, or
//! the new one. Two who change one skill at once have an order, since a tree's row is locked; the
//! second finds what the first left, and is refused if it took it to be otherwise.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use holdfast_types::{AgentId, TenantId, TreePath};
use holdfast_workspace::{
    Base, By, Committed, ContentHash, Edit, File, SkillAction, SkillChange, SkillHead, Workspaces,
};

use crate::{
    Download, Error, Finder, Flaw, Force, Installation, Limits, Manifest, Origin, Policy, Registry,
    Scope, Shelf, Skill, SkillFile, SkillName, Surroundings, Wanted,
    archive::unpack,
    install::{hash, install},
};

/// The folder of a tree that skills are in.
pub const FOLDER: &str = "skills";

/// What is to be installed, from where.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// The registry.
    pub registry: &'a Arc<dyn Registry>,
    /// What it is called there.
    pub slug: &'a str,
    /// Which version; the newest, if none is given.
    pub version: Option<&'a str>,
    /// Whether an installed one is replaced.
    pub force: Force,
}

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it is: `skills/<name>/…`.
    pub path: TreePath,
    /// Its bytes.
    pub size: u64,
}

/// Where skills are kept. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Library {
    trees: Workspaces,
    finder: Arc<Finder>,
    limits: Limits,
}

impl Library {
    /// Skills in these trees, and from these registries.
    #[must_use]
    pub fn new(trees: Workspaces, finder: Arc<Finder>) -> Self {
        // What a tree does not take as a file is refused before it is fetched as a whole.
        let file = trees.limits().file;
        Self { trees, finder, limits: Limits { file, ..Limits::default() } }
    }

    /// The registries, and what is found in them.
    #[must_use]
    pub const fn finder(&self) -> &Arc<Finder> {
        &self.finder
    }

    /// How much a skill may hold.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The trees.
    #[must_use]
    pub const fn trees(&self) -> &Workspaces {
        &self.trees
    }

    /// The skills of an agent, whose files and whose tenant's these are.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn shelf(
        &self,
        tenant: TenantId,
        heads: &[SkillHead],
        here: &Surroundings,
    ) -> Result<Shelf, Error> {
        let mut hashes: Vec<ContentHash> = heads.iter().map(|head| head.hash).collect();
        hashes.sort();
        hashes.dedup();
        let texts: HashMap<ContentHash, Vec<u8>> = match hashes.is_empty() {
            true => HashMap::new(),
            false => self.trees.beginnings(tenant, &hashes).await?.into_iter().collect(),
        };
        let kept = heads.iter().filter_map(|head| {
            let scope = if head.is_shared { Scope::Tenant } else { Scope::Workspace };
            let folder = head.path.parts().nth(1)?.to_owned();
            let text = whole_letters(texts.get(&head.hash)?).to_vec();
            Some(SkillFile { scope, folder, text })
        });
        Ok(Shelf::of(kept.chain(crate::builtin()), here))
    }

    /// The skills of an agent, or of a tenant alone if none is given, as they are now.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn shelf_of(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        here: &Surroundings,
    ) -> Result<Shelf, Error> {
        let agent = agent.unwrap_or_else(|| Workspaces::shared(tenant));
        let mut heads = self.trees.briefing(tenant, agent, &[]).await?.skills;
        if agent == Workspaces::shared(tenant) {
            heads.retain(|head| head.is_shared);
        }
        self.shelf(tenant, &heads, here).await
    }

    /// A file of a skill that is not in the agent's own tree; `None` if it has none of that path.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn read(
        &self,
        tenant: TenantId,
        skill: &Skill,
        path: &TreePath,
    ) -> Result<Option<File>, Error> {
        match skill.scope {
            Scope::Workspace => Ok(None),
            Scope::Tenant => {
                let shared = Workspaces::shared(tenant);
                Ok(self.trees.read(tenant, shared, path, None).await?)
            }
            Scope::Platform => Ok(shipped(skill, path)),
        }
    }

    /// A skill's files.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn files(
        &self,
        tenant: TenantId,
        agent: AgentId,
        skill: &Skill,
    ) -> Result<Vec<KeptFile>, Error> {
        let folder: TreePath = skill.folder().parse()?;
        let tree = match skill.scope {
            Scope::Workspace => agent,
            Scope::Tenant => Workspaces::shared(tenant),
            Scope::Platform => {
                let path: TreePath = skill.location.parse()?;
                let size = shipped(skill, &path).map_or(0, |file| file.content.len() as u64);
                return Ok(vec![KeptFile { path, size }]);
            }
        };
        let listed = self.trees.list(tenant, tree, None, Some(&folder)).await?;
        Ok(listed.into_iter().map(|file| KeptFile { path: file.path, size: file.size }).collect())
    }

    /// What the `SKILL.md` of a skill says, and its files.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn texts(
        &self,
        tenant: TenantId,
        agent: AgentId,
        skill: &Skill,
    ) -> Result<(String, Vec<KeptFile>), Error> {
        let path: TreePath = skill.location.parse()?;
        let found = match skill.scope {
            Scope::Workspace => self.trees.read(tenant, agent, &path, None).await?,
            Scope::Tenant | Scope::Platform => self.read(tenant, skill, &path).await?,
        };
        let text = found.and_then(|file| file.text().map(str::to_owned)).unwrap_or_default();
        Ok((text, self.files(tenant, agent, skill).await?))
    }

    /// What a tenant allows of installations. What is stored and cannot be read allows none.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn policy(&self, tenant: TenantId) -> Result<Policy, Error> {
        Ok(match self.trees.skill_policy(tenant).await? {
            None => Policy::default(),
            Some(document) => serde_json::from_value(document)
                .unwrap_or_else(|_| Policy { enabled: false, ..Policy::default() }),
        })
    }

    /// Stores what a tenant allows.
    ///
    /// # Errors
    ///
    /// If it names what can be no registry, or the database does not answer.
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

    /// The paths of a tree below `skills/`.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn present(&self, tenant: TenantId, tree: AgentId) -> Result<Vec<TreePath>, Error> {
        let folder: TreePath = FOLDER.parse()?;
        let listed = self.trees.list(tenant, tree, None, Some(&folder)).await?;
        Ok(listed.into_iter().map(|file| file.path).collect())
    }

    /// Installs a skill in a tree: an agent's, or its tenant's. `by` has a key, under which it is
    /// installed once.
    ///
    /// # Errors
    ///
    /// As [`install`]; nothing was changed then.
    pub async fn install(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &By,
        order: &Order<'_>,
    ) -> Result<Installation, Error> {
        let policy = self.policy(tenant).await?;
        let present = self.present(tenant, tree).await?;
        let Order { registry, slug, version, force } = *order;
        let wanted = Wanted { slug, version, force, present: &present, now: now() };
        let installation = install(registry, &wanted, &policy, &self.limits).await?;
        self.keep(tenant, tree, by, &installation).await?;
        Ok(installation)
    }

    /// Writes an installation: one commit, with its row for the audit.
    ///
    /// # Errors
    ///
    /// If the tree cannot take it, or a file of the skill is not as the installation took it to be.
    pub async fn keep(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &By,
        installation: &Installation,
    ) -> Result<Committed, Error> {
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
        let edits = edits(files, &installation.replaced);
        Ok(self.trees.change_skill(tenant, tree, by, edits, &change).await?)
    }

    /// Where a call that was made before has installed what from.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    pub async fn installed(
        &self,
        tenant: TenantId,
        tree: AgentId,
        key: &str,
    ) -> Result<Option<Origin>, Error> {
        let found = self.trees.skill_changed(tenant, tree, key).await?;
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

    /// Puts a skill that was handed in into a tree, in place of the one of its name. It is judged
    /// by whoever hands it in: only for those who may.
    ///
    /// # Errors
    ///
    /// If the files are no skill, or the tree cannot take them.
    pub async fn put(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &By,
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
        let present = self.present(tenant, tree).await?;
        let replaced: Vec<TreePath> = of_skill(&present, name).cloned().collect();
        let change = SkillChange {
            action: SkillAction::Put,
            skill: name.to_string(),
            registry: String::new(),
            version: manifest.version.clone().unwrap_or_default(),
            sha256: hash(&unpacked),
            warning: String::new(),
        };
        let mut files = Vec::with_capacity(unpacked.len());
        for (path, content) in unpacked {
            files.push((format!("{FOLDER}/{name}/{path}").parse()?, content));
        }
        let edits = edits(files.into_iter(), &replaced);
        self.trees.change_skill(tenant, tree, by, edits, &change).await?;
        Ok(manifest)
    }

    /// Removes a skill from a tree.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub async fn remove(
        &self,
        tenant: TenantId,
        tree: AgentId,
        by: &By,
        name: &str,
    ) -> Result<(), Error> {
        let name: SkillName = name.parse()?;
        let present = self.present(tenant, tree).await?;
        let edits: Vec<Edit> = of_skill(&present, &name)
            .map(|path| Edit::Delete { path: path.clone(), base: Base::Any })
            .collect();
        if edits.is_empty() {
            let key = by.key.as_deref().unwrap_or_default();
            // Asked again, it is gone since the first time.
            return match self.trees.skill_changed(tenant, tree, key).await? {
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

/// What is there of a skill, in a folder of its name in whatever case.
pub(crate) fn of_skill<'a>(
    present: &'a [TreePath],
    name: &'a SkillName,
) -> impl Iterator<Item = &'a TreePath> {
    present.iter().filter(move |path| {
        let mut parts = path.parts();
        parts.next() == Some(FOLDER) && parts.next().is_some_and(|folder| name.is_same(folder))
    })
}

/// Files in place of what was there: what is not written anew goes.
fn edits(files: impl Iterator<Item = (TreePath, Vec<u8>)>, replaced: &[TreePath]) -> Vec<Edit> {
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

/// A file of a shipped skill.
fn shipped(skill: &Skill, path: &TreePath) -> Option<File> {
    let (_, text) = crate::BUILTIN.iter().find(|(name, _)| skill.manifest.name.is_same(name))?;
    let content = (path.as_str() == skill.location).then(|| text.as_bytes().to_vec())?;
    Some(File { hash: ContentHash::of(&content), content, revision: 0.into() })
}

/// The beginning of a text without the letter that was cut at its end.
fn whole_letters(text: &[u8]) -> &[u8] {
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() => &text[..error.valid_up_to()],
        Ok(_) | Err(_) => text,
    }
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Refuses a name that people could not call it by, for it means something else already.
pub(crate) fn check_command(name: &SkillName) -> Result<(), Flaw> {
    let is_taken =
        name.is_same("skill") || holdfast_types::Command::parse(&format!("/{name}")).is_some();
    if is_taken {
        let problem = format!("is `{name}`, and /{name} is a command: take another name");
        return Err(Flaw::at("name", problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_in_the_middle_of_a_letter_is_read_up_to_it() {
        let text = "a pl\u{e4}nt".as_bytes();

        assert_eq!(whole_letters(&text[..5]), b"a pl");
        assert_eq!(whole_letters(&text[..6]), "a pl\u{e4}".as_bytes());
        assert_eq!(whole_letters(b"a\xff b"), b"a\xff b", "what is no text stays none");
    }

    #[test]
    fn what_a_new_skill_does_not_write_goes_and_what_is_new_must_not_be_there() {
        let path = |path: &str| -> TreePath { path.parse().unwrap() };
        let old = [path("skills/x/SKILL.md"), path("skills/x/old.md")];
        let new = ["skills/x/SKILL.md", "skills/x/new.md"].map(|name| (path(name), Vec::new()));

        let edits = edits(new.into_iter(), &old);

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
