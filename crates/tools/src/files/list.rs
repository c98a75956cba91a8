//! The `list_files` tool.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Files, path::directory_path};
use crate::{Call, Tool, ToolError};

/// Maximum number of files that are listed at once.
const MAX_LISTED_FILES: usize = 500;

/// List your files, each with its path, size and time of change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFilesInput {
    /// Only those in this directory and below; all without it.
    #[serde(default)]
    path: String,
}

#[derive(Debug)]
pub struct ListFiles<F>(pub Arc<F>);

impl<F: Files> Tool for ListFiles<F> {
    const NAME: &'static str = "list_files";
    const EFFECT: Effect = Effect::Reads;
    type Input = ListFilesInput;

    async fn call(&self, call: Call, input: ListFilesInput) -> Result<String, ToolError> {
        let directory = directory_path(&input.path)?;
        let mut files = self.0.list(&call, &directory).await?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        if files.is_empty() {
            return Ok(match directory.as_str() {
                "" => "There are no files.".to_owned(),
                directory => format!("There are no files in `{directory}`."),
            });
        }
        let mut text = String::new();
        for file in files.iter().take(MAX_LISTED_FILES) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{} ({} bytes, {})", file.path, file.size, file.changed);
        }
        if files.len() > MAX_LISTED_FILES {
            let more = files.len() - MAX_LISTED_FILES;
            let _ = writeln!(text, "[{more} more files: name a directory to see fewer]");
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, refused};

    #[tokio::test]
    async fn files_are_listed_by_path_and_by_directory() {
        let (call, files, tools) = files();
        for path in ["notes/b.md", "notes.md", "notes/a.md"] {
            files.put(&call, path, "text");
        }

        let all = ask(&tools, &call, "list_files", "").await;
        let below = ask(&tools, &call, "list_dir", r#"{"directory":"/workspace/notes/"}"#).await;
        let none = ask(&tools, &call, "list_files", r#"{"path":"x"}"#).await;

        let line = |path: &str| format!("{path} (4 bytes, 2026-12-01 14:00 UTC)\n");
        assert_eq!(all, ["notes.md", "notes/a.md", "notes/b.md"].map(line).concat());
        assert_eq!(below, ["notes/a.md", "notes/b.md"].map(line).concat());
        assert_eq!(none, "There are no files in `x`.");
        assert!(
            refused(&tools, &call, "list_files", r#"{"path":"/etc"}"#).await.contains("no path")
        );
    }

    #[tokio::test]
    async fn a_list_that_is_cut_says_so() {
        let (call, files, tools) = files();
        (0..503).for_each(|n| files.put(&call, &format!("f{n:03}"), ""));

        let all = ask(&tools, &call, "list_files", "{}").await;

        assert!(all.ends_with("[3 more files: name a directory to see fewer]\n"));
        assert_eq!(all.lines().count(), 501);
    }
}
