//! The agent's files: what the tools ask of them, and the tools.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `read` | reads | a text, by lines |
//! | `list_files` | reads | what there is |
//! | `write` | writes | a whole file |
//! | `append_file` | writes | the end of one |
//! | `edit` | writes | one place, found by its text |
//! | `apply_patch` | writes | many places, all or none |
//! | `delete_file` | writes | takes one away |
//! | `send_file` | writes | sends one with the answer |
//!
//! **What can go wrong.** Two conversations may change one file: every change
//! says on which content it is based, and one based on another is refused, so
//! that the model reads again. A call may be made again after a crash, when its
//! change is there already: the place that `edit` looks for is gone, and what
//! `append_file` adds would be there twice. So each tool asks first whether a
//! change with its call's key was made, and answers with that.

mod append;
mod delete;
mod edit;
#[cfg(test)]
pub(crate) mod fake;
mod list;
mod near;
mod patch;
mod path;
mod read;
mod send;
mod write;

use std::{fmt::Write as _, future::Future, sync::Arc};

use serde_json::json;

pub use append::AppendFile;
pub use delete::DeleteFile;
pub use edit::Edit;
pub use list::ListFiles;
pub use patch::ApplyPatch;
pub use path::{MOST_PATH, file_path};
pub use read::Read;
pub use send::{MOST_SENT, SendFile, stored_file};
pub use write::Write;

use crate::{Call, Output, Registry, ToolError};

/// The largest file that is read, in bytes.
pub const MOST_READ: usize = 10 * 1024 * 1024;

/// The largest file that the tools make, in bytes.
pub const MOST_WRITTEN: usize = 1024 * 1024;

/// How many lines of a change the model is shown.
const MOST_DIFF: usize = 200;

/// The files of a call's agent; the runner's own, or a fake.
///
/// Paths are checked ([`file_path`]) before they are given. An implementation answers with the
/// files of the call's tenant and agent, and with no others.
pub trait Files: Send + Sync + 'static {
    /// A file; `None` if there is none.
    fn read(
        &self,
        call: &Call,
        path: &str,
    ) -> impl Future<Output = Result<Option<File>, FilesError>> + Send;

    /// The files in a directory and below, by path; all with an empty one.
    fn list(
        &self,
        call: &Call,
        directory: &str,
    ) -> impl Future<Output = Result<Vec<FileLine>, FilesError>> + Send;

    /// What a change under this call's key made, if one was made.
    fn committed(
        &self,
        call: &Call,
    ) -> impl Future<Output = Result<Option<Committed>, FilesError>> + Send;

    /// Makes a change under this call's key: all of it, or none.
    fn commit(
        &self,
        call: &Call,
        change: Change,
    ) -> impl Future<Output = Result<Committed, FilesError>> + Send;
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What is in it.
    pub content: Vec<u8>,
    /// What its content is known by.
    pub hash: String,
}

/// A file, in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLine {
    /// Where it is.
    pub path: String,
    /// How large it is, in bytes.
    pub size: u64,
    /// When it was last changed, ready to be read.
    pub changed: String,
}

/// A change of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What changes, each path once.
    pub edits: Vec<FileEdit>,
    /// Why, in a line.
    pub reason: String,
}

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    /// Where it is.
    pub path: String,
    /// The hash of the content that the change is based on; `None` if there was no file.
    pub base: Option<String>,
    /// What is in it from now on; `None` if it is no more.
    pub content: Option<Vec<u8>>,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The revision that it made.
    pub revision: String,
    /// What it changed, as a unified diff.
    pub diff: String,
}

/// Why files could not be read or changed. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// There is no such file.
    #[error("there is no file `{0}`; `list_files` shows those there are")]
    NotFound(String),
    /// A file is not what the change was based on.
    #[error("`{0}` was changed meanwhile by someone else: read it again, then decide again")]
    Conflict(String),
    /// It would be too much; how much, and what the most is.
    #[error("{0}")]
    Limit(String),
    /// It can never be done as it was said, and why.
    #[error("{0}")]
    Invalid(String),
    /// For no fault of the model.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

impl From<FilesError> for ToolError {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Broken(error) => Self::Broken(error),
            told @ (FilesError::NotFound(_)
            | FilesError::Conflict(_)
            | FilesError::Limit(_)
            | FilesError::Invalid(_)) => Self::Tell(told.to_string()),
        }
    }
}

impl Registry {
    /// The same, with the tools for these files.
    #[must_use]
    pub fn with_files<F: Files>(self, files: Arc<F>) -> Self {
        self.with(Read(Arc::clone(&files)))
            .with(ListFiles(Arc::clone(&files)))
            .with(Write(Arc::clone(&files)))
            .with(AppendFile(Arc::clone(&files)))
            .with(Edit(Arc::clone(&files)))
            .with(ApplyPatch(Arc::clone(&files)))
            .with(DeleteFile(Arc::clone(&files)))
            .with(SendFile(files))
    }
}

/// A text file that there must be.
async fn text_of<F: Files>(files: &F, call: &Call, path: &str) -> Result<Text, ToolError> {
    let found = files.read(call, path).await?;
    text(path, found.ok_or_else(|| FilesError::NotFound(path.to_owned()))?)
}

/// A file, as text.
fn text(path: &str, file: File) -> Result<Text, ToolError> {
    let size = file.content.len();
    if size > MOST_READ {
        return Err(ToolError::Tell(format!(
            "`{path}` has {size} bytes, and {MOST_READ} are the most that is read"
        )));
    }
    let content = String::from_utf8(file.content).map_err(|_| {
        ToolError::Tell(format!("`{path}` is not text ({size} bytes that are not UTF-8)"))
    })?;
    Ok(Text { content, hash: file.hash })
}

struct Text {
    content: String,
    hash: String,
}

/// Makes a change, and says what it was.
async fn commit<F: Files>(
    files: &F,
    call: &Call,
    edits: Vec<FileEdit>,
    reason: &str,
) -> Result<Output, ToolError> {
    for edit in &edits {
        let size = edit.content.as_ref().map_or(0, Vec::len);
        if size > MOST_WRITTEN {
            return Err(ToolError::Tell(format!(
                "`{}` would have {size} bytes, and {MOST_WRITTEN} are the most",
                edit.path
            )));
        }
    }
    let change = Change { edits, reason: reason.to_owned() };
    Ok(told(&files.commit(call, change).await?))
}

/// What was said of the change that this call made before, if it did.
async fn made_before<F: Files>(files: &F, call: &Call) -> Result<Option<Output>, ToolError> {
    Ok(files.committed(call).await?.as_ref().map(told))
}

/// What the model is told of a change: the same whenever it is told.
fn told(committed: &Committed) -> Output {
    let Committed { revision, diff } = committed;
    let mut text = format!("Done, as revision {revision}.\n");
    let total = diff.lines().count();
    for line in diff.lines().take(MOST_DIFF) {
        text.push_str(line);
        text.push('\n');
    }
    if total > MOST_DIFF {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "[{} more lines of the change are not shown]", total - MOST_DIFF);
    }
    Output::from(text).record(json!({ "revision": revision }))
}
