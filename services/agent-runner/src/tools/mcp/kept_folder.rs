//! Folder of an MCP server that is kept: its files are files of the agent, below `mcp/<server>/`.
//!
//! They are brought when the process starts, on any runner, and stored after each call. If two
//! processes of an agent's server run at once, the file that was stored last stays.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use holdfast_types::{AgentId, InvalidPath, TenantId, TreePath};
use holdfast_workspace::{
    Base, ChangeAuthor, ContentCache, Edit, Error, PathView, Scratch, Workspaces,
};
use tokio::{sync::Mutex, task::spawn_blocking};
use tracing::warn;
use uuid::Uuid;

/// Maximum size of all files of a kept folder, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Maximum number of files of a kept folder.
const MAX_FILES: usize = 200;

/// Where kept folders come from.
#[derive(Debug)]
pub(super) struct KeptFolders {
    workspaces: Workspaces,
    /// Folder for caches and scratch folders, invisible to commands.
    dir: PathBuf,
    cache: u64,
}

/// Files of one server of an agent.
#[derive(Debug)]
pub(super) struct KeptFolder {
    scratch: Mutex<Scratch>,
    tree: PathBuf,
    server: String,
}

/// Paths of a server's files among those of the agent.
struct ServerFiles(String);

impl PathView for ServerFiles {
    fn view_path(&self, path: &TreePath) -> Option<TreePath> {
        path.as_str().strip_prefix(&self.0)?.parse().ok()
    }

    fn tree_path(&self, path: &TreePath) -> Result<TreePath, InvalidPath> {
        format!("{}{path}", self.0).parse()
    }
}

impl KeptFolders {
    pub(super) fn new(workspaces: Workspaces, dir: PathBuf, cache: u64) -> Self {
        Self { workspaces, dir, cache }
    }

    /// Brings the files of a server to `root`.
    pub(super) async fn open(
        &self,
        root: &Path,
        tenant: TenantId,
        agent: AgentId,
        server: &str,
    ) -> Result<KeptFolder, Error> {
        let (dir, limit) = (self.dir.clone(), self.cache);
        let open = move || {
            let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
            let what = "make the folder of `runner.scratch.dir`";
            make.map_err(|source| Error::Disk { what, source })?;
            ContentCache::open(dir.join("cache"), limit)
        };
        let cache = spawn_blocking(open).await;
        let cache =
            cache.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
        let scratch = Scratch::open(self.workspaces.clone(), cache, root, tenant, agent).await?;
        let mut scratch = scratch.with_view(ServerFiles(format!("mcp/{server}/")));
        scratch.bring(None).await?;
        let tree = scratch.tree().to_owned();
        Ok(KeptFolder { scratch: Mutex::new(scratch), tree, server: server.to_owned() })
    }
}

impl KeptFolder {
    /// Folder that the server sees.
    pub(super) fn tree(&self) -> &Path {
        &self.tree
    }

    /// Stores what the server has changed. Returns the reason if that was not possible.
    pub(super) async fn store(&self) -> Result<(), String> {
        self.try_store().await.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "a kept folder was not stored");
            format!("what it changed in its kept folder is not stored: {error}")
        })
    }

    async fn try_store(&self) -> Result<(), Error> {
        let mut scratch = self.scratch.lock().await;
        let found = scratch.changes().await?;
        if let Some(entry) = found.unstorable.first() {
            warn!(reason = %entry.kind, "a file of a kept folder cannot be stored");
        }
        if found.edits.is_empty() {
            return Ok(());
        }
        let tree = self.tree.clone();
        let size = spawn_blocking(move || folder_size(&tree)).await;
        let size = size.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()));
        let (files, bytes) =
            size.map_err(|source| Error::Disk { what: "read a kept folder", source })?;
        if files > MAX_FILES || bytes > MAX_BYTES {
            return Err(Error::Invalid(format!(
                "a kept folder has {MAX_FILES} files and {} MiB at most, and this one has {files} \
                 files and {bytes} bytes",
                MAX_BYTES >> 20
            )));
        }
        let edits = found.edits.into_iter().map(over_others).collect();
        let reason = format!("kept folder of the MCP server `{}`", self.server);
        // The key makes a repeated attempt harmless.
        let by = ChangeAuthor::new("holdfast", &reason)
            .with_key(&format!("mcp:{}", Uuid::now_v7()))
            .from_outside(true);
        scratch.commit(&by, edits).await.map(drop)
    }
}

/// The same edit, whatever another process has stored meanwhile.
fn over_others(edit: Edit) -> Edit {
    match edit {
        Edit::Put { path, content, .. } => Edit::Put { path, content, base: Base::Any },
        deletion @ Edit::Delete { .. } => deletion,
    }
}

/// Number and size of the files below a folder. Links are not followed.
fn folder_size(dir: &Path) -> io::Result<(usize, u64)> {
    let (mut files, mut bytes, mut dirs) = (0, 0, vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                dirs.push(entry.path());
            } else {
                (files, bytes) = (files + 1, bytes + metadata.len());
            }
        }
    }
    Ok((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_sees_its_own_files_only() {
        let view = ServerFiles("mcp/memory/".to_owned());
        let path = |path: &str| path.parse::<TreePath>().unwrap();

        assert_eq!(view.view_path(&path("mcp/memory/a/b.json")), Some(path("a/b.json")));
        assert_eq!(view.view_path(&path("mcp/memory2/a")), None);
        assert_eq!(view.view_path(&path("notes.md")), None);
        assert_eq!(view.tree_path(&path("a")).unwrap(), path("mcp/memory/a"));
    }
}
