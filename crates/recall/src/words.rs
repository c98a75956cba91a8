//! Terms of a text, the same for indexing and for searching.
//!
//! Words are lower-cased; English ones lose their possessive and are stemmed, and the most common
//! are dropped. Han, Kana and Hangul are written without spaces or inflect at the end, so each run
//! of them gives its overlapping pairs of characters, and a run of one character gives itself.

use rust_stemmers::{Algorithm, Stemmer};
use unicode_segmentation::UnicodeSegmentation;

/// Maximum characters of a term. Longer words are hashes or encoded files; their beginning is
/// enough.
const MAX_TERM_CHARS: usize = 64;

/// Common English words without value for search. Must be sorted, for the binary search.
const STOP_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could",
    "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "his", "how", "i", "if",
    "in", "into", "is", "it", "its", "just", "me", "my", "no", "not", "of", "on", "or", "our",
    "she", "should", "so", "than", "that", "the", "their", "them", "then", "there", "these",
    "they", "this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "who",
    "whom", "why", "will", "with", "would", "you", "your",
];

/// Returns the terms of a text in order, including repetitions.
#[must_use]
pub fn terms(text: &str) -> Vec<String> {
    let english = Stemmer::create(Algorithm::English);
    let mut found = Vec::new();
    for (unspaced, stretch) in script_runs(text) {
        if unspaced {
            pairs(stretch, &mut found);
        } else {
            found.extend(stretch.unicode_words().filter_map(|word| term(&english, word)));
        }
    }
    found
}

/// Returns a word in lower case, without the possessive.
pub(crate) fn normalised(word: &str) -> String {
    let lower = word.to_lowercase().replace('\u{2019}', "'");
    lower.strip_suffix("'s").unwrap_or(&lower).to_owned()
}

/// Returns whether a lower-case word is too common to search for.
pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Returns whether a character belongs to a script without spaces between words, or with attached
/// particles.
pub(crate) const fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}'     // Hiragana, Katakana
        | '\u{3400}'..='\u{4dbf}'   // Han, extension A
        | '\u{4e00}'..='\u{9fff}'   // Han
        | '\u{ac00}'..='\u{d7af}'   // Hangul
        | '\u{f900}'..='\u{faff}'   // Han, compatibility
        | '\u{20000}'..='\u{3ffff}' // Han, the other planes
    )
}

/// Splits the text into runs with and without spaces between words; `true` means without.
fn script_runs(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let unspaced = is_unspaced(rest.chars().next()?);
        let end = rest.find(|c| is_unspaced(c) != unspaced).unwrap_or(rest.len());
        let (stretch, after) = rest.split_at(end);
        rest = after;
        Some((unspaced, stretch))
    })
}

fn term(english: &Stemmer, word: &str) -> Option<String> {
    let word = normalised(word);
    if word.is_empty() || is_stop_word(&word) {
        return None;
    }
    let stem = if word.is_ascii() { english.stem(&word).into_owned() } else { word };
    Some(stem.chars().take(MAX_TERM_CHARS).collect())
}

fn pairs(run: &str, found: &mut Vec<String>) {
    let run: Vec<char> = run.chars().collect();
    if let [alone] = run.as_slice() {
        found.push(alone.to_string());
    }
    found.extend(run.windows(2).map(|pair| pair.iter().collect::<String>()));
}

#[cfg(test)]
mod tests {
    use super::{STOP_WORDS, terms};

    #[test]
    fn the_common_words_are_sorted_or_the_search_would_miss_some() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn a_question_and_its_answer_meet_in_their_stems() {
        assert_eq!(
            terms("When did she research adoption agencies?"),
            ["research", "adopt", "agenc"]
        );
        assert_eq!(terms("Researching ADOPTION agency's"), ["research", "adopt", "agenc"]);
    }

    #[test]
    fn text_without_spaces_gives_overlapping_pairs_and_a_single_character_itself() {
        assert_eq!(terms("北京大学"), ["北京", "京大", "大学"]);
        assert_eq!(terms("我 go 火"), ["我", "go", "火"]);
        assert_eq!(terms("v2版本"), ["v2", "版本"]);
        assert_eq!(terms("東京タワー"), ["東京", "京タ", "タワ", "ワー"]);
    }

    #[test]
    fn accented_and_foreign_words_are_kept_as_they_are() {
        assert_eq!(terms("Füße à Zürich"), ["füße", "à", "zürich"]);
    }

    #[test]
    fn a_typographic_apostrophe_is_an_apostrophe() {
        assert_eq!(terms("Ann\u{2019}s"), terms("Ann's"));
    }

    #[test]
    fn a_word_of_a_megabyte_is_cut() {
        let found = terms(&"ж".repeat(1_000_000));
        assert_eq!(
            found.iter().map(|t| t.chars().count()).collect::<Vec<_>>(),
            [super::MAX_TERM_CHARS]
        );
    }
}
