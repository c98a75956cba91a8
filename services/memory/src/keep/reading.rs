//! The text of what is brought to the knowledge base: plain, Markdown, HTML.

mod html;

use crate::Error;

/// How much text one article may have, in bytes.
const MOST: usize = 4 * 1024 * 1024;

/// The text of a file. What it is says its media type, and where that is empty its beginning.
///
/// # Errors
///
/// If it is of another kind, or nothing in it can be read.
pub fn text(content: &[u8], media_type: &str) -> Result<String, Error> {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_lowercase();
    let text = match kind(content, &media_type) {
        Some(Kind::Text) => plain(content)?,
        Some(Kind::Html) => html::markdown(&plain(content)?),
        None => {
            let problem =
                format!("is `{media_type}`: text, Markdown and HTML can be read; give its text");
            return Err(Error::field("media_type", problem));
        }
    };
    // Nothing of a text has this, and Postgres takes it in none.
    let text = text.replace('\0', "");
    if text.trim().is_empty() {
        return Err(Error::field("content", "has no text that can be read"));
    }
    if text.len() > MOST {
        let problem = format!("has {} bytes of text, and {MOST} are the most", text.len());
        return Err(Error::field("content", problem));
    }
    Ok(text)
}

enum Kind {
    Text,
    Html,
}

fn kind(content: &[u8], media_type: &str) -> Option<Kind> {
    let start: String = String::from_utf8_lossy(&content[..content.len().min(512)])
        .trim_start_matches('\u{feff}')
        .trim_start()
        .to_lowercase();
    match media_type {
        "text/html" | "application/xhtml+xml" => Some(Kind::Html),
        "" if content.starts_with(b"%PDF-") => None,
        "" if start.starts_with("<!doctype html") || start.starts_with("<html") => Some(Kind::Html),
        "" => Some(Kind::Text),
        other if other.starts_with("text/") => Some(Kind::Text),
        _ => None,
    }
}

fn plain(content: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(content)
        .map_err(|_| Error::field("content", "is no text in utf-8: convert it"))?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_markdown_without_its_menus_and_scripts() {
        let page = "<!DOCTYPE html><title>Tea</title><nav>Home</nav><script>evil()</script>\
                    <h2>Brewing</h2><p>Boil <b>water</b>.</p>";

        let text = text(page.as_bytes(), "").unwrap();

        assert_eq!(text, "# Tea\n\n## Brewing\n\nBoil water.");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_what_can() {
        let refused = text(b"\x89PNG", "image/png").unwrap_err().to_string();
        assert!(refused.contains("`image/png`") && refused.contains("HTML"), "{refused}");

        assert!(text(&[0xff, 0xfe], "text/plain").is_err());
        assert!(text(b" \n", "").is_err());
        assert!(text(b"%PDF-1.4 broken", "").is_err());
    }
}
