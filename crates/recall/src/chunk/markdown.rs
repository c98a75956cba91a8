//! Markdown sections and code fences, which splitting must respect.

use std::ops::Range;

/// Consecutive blocks under the same headings.
#[derive(Debug, Default)]
pub struct Section {
    pub headings: Vec<String>,
    pub blocks: Vec<Block>,
}

/// Code fence, or text between blank lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub range: Range<usize>,
    pub fence: bool,
}

/// Returns the sections of a document, each beginning with its heading.
///
/// A heading with no text below it belongs to the following section, so a chunk is never a heading
/// alone unless the document ends with it.
pub fn sections(source: &str) -> Vec<Section> {
    let mut done: Vec<Section> = Vec::new();
    let mut now = Section::default();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut fence: Option<Fence> = None;
    let mut only_headings = true;
    let mut open = false;
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let range = at..at + line.len();
        at = range.end;
        let text = line.trim_end();
        if let Some(opened) = fence {
            extend(&mut now.blocks, range);
            if opened.is_closed_by(text) {
                fence = None;
                open = false;
            }
        } else if let Some(opened) = Fence::opened_by(text) {
            fence = Some(opened);
            now.blocks.push(Block { range, fence: true });
            only_headings = false;
        } else if let Some((level, title)) = heading(text) {
            if !only_headings {
                done.push(std::mem::take(&mut now));
            }
            path.retain(|(above, _)| *above < level);
            path.push((level, title.to_owned()));
            now.headings = path.iter().map(|(_, title)| title.clone()).collect();
            now.blocks.push(Block { range, fence: false });
            only_headings = true;
            open = false;
        } else if text.trim().is_empty() {
            open = false;
        } else {
            if open {
                extend(&mut now.blocks, range);
            } else {
                now.blocks.push(Block { range, fence: false });
            }
            only_headings = false;
            open = true;
        }
    }
    if !now.blocks.is_empty() {
        done.push(now);
    }
    done
}

fn extend(blocks: &mut [Block], range: Range<usize>) {
    if let Some(last) = blocks.last_mut() {
        last.range.end = range.end;
    }
}

/// Returns level and title of a heading line (CommonMark: up to three spaces, one to six `#`).
fn heading(line: &str) -> Option<(usize, &str)> {
    let text = indented(line)?;
    let title = text.trim_start_matches('#');
    let level = text.len() - title.len();
    let is_heading =
        (1..=6).contains(&level) && (title.is_empty() || title.starts_with([' ', '\t']));
    is_heading.then(|| (level, title.trim().trim_end_matches('#').trim_end()))
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let text = indented(line)?;
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        // With a back-tick in the rest of the line, this is inline code (CommonMark).
        (length >= 3 && !(mark == '`' && info.contains('`'))).then_some(Self { mark, length })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let Some(text) = indented(line) else { return false };
        text.len() >= self.length && text.chars().all(|c| c == self.mark)
    }
}

/// Removes up to three leading spaces; `None` if there are more, which makes the line code.
fn indented(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ');
    (line.len() - text.len() <= 3).then_some(text)
}
