//! Files that a caller sends with a message. Too many or too large files are an error.
//!
//! A bridge's files are different: a message from a channel is accepted whatever its files.

use holdfast_proto::gateway::v1::MessageAttachment;
use holdfast_types::{Attachment, Body, media_type};
use holdfast_workspace::MAX_MEDIA_BYTES;

use super::{attachments, attachments::AttachedFile, text};
use crate::Error;

/// Maximum number of files of a message.
pub(super) const MAX_FILES: usize = 8;

/// Maximum size of all files of a message, in bytes.
const MAX_TOTAL_BYTES: usize = 20 * 1024 * 1024;

/// Maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns the body of a message with these files, and the files to store.
///
/// # Errors
///
/// [`Error::Attachments`] if there are too many files, a file is empty or too large, or all
/// together are too large.
pub(super) fn body_with_files(
    text: String,
    files: Vec<MessageAttachment>,
) -> Result<(Body, Vec<AttachedFile>), Error> {
    if files.len() > MAX_FILES {
        return Err(Error::Attachments(format!(
            "there are {} attachments, and {MAX_FILES} are the most",
            files.len()
        )));
    }
    let largest = usize::try_from(MAX_MEDIA_BYTES).unwrap_or(usize::MAX);
    for (at, file) in files.iter().enumerate() {
        let bytes = file.content.len();
        if !(1..=largest).contains(&bytes) {
            return Err(Error::Attachments(format!(
                "`attachments[{at}]` has {bytes} bytes: 1 to {largest} are taken"
            )));
        }
    }
    let together: usize = files.iter().map(|file| file.content.len()).sum();
    if together > MAX_TOTAL_BYTES {
        return Err(Error::Attachments(format!(
            "the attachments have {together} bytes together, and {MAX_TOTAL_BYTES} are the most: send \
             them in several messages"
        )));
    }
    let files: Vec<MessageAttachment> = files.into_iter().map(with_clean_name).collect();
    let attachments = files.iter().map(|file| Attachment {
        kind: file.kind.clone(),
        reference: String::new(),
        name: file.name.clone(),
        file: None,
        transcription: None,
    });
    let body = Body { attachments: attachments.collect(), ..Body::text(text) };
    Ok((body, attachments::storable_files(files)))
}

/// Cleans the file's name, adds a missing extension, and sets the kind of the attachment.
fn with_clean_name(mut file: MessageAttachment) -> MessageAttachment {
    let name = text::clean_and_cut(&file.name, MAX_NAME_BYTES);
    // Only the last part of a path is kept.
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    file.name = attachments::with_extension(name, &file.media_type);
    let is_picture = media_type(&file.name, &file.content).starts_with("image/");
    file.kind = if is_picture { "picture" } else { "file" }.to_owned();
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, media_type: &str, bytes: usize) -> MessageAttachment {
        MessageAttachment {
            name: name.into(),
            media_type: media_type.into(),
            content: vec![b'x'; bytes],
            ..MessageAttachment::default()
        }
    }

    #[test]
    fn a_file_without_an_ending_is_named_by_its_media_type() {
        for (name, media_type, becomes) in [
            ("notes", "text/csv; charset=utf-8", "notes.csv"),
            ("", "application/pdf", "file.pdf"),
            ("a.txt", "text/csv", "a.txt"),
            ("a", "application/x-thing", "a"),
        ] {
            assert_eq!(with_clean_name(file(name, media_type, 1)).name, becomes);
        }
        assert_eq!(with_clean_name(file("a.txt", "", 1)).kind, "file");
    }

    #[test]
    fn what_is_too_much_is_refused_with_the_number_and_the_limit() {
        let refused = |files| body_with_files(String::new(), files).unwrap_err().to_string();

        assert!(refused(vec![file("a", "", 0)]).contains("`attachments[0]` has 0 bytes"));
        assert!(refused(vec![file("a", "", 1), file("b", "", 10_485_761)]).contains("10485761"));
        assert!(refused(vec![file("a", "", 1); 9]).contains("9 attachments, and 8"));
        let together = refused(vec![file("a", "", 8_000_000); 3]);
        assert!(together.contains("24000000 bytes together"), "{together}");
        assert!(body_with_files(String::new(), vec![file("a", "", 10)]).is_ok());
    }
}
