//! Properties of paragraphs: pages of 512 bytes in the main stream, found by a table of offsets.

use super::{long, word};

/// Size of a page of properties, in bytes; the last one is the number of its paragraphs.
const PAGE_BYTES: usize = 512;

/// Length of a paragraph's entry in a page, in bytes; the first one is the offset of its properties.
const ENTRY_BYTES: usize = 13;

/// Numbers of built-in styles: headings, and the title.
const HEADINGS: std::ops::RangeInclusive<u16> = 1..=9;
const TITLE: u16 = 62;

/// Operations on paragraphs.
const IN_TABLE: u16 = 0x2416;
const ROW_END: u16 = 0x2417;
const OUTLINE_LEVEL: u16 = 0x2640;
const LIST: u16 = 0x460b;

/// Operations whose length takes two bytes.
const LONG_OPERATIONS: [u16; 2] = [0xd608, 0xd606];

/// What the text says about a paragraph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParagraphProperties {
    /// Level of a heading, from 1.
    pub level: Option<u8>,
    pub is_item: bool,
    pub is_in_table: bool,
    /// Whether the paragraph is the mark at the end of a row.
    pub is_row_end: bool,
}

#[derive(Debug)]
pub struct Paragraphs<'a> {
    /// Table of pages: first the offsets at which the text of each begins, then their numbers.
    table: &'a [u8],
    main: &'a [u8],
    /// Levels of the headings among the styles, by the numbers of these.
    levels: Vec<Option<u8>>,
}

impl<'a> Paragraphs<'a> {
    pub fn read(table: &'a [u8], styles: &[u8], main: &'a [u8]) -> Self {
        Self { table, main, levels: style_levels(styles) }
    }

    /// Properties of the paragraph with the character at an offset of the stream.
    pub fn at(&self, offset: usize) -> ParagraphProperties {
        self.find(offset).unwrap_or_default()
    }

    fn find(&self, offset: usize) -> Option<ParagraphProperties> {
        let pages = self.table.len().checked_sub(4)? / 8;
        let number = run_at(self.table, pages, offset)?;
        let page = long(self.table, 4 * (pages + 1) + 4 * number).ok()? & 0x3f_ffff;
        let from = page * PAGE_BYTES;
        let page = self.main.get(from..from + PAGE_BYTES)?;
        let paragraphs = usize::from(page[PAGE_BYTES - 1]);
        let number = run_at(page, paragraphs, offset)?;
        let entry = 4 * (paragraphs + 1) + ENTRY_BYTES * number;
        let offset = 2 * usize::from(*page.get(entry)?);
        if offset == 0 {
            return None;
        }
        // The length counts words, with or without its own byte.
        let (from, length) = match *page.get(offset)? {
            0 => (offset + 2, 2 * usize::from(*page.get(offset + 1)?)),
            words => (offset + 1, 2 * usize::from(words) - 1),
        };
        let properties = page.get(from..(from + length).min(PAGE_BYTES))?;
        Some(self.properties(properties))
    }

    /// Properties from the number of a style and a list of operations.
    fn properties(&self, content: &[u8]) -> ParagraphProperties {
        let style = word(content, 0).unwrap_or_default();
        let level = self.levels.get(usize::from(style)).copied().flatten();
        let mut properties = ParagraphProperties { level, ..ParagraphProperties::default() };
        let mut operations = content.get(2..).unwrap_or_default();
        while let Ok(operation) = word(operations, 0) {
            let (start, length) = operand(operation, operations);
            let Some(value) = operations.get(start..start + length) else { break };
            let first = value.first().copied().unwrap_or_default();
            match operation {
                IN_TABLE => properties.is_in_table = first != 0,
                ROW_END => properties.is_row_end = first != 0,
                OUTLINE_LEVEL => {
                    properties.level =
                        Some(first).filter(|level| *level < 9).map(|level| level + 1);
                }
                LIST => properties.is_item = value != [0, 0],
                _ => {}
            }
            operations = &operations[start + length..];
        }
        properties
    }
}

/// Place and length of the operand of an operation at the beginning of a list.
fn operand(operation: u16, list: &[u8]) -> (usize, usize) {
    match operation >> 13 {
        0 | 1 => (2, 1),
        2 | 4 | 5 => (2, 2),
        3 => (2, 4),
        7 => (2, 3),
        _ if LONG_OPERATIONS.contains(&operation) => {
            let length = usize::from(word(list, 2).unwrap_or_default());
            (4, length.saturating_sub(1))
        }
        _ => (3, usize::from(list.get(2).copied().unwrap_or_default())),
    }
}

/// Number of the run that contains an offset. The offsets at which runs begin are sorted.
fn run_at(offsets: &[u8], count: usize, offset: usize) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match long(offsets, 4 * (middle + 1)).ok()? <= offset {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    (low < count && long(offsets, 4 * low).ok()? <= offset).then_some(low)
}

/// Levels of styles of headings, by the numbers of all styles.
fn style_levels(styles: &[u8]) -> Vec<Option<u8>> {
    let mut levels = Vec::new();
    let header = usize::from(word(styles, 0).unwrap_or_default());
    let mut rest = styles.get(2 + header..).unwrap_or_default();
    while let Ok(length) = word(rest, 0) {
        let length = usize::from(length);
        let kind = word(rest, 2).ok().filter(|_| length > 0).map(|first| first & 0x0fff);
        levels.push(match kind {
            Some(TITLE) => Some(1),
            Some(kind) if HEADINGS.contains(&kind) => u8::try_from(kind).ok(),
            Some(_) | None => None,
        });
        rest = rest.get(2 + length.next_multiple_of(2)..).unwrap_or_default();
    }
    levels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_found_in_its_run() {
        let offsets: Vec<u8> = [10_u32, 20, 30].into_iter().flat_map(u32::to_le_bytes).collect();

        let found = [9, 10, 19, 20, 29, 30].map(|offset| run_at(&offsets, 2, offset));

        assert_eq!(found, [None, Some(0), Some(0), Some(1), Some(1), None]);
    }

    #[test]
    fn operations_after_long_ones_are_read() {
        let paragraphs = Paragraphs { table: &[], main: &[], levels: vec![None, Some(2)] };
        let mut content = vec![1, 0];
        content.extend([0x08, 0xd6, 4, 0, 9, 9, 9, 0x16, 0x24, 1, 0x0b, 0x46, 1, 0]);

        let properties = paragraphs.properties(&content);

        assert_eq!((properties.level, properties.is_in_table), (Some(2), true));
        assert_eq!((properties.is_item, properties.is_row_end), (true, false));
    }

    proptest! {
        #[test]
        fn any_bytes_are_properties(
            main in proptest::collection::vec(any::<u8>(), 0..1100),
            table in proptest::collection::vec(0_u8..4, 0..40),
            offset in 0..2000_usize,
        ) {
            let paragraphs = Paragraphs::read(&table, &main, &main);
            let _ = paragraphs.at(offset);
            let _ = paragraphs.properties(&main);
        }
    }
}
