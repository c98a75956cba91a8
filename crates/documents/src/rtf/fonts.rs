//! Encodings of a document's fonts, and text that is decoded when its end is known.

use std::collections::HashMap;

use encoding_rs::Encoding;

use crate::code_page::{DEFAULT_ENCODING, encoding_of_character_set, encoding_of_code_page};

#[derive(Debug, Default)]
pub struct Fonts {
    /// Font of text that names none.
    pub default: Option<i32>,
    code_page: Option<&'static Encoding>,
    /// Font whose properties are read.
    current: i32,
    encodings: HashMap<i32, &'static Encoding>,
}

impl Fonts {
    pub fn set_code_page(&mut self, number: i32) {
        self.code_page = encoding_of_code_page(number);
    }

    /// Begins the properties of a font.
    pub fn begin(&mut self, font: i32) {
        self.current = font;
    }

    pub fn set_character_set(&mut self, number: i32) {
        if let Some(encoding) = encoding_of_character_set(number) {
            self.encodings.insert(self.current, encoding);
        }
    }

    /// Encoding of a text in a font.
    pub fn encoding(&self, font: Option<i32>) -> &'static Encoding {
        let own = font.or(self.default).and_then(|font| self.encodings.get(&font).copied());
        own.or(self.code_page).unwrap_or(DEFAULT_ENCODING)
    }
}

/// Text whose characters may not be complete yet: bytes in the encoding of a font, or units of
/// UTF-16.
#[derive(Debug, Default)]
pub struct PendingText {
    bytes: Vec<u8>,
    units: Vec<u16>,
}

impl PendingText {
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a unit of UTF-16, which documents write as a signed number.
    pub fn push_unit(&mut self, value: i32) {
        let unit = u16::try_from(value.rem_euclid(0x1_0000)).unwrap_or_default();
        self.units.push(unit);
    }

    pub fn take_bytes(&mut self, encoding: &'static Encoding) -> Option<String> {
        if self.bytes.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        Some(encoding.decode_without_bom_handling(&bytes).0.into_owned())
    }

    pub fn take_units(&mut self) -> Option<String> {
        let units = std::mem::take(&mut self.units);
        (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
    }
}
