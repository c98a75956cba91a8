//! Match of a description with a message.
//!
//! A description's keywords are its words of more than three letters without stop words, and the
//! pairs of adjacent characters in Chinese, Japanese or Korean text. The score is the share of them
//! in the message.

use std::collections::BTreeSet;

use crate::tokens::is_cjk;

/// Stop words of more than three letters, sorted.
const STOP_WORDS: [&str; 44] = [
    "about", "after", "again", "also", "another", "because", "been", "before", "being", "between",
    "both", "could", "does", "each", "every", "from", "have", "here", "into", "just", "like",
    "make", "more", "most", "only", "other", "over", "please", "should", "some", "such", "than",
    "that", "their", "them", "then", "there", "these", "this", "what", "when", "which", "will",
    "with",
];

/// Minimum length of a keyword, in characters.
const MIN_KEYWORD_CHARS: usize = 4;

#[derive(Debug)]
pub(super) struct MessageKeywords(BTreeSet<String>);

impl MessageKeywords {
    pub(super) fn new(message: &str) -> Self {
        Self(keywords(message))
    }

    /// Returns the share of a description's keywords in the message: 0 to 1; 0 if it has none.
    pub(super) fn share_of(&self, description: &str) -> f64 {
        let wanted = keywords(description);
        if wanted.is_empty() {
            return 0.0;
        }
        let said = wanted.iter().filter(|word| self.0.contains(*word)).count();
        count(said) / count(wanted.len())
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Returns the keywords of a text: lower-case words, and pairs of adjacent CJK characters. A single
/// CJK character is a keyword too.
fn keywords(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric();
    for stretch in text.split(|c| !is_part(c)).filter(|stretch| !stretch.is_empty()) {
        for (wide, run) in runs(stretch) {
            if wide {
                add_pairs(&mut found, run);
            } else {
                let word = run.to_lowercase();
                let is_long = word.chars().count() >= MIN_KEYWORD_CHARS;
                if is_long && STOP_WORDS.binary_search(&word.as_str()).is_err() {
                    found.insert(word);
                }
            }
        }
    }
    found
}

/// Splits a text into runs with and without CJK characters.
fn runs(stretch: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut rest = stretch;
    std::iter::from_fn(move || {
        let wide = is_cjk(rest.chars().next()?);
        let end = rest.find(|c| is_cjk(c) != wide).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some((wide, run))
    })
}

fn add_pairs(found: &mut BTreeSet<String>, run: &str) {
    let chars: Vec<char> = run.chars().collect();
    if let [single] = chars.as_slice() {
        found.insert(single.to_string());
    }
    found.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        keywords(text).into_iter().collect()
    }

    #[test]
    fn keywords_are_words_of_more_than_three_letters_that_say_something() {
        assert_eq!(
            words("Make the weather report, with WEATHER maps!"),
            ["maps", "report", "weather"]
        );
        assert!(words("the cat and a dog").is_empty());
        assert_eq!(words("größe"), ["größe"]);
    }

    #[test]
    fn text_without_gaps_is_matched_by_pairs_of_neighbours() {
        assert_eq!(words("天气预报"), ["天气", "气预", "预报"]);
        assert_eq!(words("用Python画图"), ["python", "用", "画图"]);
        assert_eq!(words("날씨 예보"), ["날씨", "예보"]);
    }

    #[test]
    fn the_score_is_the_share_of_the_description_that_was_said() {
        for (message, description, share) in [
            ("what is the weather report for today", "weather report", 1.0),
            ("weather?", "weather report", 0.5),
            ("sing", "weather report", 0.0),
            ("明天天气怎么样", "天气预报", 1.0 / 3.0),
            ("天气预报", "天气预报", 1.0),
            ("anything", "", 0.0),
            ("", "weather", 0.0),
        ] {
            let got = MessageKeywords::new(message).share_of(description);
            assert!((got - share).abs() < 1e-9, "{message} / {description}: {got}");
        }
    }

    #[test]
    fn the_stop_words_are_sorted_for_the_search_and_long_enough_to_matter() {
        assert!(STOP_WORDS.is_sorted());
        assert!(STOP_WORDS.iter().all(|word| word.len() >= MIN_KEYWORD_CHARS));
    }

    proptest! {
        #[test]
        fn any_share_is_between_nothing_and_all(message in ".{0,80}", description in ".{0,80}") {
            let share = MessageKeywords::new(&message).share_of(&description);

            prop_assert!((0.0..=1.0).contains(&share));
        }

        #[test]
        fn a_description_that_was_said_whole_is_matched_whole(text in "[a-z]{4,9}( [一-龥]{2,6}){0,3}") {
            let has_keywords = !keywords(&text).is_empty();
            let share = MessageKeywords::new(&text).share_of(&text);

            let whole = f64::from(u8::from(has_keywords));
            prop_assert!((share - whole).abs() < 1e-9);
        }
    }
}
