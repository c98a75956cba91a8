//! The `read` tool: lines of a text file.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Files, file_path, read_text};
use crate::{Call, Tool, ToolError};

/// Maximum number of lines that are read at once.
const MAX_LINES: usize = 2000;

/// Maximum length of a shown line, in characters.
const MAX_LINE_CHARS: usize = 2000;

/// Maximum size of an answer, in bytes: less than the registry's limit, which would cut off the
/// hint about the next part.
const MAX_SHOWN_BYTES: usize = 60 * 1024;

/// Read a text file, or some of its lines; each is shown after its number and a tab.
///
/// Long files are read in parts: the answer says where to go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadInput {
    /// The file, as in `notes/today.md`.
    path: String,
    /// The first line to read; the first of all is 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    from: usize,
    /// How many lines to read, from 1 to 2000.
    #[serde(default = "all")]
    #[schemars(range(min = 1, max = 2000))]
    lines: usize,
}

const fn one() -> usize {
    1
}

const fn all() -> usize {
    MAX_LINES
}

#[derive(Debug)]
pub struct Read<F>(pub Arc<F>);

impl<F: Files> Tool for Read<F> {
    const NAME: &'static str = "read";
    const EFFECT: Effect = Effect::Reads;
    type Input = ReadInput;

    async fn call(&self, call: Call, input: ReadInput) -> Result<String, ToolError> {
        let ReadInput { path, from, lines } = input;
        if from == 0 || lines == 0 {
            return Err(ToolError::Tell("`from` and `lines` begin at 1".to_owned()));
        }
        let path = file_path(&path)?;
        let file = read_text(&*self.0, &call, &path).await?;
        numbered_lines(&path, &file.content, from, lines.min(MAX_LINES))
    }
}

fn numbered_lines(
    path: &str,
    content: &str,
    from: usize,
    lines: usize,
) -> Result<String, ToolError> {
    let total = content.lines().count();
    if total == 0 {
        return Ok(format!("`{path}` is empty.\n"));
    }
    if from > total {
        return Err(ToolError::Tell(format!(
            "`{path}` has {total} lines: there is no line {from}"
        )));
    }
    let mut text = String::new();
    let mut last = from - 1;
    for (number, line) in content.lines().enumerate().skip(from - 1).take(lines) {
        let number = number + 1;
        let line = match line.char_indices().nth(MAX_LINE_CHARS) {
            Some((at, _)) => {
                let more = line[at..].chars().count();
                format!("{number:>6}\t{} [{more} more characters]\n", &line[..at])
            }
            None => format!("{number:>6}\t{line}\n"),
        };
        if last >= from && text.len() + line.len() > MAX_SHOWN_BYTES {
            break;
        }
        text.push_str(&line);
        last = number;
    }
    if last < total {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "[lines {from} to {last} of {total}; go on with `\"from\": {}`]",
            last + 1
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::files::fake::{ask, files, refused};

    #[tokio::test]
    async fn lines_are_numbered_and_a_part_says_where_to_go_on() {
        let (call, files, tools) = files();
        files.put(&call, "a.md", "one\ntwo\r\nthree\n");

        let all = ask(&tools, &call, "read", r#"{"path":"./a.md"}"#).await;
        let part = ask(&tools, &call, "read", r#"{"path":"a.md","from":2,"lines":1}"#).await;
        let other = ask(&tools, &call, "read_file", r#"{"file_path":"a.md","range":"2-2"}"#).await;

        assert_eq!(all, "     1\tone\n     2\ttwo\n     3\tthree\n");
        assert_eq!(part, "     2\ttwo\n[lines 2 to 2 of 3; go on with `\"from\": 3`]\n");
        assert_eq!(other, part);
    }

    #[tokio::test]
    async fn a_long_file_is_read_to_its_end_in_parts() {
        let (call, files, tools) = files();
        let lines: String =
            (1..=5000).map(|n| format!("line {n} {}\n", "x".repeat(n % 60))).collect();
        files.put(&call, "long", lines.clone());

        let mut read = String::new();
        let mut from = 1;
        loop {
            let part =
                ask(&tools, &call, "read", &format!(r#"{{"path":"long","from":{from}}}"#)).await;
            assert!(part.len() < crate::MAX_OUTPUT_BYTES && !part.contains("[cut off"));
            let shown = part.lines().filter_map(|line| line.split_once('\t'));
            shown.for_each(|(_, line)| read.push_str(&format!("{line}\n")));
            let Some((_, next)) = part.rsplit_once("`\"from\": ") else { break };
            from = next.trim_end_matches("`]\n").parse::<usize>().unwrap();
        }

        assert_eq!(read, lines);
    }

    #[tokio::test]
    async fn a_long_line_says_how_much_was_left_out() {
        let (call, files, tools) = files();
        files.put(&call, "wide", "語".repeat(2003));

        let read = ask(&tools, &call, "read", r#"{"path":"wide"}"#).await;

        assert!(read.ends_with("語 [3 more characters]\n"), "{read}");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_told_with_the_reason() {
        let (call, files, tools) = files();
        files.put(&call, "empty", "");
        files.put(&call, "picture", [0xff, 0xd8, 0xff]);
        files.put(&call, "huge", vec![b'a'; super::super::MAX_READ_BYTES + 1]);
        files.put(&call, "a", "one\n");

        assert_eq!(ask(&tools, &call, "read", r#"{"path":"empty"}"#).await, "`empty` is empty.\n");
        for (input, told) in [
            (r#"{"path":"b"}"#, "there is no file `b`; `list_files` shows those there are"),
            (r#"{"path":"picture"}"#, "`picture` is not text (3 bytes that are not UTF-8)"),
            (
                r#"{"path":"huge"}"#,
                "`huge` has 10485761 bytes, and 10485760 are the most that is read",
            ),
            (r#"{"path":"a","from":2}"#, "`a` has 1 lines: there is no line 2"),
            (r#"{"path":"a","from":0}"#, "`from` and `lines` begin at 1"),
            (r#"{"path":"../a"}"#, "`../a` is no path here: it may not go up with `..`"),
        ] {
            assert_eq!(refused(&tools, &call, "read", input).await, told);
        }
    }
}
