//! Body of a web response, as text.

use holdfast_documents::{DecodedText, decode_text, html};
use reqwest::{
    Response, Url,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

/// Maximum size of a body that is read, in bytes; the rest is cut off.
pub(super) const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Body {
    /// Media type, without parameters; may be empty.
    pub(super) media_type: String,
    charset: Option<String>,
    bytes: Vec<u8>,
    /// Whether the body was longer than the limit.
    pub(super) is_cut: bool,
}

/// Text of a body, for the model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageText {
    pub(super) title: String,
    pub(super) text: String,
}

impl Body {
    /// Reads a body, up to the limit.
    pub(super) async fn read(mut response: Response) -> Result<Self, String> {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(encoding) = header(CONTENT_ENCODING).filter(|is| *is != "identity") {
            let encoding: String = encoding.chars().take(40).collect();
            return Err(format!("it is packed as `{encoding}`, which was not asked for"));
        }
        let (media_type, charset) = split_content_type(header(CONTENT_TYPE).unwrap_or_default());
        if !is_text(&media_type) {
            return Err(format!(
                "it is `{media_type}`, and only text, HTML, JSON and XML can be read"
            ));
        }
        let mut bytes = Vec::new();
        let mut is_cut = false;
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| holdfast_egress::describe_failure(&error).to_owned())?
        {
            let left = MAX_BODY_BYTES - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(left)]);
            if chunk.len() > left {
                is_cut = true;
                break;
            }
        }
        Ok(Self { media_type, charset, bytes, is_cut })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Decodes the body; `url` is its address, the base of relative links.
    pub(super) fn decode(&self, url: &Url) -> Result<PageText, String> {
        let is_html = match self.media_type.as_str() {
            "" => html::looks_like_html(&self.bytes),
            named => matches!(named, "text/html" | "application/xhtml+xml"),
        };
        let declared = self
            .charset
            .clone()
            .or_else(|| is_html.then(|| html::declared_charset(&self.bytes))?);
        let decoded = decode_text(&self.bytes, declared.as_deref());
        let Some(DecodedText { text, .. }) = decoded else {
            return Err("it is binary data, not text".to_owned());
        };
        if is_html {
            let html::Page { title, text } = html::page(&text, url);
            return Ok(PageText { title, text });
        }
        Ok(PageText { title: String::new(), text })
    }
}

/// Splits a content type into media type and charset.
fn split_content_type(content_type: &str) -> (String, Option<String>) {
    let mut parts = content_type.split(';').map(str::trim);
    let media_type: String =
        parts.next().unwrap_or_default().to_lowercase().chars().take(80).collect();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.trim().trim_matches('"').to_owned())
    });
    (media_type, charset)
}

fn is_text(media_type: &str) -> bool {
    media_type.is_empty()
        || media_type.starts_with("text/")
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
        || matches!(
            media_type,
            "application/json" | "application/xml" | "application/x-ndjson" | "application/yaml"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(content_type: &str, bytes: &[u8]) -> Result<PageText, String> {
        let (media_type, charset) = split_content_type(content_type);
        let body = Body { media_type, charset, bytes: bytes.to_vec(), is_cut: false };
        body.decode(&Url::parse("https://x.example/").unwrap())
    }

    #[test]
    fn text_is_read_in_the_encoding_that_it_has() {
        for (content_type, bytes, text) in [
            ("text/plain; charset=ISO-8859-1", &b"caf\xe9"[..], "café"),
            ("text/plain", "café".as_bytes(), "café"),
            ("text/html", b"<meta charset='windows-1252'>caf\xe9", "café\n"),
            (
                "text/html",
                b"<meta http-equiv=x content=\"text/html; charset=shift_jis\">\x8c\xea",
                "語\n",
            ),
            ("", b"<!DOCTYPE html><p>x</p>", "x\n"),
            ("application/ld+json", b"{\"a\":1}", "{\"a\":1}"),
            ("text/plain", b"\xff\xfeh\0i\0", "hi"),
        ] {
            assert_eq!(told(content_type, bytes).unwrap().text, text, "{content_type}");
        }
        assert!(told("", b"\x89PNG\0").is_err());
    }

    #[test]
    fn only_text_is_text() {
        for media_type in ["application/pdf", "image/png", "application/octet-stream", "video/mp4"]
        {
            assert!(!is_text(media_type), "{media_type}");
        }
    }
}
