//! Disk cache of contents on a runner.
//!
//! Each tenant has a folder of its own. A content is checked against its hash before use, so a
//! damaged file only costs a fetch. Contents are copied, never linked, so that no command can
//! change them through its scratch folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use holdfast_types::TenantId;
use tracing::debug;
use uuid::Uuid;

use crate::{ContentHash, Error};

/// Folder of contents, bounded in bytes. Clones share it.
///
/// The methods block on the disk: call them from a blocking thread.
#[derive(Debug, Clone)]
pub struct ContentCache(Arc<CacheState>);

#[derive(Debug)]
struct CacheState {
    folder: PathBuf,
    limit: u64,
    /// Bytes in the folder; approximate, since another process may share it.
    used: Mutex<u64>,
}

struct CachedContent {
    path: PathBuf,
    size: u64,
    used_at: SystemTime,
}

impl ContentCache {
    /// Opens or makes a cache of at most `limit` bytes, in a folder that commands cannot reach.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] if the folder cannot be made or read.
    pub fn open(folder: impl Into<PathBuf>, limit: u64) -> Result<Self, Error> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(Error::disk("make the cache's folder"))?;
        let kept = list_contents(&folder).map_err(Error::disk("read the cache's folder"))?;
        let used = kept.iter().map(|kept| kept.size).sum();
        let cache = Self(Arc::new(CacheState { folder, limit, used: Mutex::new(used) }));
        if used > limit {
            cache.evict();
        }
        Ok(cache)
    }

    /// Returns a content if it is cached and undamaged.
    pub(super) fn get(&self, tenant: TenantId, hash: ContentHash) -> Option<Vec<u8>> {
        let path = self.path(tenant, hash);
        let content = fs::read(&path).ok()?;
        if ContentHash::of(&content) != hash {
            debug!(bytes = content.len(), "a cached content is damaged and is fetched again");
            if fs::remove_file(&path).is_ok() {
                self.add_used(-i128::from(content.len() as u64));
            }
            return None;
        }
        // Eviction is by last use, which the modification time records.
        let file = fs::File::options().append(true).open(&path);
        if let Err(error) = file.and_then(|file| file.set_modified(SystemTime::now())) {
            debug!(%error, "a cached content looks older than it is");
        }
        Some(content)
    }

    /// Stores a content. Failures are ignored: the content is fetched again next time.
    pub(super) fn put(&self, tenant: TenantId, hash: ContentHash, content: &[u8]) {
        let size = content.len() as u64;
        let path = self.path(tenant, hash);
        if size > self.0.limit || path.exists() {
            return;
        }
        match write(&path, content) {
            Ok(()) if self.add_used(i128::from(size)) > self.0.limit => self.evict(),
            Ok(()) => {}
            Err(error) => debug!(%error, "a content could not be cached"),
        }
    }

    fn path(&self, tenant: TenantId, hash: ContentHash) -> PathBuf {
        let hash = hash.to_string();
        let tenant = tenant.as_uuid().simple().to_string();
        self.0.folder.join(tenant).join(&hash[..2]).join(hash)
    }

    fn add_used(&self, bytes: i128) -> u64 {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = u64::try_from(i128::from(*used) + bytes).unwrap_or(0);
        *used
    }

    /// Removes the least recently used contents until a tenth of the limit is free.
    fn evict(&self) {
        let mut all = match list_contents(&self.0.folder) {
            Ok(all) => all,
            Err(error) => {
                debug!(%error, "the cache could not be looked through");
                return;
            }
        };
        all.sort_by_key(|kept| kept.used_at);
        let room = self.0.limit / 10 * 9;
        let mut used: u64 = all.iter().map(|kept| kept.size).sum();
        for kept in all {
            if used <= room {
                break;
            }
            if fs::remove_file(&kept.path).is_ok() {
                used -= kept.size;
            }
        }
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    fs::create_dir_all(folder)?;
    let new = folder.join(format!("new-{}", Uuid::now_v7().simple()));
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        drop(fs::remove_file(new));
    }
    written
}

/// All files of the folder: `<tenant>/<first two digits>/<hash>`.
fn list_contents(folder: &Path) -> io::Result<Vec<CachedContent>> {
    let mut kept = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Another process removed the file while we listed the folder.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < 2 {
                folders.push((entry.path(), depth + 1));
            } else if about.is_file() {
                let used_at = about.modified()?;
                kept.push(CachedContent { path: entry.path(), size: about.len(), used_at });
            }
        }
    }
    Ok(kept)
}
