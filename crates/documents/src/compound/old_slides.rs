//! PowerPoint presentations in the format before 2007 (.ppt, MS-PPT): titles, texts and notes of slides.
//!
//! A presentation is a stream of records, to which each save adds new versions of what was changed.
//! Each save has a directory of offsets; the newest one that names a record says which version counts.

use std::collections::HashMap;

use crate::{
    Document, DocumentKind, Error,
    compound::{Container, stream},
    writer::{TextWriter, one_line},
};

const DAMAGED_PRESENTATION: Error = Error::Damaged(DocumentKind::Presentation);

/// Value in the stream of the current user if the presentation has a password.
const ENCRYPTION_TOKEN: u32 = 0xf3d1_c4df;

/// Maximum number of saves whose directories are read.
const MAX_SAVES: usize = 1000;

/// Maximum nesting of records.
const MAX_RECORD_DEPTH: usize = 16;

/// Length of the header of a record, in bytes.
const HEADER_BYTES: usize = 8;

/// Kinds of records.
mod kind {
    pub const DOCUMENT: u16 = 0x03e8;
    pub const SLIDE_PROPERTIES: u16 = 0x03ef;
    pub const SLIDE_REFERENCE: u16 = 0x03f3;
    pub const TEXT_HEADER: u16 = 0x0f9f;
    pub const WIDE_TEXT: u16 = 0x0fa0;
    pub const TEXT: u16 = 0x0fa8;
    pub const SLIDE_LIST: u16 = 0x0ff0;
    pub const SAVE: u16 = 0x0ff5;
    pub const DIRECTORY: u16 = 0x1772;
}

/// Lists of slides.
const SLIDES: u16 = 0;
const NOTES: u16 = 2;

/// Kinds of text.
const TITLE: u32 = 0;
const NOTES_TEXT: u32 = 2;
const CENTRED_TITLE: u32 = 6;

/// Reads a presentation.
pub fn read(file: &mut Container<'_>) -> Result<Document, Error> {
    let user = stream(file, "/Current User").ok_or(DAMAGED_PRESENTATION)?;
    let content = stream(file, "/PowerPoint Document").ok_or(DAMAGED_PRESENTATION)?;
    if long(&user, HEADER_BYTES + 4) == Some(ENCRYPTION_TOKEN) {
        return Err(Error::Locked(DocumentKind::Presentation));
    }
    let save = long(&user, HEADER_BYTES + 8).ok_or(DAMAGED_PRESENTATION)?;
    let presentation = Presentation::open(&content, save).ok_or(DAMAGED_PRESENTATION)?;
    let mut writer = TextWriter::default();
    let notes = presentation.list(NOTES);
    for (number, slide) in presentation.list(SLIDES).into_iter().enumerate() {
        presentation.write_slide(number + 1, slide, &notes, &mut writer)?;
    }
    let (kind, text) = (DocumentKind::Presentation, writer.finish());
    Ok(Document { kind, title: String::new(), text })
}

#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    kind: u16,
    instance: u16,
    is_container: bool,
    content: &'a [u8],
}

/// Records that lie one after the other; a damaged one ends them.
fn records(content: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = content;
    std::iter::from_fn(move || {
        let (record, after) = split_record(rest)?;
        rest = after;
        Some(record)
    })
}

fn split_record(content: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, rest) = content.split_at_checked(HEADER_BYTES)?;
    let version = u16::from_le_bytes([header[0], header[1]]);
    let length = usize::try_from(long(header, 4)?).ok()?;
    let (content, rest) = rest.split_at(length.min(rest.len()));
    let record = Record {
        kind: u16::from_le_bytes([header[2], header[3]]),
        instance: version >> 4,
        is_container: version & 0xf == 0xf,
        content,
    };
    Some((record, rest))
}

/// Number of four bytes at an offset.
fn long(content: &[u8], at: usize) -> Option<u32> {
    content.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Text of a slide, and which kind it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SlideText {
    kind: u32,
    text: String,
}

/// Slide in a list.
#[derive(Debug)]
struct ListedSlide {
    /// Identifier of the slide's record.
    record: u32,
    id: u32,
    /// Texts that stand in the list instead of the slide.
    texts: Vec<SlideText>,
}

struct Presentation<'a> {
    content: &'a [u8],
    /// Offsets of records, by their identifiers.
    offsets: HashMap<u32, u32>,
    document: Record<'a>,
}

impl<'a> Presentation<'a> {
    /// Reads the directories; `save` is the offset of the record of the last save.
    fn open(content: &'a [u8], save: u32) -> Option<Self> {
        let mut offsets = HashMap::new();
        let mut document = None;
        let mut next = save;
        for _ in 0..MAX_SAVES {
            let save = record_at(content, next).filter(|record| record.kind == kind::SAVE)?.content;
            document = document.or(long(save, 16));
            let table = record_at(content, long(save, 12)?)?;
            if table.kind == kind::DIRECTORY {
                read_directory(table.content, &mut offsets);
            }
            match long(save, 8)? {
                // Saves are appended, so an earlier one is before it.
                earlier if earlier != 0 && earlier < next => next = earlier,
                _ => break,
            }
        }
        let document = record_at(content, *offsets.get(&document?)?)?;
        (document.kind == kind::DOCUMENT).then_some(Self { content, offsets, document })
    }

    /// Record with an identifier.
    fn record(&self, id: u32) -> Option<Record<'a>> {
        record_at(self.content, *self.offsets.get(&id)?)
    }

    /// Slides of a list, in their order.
    fn list(&self, instance: u16) -> Vec<ListedSlide> {
        let lists = records(self.document.content)
            .filter(|record| record.kind == kind::SLIDE_LIST && record.instance == instance);
        let mut slides: Vec<ListedSlide> = Vec::new();
        for list in lists {
            let mut text_kind = 0;
            for record in records(list.content) {
                if record.kind == kind::SLIDE_REFERENCE {
                    let (slide, id) = (long(record.content, 0), long(record.content, 12));
                    let (record, id) = (slide.unwrap_or_default(), id.unwrap_or_default());
                    slides.push(ListedSlide { record, id, texts: Vec::new() });
                } else if let Some(slide) = slides.last_mut() {
                    slide.texts.extend(text_of(record, &mut text_kind));
                }
            }
        }
        slides
    }

    fn write_slide(
        &self,
        number: usize,
        listed: ListedSlide,
        notes: &[ListedSlide],
        writer: &mut TextWriter,
    ) -> Result<(), Error> {
        let ListedSlide { record, texts: mut all, .. } = listed;
        let slide = self.record(record);
        if let Some(slide) = slide {
            for text in texts_in(slide) {
                if !all.contains(&text) {
                    all.push(text);
                }
            }
        }
        let is_title = |text: &SlideText| matches!(text.kind, TITLE | CENTRED_TITLE);
        let title = all.iter().position(is_title).map(|at| one_line(&all.remove(at).text));
        match title.filter(|title| !title.is_empty()) {
            Some(title) => writer.heading(2, &format!("Slide {number}: {title}"))?,
            None => writer.heading(2, &format!("Slide {number}"))?,
        }
        for SlideText { text, .. } in all {
            writer.paragraph(text.trim())?;
        }
        let notes = slide.and_then(|slide| self.notes_of(slide, notes));
        let texts = notes.map(texts_in).unwrap_or_default().into_iter();
        let texts = texts.filter(|text| text.kind == NOTES_TEXT).map(|text| one_line(&text.text));
        for text in texts.filter(|text| !text.is_empty()) {
            writer.paragraph(&format!("Notes: {text}"))?;
        }
        Ok(())
    }

    fn notes_of(&self, slide: Record<'a>, notes: &[ListedSlide]) -> Option<Record<'a>> {
        let properties =
            records(slide.content).find(|record| record.kind == kind::SLIDE_PROPERTIES)?;
        let id = long(properties.content, 16).filter(|id| *id != 0)?;
        self.record(notes.iter().find(|notes| notes.id == id)?.record)
    }
}

fn record_at(content: &[u8], offset: u32) -> Option<Record<'_>> {
    let (record, _) = split_record(content.get(usize::try_from(offset).ok()?..)?)?;
    Some(record)
}

/// Reads a table of offsets. A later save has been read before: its offsets stay.
fn read_directory(table: &[u8], offsets: &mut HashMap<u32, u32>) {
    let mut numbers = table.chunks_exact(4).filter_map(|four| long(four, 0));
    while let Some(first) = numbers.next() {
        let (id, count) = (first & 0xf_ffff, first >> 20);
        for (id, offset) in (id..id + count).zip(numbers.by_ref()) {
            offsets.entry(id).or_insert(offset);
        }
    }
}

/// Texts of the shapes of a slide.
fn texts_in(slide: Record<'_>) -> Vec<SlideText> {
    let mut texts = Vec::new();
    collect_texts(slide, &mut texts, &mut 0, 0);
    texts
}

fn collect_texts(record: Record<'_>, texts: &mut Vec<SlideText>, kind: &mut u32, depth: usize) {
    if depth > MAX_RECORD_DEPTH {
        return;
    }
    for inner in records(record.content) {
        match inner.is_container {
            true => collect_texts(inner, texts, kind, depth + 1),
            false => texts.extend(text_of(inner, kind)),
        }
    }
}

/// Text of a record; a header before it says which kind it is.
fn text_of(record: Record<'_>, kind: &mut u32) -> Option<SlideText> {
    let text = match record.kind {
        kind::TEXT_HEADER => {
            *kind = long(record.content, 0)?;
            return None;
        }
        kind::WIDE_TEXT => {
            let units = record.content.chunks_exact(2);
            let units: Vec<u16> = units.map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        // The first 256 characters of Unicode.
        kind::TEXT => record.content.iter().map(|byte| char::from(*byte)).collect(),
        _ => return None,
    };
    let text = text.replace(['\r', '\u{b}'], "\n");
    // A star stands for the number of the slide, or for the date.
    (!matches!(text.trim(), "" | "*")).then_some(SlideText { kind: *kind, text })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use cfb::CompoundFile;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_of_a_later_save_count() {
        let mut offsets = HashMap::from([(2, 200)]);
        let table: Vec<u8> = [0x0020_0001_u32, 10, 20, 0x0010_0007, 70]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();

        read_directory(&table, &mut offsets);

        assert_eq!(offsets, HashMap::from([(1, 10), (2, 200), (7, 70)]));
    }

    proptest! {
        #[test]
        fn any_change_of_a_presentation_is_read_or_refused(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)
        ) {
            let mut content = include_bytes!("../../testdata/roadmap-libreoffice.ppt").to_vec();
            for (index, byte) in changes {
                let at = index.index(content.len());
                content[at] = byte;
            }
            if let Ok(mut file) = CompoundFile::open(Cursor::new(content.as_slice())) {
                let _ = read(&mut file);
            }
        }

        #[test]
        fn any_bytes_are_records(
            content in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x0f), Just(0xf0), Just(3), Just(0)], 0..300
            ),
            save in 0..300_u32,
        ) {
            let presentation = Presentation::open(&content, save);
            prop_assert!(presentation.is_none_or(|found| found.list(SLIDES).len() <= content.len()));
            if let Some(record) = record_at(&content, save) {
                let _ = texts_in(record);
            }
        }
    }
}
