//! Manifest of a scratch folder: the hash and stamp of each file that the runner wrote.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use holdfast_types::{AgentId, TenantId, TreePath};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::folder::FileStamp;
use crate::{ContentHash, Revision};

/// State of a scratch folder. Stored beside the folder, where commands do not see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub tenant: TenantId,
    pub agent: AgentId,
    /// Revision of `files`; `None` if they are not exactly one revision.
    pub revision: Option<Revision>,
    pub files: BTreeMap<TreePath, ManifestEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestEntry {
    pub hash: ContentHash,
    pub stamp: FileStamp,
    /// Time of the file's revision, in seconds since 1970.
    pub second: i64,
}

impl Manifest {
    pub const fn empty(tenant: TenantId, agent: AgentId) -> Self {
        Self { tenant, agent, revision: None, files: BTreeMap::new() }
    }

    /// Reads the manifest of a tree. If there is none or it belongs to another tree, returns an
    /// empty one: all files are written again then.
    pub fn load(path: &Path, tenant: TenantId, agent: AgentId) -> Self {
        let read = fs::read(path).ok().and_then(|json| serde_json::from_slice::<Self>(&json).ok());
        match read {
            Some(manifest) if (manifest.tenant, manifest.agent) == (tenant, agent) => manifest,
            Some(_) | None => {
                debug!("a scratch folder is filled from the start");
                Self::empty(tenant, agent)
            }
        }
    }

    /// Writes the manifest. After a crash the old one is left; its stamps show which files differ.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new: PathBuf = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, path)
    }
}
