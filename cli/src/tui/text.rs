//! Wrapping of styled text to the width of the terminal.

use ratatui::{
    style::Style,
    text::{Line, Span},
};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::screen::plain;

/// A piece of text in one style.
pub type Piece = (String, Style);

/// Removes what a terminal would interpret; tabs become spaces.
pub fn clean(text: &str) -> String {
    plain(text).replace('\t', "    ")
}

/// Wraps pieces to lines of at most `width` columns. `first` begins the first line, `next` the
/// others.
pub fn wrap(pieces: &[Piece], width: usize, first: &Piece, next: &Piece) -> Vec<Line<'static>> {
    let mut wrapped = LineWrapper::new(width, first, next);
    for (text, style) in pieces {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                wrapped.break_line();
            }
            for word in line.split_word_bounds() {
                wrapped.push(word, *style);
            }
        }
    }
    wrapped.finish()
}

struct LineWrapper<'p> {
    lines: Vec<Line<'static>>,
    line: Vec<Span<'static>>,
    /// Columns that are left in the line.
    left: usize,
    width: usize,
    next: &'p Piece,
    /// Whether the line has only its beginning.
    is_empty: bool,
}

impl<'p> LineWrapper<'p> {
    fn new(width: usize, first: &Piece, next: &'p Piece) -> Self {
        let line = vec![Span::styled(first.0.clone(), first.1)];
        let left = width.saturating_sub(first.0.width()).max(1);
        Self { lines: Vec::new(), line, left, width, next, is_empty: true }
    }

    fn break_line(&mut self) {
        let begin = vec![Span::styled(self.next.0.clone(), self.next.1)];
        self.lines.push(Line::from(std::mem::replace(&mut self.line, begin)));
        self.left = self.width.saturating_sub(self.next.0.width()).max(1);
        self.is_empty = true;
    }

    fn push(&mut self, word: &str, style: Style) {
        let columns = word.width();
        if columns <= self.left {
            self.add(word, columns, style);
            return;
        }
        if word.trim().is_empty() {
            // A line does not begin with the space at which it was broken.
            self.break_line();
            return;
        }
        if !self.is_empty {
            self.break_line();
        }
        if columns <= self.left {
            self.add(word, columns, style);
            return;
        }
        // A word that is longer than a line, such as an address.
        for part in word.graphemes(true) {
            let columns = part.width();
            if columns > self.left && !self.is_empty {
                self.break_line();
            }
            self.add(part, columns, style);
        }
    }

    fn add(&mut self, text: &str, columns: usize, style: Style) {
        self.left = self.left.saturating_sub(columns);
        self.is_empty = false;
        match self.line.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            _ => self.line.push(Span::styled(text.to_owned(), style)),
        }
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.lines.push(Line::from(self.line));
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize) -> Vec<String> {
        let none = (String::new(), Style::default());
        let indent = ("  ".to_owned(), Style::default());
        let lines = wrap(&[(text.to_owned(), Style::default())], width, &none, &indent);
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_break_between_words_and_wide_characters() {
        assert_eq!(wrapped("one two three", 8), ["one two ", "  three"]);
        assert_eq!(wrapped("a\nb", 8), ["a", "  b"]);
        assert_eq!(
            wrapped("学习计划", 5),
            ["学习", "  学习".replace("学习", "计").as_str(), "  划"]
        );
        assert_eq!(wrapped("https://host/x", 8), ["https://", "  host/x"]);
        for line in wrapped("👨‍👩‍👧 学习计划 with a long-long-long-word", 9) {
            assert!(line.width() <= 9, "{line}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_removed() {
        assert_eq!(clean("a\x1b[2J\tb\r"), "a[2J    b");
    }
}
