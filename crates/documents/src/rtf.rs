//! Rich Text Format: paragraphs, headings, lists, tables, links and notes.
//!
//! A document is read token by token, without a tree. Groups are kept on a stack, since they nest as
//! deep as their author likes.

mod compression;
mod fonts;
mod tokens;

use std::collections::HashMap;

pub use compression::unpack;

use self::{
    fonts::{Fonts, PendingText},
    tokens::{Token, Tokens},
};
use crate::{
    Document, DocumentKind, Error,
    word::{field_address, link_text},
    writer::{TextWriter, one_line},
};

/// Maximum nesting of groups.
const MAX_GROUP_DEPTH: usize = 1000;

/// Groups whose text is no part of the document.
const SKIPPED_GROUPS: [&[u8]; 20] = [
    b"colortbl",
    b"pict",
    b"nonshppict",
    b"header",
    b"headerl",
    b"headerr",
    b"headerf",
    b"footer",
    b"footerl",
    b"footerr",
    b"footerf",
    b"ftnsep",
    b"aftnsep",
    b"xe",
    b"tc",
    b"shprslt",
    b"nonesttables",
    b"sp",
    b"filetbl",
    b"private",
];

/// Control words that stand for a character.
const CHARACTERS: [(&[u8], &str); 13] = [
    (b"tab", "\t"),
    (b"line", "\n"),
    (b"lbr", "\n"),
    (b"emdash", "—"),
    (b"endash", "–"),
    (b"bullet", "•"),
    (b"lquote", "‘"),
    (b"rquote", "’"),
    (b"ldblquote", "“"),
    (b"rdblquote", "”"),
    (b"emspace", " "),
    (b"enspace", " "),
    (b"qmspace", " "),
];

pub fn read(content: &[u8]) -> Result<Document, Error> {
    let mut reader = RtfReader::default();
    for token in Tokens::new(content) {
        reader.token(token)?;
        if reader.is_done {
            break;
        }
    }
    let is_cut = !reader.is_done;
    let (title, mut writer) = reader.finish()?;
    if is_cut {
        writer.paragraph("(the document is cut off here)")?;
    }
    Ok(Document { kind: DocumentKind::Rtf, title, text: writer.finish() })
}

/// Use of the text of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Destination {
    #[default]
    Body,
    Skipped,
    /// Drawing: only the text in it is read.
    Shape,
    Fonts,
    Styles,
    Properties,
    Title,
    /// Instruction of a field, such as a link's address.
    Instruction,
}

/// What happens at the end of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GroupEnd {
    #[default]
    Nothing,
    Field,
    FieldResult,
    Note,
}

/// Properties of a group, which groups within it inherit.
#[derive(Debug, Clone, Copy)]
struct Group {
    destination: Destination,
    end: GroupEnd,
    font: Option<i32>,
    /// Number of characters after `\u` that stand for it in older programs.
    replacement_chars: usize,
    is_hidden: bool,
    style: i32,
    /// Level of a heading, from 1.
    level: Option<u8>,
    is_in_table: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            destination: Destination::Body,
            end: GroupEnd::Nothing,
            font: None,
            replacement_chars: 1,
            is_hidden: false,
            style: 0,
            level: None,
            is_in_table: false,
        }
    }
}

#[derive(Debug, Default)]
struct Field {
    instruction: String,
    /// Paragraph and place where the text begins that people see.
    result: (usize, usize),
}

#[derive(Debug, Default)]
struct RtfReader {
    group: Group,
    /// Groups around the current one.
    outer: Vec<Group>,
    is_done: bool,
    fonts: Fonts,
    pending: PendingText,
    /// Number of characters to skip, which stand for the last `\u`.
    to_skip: usize,
    /// Whether the next control word may be unknown, and its group is skipped then.
    is_optional: bool,
    style_name: String,
    heading_levels: HashMap<i32, u8>,
    title: String,
    fields: Vec<Field>,
    open_notes: usize,
    paragraph: String,
    /// Number of paragraphs that have ended.
    paragraphs: usize,
    is_item: bool,
    cell: String,
    cells: Vec<String>,
    writer: TextWriter,
}

impl RtfReader {
    fn token(&mut self, token: Token<'_>) -> Result<(), Error> {
        match token {
            Token::GroupStart => {
                self.flush();
                self.to_skip = 0;
                if self.outer.len() >= MAX_GROUP_DEPTH {
                    return Err(Error::Damaged(DocumentKind::Rtf));
                }
                self.outer.push(self.group);
                self.group.end = GroupEnd::Nothing;
            }
            Token::GroupEnd => {
                self.flush();
                self.end_group();
            }
            Token::Word { name: b"u", value } => {
                self.is_optional = false;
                self.to_skip = self.group.replacement_chars;
                self.flush_bytes();
                self.pending.push_unit(value.unwrap_or_default());
            }
            Token::Word { name, value } => {
                self.flush();
                self.to_skip = 0;
                self.word(name, value)?;
            }
            Token::Symbol(symbol) => {
                self.flush();
                self.symbol(symbol)?;
            }
            Token::Byte(byte) => self.bytes(&[byte]),
            Token::Text(text) => self.bytes(text),
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let skipped = self.to_skip.min(bytes.len());
        self.to_skip -= skipped;
        if skipped < bytes.len() {
            self.flush_units();
            self.pending.push_bytes(&bytes[skipped..]);
        }
    }

    fn symbol(&mut self, symbol: u8) -> Result<(), Error> {
        match symbol {
            b'*' => self.is_optional = true,
            b'~' => self.push(" "),
            b'_' => self.push("-"),
            b'\\' | b'{' | b'}' => self.bytes(&[symbol]),
            b'\r' | b'\n' if self.group.destination == Destination::Body => self.end_paragraph()?,
            _ => {}
        }
        Ok(())
    }

    fn word(&mut self, name: &[u8], value: Option<i32>) -> Result<(), Error> {
        let is_optional = std::mem::take(&mut self.is_optional);
        if self.group.destination == Destination::Skipped {
            return Ok(());
        }
        let is_on = value != Some(0);
        match name {
            b"ansicpg" => self.fonts.set_code_page(value.unwrap_or_default()),
            b"deff" => self.fonts.default = value,
            b"f" => {
                self.group.font = value;
                if self.group.destination == Destination::Fonts {
                    self.fonts.begin(value.unwrap_or_default());
                }
            }
            b"fcharset" if self.group.destination == Destination::Fonts => {
                self.fonts.set_character_set(value.unwrap_or_default());
            }
            b"uc" => {
                self.group.replacement_chars =
                    usize::try_from(value.unwrap_or(1)).unwrap_or_default();
            }
            b"v" | b"deleted" => self.group.is_hidden = is_on,
            b"plain" => (self.group.font, self.group.is_hidden) = (None, false),
            b"s" => self.group.style = value.unwrap_or_default(),
            b"outlinelevel" => {
                let level = value.and_then(|level| u8::try_from(level).ok());
                self.group.level = level.filter(|level| *level < 9).map(|level| level + 1);
            }
            b"intbl" => self.group.is_in_table = is_on,
            b"pard" => {
                (self.group.style, self.group.level, self.group.is_in_table) = (0, None, false);
            }
            name if self.start_destination(name) => {}
            _ if is_optional => self.group.destination = Destination::Skipped,
            name if self.group.destination == Destination::Body => self.layout(name)?,
            _ => {}
        }
        Ok(())
    }

    /// Begins a group with a destination of its own; returns whether this word does so.
    fn start_destination(&mut self, name: &[u8]) -> bool {
        let destination = match (name, self.group.destination) {
            (b"fonttbl", _) => Destination::Fonts,
            (b"stylesheet", _) => Destination::Styles,
            (b"info", _) => Destination::Properties,
            (b"title", Destination::Properties) => Destination::Title,
            (b"shpinst", _) => Destination::Shape,
            (b"shptxt", Destination::Shape) => Destination::Body,
            (b"field", Destination::Body) => {
                self.fields.push(Field::default());
                self.group.end = GroupEnd::Field;
                Destination::Body
            }
            (b"fldinst", Destination::Body) if !self.fields.is_empty() => Destination::Instruction,
            (b"fldrslt", Destination::Body) => {
                let start = (self.paragraphs, self.paragraph.len());
                if let Some(field) = self.fields.last_mut() {
                    field.result = start;
                }
                self.group.end = GroupEnd::FieldResult;
                Destination::Body
            }
            (b"footnote" | b"annotation", Destination::Body) if self.group.is_hidden => {
                Destination::Skipped
            }
            (b"footnote" | b"annotation", Destination::Body) => {
                let label = if name == b"footnote" { "note" } else { "comment" };
                self.push(&format!(" [{label}: "));
                self.open_notes += 1;
                self.group.end = GroupEnd::Note;
                Destination::Body
            }
            (b"listtext" | b"pntext", Destination::Body) => {
                self.is_item = true;
                Destination::Skipped
            }
            (name, _) if SKIPPED_GROUPS.contains(&name) => Destination::Skipped,
            _ => return false,
        };
        self.group.destination = destination;
        true
    }

    /// Ends a paragraph, cell or row, or writes the character that a word stands for.
    fn layout(&mut self, name: &[u8]) -> Result<(), Error> {
        match name {
            b"par" | b"sect" | b"page" => self.end_paragraph(),
            b"cell" => {
                self.move_to_cell();
                self.cells.push(std::mem::take(&mut self.cell));
                Ok(())
            }
            b"nestcell" => {
                self.move_to_cell();
                Ok(())
            }
            b"row" => self.end_row(),
            name => {
                if let Some((_, text)) = CHARACTERS.iter().find(|(word, _)| *word == name) {
                    self.push(text);
                }
                Ok(())
            }
        }
    }

    fn end_group(&mut self) {
        match self.group.end {
            GroupEnd::Nothing => {}
            GroupEnd::Field => drop(self.fields.pop()),
            GroupEnd::FieldResult => self.end_field_result(),
            GroupEnd::Note => {
                self.open_notes = self.open_notes.saturating_sub(1);
                self.paragraph.truncate(self.paragraph.trim_end().len());
                self.paragraph.push(']');
            }
        }
        if self.group.destination == Destination::Styles {
            self.define_style();
        }
        (self.to_skip, self.is_optional) = (0, false);
        match self.outer.pop() {
            Some(group) => self.group = group,
            None => self.is_done = true,
        }
        self.is_done |= self.outer.is_empty();
    }

    /// Notes which style is one of headings. Names of these do not differ between languages.
    fn define_style(&mut self) {
        let name = std::mem::take(&mut self.style_name).trim_end_matches(';').trim().to_lowercase();
        let named = name.strip_prefix("heading ").and_then(|level| level.parse().ok());
        let named = named.or_else(|| (name == "title").then_some(1));
        if let Some(level) = named.or(self.group.level).filter(|_| !name.is_empty()) {
            self.heading_levels.insert(self.group.style, level);
        }
    }

    fn end_field_result(&mut self) {
        let Some(field) = self.fields.last_mut() else { return };
        // A field has one result; a file may repeat it.
        let instruction = std::mem::take(&mut field.instruction);
        let (paragraph, from) = field.result;
        if let Some(address) = field_address(&instruction).filter(|_| paragraph == self.paragraphs)
        {
            link_text(&mut self.paragraph, from, address);
        }
    }

    /// Ends a paragraph; one of a note or a cell becomes a part of that.
    fn end_paragraph(&mut self) -> Result<(), Error> {
        if self.open_notes > 0 {
            self.paragraph.push(' ');
            return Ok(());
        }
        if self.group.is_in_table {
            self.move_to_cell();
            return Ok(());
        }
        // A table whose last row has no end.
        if !self.cells.is_empty() || !self.cell.is_empty() {
            let text = std::mem::take(&mut self.paragraph);
            self.end_row()?;
            self.paragraph = text;
        }
        let is_item = std::mem::take(&mut self.is_item);
        let text = std::mem::take(&mut self.paragraph);
        self.paragraphs += 1;
        let text = text.trim();
        // Some programs write the bullet of an item as text.
        let item = text.strip_prefix('•').map(str::trim);
        let (is_item, text) = (is_item || item.is_some(), item.unwrap_or(text));
        if text.is_empty() {
            return Ok(());
        }
        let level =
            self.group.level.or_else(|| self.heading_levels.get(&self.group.style).copied());
        match level {
            Some(level) => self.writer.heading(level, text),
            None if is_item => self.writer.item(text),
            None => self.writer.paragraph(text),
        }
    }

    fn move_to_cell(&mut self) {
        let text = std::mem::take(&mut self.paragraph);
        self.paragraphs += 1;
        self.is_item = false;
        if !self.cell.is_empty() && !text.is_empty() {
            self.cell.push(' ');
        }
        self.cell.push_str(text.trim());
    }

    fn end_row(&mut self) -> Result<(), Error> {
        self.move_to_cell();
        if !self.cell.is_empty() {
            self.cells.push(std::mem::take(&mut self.cell));
        }
        let cells = std::mem::take(&mut self.cells);
        self.writer.row(&cells)
    }

    fn flush(&mut self) {
        self.flush_bytes();
        self.flush_units();
    }

    fn flush_bytes(&mut self) {
        if let Some(text) = self.pending.take_bytes(self.fonts.encoding(self.group.font)) {
            self.push(&text);
        }
    }

    fn flush_units(&mut self) {
        if let Some(text) = self.pending.take_units() {
            self.push(&text);
        }
    }

    fn push(&mut self, text: &str) {
        match self.group.destination {
            Destination::Body if self.group.is_hidden => {}
            Destination::Body => self.paragraph.push_str(text),
            Destination::Styles => self.style_name.push_str(text),
            Destination::Title => self.title.push_str(text),
            Destination::Instruction => {
                if let Some(field) = self.fields.last_mut() {
                    field.instruction.push_str(text);
                }
            }
            Destination::Skipped
            | Destination::Shape
            | Destination::Fonts
            | Destination::Properties => {}
        }
    }

    /// Ends what is open; returns the title and the writer.
    fn finish(mut self) -> Result<(String, TextWriter), Error> {
        self.flush();
        (self.open_notes, self.group.is_in_table) = (0, false);
        self.end_paragraph()?;
        Ok((one_line(&self.title), self.writer))
    }
}

#[cfg(test)]
mod tests;
