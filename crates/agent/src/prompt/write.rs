//! Safe writing of texts into a prompt.
//!
//! | text | form |
//! |---|---|
//! | a name, a description, a value | one line, no hidden characters, limited length |
//! | a document, findings | between tags that it cannot close, by [`fenced`](crate::text::fenced) |
//! | the owner's instructions | unchanged |

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_character_is_replaced_in_what_is_written_now_only() {
        let mut out = "a|".to_owned();

        push_line_without(&mut out, "b|c\nd", 9, ('|', "/"));

        assert_eq!(out, "a|b/c d");
    }
}
