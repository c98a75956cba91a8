//! The `write` tool: creates or replaces a file.

use std::sync::Arc;

use holdfast_documents::decode_text;
use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FileEdit, Files, append::appended, commit, earlier_result, file_path};
use crate::{Call, Output, Tool, ToolError};

/// Write a text file in UTF-8: a new one, or the whole of one that is there.
///
/// To change a part of a file use `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteInput {
    /// The file, as in `notes/today.md`.
    path: String,
    /// What is in it from now on.
    content: String,
    /// Add to the end of the file instead.
    #[serde(default)]
    append: bool,
    /// Refuse if there is such a file already.
    #[serde(default)]
    new: bool,
    /// Directories are made as they are needed; it makes no difference.
    #[serde(default, rename = "create_dirs")]
    #[schemars(skip)]
    _create_dirs: bool,
}

#[derive(Debug)]
pub struct Write<F>(pub Arc<F>);

impl<F: Files> Tool<Output> for Write<F> {
    const NAME: &'static str = "write";
    const EFFECT: Effect = Effect::Writes;
    type Input = WriteInput;

    async fn call(&self, call: Call, input: WriteInput) -> Result<Output, ToolError> {
        let files = &*self.0;
        let path = file_path(&input.path)?;
        if let Some(made) = earlier_result(files, &call).await? {
            return Ok(made);
        }
        let there = files.read(&call, &path).await?;
        if input.new && there.is_some() {
            return Err(ToolError::Tell(format!("there is a file `{path}` already")));
        }
        let replaced = there.as_ref().filter(|_| !input.append);
        let former = replaced.and_then(|file| decode_text(&file.content, None));
        let former = former.map(|text| text.encoding).filter(|encoding| !encoding.is_utf8());
        let edit = match there {
            Some(there) if input.append => appended(path, there, &input.content)?,
            there => FileEdit {
                path,
                base: there.map(|file| file.hash),
                content: Some(input.content.into_bytes()),
            },
        };
        let mut output = commit(files, &call, vec![edit], "write").await?;
        if let Some(former) = former {
            output
                .for_llm
                .push_str(&format!("[the file was in {}, and is in UTF-8 now]\n", former.name()));
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, next, refused};

    #[tokio::test]
    async fn a_file_is_made_and_made_anew() {
        let (call, files, tools) = files();

        let input = r#"{"path":"notes/a.md","content":"one\n","create_dirs":true}"#;
        let made = ask(&tools, &call, "write", input).await;
        let input = r#"{"path":"notes/a.md","content":"two\n"}"#;
        ask(&tools, &next(&call, "b"), "create_file", input).await;

        assert_eq!(made, "Done, as revision r1.\n+ notes/a.md\n");
        assert_eq!(files.get(&call, "notes/a.md").unwrap(), "two\n");
        assert_eq!(files.changes(), (2, Some("write".into())));
    }

    #[tokio::test]
    async fn a_file_in_another_encoding_becomes_utf_8_and_the_answer_says_so() {
        let (call, files, tools) = files();
        let (content, _, _) = encoding_rs::GBK.encode("姓名,电话\n张三,123\n");
        files.put(&call, "a.csv", content.into_owned());

        let made = ask(&tools, &call, "write", r#"{"path":"a.csv","content":"姓名\n"}"#).await;

        assert!(made.ends_with("[the file was in GBK, and is in UTF-8 now]\n"), "{made}");
        assert_eq!(files.bytes(&call, "a.csv").unwrap(), "姓名\n".as_bytes());
    }

    #[tokio::test]
    async fn a_call_made_again_answers_the_same_and_writes_once() {
        let (call, files, tools) = files();
        let input = r#"{"path":"a","content":"x","append":true}"#;

        let first = ask(&tools, &call, "write", input).await;
        let again = ask(&tools, &call, "write", input).await;

        assert_eq!(first, again);
        assert_eq!(files.get(&call, "a").unwrap(), "x");
        assert_eq!(files.changes().0, 1);
    }

    #[tokio::test]
    async fn a_file_that_changed_meanwhile_is_a_conflict_and_stays() {
        let (call, files, tools) = files();
        files.put(&call, "a", "mine");
        files.meanwhile("a", "theirs");

        let told = refused(&tools, &call, "write", r#"{"path":"a","content":"new"}"#).await;

        assert!(told.starts_with("`a` was changed meanwhile"), "{told}");
        assert_eq!(files.get(&call, "a").unwrap(), "theirs");
    }

    #[tokio::test]
    async fn what_must_be_new_and_what_is_too_large_is_refused() {
        let (call, files, tools) = files();
        files.put(&call, "a", "mine");

        let input = r#"{"path":"a","content":"x","mode":"new"}"#;
        assert_eq!(
            refused(&tools, &call, "write_file", input).await,
            "there is a file `a` already"
        );
        let input = format!(r#"{{"path":"a","content":"{}"}}"#, "x".repeat(1024 * 1024 + 1));
        assert_eq!(
            refused(&tools, &call, "write", &input).await,
            "`a` would have 1048577 bytes, and 1048576 are the most"
        );
        assert_eq!(files.get(&call, "a").unwrap(), "mine");
    }
}
