//! Text extraction for the knowledge base: plain text, Markdown, HTML and PDF.

mod html;

use holdfast_pdf::{Document, PdfReader};
use holdfast_types::TenantId;

use crate::Error;

/// Maximum bytes of text in one article.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Number of leading bytes in which a PDF's signature may appear.
const PDF_HEADER_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedText {
    pub text: String,
    /// Title in the file's metadata; empty if there is none.
    pub title: String,
}

/// Extracts the text of a file. Its format is detected from its beginning and the media type.
///
/// # Errors
///
/// If the format is not supported or there is no text in it.
pub async fn read(
    (reader, tenant): (&PdfReader, TenantId),
    content: &[u8],
    media_type: &str,
) -> Result<ExtractedText, Error> {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    let ExtractedText { text, title } = match kind(content, &media_type) {
        Some(FileFormat::Text) => untitled(plain(content)?),
        Some(FileFormat::Html) => untitled(html::markdown(&plain(content)?)),
        Some(FileFormat::Pdf) => paged(reader.read(tenant, content).await?),
        None => {
            let problem = format!(
                "is `{media_type}`: text, Markdown, HTML and PDF can be read; give its text"
            );
            return Err(Error::field("media_type", problem));
        }
    };
    // NUL has no meaning in a text, and Postgres cannot store it.
    let text = text.replace('\0', "");
    if text.trim().is_empty() {
        return Err(Error::field("content", "has no text that can be read"));
    }
    if text.len() > MAX_TEXT_BYTES {
        let problem =
            format!("has {} bytes of text, and {MAX_TEXT_BYTES} are the most", text.len());
        return Err(Error::field("content", problem));
    }
    Ok(ExtractedText { text, title })
}

enum FileFormat {
    Text,
    Html,
    Pdf,
}

fn kind(content: &[u8], media_type: &str) -> Option<FileFormat> {
    let start: String = String::from_utf8_lossy(&content[..content.len().min(512)])
        .trim_start_matches('\u{feff}')
        .trim_start()
        .to_lowercase();
    let is_pdf =
        content[..content.len().min(PDF_HEADER_BYTES)].windows(5).any(|five| five == b"%PDF-");
    match media_type {
        "application/pdf" | "application/x-pdf" => Some(FileFormat::Pdf),
        // The signature counts more than the media type.
        _ if content.starts_with(b"%PDF-") => Some(FileFormat::Pdf),
        "text/html" | "application/xhtml+xml" => Some(FileFormat::Html),
        "" | "application/octet-stream" if is_pdf && !is_text(content) => Some(FileFormat::Pdf),
        "" | "application/octet-stream"
            if start.starts_with("<!doctype html") || start.starts_with("<html") =>
        {
            Some(FileFormat::Html)
        }
        "" | "application/octet-stream" => Some(FileFormat::Text),
        other if other.starts_with("text/") => Some(FileFormat::Text),
        _ => None,
    }
}

fn is_text(content: &[u8]) -> bool {
    std::str::from_utf8(content).is_ok()
}

const fn untitled(text: String) -> ExtractedText {
    ExtractedText { text, title: String::new() }
}

/// Puts each page under a heading with its number, so that hits show their page.
fn paged(document: Document) -> ExtractedText {
    let first = document.pages.iter().filter_map(|page| page.text.as_deref()).next();
    let first = first.and_then(|text| text.lines().find(|line| !line.trim().is_empty()));
    let title = match document.title.trim() {
        "" => first.unwrap_or_default().to_owned(),
        given => given.to_owned(),
    };
    let mut text = String::new();
    for page in document.pages {
        let said = page.text.as_deref().unwrap_or("(this page cannot be read)");
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&format!("## Page {}\n\n{said}", page.number));
    }
    ExtractedText { text, title }
}

fn plain(content: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(content)
        .map_err(|_| Error::field("content", "is no text in utf-8: convert it"))?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
mod tests {
    use holdfast_pdf::Page;

    use super::*;

    async fn text(content: &[u8], media_type: &str) -> Result<String, Error> {
        let none = PdfReader::new("/nonexistent/reader".into());
        Ok(read((&none, TenantId::generate()), content, media_type).await?.text)
    }

    #[tokio::test]
    async fn a_page_is_read_as_markdown_without_its_menus_and_scripts() {
        let page = "<!DOCTYPE html><title>Tea</title><nav>Home</nav><script>evil()</script>\
                    <h2>Brewing</h2><p>Boil <b>water</b>.</p>";

        let text = text(page.as_bytes(), "").await.unwrap();

        assert_eq!(text, "# Tea\n\n## Brewing\n\nBoil water.");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_refused_with_what_can() {
        let refused = text(b"\x89PNG", "image/png").await.unwrap_err().to_string();
        assert!(refused.contains("`image/png`") && refused.contains("PDF"), "{refused}");

        assert!(text(&[0xff, 0xfe], "text/plain").await.is_err());
        assert!(text(b" \n", "").await.is_err());
    }

    #[test]
    fn a_pdf_is_known_by_its_beginning_whatever_it_is_called() {
        for media_type in ["", "text/plain", "application/octet-stream", "application/pdf"] {
            assert!(
                matches!(kind(b"%PDF-1.7\n", media_type), Some(FileFormat::Pdf)),
                "{media_type}"
            );
        }
        assert!(matches!(kind(b"\xff\n%PDF-1.7\n", ""), Some(FileFormat::Pdf)));
        assert!(matches!(kind(b"how %PDF-1.7 is written", ""), Some(FileFormat::Text)));
    }

    #[test]
    fn pages_stand_under_their_numbers_and_the_title_is_none_of_them() {
        let page = |number, text: Option<&str>| Page { number, text: text.map(str::to_owned) };
        let pages = vec![page(2, Some("Tea\nBoil water.")), page(3, None)];

        let read = paged(Document { title: " ".into(), pages });

        let text = "## Page 2\n\nTea\nBoil water.\n\n## Page 3\n\n(this page cannot be read)";
        assert_eq!(read, ExtractedText { text: text.into(), title: "Tea".into() });
    }
}
