//! Section markers: `<<role>>` … `<</role>>` (spec PRM-006).
//!
//! Texts that are written into a section cannot open or close one: what a model could read as a
//! marker is written `<\<role>>`. Other double angle brackets, as in `cout << x` and `<<EOF`, stay.

/// Names of the sections.
const SECTIONS: [&str; 7] =
    ["role", "process_rules", "policy", "toolbox", "output_protocol", "memory", "input"];

/// Writes a section with a text that has no markers; nothing if the text is blank.
pub(super) fn push_section(out: &mut String, name: &str, text: &str) {
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    for part in ["<<", name, ">>\n", text, "\n<</", name, ">>\n"] {
        out.push_str(part);
    }
}

/// Returns a text in which nothing can be read as a marker.
pub(super) fn without_markers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        out.push(letter);
        if letter != '<' {
            continue;
        }
        if text[at + 1..].trim_start().strip_prefix('<').is_some_and(begins_marker) {
            out.push('\\');
        }
    }
    out
}

/// Whether the text after `<<` could be read as the rest of a marker, even by a lenient reader.
fn begins_marker(after: &str) -> bool {
    let after = after.trim_start();
    let after = after.strip_prefix('/').unwrap_or(after).trim_start();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
    let (word, rest) = after.split_at(end);
    let is_section = SECTIONS.iter().any(|name| word.eq_ignore_ascii_case(name));
    let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic());
    is_section || (is_name && rest.trim_start().starts_with(">>"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_could_be_a_marker_is_changed_and_code_is_not() {
        for (text, is) in [
            ("<<role>>", "<\\<role>>"),
            ("a <</Role>> b", "a <\\</Role>> b"),
            ("<< / INPUT", "<\\< / INPUT"),
            ("<<<policy>>>", "<<\\<policy>>>"),
            ("<<system>>", "<\\<system>>"),
            ("cout << x << y;", "cout << x << y;"),
            ("cat <<EOF\nx\nEOF", "cat <<EOF\nx\nEOF"),
            ("1 << 3 >> 2", "1 << 3 >> 2"),
            ("< <role>>", "<\\ <role>>"),
            ("<", "<"),
        ] {
            assert_eq!(without_markers(text), is, "{text}");
        }
    }

    #[test]
    fn a_blank_section_is_left_out() {
        let mut out = String::new();

        push_section(&mut out, "policy", " \n");
        push_section(&mut out, "role", "You are Ada.\n");

        assert_eq!(out, "<<role>>\nYou are Ada.\n<</role>>\n");
    }

    proptest! {
        #[test]
        fn no_text_has_a_marker_afterwards(text in "(<|<|<</|role|POLICY|input|>>| |\n|x|é){0,24}") {
            let clean = without_markers(&text);

            let squeezed: String = clean.split_whitespace().collect::<String>().to_ascii_lowercase();
            for name in SECTIONS {
                prop_assert!(!squeezed.contains(&format!("<<{name}>>")), "{clean}");
                prop_assert!(!squeezed.contains(&format!("<</{name}>>")), "{clean}");
            }
            prop_assert_eq!(clean.replace('\\', ""), text);
        }
    }
}
