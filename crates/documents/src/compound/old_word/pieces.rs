//! Pieces of a document's text.

use encoding_rs::WINDOWS_1252;

use super::{DAMAGED_DOCUMENT, long};
use crate::{Error, MAX_TEXT_BYTES};

/// Kinds of entries before the table of pieces, and that of the table itself.
const PROPERTIES: u8 = 1;
const TABLE: u8 = 2;

/// Length of a piece's entry in the table, in bytes.
const ENTRY_BYTES: usize = 8;

/// Bit of an offset that says that each character is one byte.
const IS_COMPRESSED: usize = 0x4000_0000;

/// Part of the text whose characters lie one after the other.
#[derive(Debug)]
pub struct Piece {
    /// Place of the first character in the stream.
    from: usize,
    bytes_per_unit: usize,
    units: Vec<u16>,
}

impl Piece {
    /// Characters in UTF-16, with their offsets in the stream.
    pub fn units(&self) -> impl Iterator<Item = (usize, u16)> {
        self.units
            .iter()
            .enumerate()
            .map(|(number, unit)| (self.from + number * self.bytes_per_unit, *unit))
    }
}

/// Reads the pieces that a table (Clx) names.
pub fn read(table: &[u8], main: &[u8]) -> Result<Vec<Piece>, Error> {
    let mut table = table;
    while let [PROPERTIES, low, high, rest @ ..] = table {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        table = rest.get(length..).ok_or(DAMAGED_DOCUMENT)?;
    }
    let [TABLE, _, _, _, _, table @ ..] = table else { return Err(DAMAGED_DOCUMENT) };
    // The ends of all pieces, then their entries.
    let count = table.len().saturating_sub(4) / (4 + ENTRY_BYTES);
    let mut pieces = Vec::new();
    let mut left = MAX_TEXT_BYTES;
    for number in 0..count {
        let (first, end) = (long(table, 4 * number)?, long(table, 4 * (number + 1))?);
        let length = end.checked_sub(first).ok_or(DAMAGED_DOCUMENT)?;
        left = left.checked_sub(length).ok_or(Error::MuchText)?;
        let entry = 4 * (count + 1) + ENTRY_BYTES * number;
        pieces.push(piece(main, long(table, entry + 2)?, length)?);
    }
    Ok(pieces)
}

fn piece(main: &[u8], offset: usize, length: usize) -> Result<Piece, Error> {
    let is_compressed = offset & IS_COMPRESSED != 0;
    let offset = offset & (IS_COMPRESSED - 1);
    let (from, bytes_per_unit) = if is_compressed { (offset / 2, 1) } else { (offset, 2) };
    let content = main.get(from..from + length * bytes_per_unit).ok_or(DAMAGED_DOCUMENT)?;
    let units = match is_compressed {
        true => WINDOWS_1252.decode_without_bom_handling(content).0.encode_utf16().collect(),
        false => content.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect(),
    };
    Ok(Piece { from, bytes_per_unit, units })
}
