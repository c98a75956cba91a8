//! Files that a program posts with a message, in base64.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_proto::gateway::v1::MessageAttachment;
use serde::Deserialize;

use super::inbound::RequestError;

/// Maximum number of files per message.
const MAX_FILES: usize = 8;

/// Maximum size of a message's files together, in bytes, before base64.
const MAX_FILES_BYTES: usize = 8 * 1024 * 1024;

/// File, as docs/channels.md describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    media_type: String,
    content: String,
}

/// Decodes the files and checks their sizes and names.
pub(super) fn read(files: Vec<File>) -> Result<Vec<MessageAttachment>, RequestError> {
    let wrong = |why: String| Err(RequestError::Malformed(why));
    if files.len() > MAX_FILES {
        return wrong(format!(
            "there are {} attachments, and {MAX_FILES} are the most",
            files.len()
        ));
    }
    let mut read = Vec::with_capacity(files.len());
    let mut left = MAX_FILES_BYTES;
    for (at, File { name, media_type, content }) in files.into_iter().enumerate() {
        for (what, text) in [("name", &name), ("media_type", &media_type)] {
            if text.len() > 255 || text.chars().any(char::is_control) {
                return wrong(format!(
                    "`attachments[{at}].{what}` has {} bytes: 255 are the most, without control \
                     characters",
                    text.len()
                ));
            }
        }
        let Ok(content) = STANDARD.decode(content) else {
            return wrong(format!(
                "`attachments[{at}].content` is not base64 (RFC 4648, section 4, with padding)"
            ));
        };
        if content.is_empty() {
            return wrong(format!("`attachments[{at}].content` is empty"));
        }
        left = match left.checked_sub(content.len()) {
            Some(left) => left,
            None => {
                return wrong(format!(
                    "the attachments have more than {MAX_FILES_BYTES} bytes together: post them in \
                     several messages"
                ));
            }
        };
        let kind = if media_type.starts_with("image/") { "picture" } else { "file" }.to_owned();
        read.push(MessageAttachment { kind, reference: String::new(), name, content, media_type });
    }
    Ok(read)
}
