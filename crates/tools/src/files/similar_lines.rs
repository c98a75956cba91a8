//! Lines that resemble a text which was not found: they show the model what it misread.

use std::fmt::Write as _;

/// Maximum number of lines that are shown.
const MAX_SUGGESTIONS: usize = 3;

/// Maximum length of a line that is shown and compared, in characters.
const MAX_LINE_CHARS: usize = 160;

/// Maximum number of lines that are compared: a suggestion is not worth more time.
const MAX_COMPARED_LINES: usize = 20_000;

/// Minimum similarity of a suggested line, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;

/// Describes the lines that resemble the text's first line; empty if there are none.
pub(super) fn describe_similar_lines(content: &str, wanted: &str) -> String {
    let Some(first) = wanted.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return String::new();
    };
    let first: String = first.chars().take(MAX_LINE_CHARS).collect();
    let mut places: Vec<(f64, usize, &str)> = content
        .lines()
        .enumerate()
        .take(MAX_COMPARED_LINES)
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| (similarity(line, &first), at + 1, line))
        .filter(|(alike, _, _)| *alike >= MIN_SIMILARITY)
        .collect();
    places.sort_by(|(one, first, _), (other, second, _)| {
        other.total_cmp(one).then(first.cmp(second))
    });
    let mut text = String::new();
    for (_, number, line) in places.iter().take(MAX_SUGGESTIONS) {
        let line: String = line.chars().take(MAX_LINE_CHARS).collect();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "\nline {number} is: `{line}`");
    }
    text
}

/// Whether the text occurs if white space is ignored.
pub(super) fn differ_in_spaces(content: &str, wanted: &str) -> bool {
    let packed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = packed(wanted);
    !wanted.is_empty() && packed(content).contains(&wanted)
}

fn similarity(line: &str, wanted: &str) -> f64 {
    let line: String = line.trim().chars().take(MAX_LINE_CHARS).collect();
    // Lines of very different lengths cannot be similar enough: skip the expensive comparison.
    let (short, long) = (line.len().min(wanted.len()), line.len().max(wanted.len()));
    if short * 2 < long { 0.0 } else { strsim::normalized_levenshtein(&line, wanted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likest_lines_come_first() {
        let content = "fn main() {\n    let total = 1;\n    let totals = 2;\n    other();\n}\n";

        assert_eq!(
            describe_similar_lines(content, "\n  let totals = 3;\n"),
            "\nline 3 is: `    let totals = 2;`\nline 2 is: `    let total = 1;`"
        );
        assert_eq!(describe_similar_lines(content, "something else entirely"), "");
        assert_eq!(describe_similar_lines(content, " \n"), "");
    }

    #[test]
    fn spaces_are_told_apart_from_words() {
        assert!(differ_in_spaces("a {\n\tb\n}", "a {\n    b\n}"));
        assert!(!differ_in_spaces("a {\n\tb\n}", "a {\n    c\n}"));
    }
}
