//! Compound files of Microsoft (MS-CFB), which are folders and streams in one file: which document is in
//! them.

mod old_slides;
mod old_word;
mod outlook;

use std::io::{Cursor, Read as _};

use cfb::CompoundFile;

use crate::{
    Document, DocumentKind, Error, MAX_UNPACKED_BYTES, UnreadableKind, mail::AttachmentReader,
    sheets,
};

type Container<'a> = CompoundFile<Cursor<&'a [u8]>>;

/// Reads the document that a compound file is: a message of Outlook, an Office file in the format
/// before 2007, or none.
pub fn read(content: &[u8], attachments: AttachmentReader<'_>) -> Result<Document, Error> {
    let Ok(mut file) = CompoundFile::open(Cursor::new(content)) else {
        // The library of workbooks reads some files that are not as the format wants them.
        return sheets::read_old(content).map_err(|error| match error {
            Error::Damaged(_) => Error::Damaged(DocumentKind::Office),
            error => error,
        });
    };
    let has = |name: &str| file.is_stream(name);
    if has("EncryptedPackage") {
        return Err(Error::Locked(DocumentKind::Office));
    }
    if has("__properties_version1.0") {
        return outlook::read(&mut file, attachments);
    }
    if has("WordDocument") {
        return old_word::read(&mut file);
    }
    if has("PowerPoint Document") {
        return old_slides::read(&mut file);
    }
    if has("Workbook") || has("Book") {
        return sheets::read_old(content);
    }
    Err(Error::Unreadable(UnreadableKind::Binary))
}

/// Content of a stream; `None` if there is no such stream, or it is damaged.
fn stream(file: &mut Container<'_>, path: &str) -> Option<Vec<u8>> {
    let stream = file.open_stream(path).ok()?;
    let mut content = Vec::new();
    stream.take(MAX_UNPACKED_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}
