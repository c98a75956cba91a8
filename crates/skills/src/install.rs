//! Installation of a skill: checks and the resulting files (spec SKL-007, SKL-011, SKL-017).
//!
//! ```text
//! policy ─▶ exists? ─▶ metadata ─▶ verdict ─▶ download ─▶ unpack ─▶ SKILL.md
//! ```
//!
//! Nothing is written here. The result holds the files and deletions for *one* commit of a tree, so
//! that the old skill is replaced atomically.

use std::sync::Arc;

use holdfast_types::TreePath;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Error, Flaw, Limits, Manifest, Origin, Registry, SkillName, SkillVersionMeta, Verdict,
    archive::{UnpackedFiles, unpack},
    name::paths_of_skill,
    registry::check_version,
};

/// Policy of a tenant for installations (spec SKL-017).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Whether any skill may be installed.
    pub enabled: bool,
    /// Names of the allowed registries; `None` allows all that the operator configured. An archive
    /// at a URL is allowed only if the list contains `url`.
    pub registries: Option<Vec<String>>,
    /// Treatment of skills without a verdict.
    pub unjudged: UnjudgedPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self { enabled: true, registries: None, unjudged: UnjudgedPolicy::Refused }
    }
}

/// Treatment of skills without a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnjudgedPolicy {
    /// Not installed (the default).
    Refused,
    /// Installed with a warning, because an administrator of the tenant allowed it.
    AllowedByAdmin,
}

impl Policy {
    /// Checks whether skills from a registry may be installed.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] with the reason and who can change it.
    pub fn check(&self, registry: &str) -> Result<(), Error> {
        if !self.enabled {
            return Err(Error::Forbidden(
                "skills may not be installed here: ask the tenant's administrator".to_owned(),
            ));
        }
        let is_listed = match &self.registries {
            Some(listed) => listed.iter().any(|name| name == registry),
            None => registry != crate::UrlRegistry::NAME,
        };
        if is_listed {
            return Ok(());
        }
        Err(Error::Forbidden(format!(
            "skills of the registry `{}` may not be installed here: ask the tenant's administrator \
             to list it",
            crate::name::escape_untrusted(registry)
        )))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Fails with [`Error::Installed`] if the skill exists.
    No,
    Yes,
}

#[derive(Debug, Clone)]
pub struct InstallRequest<'a> {
    /// Name of the skill in the registry.
    pub slug: &'a str,
    /// `None` is the newest version.
    pub version: Option<&'a str>,
    pub force: Force,
    /// Current paths below `skills/` in the target tree.
    pub present_paths: &'a [TreePath],
    /// Current time, in milliseconds since 1970.
    pub now: i64,
}

/// Result of an installation, to be written in one commit.
#[derive(Clone, PartialEq, Eq)]
pub struct Installation {
    pub manifest: Manifest,
    /// Files to write, including `skills/<slug>/.skill-origin.json`.
    pub files: Vec<(TreePath, Vec<u8>)>,
    /// Files to delete: those of the replaced skill that are not written again.
    pub removed: Vec<TreePath>,
    /// All files of the replaced skill.
    pub replaced: Vec<TreePath>,
    pub origin: Origin,
    /// SHA-256 over paths and contents, in hexadecimal, for the audit.
    pub sha256: String,
    /// Warning to show before the skill is used.
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

/// Downloads and checks a skill. Writes nothing.
///
/// # Errors
///
/// [`Error::Forbidden`] if the policy does not allow it, [`Error::Installed`] if it exists and
/// `force` is [`Force::No`], [`Error::Unsafe`] if it is malicious or has no verdict; also errors of
/// the registry and the archive.
pub async fn prepare_install(
    registry: &Arc<dyn Registry>,
    wanted: &InstallRequest<'_>,
    policy: &Policy,
    limits: &Limits,
) -> Result<Installation, Error> {
    let slug: SkillName = wanted.slug.parse()?;
    if let Some(version) = wanted.version {
        check_version(version)?;
    }
    policy.check(registry.name())?;
    let folder: TreePath = format!("skills/{slug}").parse()?;
    let there: Vec<&TreePath> = paths_of_skill(wanted.present_paths, &slug).collect();
    if wanted.force == Force::No && !there.is_empty() {
        return Err(Error::Installed { slug });
    }

    let meta = registry.meta(&slug, wanted.version).await?;
    let warning = apply_policy(&slug, registry.name(), &meta, policy)?;
    // Download the version that was judged, not one that was published since.
    let download = registry.download(&slug, meta.version.as_deref()).await?;
    // Unpacking is CPU-bound.
    let limits = *limits;
    let unpacked = tokio::task::spawn_blocking(move || unpack(download, &limits)).await;
    let unpacked = unpacked.map_err(|error| Error::Broken(error.into()))??;

    let manifest = manifest_of(&slug, &unpacked)?;
    let sha256 = content_digest(&unpacked);
    let version = meta.version.or_else(|| manifest.version.clone());
    let origin = Origin {
        version: Origin::VERSION,
        registry: registry.name().to_owned(),
        slug: slug.clone(),
        // Without a version, the hash identifies the content.
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

/// Applies the policy to a verdict; returns a warning, if any.
fn apply_policy(
    slug: &SkillName,
    registry: &str,
    meta: &SkillVersionMeta,
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
        (Verdict::Unavailable(why), UnjudgedPolicy::Refused) => Err(refused(format!(
            "nobody has judged it ({why}): an administrator of the tenant may allow such skills"
        ))),
        (Verdict::Unavailable(why), UnjudgedPolicy::AllowedByAdmin) => Ok(Some(format!(
            "nobody has judged `{slug}` ({why}), and an administrator allows that. Read its files \
             before you use it"
        ))),
    }
}

/// Parses the `SKILL.md` and checks that its name is `slug`.
fn manifest_of(slug: &SkillName, unpacked: &UnpackedFiles) -> Result<Manifest, Error> {
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

pub(crate) fn content_digest(unpacked: &UnpackedFiles) -> String {
    let mut hasher = Sha256::new();
    for (path, content) in unpacked {
        // Length prefixes, so that different trees cannot hash equally.
        for part in [path.as_str().as_bytes(), content] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
