//! May a skill be installed, and what is written then? (spec SKL-007, SKL-011, SKL-017)
//!
//! ```text
//! policy ─▶ there already? ─▶ what the registry says ─▶ verdict ─▶ download ─▶ unpack ─▶ SKILL.md
//! ```
//!
//! Nothing is written here. What comes of it is the files and removals of *one* commit of the
//! agent's tree, so that the old skill is there until the new one is, whole.

use std::sync::Arc;

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Error, Flaw, Limits, Manifest, Meta, Origin, Registry, SkillName, Verdict,
    archive::{Unpacked, unpack},
    library::of_skill,
    registry::check_version,
};

/// What a tenant allows of installations (spec SKL-017).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Whether skills may be installed at all.
    pub enabled: bool,
    /// The registries that they may come from, by name; all that the operator set up, if there is
    /// no list. An archive at an address comes from `url`, which must be listed to be allowed.
    pub registries: Option<Vec<String>>,
    /// What becomes of a skill that nobody has judged.
    pub unjudged: Unjudged,
}

impl Default for Policy {
    fn default() -> Self {
        Self { enabled: true, registries: None, unjudged: Unjudged::Refused }
    }
}

/// What becomes of a skill that nobody has judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// It is not installed.
    Refused,
    /// It is, since an administrator of the tenant said so; with a warning.
    AllowedByAdmin,
}

impl Policy {
    /// Whether a skill may come from a registry.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] says why not, and who could change it.
    pub fn check(&self, registry: &str) -> Result<(), Error> {
        if !self.enabled {
            return Err(Error::Forbidden(
                "skills may not be installed here: ask the tenant's administrator".to_owned(),
            ));
        }
        let is_listed = match &self.registries {
            Some(listed) => listed.iter().any(|name| name == registry),
            None => registry != crate::AtUrl::NAME,
        };
        if is_listed {
            return Ok(());
        }
        Err(Error::Forbidden(format!(
            "skills of the registry `{}` may not be installed here: ask the tenant's administrator \
             to list it",
            crate::name::shown(registry)
        )))
    }
}

/// Whether an installed skill is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// It stays, and this is an error.
    No,
    /// It is replaced.
    Yes,
}

/// What is to be installed.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// What it is called in the registry.
    pub slug: &'a str,
    /// Which version; the newest, if none is given.
    pub version: Option<&'a str>,
    /// Whether an installed one is replaced.
    pub force: Force,
    /// The paths of the agent's tree below `skills/`, as they are now.
    pub present: &'a [TreePath],
    /// Now, in milliseconds since 1970.
    pub now: i64,
}

/// What an installation comes to: one commit.
#[derive(Clone, PartialEq, Eq)]
pub struct Installation {
    /// The skill as it will be.
    pub manifest: Manifest,
    /// Files to write, `skills/<slug>/.skill-origin.json` among them.
    pub files: Vec<(TreePath, Vec<u8>)>,
    /// Files to delete: those of the one that it replaces, as far as they are not written anew.
    pub removed: Vec<TreePath>,
    /// All files of the one that it replaces.
    pub replaced: Vec<TreePath>,
    /// Where it is from.
    pub origin: Origin,
    /// The SHA-256 over paths and contents, for the audit.
    pub sha256: String,
    /// What whoever asked for it should know before it is used.
    pub warning: Option<String>,
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installation")
            .field("origin", &self.origin)
            .field("files", &self.files.len())
            .field("removed", &self.removed.len())
            .field("sha256", &self.sha256)
            .field("warning", &self.warning)
            .finish_non_exhaustive()
    }
}

/// Gets a skill and checks it.
///
/// # Errors
///
/// [`Error::Forbidden`] if the policy does not allow it, [`Error::Installed`] if it is there and
/// not to be replaced, [`Error::Unsafe`] if it does harm or nobody has judged it; what the registry
/// says, or what is wrong with the archive. Nothing was changed then.
pub async fn install(
    registry: &Arc<dyn Registry>,
    wanted: &Wanted<'_>,
    policy: &Policy,
    limits: &Limits,
) -> Result<Installation, Error> {
    let slug: SkillName = wanted.slug.parse()?;
    if let Some(version) = wanted.version {
        check_version(version)?;
    }
    policy.check(registry.name())?;
    let folder: TreePath = format!("skills/{slug}").parse()?;
    let there: Vec<&TreePath> = of_skill(wanted.present, &slug).collect();
    if wanted.force == Force::No && !there.is_empty() {
        return Err(Error::Installed { slug });
    }

    let meta = registry.meta(&slug, wanted.version).await?;
    let warning = judge(&slug, registry.name(), &meta, policy)?;
    // The version that was judged, and no newer one that came meanwhile.
    let download = registry.download(&slug, meta.version.as_deref()).await?;
    // Unpacking takes a processor for a while, in which others should not wait.
    let limits = *limits;
    let unpacked = tokio::task::spawn_blocking(move || unpack(download, &limits)).await;
    let unpacked = unpacked.map_err(|error| Error::Broken(error.into()))??;

    let manifest = manifest_of(&slug, &unpacked)?;
    let sha256 = hash(&unpacked);
    let version = meta.version.or_else(|| manifest.version.clone());
    let origin = Origin {
        version: Origin::VERSION,
        registry: registry.name().to_owned(),
        slug: slug.clone(),
        // What counts no versions is told apart by what it holds.
        installed_version: version.unwrap_or_else(|| sha256.chars().take(12).collect()),
        installed_at: wanted.now,
    };
    let mut files = Vec::with_capacity(unpacked.len() + 1);
    for (path, content) in unpacked {
        files.push((format!("{folder}/{path}").parse()?, content));
    }
    files.push((format!("{folder}/{}", Origin::FILE).parse()?, origin.write()));
    let is_written = |path: &TreePath| files.iter().any(|(written, _)| written == path);
    let replaced: Vec<TreePath> = there.into_iter().cloned().collect();
    let removed = replaced.iter().filter(|path| !is_written(path)).cloned().collect();
    Ok(Installation { manifest, files, removed, replaced, origin, sha256, warning })
}

/// Whether a verdict lets a skill in, and what is to be said of it then.
fn judge(
    slug: &SkillName,
    registry: &str,
    meta: &Meta,
    policy: &Policy,
) -> Result<Option<String>, Error> {
    let refused =
        |why: String| Error::Unsafe { slug: slug.clone(), registry: registry.to_owned(), why };
    match (&meta.verdict, policy.unjudged) {
        (Verdict::Clean, _) => Ok(None),
        (Verdict::Malicious(why), _) => Err(refused(format!("it is malicious: {why}"))),
        (Verdict::Suspicious(why), _) => Ok(Some(format!(
            "`{slug}` is flagged as suspicious by the registry `{registry}`: {why}. Read its files \
             before you use it"
        ))),
        (Verdict::Unavailable(why), Unjudged::Refused) => Err(refused(format!(
            "nobody has judged it ({why}): an administrator of the tenant may allow such skills"
        ))),
        (Verdict::Unavailable(why), Unjudged::AllowedByAdmin) => Ok(Some(format!(
            "nobody has judged `{slug}` ({why}), and an administrator allows that. Read its files \
             before you use it"
        ))),
    }
}

/// What the `SKILL.md` says, if it says that it is this skill.
fn manifest_of(slug: &SkillName, unpacked: &Unpacked) -> Result<Manifest, Error> {
    let (path, text) =
        unpacked.iter().find(|(path, _)| path.as_str() == "SKILL.md").ok_or_else(|| {
            Error::Archive("it has no `SKILL.md` at its top: put one there".to_owned())
        })?;
    let manifest = Manifest::read(path.as_str(), text)?;
    if manifest.name != *slug {
        let problem = format!(
            "is `{}`, and it is installed as `{slug}`: a skill does not go by another's name",
            manifest.name
        );
        return Err(Error::document(path.as_str(), Flaw::at("name", problem)));
    }
    Ok(manifest)
}

pub(crate) fn hash(unpacked: &Unpacked) -> String {
    let mut hasher = Sha256::new();
    for (path, content) in unpacked {
        // Lengths first, so that no two trees are one text.
        for part in [path.as_str().as_bytes(), content] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
