//! The `edit` tool: replaces a text in a file.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    EditableText, FileEdit, Files, commit, earlier_result, encode_text, file_path, read_file,
    similar_lines,
};
use crate::{Call, Output, Tool, ToolError};

/// Maximum number of matches whose lines are named.
const MAX_NAMED_MATCHES: usize = 10;

/// Change a text file: put one text in the place of another.
///
/// The old text must be in the file exactly, spaces included, and once: take enough around it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditInput {
    /// The file, as in `notes/today.md`.
    path: String,
    /// The text to replace, without line numbers.
    old: String,
    /// What takes its place; may be empty.
    new: String,
    /// Replace it wherever it is.
    #[serde(default)]
    all_occurrences: bool,
}

#[derive(Debug)]
pub struct Edit<F>(pub Arc<F>);

impl<F: Files> Tool<Output> for Edit<F> {
    const NAME: &'static str = "edit";
    const EFFECT: Effect = Effect::Writes;
    type Input = EditInput;

    async fn call(&self, call: Call, input: EditInput) -> Result<Output, ToolError> {
        let files = &*self.0;
        let path = file_path(&input.path)?;
        if let Some(made) = earlier_result(files, &call).await? {
            return Ok(made);
        }
        let file = EditableText::decode(&path, read_file(files, &call, &path).await?)?;
        let content = apply_edit(&path, &file.content, &input)?;
        let content = encode_text(&path, file.encoding, &content)?;
        let edit = FileEdit { path, base: Some(file.hash), content: Some(content) };
        commit(files, &call, vec![edit], "edit").await
    }
}

fn apply_edit(path: &str, content: &str, input: &EditInput) -> Result<String, ToolError> {
    let tell = |text: String| Err(ToolError::Tell(text));
    if input.old.is_empty() {
        return tell(
            "`old` is empty: to make a file use `write`, to add to it `append_file`".into(),
        );
    }
    if input.old == input.new {
        return tell("`old` and `new` are the same: there is nothing to change".into());
    }
    // A model writes `
    // ` at the end of a line even if the file has `\r
    // `.
    let is_dos = content.contains("\r\n") && !input.old.contains('\r');
    let ends = |text: &str| if is_dos { text.replace('\n', "\r\n") } else { text.to_owned() };
    let (old, new) = (ends(&input.old), ends(&input.new));
    let places: Vec<usize> = content.match_indices(&old).map(|(at, _)| at).collect();
    match places.as_slice() {
        [] => tell(not_found_message(path, content, &old)),
        [_] => Ok(content.replacen(&old, &new, 1)),
        _ if input.all_occurrences => Ok(content.replace(&old, &new)),
        places => {
            let lines =
                places.iter().take(MAX_NAMED_MATCHES).map(|&at| line_of(content, at).to_string());
            tell(format!(
                "`old` is in `{path}` {} times, in lines {}: take more of what stands around it, \
                 or say `all_occurrences`",
                places.len(),
                lines.collect::<Vec<_>>().join(", "),
            ))
        }
    }
}

fn not_found_message(path: &str, content: &str, old: &str) -> String {
    let hint = if similar_lines::differ_in_spaces(content, old) {
        ", but for its spaces and line ends: copy them as they are"
    } else {
        ""
    };
    let misses = similar_lines::describe_similar_lines(content, old);
    format!("`old` is in `{path}` 0 times{hint}{misses}")
}

fn line_of(content: &str, at: usize) -> usize {
    content[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::files::fake::{ask, files, next, refused};

    const TEXT: &str = "fn one() {\n    a();\n}\nfn two() {\n    a();\n}\n";

    fn input(old: &str, new: &str) -> String {
        json!({ "path": "x.rs", "old": old, "new": new }).to_string()
    }

    #[tokio::test]
    async fn one_place_is_changed_and_once_when_the_call_is_made_again() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", TEXT);
        let input = input("two() {\n    a", "two() {\n    b");

        let first = ask(&tools, &call, "edit", &input).await;
        let again = ask(&tools, &call, "edit", &input).await;

        assert_eq!(first, again);
        assert!(files.get(&call, "x.rs").unwrap().ends_with("fn two() {\n    b();\n}\n"));
        assert_eq!(files.changes(), (1, Some("edit".into())));
    }

    #[tokio::test]
    async fn a_text_that_is_there_more_than_once_is_refused_unless_all_are_meant() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", TEXT);

        let told = refused(&tools, &call, "edit", &input("a();", "b();")).await;
        let all = r#"{"path":"x.rs","old_string":"a();","new_string":"b();","replace_all":true}"#;
        ask(&tools, &next(&call, "b"), "edit_file", all).await;

        assert!(told.starts_with("`old` is in `x.rs` 2 times, in lines 2, 5: take more"), "{told}");
        assert_eq!(files.get(&call, "x.rs").unwrap(), TEXT.replace("a()", "b()"));
    }

    #[tokio::test]
    async fn a_text_that_is_not_there_is_told_with_what_is_like_it() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", TEXT);

        let spaces = refused(&tools, &call, "edit", &input("fn one() {\n\ta();", "x")).await;
        let misread = refused(&tools, &call, "edit", &input("fn ore() {", "x")).await;

        assert!(spaces.contains("0 times, but for its spaces"), "{spaces}");
        assert!(misread.contains("\nline 1 is: `fn one() {`"), "{misread}");
    }

    #[tokio::test]
    async fn lines_that_end_otherwise_keep_their_ends() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", "a\r\nb\r\nc\r\n");

        ask(&tools, &call, "edit", &input("a\nb", "a\nx\nb")).await;

        assert_eq!(files.get(&call, "x.rs").unwrap(), "a\r\nx\r\nb\r\nc\r\n");
    }

    #[tokio::test]
    async fn a_file_keeps_its_encoding_and_takes_no_character_that_it_lacks() {
        let (call, files, tools) = files();
        let gbk = "姓名,电话\r\n张三,123\r\n";
        let (content, _, _) = encoding_rs::GBK.encode(gbk);
        files.put(&call, "x.rs", content.into_owned());

        ask(&tools, &call, "edit", &input("张三", "李四")).await;
        let told = refused(&tools, &next(&call, "b"), "edit", &input("123", "😀")).await;

        let (expected, _, _) = encoding_rs::GBK.encode("姓名,电话\r\n李四,123\r\n");
        assert_eq!(files.bytes(&call, "x.rs").unwrap(), expected.into_owned());
        let start = "`x.rs` is in GBK, and `😀` (U+1F600) does not exist in GBK: leave";
        assert!(told.starts_with(start), "{told}");
    }

    #[tokio::test]
    async fn a_file_that_would_lose_something_is_not_changed() {
        let (call, files, tools) = files();
        // Half a character at the end.
        files.put(&call, "x.rs", [b"one \xe5".as_slice()].concat());

        let told = refused(&tools, &call, "edit", &input("one", "two")).await;

        assert!(told.contains("cannot be written back without loss"), "{told}");
    }

    #[tokio::test]
    async fn a_file_that_changed_meanwhile_is_a_conflict() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", TEXT);
        files.meanwhile("x.rs", "theirs");

        let told = refused(&tools, &call, "edit", &input("one", "three")).await;

        assert!(told.contains("changed meanwhile"), "{told}");
        assert_eq!(files.get(&call, "x.rs").unwrap(), "theirs");
    }

    #[tokio::test]
    async fn what_changes_nothing_is_refused() {
        let (call, files, tools) = files();
        files.put(&call, "x.rs", TEXT);

        assert!(
            refused(&tools, &call, "edit", &input("", "x")).await.starts_with("`old` is empty")
        );
        assert!(refused(&tools, &call, "edit", &input("a", "a")).await.contains("the same"));
    }
}
