//! Text in any encoding: decoding of a file, and encoding of its changed text.
//!
//! A byte order mark decides, then a declared encoding, then UTF-8; otherwise the encoding is
//! detected from the bytes, as browsers do. Binary data has no encoding: it is recognised by its
//! signature and by control characters.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use holdfast_types::media_type;

/// Maximum number of bytes from which an encoding is detected.
const MAX_DETECTED_BYTES: usize = 256 * 1024;

/// A text in a detected encoding may have one character that cannot be decoded in this many: a file
/// that was cut ends with half a character.
const CHARS_PER_ERROR: usize = 200;

/// Text of a file, and how it is encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedText {
    /// Text without a byte order mark.
    pub text: String,
    pub encoding: TextEncoding,
}

/// Encoding of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextEncoding {
    encoding: &'static Encoding,
    has_mark: bool,
}

/// Character that an encoding does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{character}` (U+{:04X}) does not exist in {encoding}", u32::from(*character))]
pub struct UnencodableChar {
    pub character: char,
    pub encoding: &'static str,
}

impl TextEncoding {
    /// UTF-8 without a byte order mark.
    pub const UTF_8: Self = Self { encoding: UTF_8, has_mark: false };

    /// Name as standards write it: `UTF-8`, `GBK`, `windows-1252`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.encoding.name()
    }

    #[must_use]
    pub fn is_utf8(self) -> bool {
        self.encoding == UTF_8
    }

    /// Encodes a text, with the byte order mark that the file had.
    ///
    /// # Errors
    ///
    /// If the encoding does not have one of the characters.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, UnencodableChar> {
        let mark = if self.has_mark { "\u{feff}" } else { "" };
        let units = || mark.encode_utf16().chain(text.encode_utf16());
        if self.encoding == UTF_16LE {
            return Ok(units().flat_map(u16::to_le_bytes).collect());
        }
        if self.encoding == UTF_16BE {
            return Ok(units().flat_map(u16::to_be_bytes).collect());
        }
        let (bytes, _, has_unmappable) = self.encoding.encode(text);
        if has_unmappable {
            let is_missing = |character: &char| self.encoding.encode(&character.to_string()).2;
            let character = text.chars().find(is_missing).unwrap_or(char::REPLACEMENT_CHARACTER);
            return Err(UnencodableChar { character, encoding: self.name() });
        }
        let mut content = mark.as_bytes().to_vec();
        content.extend_from_slice(&bytes);
        Ok(content)
    }
}

/// Decodes a text file; `None` if it is binary data.
///
/// `declared` is the encoding that a protocol or the file itself names, as in `gb2312`.
#[must_use]
pub fn decode_text(content: &[u8], declared: Option<&str>) -> Option<DecodedText> {
    if let Some((encoding, length)) = Encoding::for_bom(content) {
        return decode_as(encoding, &content[length..], true);
    }
    let declared = declared.and_then(|label| Encoding::for_label(label.trim().as_bytes()));
    // A declaration of UTF-16 that is written in ASCII is wrong.
    let is_possible = |encoding: &&'static Encoding| {
        let is_wide = [UTF_16LE, UTF_16BE].contains(encoding);
        *encoding != UTF_8 && (!is_wide || content.contains(&0))
    };
    if let Some(encoding) = declared.filter(is_possible)
        && let Some(text) = decode_exactly(encoding, content)
    {
        return Some(text);
    }
    if let Some(encoding) = utf16_without_mark(content) {
        return decode_exactly(encoding, content);
    }
    // ISO-2022-JP is ASCII with escape sequences, and thereby valid UTF-8.
    let is_iso_2022 = content.windows(2).any(|two| two == b"\x1b$");
    match std::str::from_utf8(content) {
        Ok(text) if !is_iso_2022 => {
            Some(DecodedText { text: text.to_owned(), encoding: TextEncoding::UTF_8 })
        }
        // A text that was cut ends with a part of a character.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            decode_as(UTF_8, content, false)
        }
        Err(_) if declared == Some(UTF_8) => {
            decode_as(UTF_8, content, false).or_else(|| decode_detected(content))
        }
        Ok(_) | Err(_) => decode_detected(content),
    }
}

fn decode_exactly(encoding: &'static Encoding, content: &[u8]) -> Option<DecodedText> {
    let (text, has_errors) = encoding.decode_without_bom_handling(content);
    let encoding = TextEncoding { encoding, has_mark: false };
    (!has_errors).then(|| DecodedText { text: text.into_owned(), encoding })
}

/// Decodes a text that may have few errors.
fn decode_as(encoding: &'static Encoding, content: &[u8], has_mark: bool) -> Option<DecodedText> {
    let (text, has_errors) = encoding.decode_without_bom_handling(content);
    if has_errors {
        let errors = text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
        if errors > 1 + text.chars().count() / CHARS_PER_ERROR {
            return None;
        }
    }
    let encoding = TextEncoding { encoding, has_mark };
    Some(DecodedText { text: text.into_owned(), encoding })
}

/// Detects one of the encodings from before Unicode.
fn decode_detected(content: &[u8]) -> Option<DecodedText> {
    if is_binary(content) {
        return None;
    }
    // A large file is sampled; the sample ends anywhere, so that it is not the last input.
    let sample = &content[..content.len().min(MAX_DETECTED_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(sample, sample.len() == content.len());
    decode_as(detector.guess(None, Utf8Detection::Deny), content, false)
}

/// Whether data that is not UTF-8 is no text in another encoding either.
fn is_binary(content: &[u8]) -> bool {
    // The last byte of old DOS files is Ctrl-Z.
    let text = content.strip_suffix(b"\x1a").unwrap_or(content);
    let is_control =
        |byte: &u8| *byte < 0x20 && !matches!(*byte, b'\t' | b'\n' | b'\r' | b'\x0c' | b'\x1b');
    media_type("", content) != media_type("", b"") || text.iter().any(is_control)
}

/// Recognises UTF-16 without a byte order mark: half of its bytes are zero where it is ASCII, such
/// as its spaces and line ends.
fn utf16_without_mark(content: &[u8]) -> Option<&'static Encoding> {
    if content.is_empty() || !content.len().is_multiple_of(2) || !content.contains(&0) {
        return None;
    }
    let candidates = [UTF_16LE, UTF_16BE].into_iter().filter_map(|encoding| {
        let ascii = ascii_in_utf16(encoding, content)?;
        (ascii > 0).then_some((ascii, encoding))
    });
    candidates.max_by_key(|(ascii, _)| *ascii).map(|(_, encoding)| encoding)
}

/// Number of ASCII characters of a text in UTF-16; `None` if it is no plausible text.
fn ascii_in_utf16(encoding: &'static Encoding, content: &[u8]) -> Option<usize> {
    let text = decode_exactly(encoding, content)?.text;
    let (mut ascii, mut unusual) = (0, 0);
    for character in text.chars() {
        match character {
            '\t' | '\n' | '\r' | ' '..='~' => ascii += 1,
            // Punctuation of all languages, of East Asia, and full-width forms.
            '\u{a0}'..='\u{bf}'
            | '\u{2000}'..='\u{206f}'
            | '\u{3000}'..='\u{303f}'
            | '\u{ff00}'..='\u{ffef}' => {}
            _ if character.is_alphanumeric() => {}
            _ if character.is_control() => return None,
            _ => unusual += 1,
        }
    }
    (unusual * 10 <= text.chars().count()).then_some(ascii)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(content: &[u8]) -> (String, &'static str) {
        let decoded = decode_text(content, None).unwrap();
        (decoded.text, decoded.encoding.name())
    }

    #[test]
    fn a_text_is_read_in_the_encoding_that_it_has() {
        for (label, text) in [
            ("gbk", "姓名,电话\n张三,123\n"),
            ("gbk", "部门,姓名,备注\n销售部,李四,下周一开会\n"),
            ("big5", "姓名,電話\n王小明,0912345678\n台北市信義區\n"),
            ("shift_jis", "氏名,電話\n山田太郎,03-1234-5678\n東京都港区\n"),
            ("euc-jp", "これは日本語の文章です。\n"),
            ("euc-kr", "이름,전화\n홍길동,010-1234-5678\n"),
            ("windows-1252", "Größe;Preis\nMüller;10 €\n"),
            ("windows-1252", "Le café est fermé pendant l'été.\n"),
            ("windows-1251", "Имя;Телефон\nИванов;123\n"),
            ("windows-1250", "Zażółć gęślą jaźń\n"),
            ("iso-2022-jp", "これは日本語です\n"),
        ] {
            let encoding = Encoding::for_label(label.as_bytes()).unwrap();
            let (content, _, _) = encoding.encode(text);

            assert_eq!(decoded(&content), (text.to_owned(), encoding.name()), "{label}");
        }
    }

    #[test]
    fn utf_16_is_read_with_and_without_a_byte_order_mark() {
        for text in ["姓名\t电话\n张三\t123\n", "Name;Größe\r\nAnna;3\r\n", "一\n"] {
            for (encoding, name) in [(UTF_16LE, "UTF-16LE"), (UTF_16BE, "UTF-16BE")] {
                for has_mark in [true, false] {
                    let content = TextEncoding { encoding, has_mark }.encode(text).unwrap();

                    let decoded = decode_text(&content, None).unwrap();

                    assert_eq!((decoded.text.as_str(), decoded.encoding.name()), (text, name));
                    assert_eq!(decoded.encoding.encode(text).unwrap(), content);
                }
            }
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text_and_is_written_back() {
        let content = "\u{feff}姓名\n".as_bytes();

        let DecodedText { text, encoding } = decode_text(content, None).unwrap();

        assert_eq!((text.as_str(), encoding.name()), ("姓名\n", "UTF-8"));
        assert_eq!(encoding.encode(&text).unwrap(), content);
    }

    #[test]
    fn a_declared_encoding_counts_before_detection_and_after_a_byte_order_mark() {
        let declared = |content: &[u8], label| decode_text(content, Some(label)).unwrap().text;

        assert_eq!(declared(b"caf\xe9", "iso-8859-1"), "café");
        assert_eq!(declared("\u{feff}café".as_bytes(), "iso-8859-1"), "café");
        assert_eq!(declared("café".as_bytes(), "utf-8"), "café");
        assert_eq!(declared(b"<meta charset=utf-16>", "utf-16"), "<meta charset=utf-16>");
        // A wrong declaration does not make a text unreadable.
        assert_eq!(declared(b"caf\xe9 ferm\xe9", "utf-8"), "café fermé");
    }

    #[test]
    fn binary_data_is_no_text() {
        let mut executable = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0".to_vec();
        executable.extend([0x80, 0xff, 3, 0]);
        for binary in [
            &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0"[..],
            &[0xff, 0xd8, 0xff, 0xe0],
            b"PK\x03\x04\x14\0\x08\0\x08\0\xb5\x9c",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0",
            &executable,
            &[1, 0, 2, 0, 3, 0, 0xff, 0xff],
            b"\xff\xfe\x00\xd8\x00\xd8\x00\xd8\x00\xd8",
        ] {
            assert_eq!(decode_text(binary, None), None, "{binary:?}");
        }
    }

    #[test]
    fn a_character_that_the_encoding_does_not_have_is_named() {
        let encoding = decode_text(b"Gr\xf6\xdfe ist 3 Meter", None).unwrap().encoding;

        let refused = encoding.encode("Größe 名").unwrap_err();

        assert_eq!(refused.to_string(), "`名` (U+540D) does not exist in windows-1252");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_binary(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_text(&content, None);
        }

        #[test]
        fn what_is_utf_8_stays_as_it_is(text in "[^\0\u{1b}\u{feff}]{0,80}") {
            let decoded = decode_text(text.as_bytes(), None).unwrap();
            prop_assert_eq!(decoded.text, text);
        }
    }
}
