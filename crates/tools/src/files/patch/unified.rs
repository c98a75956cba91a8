//! Patches in the format of `diff -u` and `git diff`.
//!
//! Models count lines badly, so the numbers in a `@@` line are a hint: a hunk is located by its
//! lines. Unknown lines within a file's section are refused: a line that lost its first character
//! would otherwise end its hunk early, and the patch would make an unintended change.

use super::{FilePatch, Hunk, Line};

pub(super) fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let lines: Vec<&str> = patch.lines().collect();
    let mut patches: Vec<FilePatch> = Vec::new();
    let mut at = 0;
    while let Some(&line) = lines.get(at) {
        if is_file_header(&lines, at) {
            patches.push(file(line, lines[at + 1]));
            at += 2;
        } else if line.starts_with("@@") {
            let Some(patch) = patches.last_mut() else {
                return Err(format!(
                    "line {} of the patch begins a hunk before any `---` and `+++` said of which file",
                    at + 1
                ));
            };
            let (hunk, next) = hunk(&lines, at)?;
            patch.hunks.push(hunk);
            at = next;
        } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err("the patch changes a file that is not text".to_owned());
        } else if patches.is_empty() || is_between(line) {
            at += 1;
        } else {
            let line: String = line.chars().take(80).collect();
            return Err(format!(
                "line {} of the patch, `{line}`, belongs to no hunk: in a hunk each line begins \
                 with a space, `+` or `-`",
                at + 1
            ));
        }
    }
    Ok(patches)
}

/// Whether these two lines name the file of the next hunks.
fn is_file_header(lines: &[&str], at: usize) -> bool {
    let begins = |at: usize, with: &str| lines.get(at).is_some_and(|line| line.starts_with(with));
    begins(at, "--- ") && begins(at + 1, "+++ ")
}

/// Whether a line may stand between files.
fn is_between(line: &str) -> bool {
    const SEPARATOR_PREFIXES: &[&str] = &[
        "diff ",
        "index ",
        "Index: ",
        "====",
        "old mode ",
        "new mode ",
        "new file mode ",
        "deleted file mode ",
        "similarity index ",
        "dissimilarity index ",
        "rename from ",
        "rename to ",
        "-- ",
        "```",
    ];
    line.trim().is_empty() || SEPARATOR_PREFIXES.iter().any(|known| line.starts_with(known))
}

fn file(old: &str, new: &str) -> FilePatch {
    let name = |line: &str| line[4..].split('\t').next().unwrap_or_default().trim().to_owned();
    let (old, new) = (name(old), name(new));
    let is_null = |name: &str| name == "/dev/null";
    // `a/` and `b/` are git's prefixes if both are there; of a new or deleted file, one is enough.
    let is_git =
        (old.starts_with("a/") || is_null(&old)) && (new.starts_with("b/") || is_null(&new));
    let path = |name: String, prefix: &str| match name.strip_prefix(prefix) {
        _ if is_null(&name) => None,
        Some(rest) if is_git => Some(rest.to_owned()),
        _ => Some(name),
    };
    FilePatch { from: path(old, "a/"), to: path(new, "b/"), hunks: Vec::new() }
}

/// Parses the hunk that begins at a line; returns it and the next line.
fn hunk(lines: &[&str], begin: usize) -> Result<(Hunk, usize), String> {
    let numbers = numbers(lines[begin]);
    let mut hunk = Hunk { at: numbers.map(|(at, _)| at), ..Hunk::default() };
    let mut at = begin + 1;
    // Trailing empty lines: context that lost its space, or text after the hunk.
    let mut loose = 0;
    while let Some(&line) = lines.get(at) {
        if is_file_header(lines, at) && lines.get(at + 2).is_some_and(|next| next.starts_with("@@"))
        {
            break;
        }
        if !add(&mut hunk, line) {
            break;
        }
        loose = if line.is_empty() { loose + 1 } else { 0 };
        at += 1;
    }
    let olds = |hunk: &Hunk| hunk.lines.iter().filter(|line| !matches!(line, Line::Add(_))).count();
    while loose > 0 && numbers.is_none_or(|(_, count)| olds(&hunk) > count) {
        hunk.lines.pop();
        loose -= 1;
    }
    if hunk.lines.is_empty() {
        return Err(format!("the hunk in line {} of the patch is empty", begin + 1));
    }
    Ok((hunk, at))
}

/// Adds a line to a hunk; returns `false` if it is not part of the hunk.
pub(super) fn add(hunk: &mut Hunk, line: &str) -> bool {
    let rest = || line[1..].to_owned();
    match line.as_bytes().first() {
        None => hunk.lines.push(Line::Keep(String::new())),
        Some(b' ') => hunk.lines.push(Line::Keep(rest())),
        Some(b'-') => hunk.lines.push(Line::Drop(rest())),
        Some(b'+') => hunk.lines.push(Line::Add(rest())),
        Some(b'\\') => match hunk.lines.last() {
            Some(Line::Keep(_)) => hunk.lacks_newline = (true, true),
            Some(Line::Drop(_)) => hunk.lacks_newline.0 = true,
            Some(Line::Add(_)) => hunk.lacks_newline.1 = true,
            None => return false,
        },
        Some(_) => return false,
    }
    true
}

/// First line and number of lines in the old file: `@@ -3,7 +3,8 @@`.
fn numbers(line: &str) -> Option<(usize, usize)> {
    let old = line.strip_prefix("@@ -")?.split_whitespace().next()?;
    match old.split_once(',') {
        Some((at, count)) => Some((at.parse().ok()?, count.parse().ok()?)),
        None => Some((old.parse().ok()?, 1)),
    }
}
