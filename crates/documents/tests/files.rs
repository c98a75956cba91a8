//! Files of real programs, and hostile ones, read through the child process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Write as _},
    path::Path,
};

use holdfast_documents::{
    DocumentKind, DocumentReader, Error, ExtractedText, MAX_ENTRIES, PageImage,
};
use holdfast_types::TenantId;
use serde::Deserialize;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// What must be read in a file of `testdata`; `expected.json` says it for each.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expected {
    title: Option<String>,
    /// Texts that are read, in this order.
    text: Vec<String>,
    /// The same in the source of a page, which the tool `read` shows.
    #[serde(rename = "raw")]
    _raw: Vec<String>,
    /// Part of the reason why nothing is read.
    refused: Option<String>,
    empty: bool,
    /// Whether models are shown the picture.
    picture: Option<String>,
    /// Number of pages of a scan whose images are read.
    pages: Option<usize>,
}

fn expected() -> BTreeMap<String, Expected> {
    serde_json::from_slice(&testdata("expected.json")).unwrap()
}

fn reader() -> DocumentReader {
    DocumentReader::new(env!("CARGO_BIN_EXE_holdfast-document-reader").into())
}

async fn extract(content: &[u8], name: &str) -> Result<ExtractedText, Error> {
    reader().extract(TenantId::generate(), content, "", name).await
}

fn testdata(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is wrong with the reading of a file; empty if nothing is.
fn difference(expected: &Expected, extracted: Result<ExtractedText, Error>) -> Vec<String> {
    let refusal = match expected {
        Expected { refused: Some(reason), .. } => Some(reason.as_str()),
        Expected { picture: Some(_), .. } => Some("is an image: have its text recognised (OCR)"),
        Expected { pages: Some(_), .. } => Some("is a PDF without text, as a scan is: have"),
        Expected { .. } => None,
    };
    let (text, title) = match (extracted, refusal) {
        (Err(error), Some(reason)) if error.to_string().contains(reason) => return Vec::new(),
        (Err(error), _) => return vec![format!("it {error}")],
        (Ok(extracted), Some(reason)) => {
            return vec![format!("it is read, and it {reason}:\n{}", extracted.text)];
        }
        (Ok(extracted), None) => (extracted.text, extracted.title),
    };
    let mut wrong = Vec::new();
    if expected.title.as_ref().is_some_and(|expected| *expected != title) {
        wrong.push(format!("its title is `{title}`"));
    }
    if text.is_empty() != expected.empty {
        wrong.push(format!("its text has {} bytes", text.len()));
    }
    let mut rest = text.as_str();
    for part in &expected.text {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => wrong.push(format!("`{part}` is not in:\n{text}")),
        }
    }
    wrong
}

#[tokio::test]
async fn files_of_real_programs_are_read_or_refused_with_what_to_do() {
    let mut wrong = Vec::new();
    for (name, expected) in expected() {
        let extracted = extract(&testdata(&name), &name).await;
        let found = difference(&expected, extracted);
        wrong.extend(found.into_iter().map(|found| format!("{name}: {found}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn the_first_pages_of_a_scan_are_read_as_images() {
    for (name, expected) in expected() {
        let Some(count) = expected.pages else { continue };
        let pages = reader().scanned_pages(TenantId::generate(), &testdata(&name)).await;
        match (count, pages) {
            (0, pages) => assert_eq!(pages, Err(Error::ScannedPdf), "{name}"),
            (count, pages) => {
                let pages = pages.unwrap();
                assert_eq!(pages.len(), count, "{name}");
                assert!(pages.is_sorted_by(|one, next| one.number < next.number), "{name}");
                for page in &pages {
                    assert_eq!(page.pages, 2, "{name}");
                    assert!(page.content().starts_with(b"\xff\xd8\xff"), "{name}");
                }
                let contents: BTreeSet<Vec<u8>> = pages.iter().map(PageImage::content).collect();
                assert_eq!(contents.len(), count, "{name}");
            }
        }
    }
}

#[test]
fn every_file_is_described() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| !["README.md", "expected.json", "make.py"].contains(&&**name));
    let names: BTreeSet<String> = names.collect();
    let readme = String::from_utf8(testdata("README.md")).unwrap();

    assert_eq!(names, expected().into_keys().collect());
    for name in names {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}

#[tokio::test]
async fn a_truncated_file_is_a_damaged_one() {
    for name in ["policy-python-docx.docx", "orders-openpyxl.xlsx", "tea-ebooklib.epub"] {
        let content = testdata(name);
        let cut = &content[..content.len() / 2];

        assert_eq!(extract(cut, name).await, Err(Error::Damaged(DocumentKind::Office)), "{name}");
    }
    let content = testdata("orders-libreoffice.xls");
    let cut = extract(&content[..3000], "a.xls").await.unwrap_err();
    assert!(matches!(cut, Error::Damaged(_) | Error::Unreadable(_)), "{cut}");
}

/// Word document with this body, and other parts.
fn docx(body: &[u8], others: usize) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut part = |name: &str, content: &[u8]| {
        zip.start_file(name, options).unwrap();
        zip.write_all(content).unwrap();
    };
    part("[Content_Types].xml", b"<Types/>");
    part("word/document.xml", body);
    for other in 0..others {
        part(&format!("word/media/{other}"), b"");
    }
    zip.finish().unwrap().into_inner()
}

/// Word document whose body has this text in the middle of a paragraph.
fn docx_with(text: &str) -> Vec<u8> {
    docx(format!("<w:document><w:p><w:t>a{text}b</w:t></w:p></w:document>").as_bytes(), 0)
}

#[tokio::test]
async fn hostile_files_end_at_a_limit() {
    let many_zeros = docx_with(&"0".repeat(150 * 1024 * 1024));
    let lying = declare_small(many_zeros.clone());
    let many_entries = docx(b"<w:document/>", MAX_ENTRIES);
    let deep = docx_with(&"<w:r>".repeat(100_000));
    for (name, content, errors) in [
        ("zip bomb", many_zeros, &[Error::MuchUnpacked][..]),
        (
            "zip bomb with a wrong size",
            lying,
            &[Error::MuchUnpacked, Error::Heavy, Error::Damaged(DocumentKind::Word)][..],
        ),
        ("entries", many_entries, &[Error::ManyEntries { have: MAX_ENTRIES + 2 }][..]),
        ("deep XML", deep, &[Error::DeepXml][..]),
        ("much text", docx_with(&"x ".repeat(2_200_000)), &[Error::MuchText][..]),
    ] {
        let error = extract(&content, "a.docx").await.unwrap_err();
        assert!(errors.contains(&error), "{name}: {error}");
    }
}

/// Changes the sizes that a ZIP archive declares of its second entry's unpacked content.
fn declare_small(mut content: Vec<u8>) -> Vec<u8> {
    let name = b"word/document.xml";
    let places: Vec<usize> =
        (0..content.len() - name.len()).filter(|at| content[*at..].starts_with(name)).collect();
    // Local header: 30 bytes before the name, the size at 22. Directory: 46 bytes, at 24.
    for (place, size_at) in places.into_iter().zip([30 - 22, 46 - 24]) {
        content[place - size_at..place - size_at + 4].copy_from_slice(&100_u32.to_le_bytes());
    }
    content
}

#[tokio::test]
async fn entities_are_not_expanded() {
    let laughs: String = (1..20)
        .map(|n| format!("<!ENTITY e{n} \"{}\">", format!("&e{};", n - 1).repeat(10)))
        .collect();
    let body = format!(
        "<!DOCTYPE d [<!ENTITY e0 \"ha\">{laughs}<!ENTITY f SYSTEM \"file:///etc/passwd\">]>\
         <w:document><w:p><w:t>a&e19;&f;b</w:t></w:p></w:document>"
    );

    let text = extract(&docx(body.as_bytes(), 0), "a.docx").await.unwrap().text;

    assert_eq!(text, "ab");
}

#[tokio::test]
async fn a_document_without_text_says_so() {
    let empty = extract(&docx(b"<w:document><w:p/></w:document>", 0), "a.docx").await;

    assert_eq!(empty, Err(Error::NoText(DocumentKind::Word)));
}

#[tokio::test]
async fn any_damage_is_an_answer() {
    for name in [
        "policy-python-docx.docx",
        "orders-openpyxl.xlsx",
        "orders-libreoffice.xls",
        "offer-extract-msg.msg",
        "return-libreoffice.rtf",
        "return-libreoffice.doc",
        "roadmap-libreoffice.ppt",
        "scan-pillow.pdf",
    ] {
        let whole = testdata(name);
        for seed in 1..6_usize {
            let mut content = whole.clone();
            for step in 1..40 {
                let at = 8 + seed * step * 7919 % (content.len() - 8);
                content[at] ^= u8::try_from(seed * step % 256).unwrap();
            }
            let answer = extract(&content, name).await;
            let is_gone = matches!(answer, Err(Error::NoReader | Error::Heavy));
            assert!(!is_gone, "{name} {seed}: {answer:?}");
            let pages = reader().scanned_pages(TenantId::generate(), &content).await;
            assert_ne!(pages, Err(Error::NoReader), "{name} {seed}");
        }
    }
}
