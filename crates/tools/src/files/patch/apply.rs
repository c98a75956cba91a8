//! Application of a patch's hunks to a text.
//!
//! A hunk applies only where its lines match exactly: at the line number that it names, or else at
//! the only match. A near match is refused: such a hunk was written for another text.

use super::{Hunk, Line};
use crate::files::similar_lines;

/// Applies all hunks.
///
/// # Errors
///
/// Names the hunk that does not fit, and the reason, for the model.
pub(super) fn apply_hunks(path: &str, content: &str, hunks: &[Hunk]) -> Result<String, String> {
    let mut lines: Vec<&str> = content.split('\n').collect();
    let mut is_bare = !content.is_empty() && !content.ends_with('\n');
    if !is_bare {
        lines.pop();
    }
    // A model writes `
    // ` at the end of a line even if the file has `\r
    // `.
    let is_dos = !lines.is_empty() && lines.iter().all(|line| line.ends_with('\r'));
    if is_dos {
        lines.iter_mut().for_each(|line| *line = line.trim_end_matches('\r'));
    }
    let mut made: Vec<&str> = Vec::with_capacity(lines.len());
    let mut done = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let at = find_place(&lines, done, hunk).map_err(|why| {
            let misses =
                similar_lines::describe_similar_lines(content, &old_lines(hunk).join("\n"));
            format!(
                "hunk {} of {} does not fit `{path}`: {why}; nothing was changed{misses}",
                number + 1,
                hunks.len()
            )
        })?;
        made.extend(&lines[done..at]);
        made.extend(hunk.lines.iter().filter_map(|line| match line {
            Line::Keep(text) | Line::Add(text) => Some(text.as_str()),
            Line::Drop(_) => None,
        }));
        done = at + old_lines(hunk).len();
        if done == lines.len() {
            is_bare = hunk.lacks_newline.1 || (is_bare && !hunk.lacks_newline.0);
        }
    }
    made.extend(&lines[done..]);
    let end = if is_dos { "\r\n" } else { "\n" };
    let mut text = made.join(end);
    if !is_bare && !made.is_empty() {
        text.push_str(end);
    }
    Ok(text)
}

/// Finds the line where a hunk begins, after the end of the previous hunk.
fn find_place(lines: &[&str], done: usize, hunk: &Hunk) -> Result<usize, String> {
    let olds = old_lines(hunk);
    let fits = |at: usize| {
        lines.get(at..at + olds.len()).is_some_and(|there| there == olds.as_slice())
            && (!hunk.is_end || at + olds.len() == lines.len())
            && (!hunk.lacks_newline.0 || at + olds.len() == lines.len())
    };
    let mut from = done;
    for anchor in &hunk.anchors {
        let found = lines[from..].iter().position(|line| line.trim().starts_with(anchor.as_str()));
        from +=
            found.ok_or_else(|| format!("no line after line {from} begins with `{anchor}`"))? + 1;
    }
    if olds.is_empty() {
        return match hunk.at {
            // `@@ -3,0` adds after line 3.
            Some(at) if at >= done && at <= lines.len() => Ok(at),
            Some(at) => Err(format!("there is no line {at} to add after")),
            None if hunk.anchors.is_empty() => Ok(lines.len()),
            None => Ok(from),
        };
    }
    if let Some(at) = hunk.at.map(|at| at.saturating_sub(1))
        && at >= done
        && fits(at)
    {
        return Ok(at);
    }
    let last = lines.len().saturating_sub(olds.len());
    let places: Vec<usize> = (from..=last).filter(|&at| fits(at)).collect();
    match places.as_slice() {
        [] if done > 0 => Err(format!("its lines are nowhere after line {done}")),
        [] => Err("its lines are nowhere in the file".to_owned()),
        [at] => Ok(*at),
        [at, ..] if !hunk.anchors.is_empty() => Ok(*at),
        places => Err(format!(
            "its lines are in {} places: give more lines of context, or the right line number",
            places.len()
        )),
    }
}

/// Lines of the old text that a hunk must match.
fn old_lines(hunk: &Hunk) -> Vec<&str> {
    let old = hunk.lines.iter().filter_map(|line| match line {
        Line::Keep(text) | Line::Drop(text) => Some(text.as_str()),
        Line::Add(_) => None,
    });
    old.collect()
}
