//! Writer of a document's text: blocks, lists and rows, up to a limit.

use crate::{Error, MAX_TEXT_BYTES};

/// Maximum number of empty cells that are written between two cells of a row.
const MAX_EMPTY_CELLS: usize = 32;

#[derive(Debug, Default)]
pub struct TextWriter {
    text: String,
    last: Option<Element>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Block,
    Item,
    Row,
}

impl TextWriter {
    /// Writes a heading; its level counts from 1.
    pub fn heading(&mut self, level: u8, text: &str) -> Result<(), Error> {
        let marks = "#".repeat(usize::from(level.clamp(1, 6)));
        self.write(Element::Block, &format!("{marks} {}", one_line(text)))
    }

    pub fn paragraph(&mut self, text: &str) -> Result<(), Error> {
        self.write(Element::Block, text)
    }

    pub fn item(&mut self, text: &str) -> Result<(), Error> {
        self.write(Element::Item, &format!("- {text}"))
    }

    /// Writes a row of a table; one without text is left out.
    pub fn row(&mut self, cells: &[String]) -> Result<(), Error> {
        let Some(last) = cells.iter().rposition(|cell| !cell.trim().is_empty()) else {
            return Ok(());
        };
        let mut row = String::new();
        let mut empty = 0;
        for (column, cell) in cells[..=last].iter().enumerate() {
            let cell = one_line(cell);
            empty = if cell.is_empty() { empty + 1 } else { 0 };
            if empty > MAX_EMPTY_CELLS {
                continue;
            }
            if column > 0 {
                row.push_str(" | ");
            }
            row.push_str(&cell);
        }
        self.write(Element::Row, &row)
    }

    pub fn finish(self) -> String {
        self.text
    }

    fn write(&mut self, element: Element, text: &str) -> Result<(), Error> {
        let text: String =
            text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        let text = text.trim_end();
        if text.trim().is_empty() {
            return Ok(());
        }
        match self.last {
            None => {}
            Some(last) if last == element && element != Element::Block => self.text.push('\n'),
            Some(_) => self.text.push_str("\n\n"),
        }
        self.last = Some(element);
        self.text.push_str(text);
        if self.text.len() > MAX_TEXT_BYTES { Err(Error::MuchText) } else { Ok(()) }
    }
}

/// Row of a table that is within a cell of another.
pub fn inline_row(cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| one_line(cell)).filter(|cell| !cell.is_empty());
    cells.collect::<Vec<_>>().join(", ")
}

pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stand_apart_and_rows_and_items_together() {
        let mut writer = TextWriter::default();
        writer.heading(2, "Head\nline").unwrap();
        writer.paragraph("text\u{7}").unwrap();
        writer.paragraph(" \n").unwrap();
        for item in ["a", "b"] {
            writer.item(item).unwrap();
        }
        for row in [["1", "", "3", ""], ["", "", "", ""], ["4", "5\n6", "", " "]] {
            writer.row(&row.map(str::to_owned)).unwrap();
        }

        let text = writer.finish();

        assert_eq!(text, "## Head line\n\ntext\n\n- a\n- b\n\n1 |  | 3\n4 | 5 6");
    }

    #[test]
    fn a_text_that_is_too_long_is_refused() {
        let mut writer = TextWriter::default();
        let half = "x".repeat(MAX_TEXT_BYTES / 2);
        writer.paragraph(&half).unwrap();

        assert_eq!(writer.paragraph(&half), Err(Error::MuchText));
    }
}
