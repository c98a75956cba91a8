//! Export of a tree as an archive with the same layout (spec BST-011, WSP-007).
//!
//! Archives are reproducible: the same tree gives the same bytes. Files are ordered by path and
//! have no owner and no time.

use std::collections::HashMap;

use flate2::{Compression, GzBuilder, write::GzEncoder};
use holdfast_types::{AgentId, TenantId, TreePath};

use crate::{
    ContentHash, Error, FileEntry, Revision, Workspaces,
    read::{batches, list_at, load_contents},
    workspaces::head,
};

type Archive = tar::Builder<GzEncoder<Vec<u8>>>;

impl Workspaces {
    /// Exports a tree as a `.tar.gz`; also returns its revision.
    ///
    /// The whole archive is held in memory; the tree's limits bound it.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if the tree has no such revision.
    pub async fn export(
        &self,
        tenant: TenantId,
        agent: AgentId,
        at: Option<Revision>,
    ) -> Result<(Vec<u8>, Revision), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let at = match at {
            Some(at) => at,
            None => head(&mut tx, agent).await?,
        };
        // By revision rather than the current files, so that a concurrent change is not half
        // included.
        let files = list_at(&mut tx, agent, at, None).await?;
        let gz = GzBuilder::new().mtime(0).operating_system(255);
        let mut archive = tar::Builder::new(gz.write(Vec::new(), Compression::default()));
        for part in batches(&files, |file| file.size) {
            let hashes: Vec<ContentHash> = part.iter().map(|file| file.hash).collect();
            let contents: HashMap<_, _> =
                load_contents(&mut tx, &hashes).await?.into_iter().collect();
            let part = part.to_vec();
            archive = run_blocking(move || add_files(archive, &part, &contents)).await?;
        }
        tx.finish_reading();
        let bytes = run_blocking(move || {
            let gz = archive.into_inner().map_err(Error::disk("write an archive"))?;
            gz.finish().map_err(Error::disk("write an archive"))
        })
        .await?;
        Ok((bytes, at))
    }
}

fn add_files(
    mut archive: Archive,
    files: &[FileEntry],
    contents: &HashMap<ContentHash, Vec<u8>>,
) -> Result<Archive, Error> {
    for file in files {
        let content = contents.get(&file.hash).ok_or(Error::Corrupt { what: "content" })?;
        add_file(&mut archive, &file.path, content).map_err(Error::disk("write an archive"))?;
    }
    Ok(archive)
}

fn add_file(archive: &mut Archive, path: &TreePath, content: &[u8]) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    archive.append_data(&mut header, path.as_str(), content)
}

/// Runs blocking work on a thread of the blocking pool.
pub(crate) async fn run_blocking<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Error> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_stopping) => Err(Error::Disk {
            what: "finish work while the process stops",
            source: std::io::ErrorKind::Interrupted.into(),
        }),
    }
}
