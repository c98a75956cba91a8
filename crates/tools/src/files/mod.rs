//! Files of the agent: the tools, and the interface to their store.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `read` | reads | lines of a text file, or of a document's text |
//! | `list_files` | reads | paths, sizes and times |
//! | `write` | writes | a whole file |
//! | `append_file` | writes | text at the end of a file |
//! | `edit` | writes | one place, found by its text |
//! | `apply_patch` | writes | many places, all or none |
//! | `delete_file` | writes | deletes a file |
//! | `send_file` | writes | sends a file with the answer |
//!
//! **What can go wrong.** Two conversations may change one file: every change names the contents
//! that it is based on, and one based on other contents is refused, so that the model reads again.
//! A call may be repeated after a crash, when its change is stored already: the place that `edit`
//! looks for is gone, and `append_file` would add its text twice. So each tool first asks whether a
//! change with its call's key was stored, and then returns that result.

mod append;
mod delete;
mod edit;
#[cfg(test)]
pub(crate) mod fake;
mod list;
mod patch;
mod path;
mod read;
mod send;
mod similar_lines;
mod write;

use std::{fmt::Write as _, future::Future, sync::Arc};

use holdfast_documents::{DecodedText, DocumentReader, TextEncoding, decode_text};
use serde_json::json;

pub use append::AppendFile;
pub use delete::DeleteFile;
pub use edit::Edit;
pub use list::ListFiles;
pub use patch::ApplyPatch;
pub use path::{MAX_PATH_LEN, file_path};
pub use read::Read;
pub use send::{MAX_SENT_BYTES, SendFile, stored_file};
pub use write::Write;

use crate::{Call, Output, Registry, ToolError};

/// Maximum size of a file that is read, in bytes.
pub const MAX_READ_BYTES: usize = 10 * 1024 * 1024;

/// Maximum size of a file that the tools write, in bytes.
pub const MAX_WRITE_BYTES: usize = 1024 * 1024;

/// Maximum number of a diff's lines that the model gets.
const MAX_DIFF_LINES: usize = 200;

/// Store of the agent's files; implemented by agent-runner and by a fake.
///
/// Paths were checked by [`file_path`]. An implementation returns the files of the call's tenant
/// and agent, and no others.
pub trait Files: Send + Sync + 'static {
    /// Reads a file; `None` if it does not exist.
    fn read(
        &self,
        call: &Call,
        path: &str,
    ) -> impl Future<Output = Result<Option<File>, FilesError>> + Send;

    /// Lists the files in a directory and below, by path; all files if it is empty.
    fn list(
        &self,
        call: &Call,
        directory: &str,
    ) -> impl Future<Output = Result<Vec<FileSummary>, FilesError>> + Send;

    /// Returns the result of an earlier change with this call's key, if there is one.
    fn committed(
        &self,
        call: &Call,
    ) -> impl Future<Output = Result<Option<StoredChange>, FilesError>> + Send;

    /// Stores a change under this call's key: all of it, or nothing.
    fn commit(
        &self,
        call: &Call,
        change: FileChanges,
    ) -> impl Future<Output = Result<StoredChange, FilesError>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub content: Vec<u8>,
    pub hash: String,
}

/// File, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    pub path: String,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Time of the last change, as text for the model.
    pub changed: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChanges {
    /// Changed files, each path once.
    pub edits: Vec<FileEdit>,
    /// Reason for the change, on one line.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    pub path: String,
    /// Hash of the contents that the change is based on; `None` if there was no file.
    pub base: Option<String>,
    /// New contents; `None` deletes the file.
    pub content: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChange {
    pub revision: String,
    /// Difference, as a unified diff.
    pub diff: String,
}

/// Reason why files could not be read or changed. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("there is no file `{0}`; `list_files` shows those there are")]
    NotFound(String),
    /// The file is not the one that the change was based on.
    #[error("`{0}` was changed meanwhile by someone else: read it again, then decide again")]
    Conflict(String),
    /// A size limit is exceeded; the text names the size and the limit.
    #[error("{0}")]
    Limit(String),
    /// The request is invalid, for the named reason.
    #[error("{0}")]
    Invalid(String),
    /// An internal failure, not caused by the model.
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
    /// Adds the tools for these files; `documents` reads those that are no text.
    #[must_use]
    pub fn with_files<F: Files>(self, files: Arc<F>, documents: DocumentReader) -> Self {
        self.with(Read { files: Arc::clone(&files), documents })
            .with(ListFiles(Arc::clone(&files)))
            .with(Write(Arc::clone(&files)))
            .with(AppendFile(Arc::clone(&files)))
            .with(Edit(Arc::clone(&files)))
            .with(ApplyPatch(Arc::clone(&files)))
            .with(DeleteFile(Arc::clone(&files)))
            .with(SendFile(files))
    }
}

/// Reads a file that must exist and may be read.
async fn read_file<F: Files>(files: &F, call: &Call, path: &str) -> Result<File, ToolError> {
    let found = files.read(call, path).await?;
    let file = found.ok_or_else(|| FilesError::NotFound(path.to_owned()))?;
    let size = file.content.len();
    if size > MAX_READ_BYTES {
        return Err(ToolError::Tell(format!(
            "`{path}` has {size} bytes, and {MAX_READ_BYTES} are the most that is read"
        )));
    }
    Ok(file)
}

/// Text file that is to be changed.
struct EditableText {
    content: String,
    hash: String,
    encoding: TextEncoding,
}

impl EditableText {
    /// Decodes a file, unless its unchanged text would be written back as other bytes.
    fn decode(path: &str, file: File) -> Result<Self, ToolError> {
        let size = file.content.len();
        let Some(DecodedText { text, encoding }) = decode_text(&file.content, None) else {
            return Err(ToolError::Tell(format!(
                "`{path}` is not text ({size} bytes of binary data): it cannot be changed here. \
                 `read` shows the text of documents; write it to a new file to change it"
            )));
        };
        let is_lossless = encoding.encode(&text).is_ok_and(|encoded| encoded == file.content);
        if !is_lossless {
            return Err(ToolError::Tell(format!(
                "`{path}` was read as {}, and cannot be written back without loss: write its \
                 whole text with `write`, which makes it UTF-8",
                encoding.name()
            )));
        }
        Ok(Self { content: text, hash: file.hash, encoding })
    }
}

/// Encodes a changed text in the encoding that the file has.
fn encode_text(path: &str, encoding: TextEncoding, text: &str) -> Result<Vec<u8>, ToolError> {
    encoding.encode(text).map_err(|error| {
        ToolError::Tell(format!(
            "`{path}` is in {}, and {error}: leave the character out, or write the whole file \
             with `write`, which makes it UTF-8",
            encoding.name()
        ))
    })
}

/// Stores a change, and describes it.
async fn commit<F: Files>(
    files: &F,
    call: &Call,
    edits: Vec<FileEdit>,
    reason: &str,
) -> Result<Output, ToolError> {
    for edit in &edits {
        let size = edit.content.as_ref().map_or(0, Vec::len);
        if size > MAX_WRITE_BYTES {
            return Err(ToolError::Tell(format!(
                "`{}` would have {size} bytes, and {MAX_WRITE_BYTES} are the most",
                edit.path
            )));
        }
    }
    let change = FileChanges { edits, reason: reason.to_owned() };
    Ok(change_output(&files.commit(call, change).await?))
}

/// Describes the earlier change of this call, if there is one.
async fn earlier_result<F: Files>(files: &F, call: &Call) -> Result<Option<Output>, ToolError> {
    Ok(files.committed(call).await?.as_ref().map(change_output))
}

/// Describes a change for the model, always in the same way.
fn change_output(committed: &StoredChange) -> Output {
    let StoredChange { revision, diff } = committed;
    let mut text = format!("Done, as revision {revision}.\n");
    let total = diff.lines().count();
    for line in diff.lines().take(MAX_DIFF_LINES) {
        text.push_str(line);
        text.push('\n');
    }
    if total > MAX_DIFF_LINES {
        // Writing to a `String` cannot fail.
        let _ =
            writeln!(text, "[{} more lines of the change are not shown]", total - MAX_DIFF_LINES);
    }
    Output::from(text).record(json!({ "revision": revision }))
}
