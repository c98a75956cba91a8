//! Splitting of a reply into parts that a platform takes (spec CHN-021).
//!
//! The text is Markdown. Each part must fit as it is *and* as it is rendered; the caller decides
//! whether it does. Within that limit:
//!
//! - a code fence that fits in one part is not cut; a longer one is closed at the end of a part and
//!   opened again, with its language, at the start of the next
//! - a part ends at a newline, if there is one in its last 200 characters; else at a space in its
//!   last 100; else between two characters, never inside a grapheme cluster
//!
//! No text is lost except whitespace at a cut.

/// Distance within which a newline is looked for before the cut, in characters.
const NEWLINE_WITHIN: usize = 200;

/// Distance within which a space is looked for before the cut, in characters.
const SPACE_WITHIN: usize = 100;

/// Maximum length of a grapheme cluster that is kept whole, in characters.
const CLUSTER_WITHIN: usize = 16;

/// Maximum length of the language that is repeated when a fence is opened again, in characters.
const MAX_LANGUAGE_CHARS: usize = 32;

/// Length of a text as Telegram and most platforms count it: in UTF-16 units.
#[must_use]
pub fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Splits `text` into parts that `fits` accepts, none of them blank.
///
/// A single character that `fits` refuses is returned as a part of its own.
#[must_use]
pub fn split(text: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    let mut open: Option<Fence> = None;
    loop {
        if open.is_none() {
            rest = without_blank_lines(rest);
        }
        if rest.is_empty() {
            return parts;
        }
        let cut = Cut::new(rest, open.as_ref(), &fits);
        let at = cut.at;
        let (part, opened) = (cut.part(at), cut.open_at(at));
        open = opened;
        rest = &rest[at..];
        if let Some(fence) = &open {
            // The newline at the cut belongs to the closing fence; the indentation of the next line
            // stays.
            rest = rest.strip_prefix('\n').unwrap_or(rest);
            if let Some(after) = fence.closed_by_first_line(rest) {
                rest = after;
                open = None;
            }
        }
        if !part.trim().is_empty() {
            parts.push(part);
        }
    }
}

/// Open code fence.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fence {
    /// Back-ticks or tildes that close the fence.
    marker: String,
    language: String,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let line = line.trim_start();
        let first = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = line.chars().take_while(|c| *c == first).count();
        let info = line[length..].trim();
        if length < 3 || (first == '`' && info.contains('`')) {
            return None;
        }
        let language = info.split_whitespace().next().unwrap_or_default();
        let language = language.chars().take(MAX_LANGUAGE_CHARS).collect();
        Some(Self { marker: line[..length].to_owned(), language })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.starts_with(&self.marker)
            && self.marker.chars().take(1).all(|c| line.chars().all(|d| c == d))
    }

    fn closed_by_first_line<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (line, after) = text.split_once('\n').unwrap_or((text, ""));
        self.is_closed_by(line).then_some(after)
    }
}

/// Cut of the text: where the next part ends.
struct Cut<'a> {
    rest: &'a str,
    /// Fence that is open where `rest` begins.
    before: Option<&'a Fence>,
    /// End of the part, in bytes; at least one character.
    at: usize,
}

impl<'a> Cut<'a> {
    fn new(rest: &'a str, before: Option<&'a Fence>, fits: &impl Fn(&str) -> bool) -> Self {
        let mut cut = Self { rest, before, at: rest.len() };
        if fits(&cut.part(rest.len())) {
            return cut;
        }
        let most = cut.longest_fitting(fits);
        cut.at = cut.choose_end(most, fits);
        // The rendered text may grow when it is cut: a link without its end is shown with its
        // address.
        while !fits(&cut.part(cut.at)) {
            let shorter = floor(rest, cut.at - cut.at.div_ceil(10));
            if shorter == 0 {
                break;
            }
            cut.at = shorter;
        }
        cut.at = cut.at.max(first_char_len(rest));
        cut
    }

    /// Returns the longest length that fits, approximately, by binary search.
    fn longest_fitting(&self, fits: &impl Fn(&str) -> bool) -> usize {
        // Doubling first, so that a long text is not rendered whole again and again.
        let (mut low, mut high) = (0, 256.min(self.rest.len()));
        while high < self.rest.len() && fits(&self.part(floor(self.rest, high))) {
            low = high;
            high = (high * 2).min(self.rest.len());
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(&self.part(floor(self.rest, middle))) {
                low = middle;
            } else {
                high = middle;
            }
        }
        floor(self.rest, low).max(first_char_len(self.rest))
    }

    fn choose_end(&self, most: usize, fits: &impl Fn(&str) -> bool) -> usize {
        if let Some(before) = self.before_whole_fence(most, fits) {
            return before;
        }
        let tail = |characters: usize| {
            let mut back = self.rest[..most].char_indices().rev();
            back.nth(characters - 1).map_or(0, |(at, _)| at)
        };
        let newline = tail(NEWLINE_WITHIN);
        if self.rest[most..].starts_with('\n') {
            return most;
        }
        if let Some(at) = self.rest[newline..most].rfind('\n').map(|at| newline + at)
            && !self.rest[..at].trim().is_empty()
        {
            return at;
        }
        let space = tail(SPACE_WITHIN);
        if let Some((at, c)) =
            self.rest[space..most].char_indices().rev().find(|(_, c)| c.is_whitespace())
            && !self.rest[..space + at].trim().is_empty()
        {
            return space + at + c.len_utf8();
        }
        cluster_start(self.rest, most)
    }

    /// Start of the fence that the cut would fall into, if that fence fits in a part of its own.
    fn before_whole_fence(&self, most: usize, fits: &impl Fn(&str) -> bool) -> Option<usize> {
        let (starts, fence) = self.fence_around(most)?;
        let starts = starts.filter(|at| !self.rest[..*at].trim().is_empty())?;
        let ends = fence.end_in(&self.rest[starts..])?;
        fits(&self.rest[starts..starts + ends]).then_some(starts)
    }

    /// Fence that is open at `at`, with its start if that is within `rest`.
    fn fence_around(&self, at: usize) -> Option<(Option<usize>, Fence)> {
        let mut open = self.before.map(|fence| (None, fence.clone()));
        let mut start = 0;
        for line in self.rest[..at].split_inclusive('\n') {
            // A line that is cut opens no fence, and closes none unless it ends at the cut.
            let is_whole = line.ends_with('\n')
                || start + line.len() == self.rest.len()
                || self.rest[start + line.len()..].starts_with('\n');
            match &open {
                Some((_, fence)) if is_whole && fence.is_closed_by(line) => open = None,
                None if is_whole => {
                    open = Fence::opened_by(line).map(|fence| (Some(start), fence));
                }
                Some(_) | None => {}
            }
            start += line.len();
        }
        open
    }

    fn open_at(&self, at: usize) -> Option<Fence> {
        self.fence_around(at).map(|(_, fence)| fence)
    }

    /// Returns the part that ends at `at`, with the surrounding fence opened before and closed
    /// after it.
    fn part(&self, at: usize) -> String {
        let mut part = String::new();
        if let Some(fence) = self.before {
            part = format!("{}{}\n", fence.marker, fence.language);
        }
        match self.open_at(at) {
            Some(fence) => {
                part.push_str(&self.rest[..at]);
                if !part.ends_with('\n') {
                    part.push('\n');
                }
                part.push_str(&fence.marker);
            }
            None => part.push_str(self.rest[..at].trim_end()),
        }
        part
    }
}

impl Fence {
    /// End of the fence that begins at the start of `text`; `None` if it is not closed.
    fn end_in(&self, text: &str) -> Option<usize> {
        let mut at = 0;
        for (n, line) in text.split_inclusive('\n').enumerate() {
            at += line.len();
            if n > 0 && self.is_closed_by(line) {
                return Some(at);
            }
        }
        None
    }
}

/// Greatest character boundary that is not past `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

fn without_blank_lines(text: &str) -> &str {
    let mut text = text;
    while let Some((line, rest)) = text.split_once('\n') {
        if !line.trim().is_empty() {
            break;
        }
        text = rest;
    }
    if text.trim().is_empty() { "" } else { text }
}

/// Start of the grapheme cluster that a cut at `at` would tear apart; `at` if there is none.
fn cluster_start(text: &str, at: usize) -> usize {
    let mut start = at;
    for _ in 0..CLUSTER_WITHIN {
        let next = text[start..].chars().next();
        let previous = text[..start].chars().next_back();
        let (Some(next), Some(previous)) = (next, previous) else { break };
        if !extends(next) && previous != '\u{200d}' {
            return start;
        }
        start -= previous.len_utf8();
    }
    if start == 0 { at } else { start }
}

/// Whether a character extends the one before it: joiner, variation, skin tone, accent, keycap.
const fn extends(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200d}'
            | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}'
            | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str, limit: usize) -> Vec<String> {
        split(text, |part| utf16(part) <= limit)
    }

    /// Returns a text without its whitespace and fences.
    fn content(text: &str) -> String {
        let lines = text.lines().filter(|line| {
            let line = line.trim();
            !(line.starts_with("```") || line.starts_with("~~~"))
        });
        lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
    }

    #[test]
    fn a_short_text_is_one_part() {
        assert_eq!(parts("hello\n", 100), ["hello"]);
        assert!(parts(" \n ", 100).is_empty());
    }

    #[test]
    fn a_part_ends_at_a_newline_rather_than_at_a_space() {
        let text = format!("{}\n{} {}", "a".repeat(60), "b".repeat(20), "c".repeat(60));

        let cut = parts(&text, 100);

        assert_eq!(cut, [text[..60].to_owned(), text[61..].to_owned()]);
    }

    #[test]
    fn a_part_ends_at_a_space_rather_than_in_a_word() {
        let text = format!("{} {}", "a".repeat(60), "b".repeat(60));

        assert_eq!(parts(&text, 100), ["a".repeat(60), "b".repeat(60)]);
    }

    #[test]
    fn a_word_of_ten_thousand_characters_is_cut_where_it_must() {
        let cut = parts(&"x".repeat(10_000), 4096);

        let lengths: Vec<usize> = cut.iter().map(String::len).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
    }

    #[test]
    fn a_fence_that_fits_is_kept_whole() {
        let code = format!("```rust\n{}```", "let x = 1;\n".repeat(7));
        let text = format!("{}\n\n{code}\nafter", "word ".repeat(15));

        assert_eq!(
            parts(&text, 100),
            ["word ".repeat(15).trim_end().to_owned(), format!("{code}\nafter"),]
        );
    }

    #[test]
    fn a_long_fence_is_closed_and_opened_again_with_its_language() {
        let text = format!("```rust\n{}```\nend", "    let x = 1;\n".repeat(20));

        let cut = parts(&text, 100);

        assert!(cut.len() > 3);
        for part in &cut {
            assert!(part.starts_with("```rust\n    let"), "{part}");
            assert_eq!(part.matches("```").count(), 2, "{part}");
        }
        assert!(cut.last().unwrap().ends_with("```\nend"));
        assert_eq!(cut.concat().matches("let x").count(), 20);
    }

    #[test]
    fn an_emoji_of_several_characters_is_not_torn() {
        let family = "👨‍👩‍👧";
        let text = family.repeat(20);

        for part in parts(&text, 20) {
            assert_eq!(part.replace(family, ""), "");
        }
    }

    #[test]
    fn a_limit_below_one_character_still_ends() {
        assert_eq!(parts("😀😀", 1), ["😀", "😀"]);
    }

    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-z ]{0,80}",
            "\\PC{0,40}",
            "[一-龥]{0,120}",
            "[😀👍🏽👨‍👩‍👧🇩🇪é]{0,40}",
            Just("\n".to_owned()),
            Just("\n\n".to_owned()),
            Just("\n```rust\n".to_owned()),
            Just("\n```\n".to_owned()),
            Just("\n~~~~\n".to_owned()),
            "[x]{300,700}",
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn every_part_fits_and_nothing_is_lost(text in texts(), limit in 60_usize..300) {
            let cut = parts(&text, limit);

            for part in &cut {
                prop_assert!(utf16(part) <= limit, "{} > {limit}: {part:?}", utf16(part));
                prop_assert!(!part.trim().is_empty());
            }
            let joined = cut.join("\n");
            prop_assert_eq!(content(&joined), content(&text));
        }

        #[test]
        fn without_fences_the_parts_are_the_text(text in "[a-z一-龥😀 \n]{0,3000}") {
            let squeezed = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();

            let cut = parts(&text, 100);

            prop_assert_eq!(squeezed(&cut.concat()), squeezed(&text));
        }

        #[test]
        fn the_same_text_is_cut_alike(text in texts()) {
            prop_assert_eq!(parts(&text, 120), parts(&text, 120));
        }
    }
}
