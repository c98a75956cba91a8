//! Texts in RTF.

use proptest::prelude::*;

use super::*;

fn text(rtf: &[u8]) -> String {
    read(rtf).unwrap().text
}

#[test]
fn paragraphs_headings_and_items_are_kept_apart() {
    let document = read(
        b"{\\rtf1\\ansi\\ansicpg1252\\deff0{\\fonttbl{\\f0\\fswiss Arial;}}\
          {\\stylesheet{\\s0 Normal;}{\\s1\\outlinelevel0 heading 1;}{\\s2 heading 2;}}\
          {\\info{\\title Return policy}{\\author Anna}}\
          \\pard\\s1 Returns\\par\\pard Within \\b thirty\\b0  days.\\line Or not.\\par\n\
          {\\listtext\\bullet\\tab}Food\\par{\\pntext 1.\\tab}Software\\par\
          \\pard\\s2 Fees\\par\\pard\\outlinelevel2 None\\par}\0",
    )
    .unwrap();

    assert_eq!(document.title, "Return policy");
    assert_eq!(
        document.text,
        "# Returns\n\nWithin thirty days.\nOr not.\n\n- Food\n- Software\n\n## Fees\n\n### None"
    );
}

#[test]
fn what_is_hidden_or_skipped_leaves_nothing() {
    assert_eq!(text(b"{\\rtf1 a {\\v{\\footnote x}}b\\par}"), "a b");
    assert_eq!(text(b"{\\rtf1 a{\\*\\generator x\\\ny}b\\par}"), "ab");
}

#[test]
fn a_field_s_address_is_told_once() {
    let twice = b"{\\rtf1{\\field{\\*\\fldinst HYPERLINK \"https://x.example/\"}{\\fldrslt a}{\\fldrslt b}}\\par}";

    assert_eq!(text(twice), "[a](https://x.example/)b");
}

#[test]
fn a_text_is_decoded_by_its_font_and_as_unicode() {
    let fonts = "{\\rtf1\\ansi\\ansicpg1251{\\fonttbl{\\f0\\fcharset0 A;}{\\f1\\fcharset134 B;}\
                 {\\f2\\fcharset128 C;}}\\f0 \\'cf\\'f0 {\\f1 \\'ba\\'cf\\'cd\\'ac}\
                 {\\f2 \\'83A\\'83\\'43}";
    let unicode = "\\uc1\\u8364?\\u8364\\'80 {\\uc0\\u-10179\\u-8704 }{\\uc2\\u21512\\'ba\\'cf!}}";

    assert_eq!(text(format!("{fonts}{unicode}").as_bytes()), "Пр 合同アイ€€ 😀合!");
}

#[test]
fn a_table_is_its_rows() {
    let rtf =
        b"{\\rtf1 before\\par\\trowd\\cellx1\\cellx2\\pard\\intbl a\\par b\\cell c\\cell\\row\
                \\trowd\\pard\\intbl{1}\\cell 2\\cell\\row\\pard after\\par}";

    assert_eq!(text(rtf), "before\n\na b | c\n1 | 2\n\nafter");
}

#[test]
fn links_notes_and_text_boxes_are_read_and_nothing_that_people_do_not_see() {
    let rtf =
        b"{\\rtf1{\\header Page 1}See {\\field{\\*\\fldinst HYPERLINK \"https://x.example/w\"}\
                {\\fldrslt{\\ul the terms}}}{\\footnote Since 2026.\\par}.{\\v secret}\
                {\\deleted gone}{\\*\\unknown gone}{\\pict\\bin5 }}}}}00ff}\\par\
                {\\shp{\\*\\shpinst{\\sp{\\sn x}{\\sv 1}}{\\shptxt In a box\\par}}{\\shprslt old}}\
                {\\field{\\*\\fldinst PAGE}{\\fldrslt 3}}}";

    assert_eq!(
        text(rtf),
        "See [the terms](https://x.example/w) [note: Since 2026.].\n\nIn a box\n\n3"
    );
}

#[test]
fn a_document_that_is_cut_off_says_so() {
    assert_eq!(text(b"{\\rtf1 {\\b whole} and"), "whole and\n\n(the document is cut off here)");
}

#[test]
fn groups_that_never_end_are_refused() {
    let deep = [b"{\\rtf1".as_slice(), &b"{".repeat(2000)].concat();

    assert_eq!(read(&deep), Err(Error::Damaged(DocumentKind::Rtf)));
}

proptest! {
    #[test]
    fn any_bytes_are_a_document_or_refused(
        rtf in "(\\\\[a-z]{1,8}-?[0-9]{0,6} ?|[{}]|\\\\'[0-9a-f]{2}|\\\\\\*|\\\\(par|cell|row|intbl|field|fldinst|fldrslt|footnote|uc0|u9731|stylesheet|info|title|fonttbl) |[a-z ]{0,5}){0,60}"
    ) {
        let _ = read(format!("{{\\rtf1{rtf}").as_bytes());
    }
}
