//! What a scratch folder is known to hold: what each file says, and how to see that it still does.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use holdfast_types::{AgentId, TenantId, TreePath};
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::folder::Stamp;
use crate::{ContentHash, Revision};

/// What a scratch folder was brought to. It is kept beside the folder, where no command sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub tenant: TenantId,
    pub agent: AgentId,
    /// The revision that `files` is; `None` if it is none.
    pub revision: Option<Revision>,
    pub files: BTreeMap<TreePath, Held>,
}

/// A file that a scratch folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    pub hash: ContentHash,
    pub stamp: Stamp,
    /// The second in which its revision was made.
    pub second: i64,
}

impl Manifest {
    pub const fn empty(tenant: TenantId, agent: AgentId) -> Self {
        Self { tenant, agent, revision: None, files: BTreeMap::new() }
    }

    /// Reads the manifest of a tree; an empty one if there is none, or another tree's.
    ///
    /// Whatever is not known to be right is written again, so nothing is lost by that.
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

    /// Keeps it. A crash in between leaves the old one, whose stamps then tell what is not so.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new: PathBuf = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, path)
    }
}
