//! Trimming of long files: a prompt shows the beginning and the end (spec BST-002, BST-003).
//!
//! Lengths are Unicode scalars, so the limit is fair to all scripts and never cuts inside a
//! character. The parts use 90 % of the limit; the rest is room for the mark between them.

use std::borrow::Cow;

use super::BootstrapName;

/// Maximum length of a file in a prompt, in Unicode scalars.
pub const MAX_FILE_CHARS: usize = 20_000;

/// Share of the limit for the beginning, in per cent.
pub const HEAD_PERCENT: usize = 70;

/// Share of the limit for the end, in per cent.
pub const TAIL_PERCENT: usize = 20;

/// Returns a file's content as a prompt shows it: whole up to [`MAX_FILE_CHARS`], else the beginning
/// and the end with a mark between that has the file's name and the counts.
#[must_use]
pub fn trimmed(name: BootstrapName, content: &str) -> Cow<'_, str> {
    trimmed_to(name, content, MAX_FILE_CHARS)
}

fn trimmed_to(name: BootstrapName, content: &str, most: usize) -> Cow<'_, str> {
    let content = content.trim_end();
    // A text never has more characters than bytes.
    if content.len() <= most {
        return Cow::Borrowed(content);
    }
    let total = content.chars().count();
    if total <= most {
        return Cow::Borrowed(content);
    }
    let (head, tail) = (most * HEAD_PERCENT / 100, most * TAIL_PERCENT / 100);
    let at = |index: usize| content.char_indices().nth(index).map_or(content.len(), |(at, _)| at);
    Cow::Owned(format!(
        "{}\n\n[... content trimmed: {}, {head} + {tail} of {total} characters shown ...]\n\n{}",
        &content[..at(head)],
        name.path(),
        &content[at(total - tail)..],
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_of_twenty_thousand_characters_is_whole_and_white_space_at_its_end_is_no_part() {
        let content = "界".repeat(MAX_FILE_CHARS);

        assert_eq!(trimmed(BootstrapName::User, &content), content);
        assert_eq!(trimmed(BootstrapName::User, &format!("{content}\n \n")), content);
    }

    #[test]
    fn a_longer_one_keeps_14000_and_4000_characters_and_says_what_is_lost() {
        let content =
            format!("{}{}{}", "头".repeat(14_000), "中".repeat(2_001), "尾".repeat(4_000));

        let shown = trimmed(BootstrapName::Agents, &content);

        let mark = "\n\n[... content trimmed: AGENTS.md, 14000 + 4000 of 20001 characters shown \
                    ...]\n\n";
        assert_eq!(shown, format!("{}{mark}{}", "头".repeat(14_000), "尾".repeat(4_000)));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_the_beginning_and_the_end_in_any_script(
            content in "[a-z\u{4e00}-\u{4e20}\u{1f600}-\u{1f610}e\u{301} \n]{0,80}",
            most in 0_usize..60,
        ) {
            let shown = trimmed_to(BootstrapName::Soul, &content, most);

            let whole: Vec<char> = content.trim_end().chars().collect();
            if whole.len() <= most {
                prop_assert_eq!(shown, content.trim_end());
            } else {
                let (head, tail) = (most * 70 / 100, most * 20 / 100);
                let (begins, ends) = (&whole[..head], &whole[whole.len() - tail..]);
                prop_assert!(shown.starts_with(&begins.iter().collect::<String>()));
                prop_assert!(shown.ends_with(&ends.iter().collect::<String>()));
                let mark = format!("SOUL.md, {head} + {tail} of {} characters", whole.len());
                prop_assert!(shown.contains(&mark));
            }
        }
    }
}
