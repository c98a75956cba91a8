//! The `append_file` tool: adds a text to the end of a file.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{EditableText, File, FileEdit, Files, commit, earlier_result, encode_text, file_path};
use crate::{Call, Output, Tool, ToolError};

/// Add a text to the end of a file, on a line of its own; the file is made if there is none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppendFileInput {
    /// The file, as in `notes/today.md`.
    path: String,
    /// What to add.
    content: String,
}

#[derive(Debug)]
pub struct AppendFile<F>(pub Arc<F>);

impl<F: Files> Tool<Output> for AppendFile<F> {
    const NAME: &'static str = "append_file";
    const EFFECT: Effect = Effect::Writes;
    type Input = AppendFileInput;

    async fn call(&self, call: Call, input: AppendFileInput) -> Result<Output, ToolError> {
        let files = &*self.0;
        let path = file_path(&input.path)?;
        if let Some(made) = earlier_result(files, &call).await? {
            return Ok(made);
        }
        let edit = match files.read(&call, &path).await? {
            Some(there) => appended(path, there, &input.content)?,
            None => FileEdit { path, base: None, content: Some(input.content.into_bytes()) },
        };
        commit(files, &call, vec![edit], "append").await
    }
}

/// Appends a text to a file, on a line of its own.
pub(super) fn appended(path: String, there: File, more: &str) -> Result<FileEdit, ToolError> {
    let there = EditableText::decode(&path, there)?;
    let mut content = there.content;
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    content.push_str(more);
    let content = encode_text(&path, there.encoding, &content)?;
    Ok(FileEdit { path, base: Some(there.hash), content: Some(content) })
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, next, refused};

    #[tokio::test]
    async fn what_is_added_stands_on_lines_of_its_own() {
        let (call, files, tools) = files();

        for (key, text) in [("a", "one"), ("b", "two\\n"), ("c", "three")] {
            let input = format!(r#"{{"path":"log","content":"{text}"}}"#);
            ask(&tools, &next(&call, key), "append_file", &input).await;
        }

        assert_eq!(files.get(&call, "log").unwrap(), "one\ntwo\nthree");
    }

    #[tokio::test]
    async fn a_call_made_again_adds_nothing_twice() {
        let (call, files, tools) = files();
        files.put(&call, "log", "one\n");

        for _ in 0..2 {
            ask(&tools, &call, "append_file", r#"{"path":"log","content":"two\n"}"#).await;
        }

        assert_eq!(files.get(&call, "log").unwrap(), "one\ntwo\n");
    }

    #[tokio::test]
    async fn nothing_is_added_to_what_is_no_text() {
        let (call, files, tools) = files();
        files.put(&call, "x", [0xff, 0xd8, 0xff, 0]);

        let told = refused(&tools, &call, "append_file", r#"{"path":"x","content":"a"}"#).await;

        assert!(told.contains("is not text"), "{told}");
    }
}
