//! Text of a file in any format, as a search index or a model reads it.

use holdfast_types::TenantId;

use crate::{DocumentReader, Error, FileFormat, plain};

/// Text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedText {
    /// Title from the file's properties; empty if it has none.
    pub title: String,
    /// The text; of documents and pages as Markdown.
    pub text: String,
}

impl DocumentReader {
    /// Extracts the text of a tenant's file. Its format is detected from its content, its declared
    /// media type and its name, both of which may be empty.
    ///
    /// # Errors
    ///
    /// If its text cannot be extracted; the error says what to do.
    pub async fn extract(
        &self,
        tenant: TenantId,
        content: &[u8],
        media_type: &str,
        name: &str,
    ) -> Result<ExtractedText, Error> {
        let charset = media_type.split_once("charset=");
        let charset = charset.map(|(_, label)| label.trim_matches(['"', ' ']));
        let text = match FileFormat::detect(content, media_type, name) {
            FileFormat::Text => plain::text(content, charset)?,
            FileFormat::Html => plain::page(content, charset)?,
            FileFormat::Document(format) => {
                let document = self.read(tenant, format, content).await?;
                return Ok(ExtractedText { title: document.title, text: document.text });
            }
            FileFormat::Unreadable(kind) => return Err(Error::Unreadable(kind)),
        };
        Ok(ExtractedText { title: String::new(), text })
    }
}
