//! The `memory_get` tool: lines of the agent's notes.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Files, MAX_READ_BYTES, Tool, ToolError, file_path};

/// Default and maximum number of lines that are read at once.
const DEFAULT_LINES: usize = 100;
const MAX_LINES: usize = 500;

/// Maximum size of an answer, in bytes.
const MAX_SHOWN_BYTES: usize = 32 * 1024;

/// Read lines of `MEMORY.md` or of a note under `memory/`, as `memory_search` names them.
///
/// A file that is not there reads as empty.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryGetInput {
    /// The file, as `MEMORY.md` or `memory/202612/20261201.md`.
    path: String,
    /// The first line; the first of all is 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    from: Option<usize>,
    /// How many lines: 100 if absent, 500 at most.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    lines: Option<usize>,
}

#[derive(Debug)]
pub struct MemoryGet<F>(pub Arc<F>);

impl<F: Files> Tool for MemoryGet<F> {
    const NAME: &'static str = "memory_get";
    const EFFECT: Effect = Effect::Reads;
    type Input = MemoryGetInput;

    async fn call(&self, call: Call, input: MemoryGetInput) -> Result<String, ToolError> {
        let MemoryGetInput { path, from, lines } = input;
        let path = file_path(&path)?;
        if path != "MEMORY.md" && !path.starts_with("memory/") {
            return Err(ToolError::Tell(format!(
                "`{path}` is no file of memory: those are `MEMORY.md` and what is under `memory/`; \
                 use `read` for others"
            )));
        }
        // A file that the conversation may not see reads as missing.
        let Some(file) = self.0.read(&call, &path).await? else { return Ok(String::new()) };
        let size = file.content.len();
        if size > MAX_READ_BYTES {
            return Err(ToolError::Tell(format!(
                "`{path}` has {size} bytes, and {MAX_READ_BYTES} are the most that is read"
            )));
        }
        let text = String::from_utf8(file.content)
            .map_err(|_| ToolError::Tell(format!("`{path}` is not text")))?;
        let (from, most) = (from.unwrap_or(1).max(1), lines.unwrap_or(DEFAULT_LINES));
        Ok(line_range(&text, from, most.clamp(1, MAX_LINES)))
    }
}

/// Returns a range of lines, with a hint about the next part.
fn line_range(text: &str, from: usize, most: usize) -> String {
    let total = text.lines().count();
    let mut shown = String::new();
    let mut last = from - 1;
    for line in text.lines().skip(from - 1).take(most) {
        let room = MAX_SHOWN_BYTES - shown.len().min(MAX_SHOWN_BYTES);
        if last >= from && line.len() >= room {
            break;
        }
        shown.push_str(&line[..line.floor_char_boundary(MAX_SHOWN_BYTES)]);
        shown.push('\n');
        last += 1;
    }
    if last < total && !shown.is_empty() {
        shown.push_str(&format!(
            "[lines {from} to {last} of {total}; go on with `\"from\": {}`]\n",
            last + 1
        ));
    }
    shown
}
