//! The text that is being typed: several lines, with a cursor.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

#[derive(Debug, Default)]
pub struct Input {
    text: String,
    /// Position of the cursor in bytes, between two graphemes.
    at: usize,
}

/// Input wrapped to the width of the terminal.
#[derive(Debug, PartialEq, Eq)]
pub struct InputRows {
    pub rows: Vec<String>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

impl Input {
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes the text, and leaves nothing.
    pub fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    pub fn insert(&mut self, text: &str) {
        // A paste from Windows has other line ends.
        let text = super::text::clean(&text.replace("\r\n", "\n").replace('\r', "\n"));
        self.text.insert_str(self.at, &text);
        self.at += text.len();
    }

    pub fn left(&mut self) {
        self.at -= self.text[..self.at].graphemes(true).next_back().map_or(0, str::len);
    }

    pub fn right(&mut self) {
        self.at += self.text[self.at..].graphemes(true).next().map_or(0, str::len);
    }

    pub fn backspace(&mut self) {
        let end = self.at;
        self.left();
        self.text.drain(self.at..end);
    }

    pub fn delete(&mut self) {
        let end =
            self.text[self.at..].graphemes(true).next().map_or(self.at, |g| self.at + g.len());
        self.text.drain(self.at..end);
    }

    fn line_start(&self) -> usize {
        self.text[..self.at].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.at..].find('\n').map_or(self.text.len(), |at| self.at + at)
    }

    pub fn home(&mut self) {
        self.at = self.line_start();
    }

    pub fn end(&mut self) {
        self.at = self.line_end();
    }

    pub fn up(&mut self) {
        let start = self.line_start();
        let column = self.text[start..self.at].graphemes(true).count();
        if start > 0 {
            self.at = start - 1;
            self.at = self.line_start();
            self.move_right(column);
        }
    }

    pub fn down(&mut self) {
        let column = self.text[self.line_start()..self.at].graphemes(true).count();
        let end = self.line_end();
        if end < self.text.len() {
            self.at = end + 1;
            self.move_right(column);
        }
    }

    fn move_right(&mut self, graphemes: usize) {
        for _ in 0..graphemes {
            if self.at < self.line_end() {
                self.right();
            }
        }
    }

    /// Deletes from the beginning of the line to the cursor.
    pub fn delete_line(&mut self) {
        let start = self.line_start();
        self.text.drain(start..self.at);
        self.at = start;
    }

    /// Deletes the word before the cursor.
    pub fn delete_word(&mut self) {
        let before = &self.text[..self.at];
        let start = before.trim_end().rfind(char::is_whitespace);
        let start =
            start.map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        self.text.drain(start..self.at);
        self.at = start;
    }

    /// Wraps the text to `width` columns.
    pub fn rows(&self, width: usize) -> InputRows {
        let width = width.max(2);
        let (mut rows, mut cursor) = (vec![String::new()], (0, 0));
        let mut used = 0;
        for (at, grapheme) in self.text.grapheme_indices(true) {
            let columns = grapheme.width();
            if grapheme != "\n" && used + columns > width {
                rows.push(String::new());
                used = 0;
            }
            if at == self.at {
                cursor = (rows.len() - 1, used);
            }
            if grapheme == "\n" {
                rows.push(String::new());
                used = 0;
            } else if let Some(row) = rows.last_mut() {
                row.push_str(grapheme);
                used += columns;
            }
        }
        if self.at == self.text.len() {
            if used == width {
                rows.push(String::new());
                used = 0;
            }
            cursor = (rows.len() - 1, used);
        }
        InputRows { rows, cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Input {
        let mut input = Input::default();
        input.insert(text);
        input
    }

    #[test]
    fn characters_are_whole_whatever_they_consist_of() {
        let mut input = typed("a👨‍👩‍👧学");
        input.backspace();
        input.left();
        input.insert("x");
        input.delete();

        assert_eq!(input.take(), "ax");
    }

    #[test]
    fn the_cursor_moves_between_lines_and_words() {
        let mut input = typed("first\nse\nthird line");
        input.delete_word();
        input.up();
        input.insert("C");
        input.up();
        input.home();
        input.insert("> ");
        input.down();
        input.end();
        input.insert("!");

        assert_eq!(input.take(), "> first\nseC!\nthird ");
    }

    #[test]
    fn wide_characters_take_two_columns_of_a_row() {
        let input = typed("学习计划\nx");

        let rows = input.rows(5);

        assert_eq!(rows.rows, ["学习", "计划", "x"]);
        assert_eq!(rows.cursor, (2, 1));
        assert_eq!(typed("abcd").rows(4).cursor, (1, 0));
    }
}
