//! The `send_file` tool: sends a file of the agent with its answer.
//!
//! The file's current version is recorded in the call's result, and is sent when the turn ends
//! (spec TOL-027, CHN-025).

use std::sync::Arc;

use holdfast_types::{Effect, StoredFile, media_type};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Files, FilesError, file_path};
use crate::{Call, Output, Part, Tool, ToolError};

/// Maximum size of a file that is sent, in bytes.
pub const MAX_SENT_BYTES: usize = 10 * 1024 * 1024;

/// Send one of your files with your answer, as it is now. To send it before, use `message`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendFileInput {
    /// The file, as in `reports/may.pdf`.
    path: String,
}

#[derive(Debug)]
pub struct SendFile<F>(pub Arc<F>);

impl<F: Files> Tool<Output> for SendFile<F> {
    const NAME: &'static str = "send_file";
    // The call only records the file; the turn's end sends it.
    const EFFECT: Effect = Effect::Writes;
    type Input = SendFileInput;

    async fn call(&self, call: Call, input: SendFileInput) -> Result<Output, ToolError> {
        let file = stored_file(&*self.0, &call, &input.path).await?;
        let text = format!("`{}` ({} bytes) goes with your answer.", file.path, file.size);
        Ok(Output::from(text).with(Part::Attached(file)))
    }
}

/// Returns the current version of a file that may be sent.
///
/// # Errors
///
/// If there is no file at that path, or it is too large or empty; for the model.
pub async fn stored_file<F: Files>(
    files: &F,
    call: &Call,
    path: &str,
) -> Result<StoredFile, ToolError> {
    let path = file_path(path)?;
    let found = files.read(call, &path).await?;
    let file = found.ok_or_else(|| FilesError::NotFound(path.clone()))?;
    let size = file.content.len();
    if size == 0 {
        return Err(ToolError::Tell(format!("`{path}` is empty: no channel takes that")));
    }
    if size > MAX_SENT_BYTES {
        return Err(ToolError::Tell(format!(
            "`{path}` has {size} bytes, and {MAX_SENT_BYTES} are the most that is sent"
        )));
    }
    Ok(StoredFile {
        media_type: media_type(&path, &file.content).to_owned(),
        size: u64::try_from(size).unwrap_or(u64::MAX),
        hash: file.hash,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fake::{files, refused};

    #[tokio::test]
    async fn a_file_is_noted_as_it_is_now() {
        let (call, files, tools) = files();
        files.put(&call, "a.csv", "1,2\n");

        let output = tools.call(call.clone(), "send_file", r#"{"path":"./a.csv"}"#).await.unwrap();

        assert_eq!(output.for_llm, "`a.csv` (4 bytes) goes with your answer.");
        let [Part::Attached(file)] = &output.parts[..] else { panic!("{output:?}") };
        assert_eq!(
            (file.path.as_str(), file.media_type.as_str(), file.size),
            ("a.csv", "text/csv", 4)
        );
    }

    #[tokio::test]
    async fn what_cannot_be_sent_is_told_with_the_reason() {
        let (call, files, tools) = files();
        files.put(&call, "empty", "");
        files.put(&call, "huge", vec![b'a'; MAX_SENT_BYTES + 1]);

        for (input, told) in [
            (r#"{"path":"b"}"#, "there is no file `b`; `list_files` shows those there are"),
            (r#"{"path":"empty"}"#, "`empty` is empty: no channel takes that"),
            (
                r#"{"path":"huge"}"#,
                "`huge` has 10485761 bytes, and 10485760 are the most that is sent",
            ),
            (r#"{"path":"../a"}"#, "`../a` is no path here: it may not go up with `..`"),
        ] {
            assert_eq!(refused(&tools, &call, "send_file", input).await, told);
        }
    }
}
