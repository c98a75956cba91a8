//! The `delete_file` tool.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FileEdit, Files, FilesError, commit, earlier_result, file_path};
use crate::{Call, Output, Tool, ToolError};

/// Delete a file. Its versions are kept: what was in it is not lost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteFileInput {
    /// The file, as in `notes/today.md`; a directory goes with its last file.
    path: String,
}

#[derive(Debug)]
pub struct DeleteFile<F>(pub Arc<F>);

impl<F: Files> Tool<Output> for DeleteFile<F> {
    const NAME: &'static str = "delete_file";
    const EFFECT: Effect = Effect::Writes;
    type Input = DeleteFileInput;

    async fn call(&self, call: Call, input: DeleteFileInput) -> Result<Output, ToolError> {
        let files = &*self.0;
        let path = file_path(&input.path)?;
        if let Some(made) = earlier_result(files, &call).await? {
            return Ok(made);
        }
        let Some(there) = files.read(&call, &path).await? else {
            return Err(match files.list(&call, &path).await?.len() {
                0 => FilesError::NotFound(path).into(),
                below => ToolError::Tell(format!(
                    "`{path}` is a directory with {below} files: delete these one by one"
                )),
            });
        };
        let edit = FileEdit { path, base: Some(there.hash), content: None };
        commit(files, &call, vec![edit], "delete").await
    }
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, refused};

    #[tokio::test]
    async fn a_file_goes_and_the_call_may_be_made_again() {
        let (call, files, tools) = files();
        files.put(&call, "a", "x");

        let first = ask(&tools, &call, "delete_file", r#"{"path":"a"}"#).await;
        let again = ask(&tools, &call, "remove_file", r#"{"file_path":"a"}"#).await;

        assert_eq!(first, again);
        assert_eq!(files.get(&call, "a"), None);
        assert_eq!(files.changes(), (1, Some("delete".into())));
    }

    #[tokio::test]
    async fn neither_a_directory_nor_the_root_is_deleted() {
        let (call, files, tools) = files();
        files.put(&call, "d/a", "x");

        for (path, told) in [
            ("d", "`d` is a directory with 1 files: delete these one by one"),
            ("x", "there is no file `x`; `list_files` shows those there are"),
            ("/workspace", "`path` is empty: name a file"),
        ] {
            let input = format!(r#"{{"path":"{path}"}}"#);
            assert_eq!(refused(&tools, &call, "delete_file", &input).await, told);
        }
        assert_eq!(files.changes().0, 0);
    }
}
