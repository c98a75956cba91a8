//! Differences between two revisions, for people to read.

use std::{collections::HashMap, fmt, time::Duration};

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, TenantId, TreePath};
use similar::{ChangeTag, TextDiff};

use crate::{
    ContentHash, ContentRef, Error, FileChange, Revision, Workspaces,
    model::parse_stored_path,
    read::load_contents,
    workspaces::{check_revision, head},
};

/// Maximum number of files in a diff; the rest are counted.
const MAX_DIFF_FILES: usize = 100;
/// Maximum number of diff lines per file; the rest are counted.
const MAX_LINES_PER_FILE: usize = 1_000;
/// Maximum size of either version of a file, in bytes, for its lines to be compared.
const MAX_COMPARED_BYTES: u64 = 512 << 10;
/// Maximum number of bytes that are loaded for one diff; further files are only named.
const MAX_LOADED_BYTES: u64 = 16 << 20;
/// Time to compare one file's lines; after it the diff gets coarser.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(200);

/// Differences between two revisions.
///
/// `Display` writes a unified diff like `diff -u` and `git`, with a line in brackets where
/// something is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    /// Files that differ, ordered by path; at most 100.
    pub files: Vec<FileDiff>,
    /// Number of further files that differ.
    pub more: usize,
}

#[derive(Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// Path and both versions of the file.
    pub file: FileChange,
    pub body: DiffBody,
}

/// Difference of a file's contents.
#[derive(Clone, PartialEq, Eq)]
pub enum DiffBody {
    Text {
        hunks: String,
        added: usize,
        removed: usize,
        /// Number of lines that were cut from `hunks`.
        hidden: usize,
    },
    /// A version is not UTF-8 or has a NUL.
    Binary,
    /// Too large to be compared.
    Large,
}

impl fmt::Debug for FileDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Contents must not appear in logs.
        f.debug_struct("FileDiff").field("file", &self.file).finish_non_exhaustive()
    }
}

impl fmt::Debug for DiffBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { added, removed, .. } => write!(f, "Text(+{added} -{removed})"),
            Self::Binary => f.write_str("Binary"),
            Self::Large => f.write_str("Large"),
        }
    }
}

impl Workspaces {
    /// Differences from one revision to another, either of which may be the newer; of the whole
    /// tree, or within a file or folder.
    ///
    /// # Errors
    ///
    /// [`Error::NoRevision`] if the tree has no such revision.
    pub async fn diff(
        &self,
        tenant: TenantId,
        agent: AgentId,
        from: Revision,
        to: Revision,
        within: Option<&TreePath>,
    ) -> Result<Diff, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let newest = head(&mut tx, agent).await?;
        check_revision(from, newest)?;
        check_revision(to, newest)?;
        let mut differing = differing_files(&mut tx, agent, from, to, within).await?;
        let more = differing.len().saturating_sub(MAX_DIFF_FILES);
        differing.truncate(MAX_DIFF_FILES);
        let texts = load_texts(&mut tx, &differing).await?;
        tx.finish_reading();

        let compare = move || differing.into_iter().map(|file| compare(file, &texts)).collect();
        match tokio::task::spawn_blocking(compare).await {
            Ok(files) => Ok(Diff { files, more }),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

type SidesRow = (String, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<i64>);

/// Files whose contents differ between two revisions, ordered by path.
pub(crate) async fn differing_files(
    tx: &mut TenantTx,
    agent: AgentId,
    from: Revision,
    to: Revision,
    within: Option<&TreePath>,
) -> Result<Vec<FileChange>, Error> {
    // Only a file that changed in between can differ. The folder is filtered below: with it in the
    // query, the planner might read the whole history instead of the revisions in between.
    const SQL: &str = "
        with touched as materialized (
            select distinct path from workspace.changes
            where tenant_id = $1 and agent_id = $2
              and revision > $5 and revision <= $6)
        select t.path, a.new_hash, a.new_size, b.new_hash, b.new_size
        from touched t
        left join lateral (
            select new_hash, new_size from workspace.changes
            where tenant_id = $1 and agent_id = $2 and path = t.path and revision <= $3
            order by revision desc limit 1) a on true
        left join lateral (
            select new_hash, new_size from workspace.changes
            where tenant_id = $1 and agent_id = $2 and path = t.path and revision <= $4
            order by revision desc limit 1) b on true
        where a.new_hash is distinct from b.new_hash
        order by t.path";
    let tenant = tx.tenant();
    let rows: Vec<SidesRow> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(agent.as_uuid())
        .bind(from.number())
        .bind(to.number())
        .bind(from.min(to).number())
        .bind(from.max(to).number())
        .fetch_all(tx.conn())
        .await?;
    let mut files = Vec::with_capacity(rows.len());
    for (path, old_hash, old_size, new_hash, new_size) in rows {
        let path = parse_stored_path(&path)?;
        if within.is_none_or(|folder| path.is_within(folder)) {
            let before = ContentRef::from_stored(old_hash, old_size)?;
            files.push(FileChange {
                path,
                before,
                after: ContentRef::from_stored(new_hash, new_size)?,
            });
        }
    }
    Ok(files)
}

/// Loads the contents of the files that are small enough to be compared.
async fn load_texts(
    tx: &mut TenantTx,
    files: &[FileChange],
) -> Result<HashMap<ContentHash, Vec<u8>>, Error> {
    let mut left = MAX_LOADED_BYTES;
    let mut wanted = Vec::new();
    for file in files {
        let bytes: u64 = sides(file).map(|said| said.size).sum();
        if sides(file).all(|said| said.size <= MAX_COMPARED_BYTES) && bytes <= left {
            left -= bytes;
            wanted.extend(sides(file).map(|said| said.hash));
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    Ok(load_contents(tx, &wanted).await?.into_iter().collect())
}

fn sides(file: &FileChange) -> impl Iterator<Item = ContentRef> {
    file.before.into_iter().chain(file.after)
}

fn compare(file: FileChange, texts: &HashMap<ContentHash, Vec<u8>>) -> FileDiff {
    let side = |said: Option<ContentRef>| match said {
        None => Some([].as_slice()),
        Some(said) => texts.get(&said.hash).map(Vec::as_slice),
    };
    let body = match (side(file.before), side(file.after)) {
        (Some(before), Some(after)) => match (text(before), text(after)) {
            (Some(before), Some(after)) => hunks(before, after),
            _ => DiffBody::Binary,
        },
        _ => DiffBody::Large,
    };
    FileDiff { file, body }
}

fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}

fn hunks(before: &str, after: &str) -> DiffBody {
    let diff = TextDiff::configure().timeout(COMPARE_TIMEOUT).diff_lines(before, after);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let all = diff.unified_diff().context_radius(3).to_string();
    let hidden = all.lines().count().saturating_sub(MAX_LINES_PER_FILE);
    let hunks = match hidden {
        0 => all,
        _ => all.split_inclusive('\n').take(MAX_LINES_PER_FILE).collect(),
    };
    DiffBody::Text {
        hunks,
        added: count(ChangeTag::Insert),
        removed: count(ChangeTag::Delete),
        hidden,
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            fmt::Display::fmt(file, f)?;
        }
        match self.more {
            0 => Ok(()),
            more => writeln!(f, "[{more} more files differ: ask for a folder or a file]"),
        }
    }
}

impl fmt::Display for FileDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.file.path;
        match self.file.before {
            Some(_) => writeln!(f, "--- a/{path}")?,
            None => writeln!(f, "--- /dev/null")?,
        }
        match self.file.after {
            Some(_) => writeln!(f, "+++ b/{path}")?,
            None => writeln!(f, "+++ /dev/null")?,
        }
        let size = |said: Option<ContentRef>| said.map_or(0, |said| said.size);
        let (before, after) = (size(self.file.before), size(self.file.after));
        match &self.body {
            DiffBody::Text { hunks, hidden, .. } => {
                f.write_str(hunks)?;
                if !hunks.is_empty() && !hunks.ends_with('\n') {
                    writeln!(f)?;
                }
                match hidden {
                    0 => Ok(()),
                    hidden => writeln!(f, "[{hidden} more lines of the diff are not shown]"),
                }
            }
            DiffBody::Binary => {
                writeln!(f, "[not text: {before} bytes before, {after} bytes after]")
            }
            DiffBody::Large => {
                writeln!(f, "[too large to compare: {before} bytes before, {after} bytes after]")
            }
        }
    }
}
