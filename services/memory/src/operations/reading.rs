//! Text extraction for the knowledge base: from text in any encoding, pages, documents and mails.

use holdfast_documents::{DocumentReader, ExtractedText};
use holdfast_types::TenantId;

use crate::Error;

/// Maximum bytes of text in one article.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

/// Extracts the text of a file. Its format is detected from its content and the media type.
///
/// # Errors
///
/// If the format is not supported or there is no text in it.
pub async fn read(
    (reader, tenant): (&DocumentReader, TenantId),
    content: &[u8],
    media_type: &str,
) -> Result<ExtractedText, Error> {
    let ExtractedText { text, title } = reader.extract(tenant, content, media_type, "").await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(content: &[u8], media_type: &str) -> Result<String, Error> {
        let none = DocumentReader::new("/nonexistent/reader".into());
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
    async fn a_page_and_a_text_are_read_in_their_encodings() {
        let page = b"<html><meta charset=gb2312><title>\xba\xcf\xcd\xac</title><p>x</p>";

        assert_eq!(text(page, "").await.unwrap(), "# 合同\n\nx");
        assert_eq!(text(b"caf\xe9", "text/plain; charset=latin1").await.unwrap(), "café");
        assert_eq!(text(b"\xff\xfeh\0i\0", "text/csv").await.unwrap(), "hi");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_refused_with_what_to_do() {
        for (content, media_type, told) in [
            (&b"\x89PNG"[..], "image/png", "is an image: have its text recognised"),
            (b"\x7fELF\x02\x01\x01\0\0\0\x80\xff", "", "binary data of an unknown kind"),
            (&[0xff, 0xfe], "text/plain", "has no text"),
            (b" \n", "", "has no text"),
        ] {
            let refused = text(content, media_type).await.unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
