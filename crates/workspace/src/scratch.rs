//! A tree on a runner's disk, for the time of a command.
//!
//! ```text
//! <root>/tree        what the command sees and changes
//! <root>/manifest    what the runner put there, with stamps
//! <root>/trash       where things are made and end
//! ```
//!
//! Only `tree` is shown to a command. [`Scratch::bring`] makes it a revision, and writes only what
//! is not so already; [`Scratch::changes`] finds what a command did, and reads only what was
//! touched.
//!
//! ## What can go wrong
//!
//! A command that is still running while these work can make them see half of what it does. It
//! cannot lead them out of `tree` (see `folder`). End it first.

mod cache;
mod changes;
mod folder;
mod hidden;
mod look;
mod manifest;
mod place;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_types::{AgentId, TenantId, TreePath};

pub use self::{
    cache::Cache,
    changes::{Changes, Stray, StrayKind},
};
use self::{
    hidden::Hidden,
    manifest::{Held, Manifest},
    place::{Cleaned, Missing, Place},
};
use crate::{
    By, Committed, ContentHash, Edit, Error, Listed, Revision, Workspaces,
    export::blocking,
    read::{batches, contents, list_at},
    workspaces::head,
};

/// A tree on a runner's disk. One turn has it at a time.
#[derive(Debug)]
pub struct Scratch {
    place: Arc<Place>,
    workspaces: Workspaces,
    cache: Cache,
    tenant: TenantId,
    agent: AgentId,
    manifest: Manifest,
    /// What of the tree is not brought.
    hidden: Hidden,
    /// What the last look found changed, until it is committed.
    found: BTreeMap<TreePath, Option<Held>>,
}

/// What bringing a tree took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brought {
    /// What it is now.
    pub revision: Revision,
    /// Files that were written.
    pub written: usize,
    /// Files, links and others that were removed.
    pub removed: usize,
    /// Files of which the content came from the database and not from the cache.
    pub fetched: usize,
}

impl Scratch {
    /// Opens or makes the scratch folder of a tree under `root`, which no command sees.
    ///
    /// What is there of another tree is not used, and goes when the tree is brought.
    ///
    /// # Errors
    ///
    /// If the folders cannot be made or read.
    pub async fn open(
        workspaces: Workspaces,
        cache: Cache,
        root: impl Into<PathBuf>,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Self, Error> {
        let (root, limits) = (root.into(), workspaces.limits);
        let (place, manifest) = blocking(move || {
            let open = Error::disk("make a scratch folder");
            Place::open(&root, limits).map_err(open).map(|place| {
                let manifest = Manifest::load(&place.manifest, tenant, agent);
                (place, manifest)
            })
        })
        .await?;
        let (found, hidden) = (BTreeMap::new(), Hidden::default());
        let place = Arc::new(place);
        Ok(Self { place, workspaces, cache, tenant, agent, manifest, hidden, found })
    }

    /// The same folder without the files of which a rule says so: they are not brought, and a
    /// command does not learn of them.
    ///
    /// Another rule wants another folder: what is here already is not looked at again.
    #[must_use]
    pub fn hiding(self, rule: impl Fn(&TreePath) -> bool + Send + Sync + 'static) -> Self {
        Self { hidden: Hidden::by(rule), ..self }
    }

    /// Removes a scratch folder with all that a command left in it; nobody may have it open.
    ///
    /// # Errors
    ///
    /// If the disk does not do what is asked.
    pub async fn discard(root: impl Into<PathBuf>) -> Result<(), Error> {
        let root = root.into();
        blocking(move || place::discard(&root).map_err(Error::disk("remove a scratch folder")))
            .await
    }

    /// The folder for the command.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.place.tree
    }

    /// Makes the folder what the tree is at a revision, or at the newest. What a command left there
    /// and nobody committed is undone.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if there is none of that number; else if the disk or the database does not
    /// do what is asked. Bring it again then.
    pub async fn bring(&mut self, at: Option<Revision>) -> Result<Brought, Error> {
        let (revision, listed) = self.wanted(at).await?;
        let was_here = listed.is_none();
        self.found.clear();
        let place = Arc::clone(&self.place);
        let held = std::mem::take(&mut self.manifest.files);
        // If this ends half-way, the next one takes nothing for granted.
        self.manifest.revision = None;
        let cleaned = blocking(move || place.clean(held, listed)).await?;
        let Cleaned { kept, missing, removed } = cleaned;

        self.manifest.files = kept;
        let written = missing.len();
        let mut fetched = 0;
        for part in batches(&missing, |file| file.size) {
            fetched += self.fill(part).await?;
        }
        self.manifest.revision = Some(revision);
        if !was_here || written > 0 {
            self.save().await?;
        }
        Ok(Brought { revision, written, removed, fetched })
    }

    /// What a command changed since the tree was brought, or since its changes were
    /// [committed](Self::commit).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it left too many files to be looked through; else if the disk does
    /// not do what is asked.
    pub async fn changes(&mut self) -> Result<Changes, Error> {
        let place = Arc::clone(&self.place);
        let held = std::mem::take(&mut self.manifest.files);
        let (held, looked) = blocking(move || {
            let looked = place.look(&held);
            Ok((held, looked))
        })
        .await?;
        self.manifest.files = held;
        let looked = looked?;
        for (path, stamp) in looked.touched {
            if let Some(held) = self.manifest.files.get_mut(&path) {
                held.stamp = stamp;
            }
        }
        self.found = looked.found;
        Ok(looked.changes)
    }

    /// Commits what the last [`changes`](Self::changes) found, or a part of it: as
    /// [`Workspaces::commit`], and it is not found again.
    ///
    /// # Errors
    ///
    /// As [`Workspaces::commit`]. After a clash the folder is as the command left it: bring it to
    /// have what others did, and lose what it did.
    pub async fn commit(&mut self, by: &By, edits: Vec<Edit>) -> Result<Committed, Error> {
        let paths: Vec<TreePath> = edits.iter().map(|edit| edit.path().clone()).collect();
        let committed = self.workspaces.commit(self.tenant, self.agent, by, edits).await?;
        let mut all_known = true;
        for path in paths {
            match self.found.remove(&path) {
                Some(Some(held)) => drop(self.manifest.files.insert(path, held)),
                Some(None) => drop(self.manifest.files.remove(&path)),
                None => all_known = false,
            }
        }
        // Another's change may be in between, which is not here yet.
        self.manifest.revision = match self.manifest.revision {
            Some(before) if all_known && before.next() == committed.revision => {
                Some(committed.revision)
            }
            _ => None,
        };
        self.save().await?;
        Ok(committed)
    }

    /// What is to be there. Nothing is asked but the newest revision, if that is here already.
    async fn wanted(&self, at: Option<Revision>) -> Result<(Revision, Option<Vec<Listed>>), Error> {
        let mut tx = self.workspaces.pools.tenant(self.tenant).await?;
        let at = match at {
            Some(at) => at,
            None => head(&mut tx, self.agent).await?,
        };
        let listed = match self.manifest.revision {
            Some(here) if here == at => None,
            _ => Some(self.hidden.without(list_at(&mut tx, self.agent, at, None).await?)),
        };
        tx.finish_reading();
        Ok((at, listed))
    }

    /// Writes files whose content is in the cache or the database; says how many were not in the
    /// cache.
    async fn fill(&mut self, files: &[Missing]) -> Result<usize, Error> {
        let (cache, tenant) = (self.cache.clone(), self.tenant);
        let hashes: BTreeSet<ContentHash> = files.iter().map(|file| file.hash).collect();
        let (mut known, unknown) = blocking(move || {
            let mut known = BTreeMap::new();
            let mut unknown = Vec::new();
            for hash in hashes {
                match cache.get(tenant, hash) {
                    Some(content) => drop(known.insert(hash, content)),
                    None => unknown.push(hash),
                }
            }
            Ok((known, unknown))
        })
        .await?;

        let mut fetched = Vec::new();
        if !unknown.is_empty() {
            let mut tx = self.workspaces.pools.tenant(tenant).await?;
            fetched = contents(&mut tx, &unknown).await?;
            tx.finish_reading();
        }
        let count = fetched.len();
        let (place, cache, files) = (Arc::clone(&self.place), self.cache.clone(), files.to_vec());
        let held = blocking(move || {
            for (hash, content) in &fetched {
                cache.put(tenant, *hash, content);
            }
            known.extend(fetched);
            place.write(files, &known)
        })
        .await?;
        self.manifest.files.extend(held);
        Ok(count)
    }

    async fn save(&self) -> Result<(), Error> {
        let (place, manifest) = (Arc::clone(&self.place), self.manifest.clone());
        let save = Error::disk("keep a scratch folder's manifest");
        blocking(move || manifest.save(&place.manifest).map_err(save)).await
    }
}
