//! References to files. Their bytes are stored elsewhere.

use serde::{Deserialize, Serialize};

/// A file of an agent's workspace, as it was when it was referred to.
///
/// The content is found by its hash, so that a later change of the path's file has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub path: String,
    /// As in `image/png`.
    pub media_type: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content, in 64 hexadecimal digits.
    pub hash: String,
}

impl StoredFile {
    /// Returns the file name without its folders.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether models can read this kind of image.
    #[must_use]
    pub fn is_picture(&self) -> bool {
        is_picture(&self.media_type)
    }
}

/// Whether models can read images of this media type.
#[must_use]
pub fn is_picture(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/webp" | "image/gif")
}

/// Files that a tool call produced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Images for the model to see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<StoredFile>,
    /// Files to send with the turn's answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<StoredFile>,
}

impl Media {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.shown.is_empty() && self.attached.is_empty()
    }
}

/// Detects a media type by the first bytes, then by the file name; `application/octet-stream` if
/// neither is known.
#[must_use]
pub fn media_type(name: &str, content: &[u8]) -> &'static str {
    let begins = |magic: &[u8]| content.starts_with(magic);
    let at =
        |from: usize, magic: &[u8]| content.get(from..).is_some_and(|rest| rest.starts_with(magic));
    if begins(b"\x89PNG\r\n\x1a\n") {
        return "image/png";
    }
    if begins(b"\xff\xd8\xff") {
        return "image/jpeg";
    }
    if begins(b"GIF87a") || begins(b"GIF89a") {
        return "image/gif";
    }
    if begins(b"RIFF") && at(8, b"WEBP") {
        return "image/webp";
    }
    if begins(b"RIFF") && at(8, b"WAVE") {
        return "audio/wav";
    }
    if begins(b"OggS") {
        return "audio/ogg";
    }
    if begins(b"fLaC") {
        return "audio/flac";
    }
    if begins(b"ID3") || begins(b"\xff\xfb") || begins(b"\xff\xf3") || begins(b"\xff\xf2") {
        return "audio/mpeg";
    }
    if begins(b"\xff\xf1") || begins(b"\xff\xf9") {
        return "audio/aac";
    }
    if begins(b"\x1aE\xdf\xa3") {
        return media_type_of_matroska(content);
    }
    if at(4, b"ftypM4A") {
        return "audio/mp4";
    }
    if at(4, b"ftyp") {
        return media_type_of_brand(content.get(8..12).unwrap_or_default());
    }
    if begins(b"II*\0") || begins(b"MM\0*") {
        return "image/tiff";
    }
    if begins(b"BM") && at(6, b"\0\0\0\0") {
        return "image/bmp";
    }
    if begins(b"#!AMR") {
        return "audio/amr";
    }
    if begins(b"%PDF-") {
        return "application/pdf";
    }
    media_type_by_name(name)
}

/// Returns the media type of a file of the ISO base media format, by its major brand: phones keep
/// pictures in it, too.
const fn media_type_of_brand(brand: &[u8]) -> &'static str {
    match brand {
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
            "image/heic"
        }
        b"avif" | b"avis" => "image/avif",
        b"M4B " | b"M4P " => "audio/mp4",
        b"qt  " => "video/quicktime",
        _ => "video/mp4",
    }
}

/// Returns the media type of a file in Matroska's format, by the names of its codecs: recorders of
/// browsers write sound in it.
fn media_type_of_matroska(content: &[u8]) -> &'static str {
    /// Where the tracks are described, in bytes.
    const HEADER_BYTES: usize = 4_096;
    let header = &content[..content.len().min(HEADER_BYTES)];
    let has = |name: &[u8]| header.windows(name.len()).any(|part| part == name);
    match (has(b"webm"), has(b"V_"), has(b"A_")) {
        (true, false, true) => "audio/webm",
        (true, _, _) => "video/webm",
        (false, _, _) => "video/x-matroska",
    }
}

/// Returns a media type by the file name. Never an image or audio type: those are recognised by
/// their content only.
fn media_type_by_name(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "xml" => "application/xml",
        "zip" => "application/zip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => "application/octet-stream",
    }
}

/// Returns the usual file extension of a media type, without a dot.
#[must_use]
pub fn extension(media_type: &str) -> &'static str {
    match media_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/heic" => "heic",
        "image/avif" => "avif",
        "image/tiff" => "tiff",
        "image/bmp" => "bmp",
        "audio/amr" => "amr",
        "audio/aac" => "aac",
        "audio/flac" => "flac",
        "audio/webm" | "video/webm" => "webm",
        "video/x-matroska" => "mkv",
        "video/quicktime" => "mov",
        "audio/ogg" => "ogg",
        "audio/mpeg" => "mp3",
        "audio/wav" => "wav",
        "audio/mp4" => "m4a",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/csv" => "csv",
        "text/html" => "html",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_itself_counts_more_than_its_name() {
        assert_eq!(media_type("a.txt", b"\x89PNG\r\n\x1a\n..."), "image/png");
        assert_eq!(media_type("a", b"RIFF....WEBPVP8 "), "image/webp");
        for (content, expected) in [
            (&b"\0\0\0\x18ftypheic...."[..], "image/heic"),
            (b"\0\0\0\x18ftypmif1....", "image/heic"),
            (b"\0\0\0\x18ftypavif....", "image/avif"),
            (b"\0\0\0\x18ftypM4A ....", "audio/mp4"),
            (b"\0\0\0\x18ftypqt  ....", "video/quicktime"),
            (b"\0\0\0\x18ftypisom....", "video/mp4"),
            (b"II*\0........", "image/tiff"),
            (b"#!AMR\n......", "audio/amr"),
            (b"fLaC\0......", "audio/flac"),
            (b"\xff\xf1P......", "audio/aac"),
            (b"\x1aE\xdf\xa3.webm..A_OPUS", "audio/webm"),
            (b"\x1aE\xdf\xa3.webm..V_VP8.A_OPUS", "video/webm"),
            (b"\x1aE\xdf\xa3.matroska", "video/x-matroska"),
        ] {
            assert_eq!(media_type("photo.jpg", content), expected);
        }
        assert_eq!(media_type("a.PDF", b"%PDF-1.7"), "application/pdf");
        assert_eq!(media_type("a.CSV", b"1,2"), "text/csv");
        // The file name alone does not make a file an image.
        assert_eq!(media_type("a.png", b"<script>"), "application/octet-stream");
        assert_eq!(media_type("", b""), "application/octet-stream");
    }

    #[test]
    fn what_is_empty_leaves_nothing_behind() {
        assert_eq!(serde_json::to_string(&Media::default()).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<Media>("{}").unwrap(), Media::default());
    }
}
