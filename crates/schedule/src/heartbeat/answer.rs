//! Classification of a model's answer to a heartbeat (C-11, C-35).

/// Answer of a model if nothing needs doing.
pub const HEARTBEAT_OK: &str = "HEARTBEAT_OK";

/// Answer of a model that has nothing to say.
pub const NO_REPLY: &str = "NO_REPLY";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeartbeatAnswer<'a> {
    pub text: &'a str,
    /// Whether the answer has images, files or audio.
    pub has_media: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind<'a> {
    Nothing,
    Ok,
    News(&'a str),
}

/// Classifies an answer. The token [`HEARTBEAT_OK`] is recognised and removed at the beginning and
/// at the end; within a text it is part of the text.
///
/// The rest is delivered if it is longer than `most` characters or has media.
#[must_use]
pub fn classify_answer<'a>(answer: HeartbeatAnswer<'a>, most: usize) -> AnswerKind<'a> {
    let whole = answer.text.trim();
    let (rest, had_token) = stripped(whole);
    if answer.has_media {
        return AnswerKind::News(if had_token { rest } else { whole });
    }
    match had_token {
        _ if whole.is_empty() || whole == NO_REPLY => AnswerKind::Nothing,
        true if rest.chars().count() <= most => AnswerKind::Ok,
        true => AnswerKind::News(rest),
        false => AnswerKind::News(whole),
    }
}

/// Removes all tokens at both ends. Also returns whether there was one.
fn stripped(text: &str) -> (&str, bool) {
    let (mut rest, mut had_token) = (text, false);
    loop {
        let shorter = without_first(rest).or_else(|| without_last(rest));
        match shorter {
            Some(shorter) => (rest, had_token) = (shorter.trim(), true),
            None => return (rest, had_token),
        }
    }
}

fn without_first(text: &str) -> Option<&str> {
    let rest = skip_marks(text).strip_prefix(HEARTBEAT_OK)?;
    if rest.starts_with(is_of_a_word) {
        return None;
    }
    let rest = skip_marks(rest);
    Some(rest.trim_start_matches(is_point))
}

fn without_last(text: &str) -> Option<&str> {
    let rest = drop_marks(drop_marks(text).trim_end_matches(is_point));
    let rest = rest.strip_suffix(HEARTBEAT_OK)?;
    if rest.ends_with(is_of_a_word) {
        return None;
    }
    Some(drop_marks(rest))
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_point(c: char) -> bool {
    c.is_whitespace() || ".!,;:-–—。！，；：".contains(c)
}

fn is_mark(c: char) -> bool {
    c.is_whitespace() || "*_`~\"'".contains(c)
}

/// Maximum length of a recognised HTML tag, in bytes.
const MAX_TAG_BYTES: usize = 24;

/// Removes Markdown marks and HTML tags from the beginning.
fn skip_marks(text: &str) -> &str {
    let rest = text.trim_start_matches(is_mark);
    match rest.strip_prefix('<').and_then(|tag| tag.split_once('>')) {
        Some((tag, rest)) if is_tag(tag) => skip_marks(rest),
        Some(_) | None => rest,
    }
}

/// Removes Markdown marks and HTML tags from the end.
fn drop_marks(text: &str) -> &str {
    let rest = text.trim_end_matches(is_mark);
    match rest.strip_suffix('>').and_then(|tag| tag.rsplit_once('<')) {
        Some((rest, tag)) if is_tag(tag) => drop_marks(rest),
        Some(_) | None => rest,
    }
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= MAX_TAG_BYTES && tag.starts_with(|c: char| c == '/' || c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> AnswerKind<'_> {
        classify_answer(HeartbeatAnswer { text, has_media: false }, 10)
    }

    #[test]
    fn the_token_and_little_beside_it_is_no_news() {
        for text in [
            "HEARTBEAT_OK",
            " HEARTBEAT_OK.\n",
            "**HEARTBEAT_OK**",
            "`HEARTBEAT_OK`",
            "<b>HEARTBEAT_OK</b>",
            "HEARTBEAT_OK HEARTBEAT_OK",
            "HEARTBEAT_OK: all well",
            "All quiet. HEARTBEAT_OK",
            "一切正常。HEARTBEAT_OK！",
        ] {
            assert_eq!(of(text), AnswerKind::Ok, "{text}");
        }
    }

    #[test]
    fn much_beside_the_token_is_news_without_it() {
        assert_eq!(of("HEARTBEAT_OK\n\nThe oven is on."), AnswerKind::News("The oven is on."));
        assert_eq!(of("The oven is on.\n**HEARTBEAT_OK**"), AnswerKind::News("The oven is on."));
        assert_eq!(of("HEARTBEAT_OK 12345678901"), AnswerKind::News("12345678901"));
        assert_eq!(of("HEARTBEAT_OK 1234567890"), AnswerKind::Ok);
    }

    #[test]
    fn a_token_in_the_midst_or_in_a_word_is_part_of_the_text() {
        for text in [
            "I did not say HEARTBEAT_OK, the oven is on",
            "HEARTBEAT_OKAY then, the oven is on",
            "the variable is MY_HEARTBEAT_OK",
            "heartbeat_ok",
        ] {
            assert_eq!(of(text), AnswerKind::News(text));
        }
    }

    #[test]
    fn silence_is_nothing_and_only_if_it_is_all_that_is_said() {
        assert_eq!(of(" \n"), AnswerKind::Nothing);
        assert_eq!(of(" NO_REPLY\n"), AnswerKind::Nothing);
        assert_eq!(of("NO_REPLY needed"), AnswerKind::News("NO_REPLY needed"));
    }

    #[test]
    fn what_comes_with_an_answer_is_delivered() {
        let said = |text| classify_answer(HeartbeatAnswer { text, has_media: true }, 10);

        assert_eq!(said("HEARTBEAT_OK"), AnswerKind::News(""));
        assert_eq!(said("HEARTBEAT_OK see this"), AnswerKind::News("see this"));
    }

    proptest! {
        #[test]
        fn no_answer_is_too_odd_and_news_is_part_of_what_was_said(
            text in "(HEARTBEAT_OK|[ *<>/b.。x_]|\\PC){0,20}", most in 0_usize..20,
        ) {
            match classify_answer(HeartbeatAnswer { text: &text, has_media: false }, most) {
                AnswerKind::News(news) => prop_assert!(text.contains(news) && !news.is_empty()),
                AnswerKind::Ok => prop_assert!(text.contains(HEARTBEAT_OK)),
                AnswerKind::Nothing => prop_assert!(text.trim().is_empty() || text.trim() == NO_REPLY),
            }
        }
    }
}
