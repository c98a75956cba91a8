//! ZIPs as no packer makes them.

use std::io::Write as _;

use flate2::{Compression, Crc, write::DeflateEncoder};

/// An entry, as whoever means harm writes it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) content: Vec<u8>,
    pub(crate) is_packed: bool,
    /// The size that its headers say, if that is not the right one.
    pub(crate) says: Option<u32>,
}

impl Entry {
    pub(crate) fn new(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            mode: 0o100_644,
            content: content.as_ref().to_vec(),
            is_packed: false,
            says: None,
        }
    }
}

/// A ZIP of these, which checks nothing.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut list) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut crc = Crc::new();
        crc.update(&entry.content);
        let packed = if entry.is_packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&entry.content).unwrap();
            encoder.finish().unwrap()
        } else {
            entry.content.clone()
        };
        let small = |size: usize| u32::try_from(size).unwrap().to_le_bytes();
        let mut shared = Vec::new();
        // Version, flags (names are UTF-8), method, time, date.
        for field in [20_u16, 0x800, if entry.is_packed { 8 } else { 0 }, 0, 0x21] {
            shared.extend(field.to_le_bytes());
        }
        shared.extend(crc.sum().to_le_bytes());
        shared.extend(small(packed.len()));
        shared.extend(entry.says.map_or_else(|| small(entry.content.len()), u32::to_le_bytes));
        shared.extend(u16::try_from(entry.name.len()).unwrap().to_le_bytes());
        shared.extend([0, 0]);

        let at = small(bytes.len());
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&shared);
        bytes.extend(&entry.name);
        bytes.extend(packed);

        list.extend(b"PK\x01\x02\x14\x03");
        list.extend(&shared);
        // No comment, first disk, inner attributes.
        list.extend([0; 6]);
        list.extend((entry.mode << 16).to_le_bytes());
        list.extend(at);
        list.extend(&entry.name);
    }
    let list_at = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let list_size = u32::try_from(list.len()).unwrap().to_le_bytes();
    let entries = u16::try_from(entries.len()).unwrap_or(u16::MAX).to_le_bytes();
    bytes.extend(list);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(entries);
    bytes.extend(entries);
    bytes.extend(list_size);
    bytes.extend(list_at);
    bytes.extend([0, 0]);
    bytes
}

/// A skill of a name, whole and harmless.
pub(crate) fn skill(name: &str) -> Entry {
    Entry::new("SKILL.md", format!("---\nname: {name}\ndescription: what it is for\n---\n# How\n"))
}
