//! Patches in the format that many models are trained on: `*** Begin Patch` … `*** End Patch`.

use super::{FilePatch, Hunk, Line, unified};

pub(super) const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";

pub(super) fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let mut patches: Vec<FilePatch> = Vec::new();
    let mut lines = patch.trim_start().lines().enumerate().skip(1);
    for (at, line) in &mut lines {
        let at = at + 1;
        let path = |head: &str| line.strip_prefix(head).map(|path| path.trim().to_owned());
        if line.trim_end() == END {
            return check(patches);
        } else if let Some(to) = path("*** Add File:") {
            patches.push(FilePatch { from: None, to: Some(to), hunks: vec![Hunk::default()] });
        } else if let Some(from) = path("*** Delete File:") {
            patches.push(FilePatch { from: Some(from), to: None, hunks: Vec::new() });
        } else if let Some(from) = path("*** Update File:") {
            let to = Some(from.clone());
            patches.push(FilePatch { from: Some(from), to, hunks: Vec::new() });
        } else {
            let Some(patch) = patches.last_mut() else {
                return Err(unexpected(at, line));
            };
            parse_line(patch, line).ok_or_else(|| unexpected(at, line))?;
        }
    }
    Err(format!("the patch does not end with `{END}`: it may have been cut off"))
}

/// Parses a line of a file's section; `None` if it is not permitted there.
fn parse_line(patch: &mut FilePatch, line: &str) -> Option<()> {
    if let Some(to) = line.strip_prefix("*** Move to:") {
        let is_update = patch.from.is_some() && patch.to.is_some() && patch.hunks.is_empty();
        patch.to = Some(to.trim().to_owned());
        return is_update.then_some(());
    }
    match (&patch.from, &patch.to) {
        (None, _) => {
            let hunk = patch.hunks.last_mut()?;
            hunk.lines.push(Line::Add(line.strip_prefix('+')?.to_owned()));
            return Some(());
        }
        (Some(_), None) => return line.trim().is_empty().then_some(()),
        (Some(_), Some(_)) => {}
    }
    if line.trim_end() == "*** End of File" {
        patch.hunks.last_mut()?.is_end = true;
        return Some(());
    }
    if let Some(anchor) = line.strip_prefix("@@") {
        // Several anchors in a row lead to one place.
        if patch.hunks.last().is_none_or(|hunk| !hunk.lines.is_empty()) {
            patch.hunks.push(Hunk::default());
        }
        let anchor = anchor.trim();
        if !anchor.is_empty() {
            patch.hunks.last_mut()?.anchors.push(anchor.to_owned());
        }
        return Some(());
    }
    if patch.hunks.is_empty() {
        patch.hunks.push(Hunk::default());
    }
    unified::add(patch.hunks.last_mut()?, line).then_some(())
}

fn check(patches: Vec<FilePatch>) -> Result<Vec<FilePatch>, String> {
    for patch in &patches {
        let name = patch.to.as_ref().or(patch.from.as_ref()).cloned().unwrap_or_default();
        let is_new = patch.from.is_none();
        if !is_new && patch.hunks.iter().any(|hunk| hunk.lines.is_empty()) {
            return Err(format!("a hunk for `{name}` is empty"));
        }
    }
    Ok(patches)
}

fn unexpected(at: usize, line: &str) -> String {
    let line: String = line.chars().take(80).collect();
    format!(
        "line {at} of the patch, `{line}`, has no place there: in a hunk each line begins with a \
         space, `+` or `-`, and in a new file with `+`"
    )
}
