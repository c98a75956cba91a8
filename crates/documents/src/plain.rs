//! Text and pages, which are decoded in time and memory proportional to the file.

use crate::{Error, UnreadableKind, decode_text, html};

pub fn text(content: &[u8], charset: Option<&str>) -> Result<String, Error> {
    let decoded = decode_text(content, charset);
    Ok(decoded.ok_or(Error::Unreadable(UnreadableKind::Binary))?.text)
}

/// Text of an HTML page below its title.
pub fn page(content: &[u8], charset: Option<&str>) -> Result<String, Error> {
    let declared = html::declared_charset(content);
    let content = text(content, charset.or(declared.as_deref()))?;
    let html::Page { title, text } = html::document(&content);
    let text = text.trim_end();
    Ok(match title.is_empty() || text.starts_with("# ") {
        true => text.to_owned(),
        false => format!("# {title}\n\n{text}"),
    })
}
