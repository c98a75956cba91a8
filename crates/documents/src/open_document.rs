//! OpenDocument files (.odt, .ods, .odp): paragraphs, headings, lists, tables, sheets and slides.

use crate::{
    Document, DocumentKind, Error,
    package::{Package, element_text},
    word::link_text,
    writer::{TextWriter, inline_row, one_line},
    xml::{self, Element, Step, Visitor},
};

const KIND: DocumentKind = DocumentKind::OpenDocument;

/// Maximum number of times that a repeated row or cell is written, and of spaces in a row.
const MAX_REPEATED: usize = 1000;

pub fn read(package: &mut Package<'_>) -> Result<Document, Error> {
    package.kind = KIND;
    let manifest = package.read("META-INF/manifest.xml")?.unwrap_or_default();
    let marker = b"encryption-data";
    if manifest.windows(marker.len()).any(|part| part == marker) {
        return Err(Error::Locked(KIND));
    }
    let content = package.require("content.xml")?;
    let mut reader = ContentReader::default();
    xml::walk(&content, KIND, &mut reader)?;
    let title = match package.read("meta.xml")? {
        Some(meta) => element_text(&meta, KIND, "dc:title")?,
        None => String::new(),
    };
    Ok(Document { kind: KIND, title, text: reader.writer.finish() })
}

#[derive(Debug, Default)]
struct Paragraph {
    text: String,
    level: Option<u8>,
}

#[derive(Debug, Default)]
struct Table {
    row: Vec<String>,
    row_repeats: usize,
    cell: String,
    cell_repeats: usize,
    /// Rows that are complete, of a table in a cell of another.
    rows: Vec<String>,
}

#[derive(Default)]
struct ContentReader {
    writer: TextWriter,
    /// Open paragraphs: one in a frame or a note is within another.
    paragraphs: Vec<Paragraph>,
    tables: Vec<Table>,
    open_links: Vec<(String, usize)>,
    /// Number of open list items.
    items: usize,
    slides: u32,
    /// Whether the text of a description is read.
    is_description: bool,
    description: String,
    is_spreadsheet: bool,
}

impl ContentReader {
    fn push(&mut self, text: &str) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.text.push_str(text);
        }
    }

    fn start_slide(&mut self) -> Result<(), Error> {
        self.slides += 1;
        self.writer.heading(2, &format!("Slide {}", self.slides))
    }

    fn start_table(&mut self, element: &Element<'_>) -> Result<(), Error> {
        if self.is_spreadsheet && self.tables.is_empty() {
            let name = element.attribute("name").unwrap_or_default();
            self.writer.heading(2, &format!("Sheet: {name}"))?;
        }
        self.tables.push(Table::default());
        Ok(())
    }

    fn end_paragraph(&mut self) -> Result<(), Error> {
        let Some(Paragraph { text, level }) = self.paragraphs.pop() else { return Ok(()) };
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if let Some(table) = self.tables.last_mut() {
            let gap = if table.cell.is_empty() { "" } else { " " };
            table.cell.push_str(gap);
            table.cell.push_str(text);
            return Ok(());
        }
        match level {
            Some(level) => self.writer.heading(level, text),
            None if self.items > 0 => self.writer.item(text),
            None => self.writer.paragraph(text),
        }
    }

    fn end_cell(&mut self) {
        let Some(table) = self.tables.last_mut() else { return };
        let cell = std::mem::take(&mut table.cell);
        for _ in 0..table.cell_repeats {
            table.row.push(cell.clone());
        }
    }

    fn end_row(&mut self) -> Result<(), Error> {
        let is_nested = self.tables.len() > 1;
        let Some(table) = self.tables.last_mut() else { return Ok(()) };
        let row = std::mem::take(&mut table.row);
        if is_nested {
            table.rows.push(inline_row(&row));
            return Ok(());
        }
        for _ in 0..table.row_repeats {
            self.writer.row(&row)?;
        }
        Ok(())
    }

    fn end_table(&mut self) {
        let Some(inner) = self.tables.pop() else { return };
        if let Some(outer) = self.tables.last_mut() {
            let gap = if outer.cell.is_empty() { "" } else { " " };
            outer.cell.push_str(gap);
            outer.cell.push_str(&inner.rows.join("; "));
        }
    }

    fn end_link(&mut self) {
        let Some((address, from)) = self.open_links.pop() else { return };
        if let Some(paragraph) = self.paragraphs.last_mut() {
            link_text(&mut paragraph.text, from, &address);
        }
    }

    fn end_description(&mut self) -> Result<(), Error> {
        self.is_description = false;
        let text = one_line(&std::mem::take(&mut self.description));
        if text.is_empty() {
            return Ok(());
        }
        let text = format!("[image: {text}]");
        if self.paragraphs.is_empty() {
            return self.writer.paragraph(&text);
        }
        self.push(&text);
        Ok(())
    }
}

/// Whether a frame of a slide holds its number, its date, or what every slide has.
fn is_furniture(element: &Element<'_>) -> bool {
    let class = element.prefixed_attribute("presentation:class");
    matches!(class.as_deref(), Some("page-number" | "date-time" | "footer" | "header"))
}

/// How often a cell or a row is repeated.
fn repeats(element: &Element<'_>, attribute: &str) -> usize {
    let count = element.attribute(attribute).and_then(|count| count.parse().ok());
    count.unwrap_or(1).min(MAX_REPEATED)
}

impl Visitor for ContentReader {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        match element.name().as_str() {
            "office:spreadsheet" => self.is_spreadsheet = true,
            "draw:page" => self.start_slide()?,
            "text:p" => self.paragraphs.push(Paragraph::default()),
            "text:h" => {
                let level = element.attribute("outline-level").and_then(|level| level.parse().ok());
                let level = Some(level.unwrap_or(1));
                self.paragraphs.push(Paragraph { level, ..Paragraph::default() });
            }
            "text:s" => {
                let count = element.attribute("c").and_then(|count| count.parse().ok());
                self.push(&" ".repeat(count.unwrap_or(1).min(MAX_REPEATED)));
            }
            "text:tab" => self.push("\t"),
            "text:line-break" => self.push("\n"),
            "text:list-item" => self.items += 1,
            "text:a" => {
                let from = self.paragraphs.last().map_or(0, |paragraph| paragraph.text.len());
                self.open_links.push((element.attribute("href").unwrap_or_default(), from));
            }
            "svg:desc" => self.is_description = true,
            "table:table" => self.start_table(element)?,
            "table:table-row" => {
                if let Some(table) = self.tables.last_mut() {
                    table.row_repeats = repeats(element, "number-rows-repeated");
                }
            }
            "table:table-cell" | "table:covered-table-cell" => {
                if let Some(table) = self.tables.last_mut() {
                    table.cell_repeats = repeats(element, "number-columns-repeated");
                }
            }
            "draw:frame" if is_furniture(element) => return Ok(Step::Skip),
            // Deleted text; authors and dates of comments; styles.
            "text:tracked-changes"
            | "dc:creator"
            | "dc:date"
            | "meta:creator-initials"
            | "svg:title"
            | "office:automatic-styles" => return Ok(Step::Skip),
            _ => {}
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, name: &str) -> Result<(), Error> {
        match name {
            "text:p" | "text:h" => self.end_paragraph()?,
            "text:list-item" => self.items = self.items.saturating_sub(1),
            "text:a" => self.end_link(),
            "svg:desc" => self.end_description()?,
            "table:table-cell" | "table:covered-table-cell" => self.end_cell(),
            "table:table-row" => self.end_row()?,
            "table:table" => self.end_table(),
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.is_description {
            self.description.push_str(text);
        } else {
            self.push(text);
        }
    }
}
