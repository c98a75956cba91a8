//! Wildcards `*` and `?` in names.

/// Whether a text matches a pattern: `*` is any run of characters, `?` any single one.
///
/// The time is at most proportional to the product of both lengths.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    matches_between(pattern, text, None)
}

/// Same as [`matches`], but no wildcard matches the separator.
pub(crate) fn matches_between(pattern: &str, text: &str, separator: Option<char>) -> bool {
    let crosses = |c: char| Some(c) != separator;
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to continue after a mismatch: behind the last star, one character later.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (pattern_before, text_before) = (pattern.clone(), text.clone());
        let fits = match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = text_before;
                retry = Some((pattern.clone(), text.clone()));
                true
            }
            (Some('?'), Some(c)) => crosses(c),
            (Some(wanted), Some(c)) => wanted == c,
            (None | Some(_), _) => false,
        };
        if fits {
            continue;
        }
        drop(pattern_before);
        let Some((after_star, mut later)) = retry.take() else { return false };
        match later.next() {
            Some(c) if crosses(c) => {
                pattern = after_star.clone();
                text = later.clone();
                retry = Some((after_star, later));
            }
            Some(_) | None => return false,
        }
    }
}

/// Whether a text has a wildcard.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_is_any_run_and_a_question_mark_any_one() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("*", "exec", true),
            ("web_*", "web_search", true),
            ("*_search", "web_search", true),
            ("w*s*h", "web_search", true),
            ("web_*", "exec", false),
            ("?xec", "exec", true),
            ("?xec", "xec", false),
            ("*工具", "我的工具", true),
            ("**a", "ba", true),
            ("", "a", false),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_star_stops_at_a_separator_where_there_is_one() {
        let fits = |pattern, text| matches_between(pattern, text, Some('/'));

        assert!(fits("/usr/bin/*", "/usr/bin/ls"));
        assert!(!fits("/usr/bin/*", "/usr/bin/../../tmp/x"));
        assert!(!fits("/usr?bin", "/usr/bin"));
    }

    #[test]
    fn many_stars_take_no_longer_than_they_should() {
        let pattern = "*a".repeat(60);
        let text = "a".repeat(59) + &"b".repeat(100);

        assert!(!matches(&pattern, &text));
    }

    proptest! {
        #[test]
        fn a_text_fits_itself_and_every_part_replaced_by_a_star(
            head in "[a-z_]{0,8}", middle in "[a-z_]{0,8}", tail in "[a-z_]{0,8}",
        ) {
            let text = format!("{head}{middle}{tail}");

            prop_assert!(matches(&text, &text));
            let starred = format!("{head}*{tail}");
            prop_assert!(matches(&starred, &text));
        }
    }
}
