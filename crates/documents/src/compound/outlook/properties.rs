//! Properties of a message, a recipient or an attachment: fixed ones in a table, others in streams of
//! their own.

use std::collections::HashMap;

use encoding_rs::{Encoding, UTF_16LE};

use crate::{
    DocumentKind, Error,
    code_page::encoding_of_code_page,
    compound::{Container, stream},
    decode_text,
};

/// Length of an entry of the table, in bytes.
const ENTRY_BYTES: usize = 16;

/// Types of values (MS-OXCDATA).
const TYPE_NUMBER: u16 = 0x0003;
const TYPE_FOLDER: u16 = 0x000d;
const TYPE_TEXT: u16 = 0x001e;
const TYPE_UNICODE: u16 = 0x001f;
const TYPE_TIME: u16 = 0x0040;
const TYPE_BYTES: u16 = 0x0102;

/// Times count from 1601 in units of 100 ns.
const TICKS_PER_SECOND: i64 = 10_000_000;
const SECONDS_FROM_1601_TO_1970: i64 = 11_644_473_600;

/// Name of the stream with the table of an object's properties.
pub const PROPERTIES_STREAM: &str = "__properties_version1.0";

/// Length of the header before the table of properties, by the object that has the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderLength {
    Message,
    EmbeddedMessage,
    /// A recipient or an attachment.
    Part,
}

impl HeaderLength {
    const fn bytes(self) -> usize {
        match self {
            Self::Message => 32,
            Self::EmbeddedMessage => 24,
            Self::Part => 8,
        }
    }
}

#[derive(Debug)]
pub struct Properties {
    /// Folder of the compound file, with a slash at its end.
    folder: String,
    /// Fixed values by identifier and type.
    fixed: HashMap<(u16, u16), i64>,
    /// Code page of texts that are not Unicode.
    pub code_page: Option<i32>,
}

impl Properties {
    /// Reads the fixed properties in a folder.
    pub fn read(
        file: &mut Container<'_>,
        folder: &str,
        header: HeaderLength,
    ) -> Result<Self, Error> {
        let mut properties =
            Self { folder: folder.to_owned(), fixed: HashMap::new(), code_page: None };
        let table = properties.stream(file, PROPERTIES_STREAM);
        let table = table.ok_or(Error::Damaged(DocumentKind::Mail))?;
        let entries = table.get(header.bytes()..).unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let [kind, id] = [0, 2].map(|at| u16::from_le_bytes([entry[at], entry[at + 1]]));
            let mut value = [0; 8];
            value.copy_from_slice(&entry[8..]);
            properties.fixed.insert((id, kind), i64::from_le_bytes(value));
        }
        Ok(properties)
    }

    pub fn number(&self, id: u16) -> Option<i32> {
        let value = self.fixed.get(&(id, TYPE_NUMBER))?;
        // The upper half of the value is not used.
        i32::try_from(value & 0x7fff_ffff).ok()
    }

    /// Time as seconds since 1970.
    pub fn time(&self, id: u16) -> Option<i64> {
        let ticks = self.fixed.get(&(id, TYPE_TIME)).filter(|ticks| **ticks > 0)?;
        Some(ticks / TICKS_PER_SECOND - SECONDS_FROM_1601_TO_1970)
    }

    /// Encoding of the code page that a property names.
    pub fn encoding_of(&self, id: u16) -> Option<&'static Encoding> {
        encoding_of_code_page(self.number(id)?)
    }

    /// Text of a property; empty if there is none.
    pub fn text(&self, file: &mut Container<'_>, id: u16) -> String {
        if let Some(content) = self.value(file, id, TYPE_UNICODE) {
            return UTF_16LE.decode_without_bom_handling(&content).0.replace('\0', "");
        }
        let Some(content) = self.value(file, id, TYPE_TEXT) else { return String::new() };
        let encoding = self.code_page.and_then(encoding_of_code_page).map(Encoding::name);
        decode_text(&content, encoding).map(|decoded| decoded.text).unwrap_or_default()
    }

    pub fn bytes(&self, file: &mut Container<'_>, id: u16) -> Option<Vec<u8>> {
        self.value(file, id, TYPE_BYTES)
    }

    /// Folder that is the value of a property.
    pub fn folder_of(&self, file: &Container<'_>, id: u16) -> Option<String> {
        let path = format!("{}{}", self.folder, value_name(id, TYPE_FOLDER));
        file.is_storage(&path).then(|| format!("{path}/"))
    }

    fn value(&self, file: &mut Container<'_>, id: u16, kind: u16) -> Option<Vec<u8>> {
        self.stream(file, &value_name(id, kind))
    }

    fn stream(&self, file: &mut Container<'_>, name: &str) -> Option<Vec<u8>> {
        stream(file, &format!("{}{name}", self.folder))
    }
}

/// Name of the stream or folder of a value.
fn value_name(id: u16, kind: u16) -> String {
    format!("__substg1.0_{id:04X}{kind:04X}")
}
