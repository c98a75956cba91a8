//! Word documents in the format before 2007 (.doc, MS-DOC): the text of their pieces, with headings,
//! lists, tables, links, notes and comments.
//!
//! The stream `WordDocument` begins with a block of offsets (FIB). The text lies in pieces anywhere in
//! that stream; the table stream says in which order, and which paragraphs have which properties.

mod paragraphs;
mod pieces;

use self::{
    paragraphs::{ParagraphProperties, Paragraphs},
    pieces::Piece,
};
use crate::{
    Document, DocumentKind, Error, UnreadableKind,
    compound::{Container, stream},
    word::{field_address, link_text},
    writer::TextWriter,
};

const DAMAGED_DOCUMENT: Error = Error::Damaged(DocumentKind::Word);

/// Number of the format of Word 97, and offsets in the FIB.
const WORD_97: u16 = 0x00c1;
const FORMAT_AT: usize = 0x02;
const FLAGS_AT: usize = 0x0a;
const IS_ENCRYPTED: u16 = 0x0100;
const HAS_TABLE_1: u16 = 0x0200;

/// Offsets of the lengths of the document's parts, in their order, and the prefix of the paragraphs of
/// each; `None` if the part is not read.
const PARTS: [(usize, Option<&str>); 7] = [
    (0x4c, Some("")),
    (0x50, Some("[note] ")),
    // Headers and footers.
    (0x54, None),
    (0x58, None),
    (0x5c, Some("[comment] ")),
    (0x60, Some("[end note] ")),
    // Text boxes.
    (0x64, Some("")),
];

/// Offsets, in the FIB, of the offset and length of structures in the table stream.
const STYLES_AT: usize = 0xa2;
const PARAGRAPHS_AT: usize = 0x102;
const PIECES_AT: usize = 0x1a2;

/// Characters with a meaning.
const CELL_END: u16 = 0x07;
const LINE_END: u16 = 0x0b;
const PAGE_END: u16 = 0x0c;
const PARAGRAPH_END: u16 = 0x0d;
const FIELD_START: u16 = 0x13;
const FIELD_SEPARATOR: u16 = 0x14;
const FIELD_END: u16 = 0x15;
const HARD_HYPHEN: u16 = 0x1e;

/// Maximum nesting of fields.
const MAX_FIELD_DEPTH: usize = 1000;

/// Reads a document.
pub fn read(file: &mut Container<'_>) -> Result<Document, Error> {
    let main = stream(file, "/WordDocument").ok_or(DAMAGED_DOCUMENT)?;
    if word(&main, FORMAT_AT)? < WORD_97 {
        return Err(Error::Unreadable(UnreadableKind::OldWord));
    }
    let flags = word(&main, FLAGS_AT)?;
    if flags & IS_ENCRYPTED != 0 {
        return Err(Error::Locked(DocumentKind::Word));
    }
    let table = stream(file, if flags & HAS_TABLE_1 == 0 { "/0Table" } else { "/1Table" });
    let table = table.ok_or(DAMAGED_DOCUMENT)?;
    let structure = |at: usize| {
        let (from, length) = (long(&main, at)?, long(&main, at + 4)?);
        from.checked_add(length).and_then(|end| table.get(from..end)).ok_or(DAMAGED_DOCUMENT)
    };
    let pieces = pieces::read(structure(PIECES_AT)?, &main)?;
    let styles = structure(STYLES_AT).unwrap_or_default();
    let paragraphs = structure(PARAGRAPHS_AT).unwrap_or_default();
    let mut parts = Vec::new();
    let mut end = 0_usize;
    for (at, label) in PARTS {
        end = end.saturating_add(long(&main, at)?);
        parts.push((end, label));
    }
    let mut writer = TextWriter::default();
    let mut reader = OldWordReader {
        paragraphs: Paragraphs::read(paragraphs, styles, &main),
        writer: &mut writer,
        label: Some(""),
        units: Vec::new(),
        text: String::new(),
        cell: String::new(),
        cells: Vec::new(),
        fields: Vec::new(),
    };
    reader.read(&pieces, &parts)?;
    let text = writer.finish();
    Ok(Document { kind: DocumentKind::Word, title: String::new(), text })
}

/// Number of two bytes at an offset.
fn word(content: &[u8], at: usize) -> Result<u16, Error> {
    let bytes =
        content.get(at..).and_then(|rest| rest.first_chunk::<2>()).ok_or(DAMAGED_DOCUMENT)?;
    Ok(u16::from_le_bytes(*bytes))
}

/// Number of four bytes at an offset.
fn long(content: &[u8], at: usize) -> Result<usize, Error> {
    let bytes =
        content.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(DAMAGED_DOCUMENT)?;
    usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| DAMAGED_DOCUMENT)
}

/// Field that is open.
#[derive(Debug, Default)]
struct Field {
    instruction: String,
    /// Where in the paragraph the text begins that people see; `None` in the instruction.
    result: Option<usize>,
}

struct OldWordReader<'a> {
    paragraphs: Paragraphs<'a>,
    writer: &'a mut TextWriter,
    /// What stands before each paragraph of the current part; `None` if it is not read.
    label: Option<&'static str>,
    /// Characters of the open paragraph whose text is not decoded yet, in UTF-16.
    units: Vec<u16>,
    text: String,
    cell: String,
    cells: Vec<String>,
    fields: Vec<Field>,
}

impl OldWordReader<'_> {
    /// Reads the pieces of all parts; each part ends at a character.
    fn read(
        &mut self,
        pieces: &[Piece],
        parts: &[(usize, Option<&'static str>)],
    ) -> Result<(), Error> {
        let mut parts = parts.iter();
        let mut part = parts.next();
        let mut number = 0_usize;
        for piece in pieces {
            for (offset, unit) in piece.units() {
                while part.is_some_and(|(end, _)| number >= *end) {
                    self.end_paragraph(ParagraphProperties::default())?;
                    self.fields.clear();
                    part = parts.next();
                }
                let Some((_, label)) = part else { return Ok(()) };
                self.label = *label;
                self.unit(unit, offset)?;
                number += 1;
            }
        }
        self.end_paragraph(ParagraphProperties::default())
    }

    fn unit(&mut self, unit: u16, offset: usize) -> Result<(), Error> {
        match unit {
            PARAGRAPH_END | CELL_END | PAGE_END => {
                self.decode();
                let properties = self.paragraphs.at(offset);
                match (properties.is_in_table, unit) {
                    (true, CELL_END) => self.end_cell(properties)?,
                    (true, _) => self.move_to_cell(),
                    (false, _) => self.end_paragraph(properties)?,
                }
            }
            LINE_END => self.units.push(u16::from(b'\n')),
            HARD_HYPHEN => self.units.push(u16::from(b'-')),
            FIELD_START => {
                self.decode();
                if self.fields.len() >= MAX_FIELD_DEPTH {
                    return Err(DAMAGED_DOCUMENT);
                }
                self.fields.push(Field::default());
            }
            FIELD_SEPARATOR => {
                self.decode();
                let from = self.text.len();
                if let Some(field) = self.fields.last_mut() {
                    field.result = Some(from);
                }
            }
            FIELD_END => {
                self.decode();
                self.end_field();
            }
            // Pictures, references to notes, and other objects.
            unit if unit < 0x20 && unit != u16::from(b'\t') => {}
            unit => self.units.push(unit),
        }
        Ok(())
    }

    /// Decodes the pending characters; those of a field's instruction are no text.
    fn decode(&mut self) {
        let text = String::from_utf16_lossy(&self.units);
        self.units.clear();
        match self.fields.iter_mut().find(|field| field.result.is_none()) {
            Some(field) => field.instruction.push_str(&text),
            None => self.text.push_str(&text),
        }
    }

    fn end_field(&mut self) {
        let Some(Field { instruction, result: Some(from) }) = self.fields.pop() else { return };
        if let Some(address) = field_address(&instruction) {
            link_text(&mut self.text, from, address);
        }
    }

    fn move_to_cell(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !self.cell.is_empty() && !text.is_empty() {
            self.cell.push(' ');
        }
        self.cell.push_str(text.trim());
    }

    fn end_cell(&mut self, properties: ParagraphProperties) -> Result<(), Error> {
        self.move_to_cell();
        if !properties.is_row_end {
            self.cells.push(std::mem::take(&mut self.cell));
            return Ok(());
        }
        self.end_row()
    }

    fn end_row(&mut self) -> Result<(), Error> {
        let cells = std::mem::take(&mut self.cells);
        if self.label.is_some() { self.writer.row(&cells) } else { Ok(()) }
    }

    fn end_paragraph(&mut self, properties: ParagraphProperties) -> Result<(), Error> {
        self.decode();
        // A table whose last row has no end.
        if !self.cells.is_empty() || !self.cell.is_empty() {
            self.cells.push(std::mem::take(&mut self.cell));
            self.end_row()?;
        }
        let text = std::mem::take(&mut self.text);
        let Some(label) = self.label else { return Ok(()) };
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        match properties.level {
            _ if !label.is_empty() => self.writer.paragraph(&format!("{label}{text}")),
            Some(level) => self.writer.heading(level, text),
            None if properties.is_item => self.writer.item(text),
            None => self.writer.paragraph(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use cfb::CompoundFile;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_change_of_a_document_is_read_or_refused(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)
        ) {
            let mut content = include_bytes!("../../testdata/return-libreoffice.doc").to_vec();
            for (index, byte) in changes {
                let at = index.index(content.len());
                content[at] = byte;
            }
            if let Ok(mut file) = CompoundFile::open(Cursor::new(content.as_slice())) {
                let _ = read(&mut file);
            }
        }
    }
}
