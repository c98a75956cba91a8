//! Safe writing of texts into a prompt.
//!
//! | text | form |
//! |---|---|
//! | a name, a description, a value | one line, no hidden characters, limited length |
//! | a document, findings | between tags that it cannot close |
//! | the owner's instructions | unchanged |

use std::fmt::Write as _;

use crate::text::push_line;

/// Maximum length of a name, id or zone, in characters.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Maximum length of a model id, path or address, in characters.
pub(super) const MAX_ADDRESS_CHARS: usize = 200;

/// Maximum length of a description, in characters.
pub(super) const MAX_SENTENCE_CHARS: usize = 160;

/// Maximum length of a setting's text on one line, in characters.
pub(super) const MAX_PARAGRAPH_CHARS: usize = 1_000;

/// Starts a section; the text before it must end with a line break.
pub(super) fn heading(out: &mut String, title: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(title);
    out.push('\n');
}

/// Writes a setting's text as a list item, so that it cannot become a heading.
pub(super) fn remark(out: &mut String, text: &str) {
    out.push_str("- ");
    push_line(out, text, MAX_PARAGRAPH_CHARS);
    out.push('\n');
}

/// Writes `- name: text` on one line.
pub(super) fn item(out: &mut String, name: &str, text: &str) {
    out.push_str("- ");
    push_line(out, name, MAX_ADDRESS_CHARS);
    out.push_str(": ");
    push_line(out, text, MAX_SENTENCE_CHARS);
    out.push('\n');
}

/// Writes a text on one line and replaces a reserved character.
pub(super) fn push_line_without(
    out: &mut String,
    text: &str,
    limit: usize,
    (reserved, instead): (char, &str),
) {
    let start = out.len();
    push_line(out, text, limit);
    if out[start..].contains(reserved) {
        let changed = out[start..].replace(reserved, instead);
        out.truncate(start);
        out.push_str(&changed);
    }
}

/// Writes a text between `<tag attributes>` and `</tag>`, with `</tag` in it escaped as `<\/tag`.
pub(crate) fn fenced(out: &mut String, tag: &str, attributes: &str, text: &str) {
    let gap = if attributes.is_empty() { "" } else { " " };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<{tag}{gap}{attributes}>");
    let mut parts = text.trim_end().split('<');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str(if closes(part, tag) { "<\\" } else { "<" });
        out.push_str(part);
    }
    let _ = writeln!(out, "\n</{tag}>");
}

/// Whether the text after a `<` could be read as the closing tag, even by a lenient reader.
fn closes(text: &str, tag: &str) -> bool {
    let name = text.trim_start().strip_prefix('/').map(|name| name.trim_start().as_bytes());
    let begins = name.and_then(|name| name.get(..tag.len()));
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(tag.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_tag_itself_is_changed_in_a_text() {
        let mut out = String::new();

        fenced(&mut out, "file", "name=\"a\"", "<b>x</b></File></ file>\n");

        assert_eq!(out, "<file name=\"a\">\n<b>x</b><\\/File><\\/ file>\n</file>\n");
    }

    #[test]
    fn a_reserved_character_is_replaced_in_what_is_written_now_only() {
        let mut out = "a|".to_owned();

        push_line_without(&mut out, "b|c\nd", 9, ('|', "/"));

        assert_eq!(out, "a|b/c d");
    }

    proptest! {
        #[test]
        fn no_text_closes_its_tags(text in "(</|/|<|file|FILE|>| |\n|x|é){0,30}") {
            let mut out = String::new();

            fenced(&mut out, "file", "", &text);

            let inside = out.strip_suffix("</file>\n").unwrap().to_ascii_lowercase();
            let squeezed: String = inside.split_whitespace().collect();
            prop_assert!(!squeezed.contains("</file"), "{out}");
        }
    }
}
