//! Archive of rows that retention deletes: files with one JSON object per line.
//!
//! Each batch is a file of its own, `<tenant>/<table>/<id>.jsonl`, which is complete and on the disk
//! before its rows are deleted. If the deletion fails afterwards, the rows are archived again with
//! their next deletion: readers must expect a row twice.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use holdfast_types::TenantId;
use uuid::Uuid;

use crate::Error;

/// A folder of archived rows.
#[derive(Debug, Clone)]
pub struct Archive {
    folder: PathBuf,
}

impl Archive {
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Writes rows of one table, each as JSON, and returns when they are on the disk.
    ///
    /// # Errors
    ///
    /// [`Error::Archive`]: the rows must not be deleted.
    pub(crate) async fn write(
        &self,
        tenant: TenantId,
        table: &'static str,
        rows: Vec<String>,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let folder = self.folder.join(tenant.to_string()).join(table);
        let failed = |source| Error::Archive { folder: self.folder.clone(), source };
        let write = move || write_file(&folder, &rows);
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other).flatten().map_err(failed)
    }
}

fn write_file(folder: &Path, rows: &[String]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = Uuid::now_v7().to_string();
    let unfinished = folder.join(&name).with_extension("tmp");
    let mut file = create_private(&unfinished)?;
    let mut text = rows.join("\n");
    text.push('\n');
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Best effort: a part of a file has another name than a whole one.
        drop(fs::remove_file(&unfinished));
        return Err(error);
    }
    fs::rename(&unfinished, folder.join(&name).with_extension("jsonl"))?;
    File::open(folder)?.sync_all()
}

/// Creates a file that only this user may read.
fn create_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
