//! Format of a file: what can be read, by whom, and what cannot.

use std::fmt;

use holdfast_types::media_type;
use serde::{Deserialize, Serialize};

use crate::html;

/// Number of leading bytes in which a PDF's signature may appear.
const PDF_HEADER_BYTES: usize = 1024;

/// Beginnings of archives and compressed files.
const ARCHIVE_SIGNATURES: [&[u8]; 6] = [
    b"\x1f\x8b",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
    b"BZh",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
];

/// How the text of a file is extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Text in some encoding, or binary data of an unknown kind.
    Text,
    Html,
    /// Read by the child process.
    Document(DocumentFormat),
    Unreadable(UnreadableKind),
}

/// Format of a document, as far as the parent process looks into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentFormat {
    Pdf,
    /// ZIP archive: an office file, a book, or another archive.
    Archive,
    /// Compound file of Microsoft: a message of Outlook, an office file in an old format or with a
    /// password.
    Compound,
    Rtf,
    Mail,
}

/// Kind of a document that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    Pdf,
    Word,
    Workbook,
    Presentation,
    OpenDocument,
    Book,
    Mail,
    Rtf,
    /// ZIP archive or compound file whose contents are not known.
    Office,
}

impl fmt::Display for DocumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pdf => "PDF",
            Self::Word => "Word document",
            Self::Workbook => "Excel workbook",
            Self::Presentation => "PowerPoint presentation",
            Self::OpenDocument => "OpenDocument file",
            Self::Book => "EPUB book",
            Self::Mail => "mail",
            Self::Rtf => "Rich Text document",
            Self::Office => "ZIP or Office file",
        })
    }
}

/// Kind of file whose text is not extracted. The texts complete a sentence whose subject is the
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadableKind {
    /// Word document in the format of Word 6 or 95.
    OldWord,
    /// File in a mail in a mail, and so on.
    DeepAttachment,
    Iwork,
    Archive,
    Image,
    AudioOrVideo,
    Binary,
}

impl fmt::Display for UnreadableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OldWord => {
                "is a Word document in the format before 1997: open it in Word or LibreOffice, save \
                 it as .docx, and give that"
            }
            Self::DeepAttachment => "is attached to a mail in too many others: give it alone",
            Self::Iwork => {
                "is a document of Apple Pages, Numbers or Keynote: export it as Word, Excel, \
                 PowerPoint or PDF, and give that"
            }
            Self::Archive => "is an archive or a compressed file: unpack it, and give its files",
            Self::Image => {
                "is an image: have its text recognised (OCR) first, or give its text"
            }
            Self::AudioOrVideo => "is a sound or a video: give a transcript of it",
            Self::Binary => {
                "is binary data of an unknown kind: text, Markdown, HTML, PDF, Word, Excel, \
                 PowerPoint, OpenDocument, RTF, EPUB and mails (.eml, .msg) can be read; give its text"
            }
        })
    }
}

impl FileFormat {
    /// Detects the format of a file by its content, then by its declared media type, which may be
    /// empty, and its name, which may be empty too.
    #[must_use]
    pub fn detect(content: &[u8], declared_type: &str, name: &str) -> Self {
        let declared = declared_type.split(';').next().unwrap_or_default().trim().to_lowercase();
        if let Some(format) = by_signature(content) {
            return format;
        }
        let is_unnamed = matches!(declared.as_str(), "" | "application/octet-stream");
        let kind = declared.split('/').next().unwrap_or_default();
        let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        match (declared.as_str(), kind) {
            ("application/pdf" | "application/x-pdf", _) => Self::Document(DocumentFormat::Pdf),
            ("message/rfc822", _) => Self::Document(DocumentFormat::Mail),
            ("text/html" | "application/xhtml+xml", _) => Self::Html,
            // A drawing in XML.
            ("image/svg+xml", _) => Self::Text,
            (_, "image") => Self::Unreadable(UnreadableKind::Image),
            (_, "audio" | "video") => Self::Unreadable(UnreadableKind::AudioOrVideo),
            _ if ending.as_deref() == Some("eml") => Self::Document(DocumentFormat::Mail),
            _ if is_unnamed && has_pdf_header(content) => Self::Document(DocumentFormat::Pdf),
            _ if is_unnamed && html::begins_as_html(content) => Self::Html,
            _ => Self::Text,
        }
    }
}

fn by_signature(content: &[u8]) -> Option<FileFormat> {
    let begins = |signature: &[u8]| content.starts_with(signature);
    if begins(b"%PDF-") {
        return Some(FileFormat::Document(DocumentFormat::Pdf));
    }
    if begins(b"PK\x03\x04") || begins(b"PK\x05\x06") {
        return Some(FileFormat::Document(DocumentFormat::Archive));
    }
    if begins(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1") {
        return Some(FileFormat::Document(DocumentFormat::Compound));
    }
    if begins(b"{\\rtf") {
        return Some(FileFormat::Document(DocumentFormat::Rtf));
    }
    // A text may begin with the letters of a signature: `ID3`, `BZh`.
    if is_plain_text(content) {
        return None;
    }
    if ARCHIVE_SIGNATURES.iter().any(|signature| begins(signature)) {
        return Some(FileFormat::Unreadable(UnreadableKind::Archive));
    }
    match media_type("", content).split('/').next() {
        Some("image") => Some(FileFormat::Unreadable(UnreadableKind::Image)),
        Some("audio" | "video") => Some(FileFormat::Unreadable(UnreadableKind::AudioOrVideo)),
        _ => None,
    }
}

fn is_plain_text(content: &[u8]) -> bool {
    let is_text = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}');
    std::str::from_utf8(content).is_ok_and(|text| text.chars().all(is_text))
}

/// Whether the signature of a PDF is near the beginning of a file that is no text about PDFs.
fn has_pdf_header(content: &[u8]) -> bool {
    let start = &content[..content.len().min(PDF_HEADER_BYTES)];
    start.windows(5).any(|five| five == b"%PDF-") && std::str::from_utf8(content).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdf_is_known_by_its_beginning_whatever_it_is_called() {
        let pdf = FileFormat::Document(DocumentFormat::Pdf);
        for declared in ["", "text/plain", "application/octet-stream", "application/pdf"] {
            assert_eq!(FileFormat::detect(b"%PDF-1.7\n", declared, ""), pdf, "{declared}");
        }
        assert_eq!(FileFormat::detect(b"\xff\n%PDF-1.7\n", "", ""), pdf);
        assert_eq!(FileFormat::detect(b"how %PDF-1.7 is written", "", ""), FileFormat::Text);
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_content_or_its_type() {
        for (content, declared, kind) in [
            (&b"\x89PNG\r\n\x1a\n"[..], "", UnreadableKind::Image),
            (b"\x89PNG", "image/png", UnreadableKind::Image),
            (b"\x1f\x8b\x08", "", UnreadableKind::Archive),
            (b"ID3\x04", "", UnreadableKind::AudioOrVideo),
        ] {
            let format = FileFormat::detect(content, declared, "");
            assert_eq!(format, FileFormat::Unreadable(kind), "{content:?}");
        }
    }

    #[test]
    fn a_page_and_a_mail_are_known_by_their_types_and_names() {
        let mail = FileFormat::Document(DocumentFormat::Mail);
        for (content, declared, name, format) in [
            ("\u{feff} <!DOCTYPE html><p>x", "", "", FileFormat::Html),
            ("<!DOCTYPE html><p>x", "text/plain", "", FileFormat::Text),
            ("x", "text/html; charset=gbk", "", FileFormat::Html),
            ("From: a@x\n\nx", "message/rfc822", "", mail),
            ("From: a@x\n\nx", "", "offer.EML", mail),
            ("From: a@x\n\nx", "", "offer.txt", FileFormat::Text),
            ("{\"a\":1}", "application/json", "", FileFormat::Text),
            ("<svg><text>x</text></svg>", "image/svg+xml", "", FileFormat::Text),
            ("{\\rtf1 x}", "text/plain", "", FileFormat::Document(DocumentFormat::Rtf)),
            ("ID3 tags hold titles", "", "", FileFormat::Text),
        ] {
            assert_eq!(FileFormat::detect(content.as_bytes(), declared, name), format, "{content}");
        }
    }
}
