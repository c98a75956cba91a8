//! Word documents (.docx): paragraphs, headings, lists, tables, links, notes and comments.

use std::collections::HashMap;

use crate::{
    Document, DocumentKind, Error,
    package::{Package, Relationship},
    writer::{TextWriter, inline_row, one_line},
    xml::{self, Element, Step, Visitor, local},
};

/// Maximum number of styles that a style inherits from.
const MAX_STYLE_DEPTH: usize = 10;

/// Parts beside the body, by the last segment of their relationship's type, and what stands before
/// each of their texts.
const SIDE_PARTS: [(&str, &str); 3] =
    [("footnotes", "note"), ("endnotes", "end note"), ("comments", "comment")];

pub fn read(package: &mut Package<'_>, main: &str) -> Result<Document, Error> {
    package.kind = DocumentKind::Word;
    let links = package.relationships(main)?;
    let part = |kind: &str| {
        let mut parts = links.values().filter(|link| link.kind == kind && !link.is_external);
        parts.next().map(|link| link.target.clone())
    };
    let styles = match part("styles") {
        Some(path) => package.read(&path)?,
        None => None,
    };
    let styles = styles.map(|content| Styles::read(&content)).transpose()?.unwrap_or_default();
    let mut writer = TextWriter::default();
    let body = package.require(main)?;
    let mut reader = WordReader::new(&styles, &links, &mut writer);
    xml::walk(&body, DocumentKind::Word, &mut reader)?;
    drop(body);
    for (kind, label) in SIDE_PARTS {
        let Some(path) = part(kind) else { continue };
        let Some(content) = package.read(&path)? else { continue };
        let links = package.relationships(&path)?;
        let mut reader = WordReader::new(&styles, &links, &mut writer);
        reader.label = label;
        xml::walk(&content, DocumentKind::Word, &mut reader)?;
    }
    let title = package.title("docProps/core.xml")?;
    Ok(Document { kind: DocumentKind::Word, title, text: writer.finish() })
}

/// What the text says about a style of paragraphs.
#[derive(Debug, Clone, Copy, Default)]
struct ParagraphStyle {
    /// Level of a heading, from 1.
    level: Option<u8>,
    is_item: Option<bool>,
}

impl ParagraphStyle {
    /// The style with what it inherits.
    fn or(self, base: Self) -> Self {
        Self { level: self.level.or(base.level), is_item: self.is_item.or(base.is_item) }
    }
}

/// Styles by their ids. Names differ between languages, except those of headings.
#[derive(Debug, Default)]
struct Styles {
    /// Id of the style that is read.
    id: String,
    own: HashMap<String, ParagraphStyle>,
    bases: HashMap<String, String>,
}

impl Styles {
    fn read(content: &[u8]) -> Result<Self, Error> {
        let mut styles = Self::default();
        xml::walk(content, DocumentKind::Word, &mut styles)?;
        Ok(styles)
    }

    fn get(&self, id: &str) -> ParagraphStyle {
        let chain = std::iter::successors(Some(id), |id| self.bases.get(*id).map(String::as_str));
        let styles = chain.take(MAX_STYLE_DEPTH).filter_map(|id| self.own.get(id).copied());
        styles.fold(ParagraphStyle::default(), ParagraphStyle::or)
    }
}

impl Visitor for Styles {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        let value = || element.attribute("val").unwrap_or_default();
        match local(&element.name()) {
            "style" => self.id = element.attribute("styleId").unwrap_or_default(),
            "basedOn" => drop(self.bases.insert(self.id.clone(), value())),
            "name" => {
                let name = value().to_lowercase();
                let level = name.strip_prefix("heading ").and_then(|level| level.parse().ok());
                if let Some(level) = level.or_else(|| (name == "title").then_some(1)) {
                    self.own.entry(self.id.clone()).or_default().level = Some(level);
                }
            }
            "outlineLvl" => {
                let style = self.own.entry(self.id.clone()).or_default();
                style.level = style.level.or_else(|| outline_level(&value()));
            }
            "numId" => {
                self.own.entry(self.id.clone()).or_default().is_item = Some(is_list(&value()));
            }
            _ => {}
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn text(&mut self, _: &str) {}
}

/// Level of a heading; 9 is body text.
fn outline_level(value: &str) -> Option<u8> {
    value.parse::<u8>().ok().filter(|level| *level < 9).map(|level| level + 1)
}

/// Whether a paragraph with this list is in one: 0 takes it out of the list of its style.
fn is_list(value: &str) -> bool {
    value != "0"
}

#[derive(Debug, Default)]
struct Paragraph {
    text: String,
    style: ParagraphStyle,
}

#[derive(Debug, Default)]
struct Table {
    row: Vec<String>,
    cell: String,
    /// Rows that are complete, of a table in a cell of another.
    rows: Vec<String>,
}

struct WordReader<'a> {
    styles: &'a Styles,
    links: &'a HashMap<String, Relationship>,
    writer: &'a mut TextWriter,
    /// Open paragraphs: one in a text box is within another.
    paragraphs: Vec<Paragraph>,
    tables: Vec<Table>,
    /// Addresses of open links, and where in the paragraph their texts begin.
    open_links: Vec<Option<(String, usize)>>,
    is_text: bool,
    /// Label of the texts of a side part, such as a footnote; empty in the body.
    label: &'static str,
    /// Id of the current note or comment.
    note: Option<String>,
}

impl<'a> WordReader<'a> {
    fn new(
        styles: &'a Styles,
        links: &'a HashMap<String, Relationship>,
        writer: &'a mut TextWriter,
    ) -> Self {
        Self {
            styles,
            links,
            writer,
            paragraphs: Vec::new(),
            tables: Vec::new(),
            open_links: Vec::new(),
            is_text: false,
            label: "",
            note: None,
        }
    }

    fn push(&mut self, text: &str) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.text.push_str(text);
        }
    }

    fn end_paragraph(&mut self) -> Result<(), Error> {
        let Some(Paragraph { text, style }) = self.paragraphs.pop() else {
            return Ok(());
        };
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
        if let Some(note) = self.note.take() {
            return self.writer.paragraph(&format!("[{} {note}] {text}", self.label));
        }
        match style.level {
            Some(level) => self.writer.heading(level, text),
            None if style.is_item == Some(true) => self.writer.item(text),
            None => self.writer.paragraph(text),
        }
    }

    fn end_row(&mut self) -> Result<(), Error> {
        let is_nested = self.tables.len() > 1;
        let Some(table) = self.tables.last_mut() else { return Ok(()) };
        let row = std::mem::take(&mut table.row);
        if !is_nested {
            return self.writer.row(&row);
        }
        table.rows.push(inline_row(&row));
        Ok(())
    }

    /// Ends a table; one within a cell becomes text of the cell.
    fn end_table(&mut self) {
        let Some(inner) = self.tables.pop() else { return };
        if let Some(outer) = self.tables.last_mut() {
            let gap = if outer.cell.is_empty() { "" } else { " " };
            outer.cell.push_str(gap);
            outer.cell.push_str(&inner.rows.join("; "));
        }
    }

    fn end_link(&mut self) {
        let Some(Some((address, from))) = self.open_links.pop() else { return };
        let Some(paragraph) = self.paragraphs.last_mut() else { return };
        link_text(&mut paragraph.text, from, &address);
    }

    fn start_link(&mut self, element: &Element<'_>) {
        let link = element.attribute("id").and_then(|id| self.links.get(&id));
        let address = link.filter(|link| link.is_external).map(|link| link.target.clone());
        let from = self.paragraphs.last().map_or(0, |paragraph| paragraph.text.len());
        self.open_links.push(address.map(|address| (address, from)));
    }

    /// Applies a style to the open paragraph; what it does not set stays.
    fn style(&mut self, style: ParagraphStyle) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.style = style.or(paragraph.style);
        }
    }
}

/// Address of a field that is a link: `HYPERLINK "https://…"`.
pub fn field_address(instruction: &str) -> Option<&str> {
    let (word, rest) = instruction.trim().split_once(char::is_whitespace)?;
    if !word.eq_ignore_ascii_case("hyperlink") {
        return None;
    }
    match rest.split_once('"') {
        Some((_, quoted)) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    }
}

/// Makes the end of a text a link, if its address is one that people can open.
pub fn link_text(text: &mut String, from: usize, address: &str) {
    let Some(label) = text.get(from..).map(str::trim).filter(|label| !label.is_empty()) else {
        return;
    };
    let is_address = address.starts_with("https://") || address.starts_with("http://");
    if is_address && label != address {
        let link = format!("[{label}]({address})");
        text.truncate(from);
        text.push_str(&link);
    }
}

impl Visitor for WordReader<'_> {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        let name = element.name();
        let value = || element.attribute("val").unwrap_or_default();
        match local(&name) {
            "p" => self.paragraphs.push(Paragraph::default()),
            "pStyle" => self.style(self.styles.get(&value())),
            "outlineLvl" => {
                self.style(ParagraphStyle { level: outline_level(&value()), is_item: None });
            }
            "numId" => self.style(ParagraphStyle { level: None, is_item: Some(is_list(&value())) }),
            "t" => self.is_text = true,
            "tab" => self.push("\t"),
            "br" | "cr" => self.push("\n"),
            "noBreakHyphen" => self.push("-"),
            "hyperlink" => self.start_link(element),
            "docPr" => {
                let description = element.attribute("descr").unwrap_or_default();
                if !description.trim().is_empty() {
                    self.push(&format!("[image: {}]", one_line(&description)));
                }
            }
            "footnoteReference" | "endnoteReference" | "commentReference" => {
                let label = match local(&name) {
                    "footnoteReference" => "note",
                    "endnoteReference" => "end note",
                    _ => "comment",
                };
                let id = element.attribute("id").unwrap_or_default();
                self.push(&format!("[{label} {id}]"));
            }
            "tbl" => self.tables.push(Table::default()),
            // Separator lines of notes.
            "footnote" | "endnote" if element.attribute("type").is_some() => {
                return Ok(Step::Skip);
            }
            "footnote" | "endnote" | "comment" => self.note = element.attribute("id"),
            // Tab stops; deleted text; what older programs show instead.
            "tabs" | "del" | "moveFrom" | "Fallback" => return Ok(Step::Skip),
            _ => {}
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, name: &str) -> Result<(), Error> {
        match local(name) {
            "t" => self.is_text = false,
            "p" => self.end_paragraph()?,
            "hyperlink" => self.end_link(),
            "tc" => {
                if let Some(table) = self.tables.last_mut() {
                    let cell = std::mem::take(&mut table.cell);
                    table.row.push(cell);
                }
            }
            "tr" => self.end_row()?,
            "tbl" => self.end_table(),
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.is_text {
            self.push(text);
        }
    }
}
