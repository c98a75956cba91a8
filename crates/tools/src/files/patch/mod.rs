//! The `apply_patch` tool: changes many places in many files, all or none.

mod apply;
mod envelope;
mod unified;

use std::{collections::BTreeMap, sync::Arc};

use holdfast_documents::TextEncoding;
use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    EditableText, FileEdit, Files, FilesError, commit, earlier_result, encode_text, file_path,
};
use crate::{Call, Output, Tool, ToolError};

/// Change files by a patch: all that it says, or nothing.
///
/// Write a unified diff, or `*** Begin Patch` … `*** End Patch` with `*** Add File:`,
/// `*** Update File:` and `*** Delete File:`. Lines of context must be as they are in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPatchInput {
    /// The patch.
    patch: String,
}

#[derive(Debug)]
pub struct ApplyPatch<F>(pub Arc<F>);

/// Part of a patch for one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct FilePatch {
    /// Old path; `None` if the file is new.
    from: Option<String>,
    /// New path; `None` if the file is deleted.
    to: Option<String>,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    /// Line where the hunk begins, if it is given; the first is 1.
    at: Option<usize>,
    /// Prefixes of lines that precede the hunk, in order.
    anchors: Vec<String>,
    lines: Vec<Line>,
    /// Whether the hunk must match the end of the file.
    is_end: bool,
    /// Whether the last line has no line end: in the old file, in the new file.
    lacks_newline: (bool, bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Keep(String),
    Drop(String),
    Add(String),
}

/// State of a file while a patch is applied.
struct PatchedFile {
    base: Option<String>,
    encoding: TextEncoding,
    old: Option<String>,
    new: Option<String>,
}

impl<F: Files> Tool<Output> for ApplyPatch<F> {
    const NAME: &'static str = "apply_patch";
    const EFFECT: Effect = Effect::Writes;
    type Input = ApplyPatchInput;

    async fn call(&self, call: Call, input: ApplyPatchInput) -> Result<Output, ToolError> {
        let files = &*self.0;
        if let Some(made) = earlier_result(files, &call).await? {
            return Ok(made);
        }
        let patches = parse(&input.patch).map_err(ToolError::Tell)?;
        let mut works = BTreeMap::new();
        for patch in &patches {
            apply_one(files, &call, &mut works, patch).await?;
        }
        let changed =
            works.into_iter().filter(|(_, work): &(String, PatchedFile)| work.old != work.new);
        let edits = changed.map(|(path, PatchedFile { base, encoding, new, .. })| {
            let content = new.map(|text| encode_text(&path, encoding, &text)).transpose()?;
            Ok(FileEdit { path, base, content })
        });
        let edits = edits.collect::<Result<Vec<FileEdit>, ToolError>>()?;
        if edits.is_empty() {
            return Err(ToolError::Tell("the patch changes nothing".to_owned()));
        }
        commit(files, &call, edits, "patch").await
    }
}

/// Parses a patch in either format.
fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let patch = unfenced(patch);
    let patches = if patch.trim_start().starts_with(envelope::BEGIN) {
        envelope::parse(patch)?
    } else {
        unified::parse(patch)?
    };
    let is_void = |patch: &FilePatch| {
        patch.hunks.is_empty()
            && patch.from.is_some()
            && patch.to.is_some()
            && patch.from == patch.to
    };
    match patches.iter().find(|patch| is_void(patch)) {
        Some(FilePatch { from: Some(path), .. }) => {
            Err(format!("the patch has no hunk for `{path}`: say what changes"))
        }
        _ if patches.is_empty() => Err("the patch has no hunk: write a unified diff with `---`, \
             `+++` and `@@` lines, or `*** Begin Patch`"
            .to_owned()),
        _ => Ok(patches),
    }
}

/// Removes the code fence that models put around a patch.
fn unfenced(patch: &str) -> &str {
    let inner = patch.trim_start().strip_prefix("```").and_then(|rest| rest.split_once('\n'));
    match inner {
        Some((_, rest)) => {
            let rest = rest.trim_end();
            rest.strip_suffix("```").unwrap_or(rest)
        }
        None => patch,
    }
}

async fn apply_one<F: Files>(
    files: &F,
    call: &Call,
    works: &mut BTreeMap<String, PatchedFile>,
    patch: &FilePatch,
) -> Result<(), ToolError> {
    let from = patch.from.as_deref().map(file_path).transpose()?;
    let to = patch.to.as_deref().map(file_path).transpose()?;
    for path in [&from, &to].into_iter().flatten() {
        if !works.contains_key(path) {
            let work = match files.read(call, path).await? {
                None => {
                    PatchedFile { base: None, encoding: TextEncoding::UTF_8, old: None, new: None }
                }
                Some(file) => {
                    let EditableText { content, hash, encoding } =
                        EditableText::decode(path, file)?;
                    let (old, new) = (Some(content.clone()), Some(content));
                    PatchedFile { base: Some(hash), encoding, old, new }
                }
            };
            works.insert(path.clone(), work);
        }
    }
    let (old, encoding) = match &from {
        None => (String::new(), TextEncoding::UTF_8),
        Some(path) => works
            .get_mut(path)
            .and_then(|work| Some((work.new.take()?, work.encoding)))
            .ok_or_else(|| FilesError::NotFound(path.clone()))?,
    };
    let name = to.as_deref().or(from.as_deref()).unwrap_or_default();
    let new = apply::apply_hunks(name, &old, &patch.hunks).map_err(ToolError::Tell)?;
    let Some(to) = to else {
        return match new.as_str() {
            "" => Ok(()),
            _ if patch.hunks.is_empty() => Ok(()),
            _ => Err(ToolError::Tell(format!("the patch deletes `{name}`, and not all its lines"))),
        };
    };
    match works.get_mut(&to) {
        Some(PatchedFile { new: Some(_), .. }) => {
            Err(ToolError::Tell(format!("there is a file `{to}` already: the patch makes it anew")))
        }
        Some(work) => {
            work.new = Some(new);
            work.encoding = encoding;
            Ok(())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
