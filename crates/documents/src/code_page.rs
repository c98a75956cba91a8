//! Code pages of Windows: the encodings of RTF documents and of old Outlook messages.

use encoding_rs::{Encoding, WINDOWS_1252};

/// Code pages whose labels are not `windows-` and their numbers.
const CODE_PAGES: [(i32, &str); 14] = [
    (866, "ibm866"),
    (932, "shift_jis"),
    (936, "gbk"),
    (949, "euc-kr"),
    (950, "big5"),
    (10_000, "macintosh"),
    (10_007, "x-mac-cyrillic"),
    (20_866, "koi8-r"),
    (21_866, "koi8-u"),
    (28_591, "iso-8859-1"),
    (28_592, "iso-8859-2"),
    (50_220, "iso-2022-jp"),
    (54_936, "gb18030"),
    (65_001, "utf-8"),
];

/// Character sets of Windows fonts, and their code pages.
const CHARACTER_SETS: [(i32, i32); 15] = [
    (77, 10_000),
    (128, 932),
    (129, 949),
    (134, 936),
    (136, 950),
    (161, 1253),
    (162, 1254),
    (163, 1258),
    (177, 1255),
    (178, 1256),
    (186, 1257),
    (204, 1251),
    (222, 874),
    (238, 1250),
    (2, 1252),
];

/// Encoding of a code page; `None` if it is not known.
pub fn encoding_of_code_page(number: i32) -> Option<&'static Encoding> {
    let label = CODE_PAGES.iter().find(|(page, _)| *page == number);
    let windows = || Encoding::for_label(format!("windows-{number}").as_bytes());
    label.map_or_else(windows, |(_, label)| Encoding::for_label(label.as_bytes()))
}

/// Encoding of a font's character set; `None` if it is the document's.
pub fn encoding_of_character_set(number: i32) -> Option<&'static Encoding> {
    let (_, page) = CHARACTER_SETS.iter().find(|(set, _)| *set == number)?;
    encoding_of_code_page(*page)
}

/// Encoding of documents that name none.
pub const DEFAULT_ENCODING: &Encoding = WINDOWS_1252;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_tables_has_an_encoding() {
        for (number, _) in CODE_PAGES {
            assert!(encoding_of_code_page(number).is_some(), "{number}");
        }
        for (number, _) in CHARACTER_SETS {
            assert!(encoding_of_character_set(number).is_some(), "{number}");
        }
        assert_eq!(encoding_of_code_page(1251).map(Encoding::name), Some("windows-1251"));
        assert_eq!(encoding_of_code_page(437), None);
    }
}
