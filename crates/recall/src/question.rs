//! Question parser: separates a question's authors from its terms and its text to embed.

use std::collections::BTreeSet;

use unicode_segmentation::UnicodeSegmentation;

use crate::words::{is_stop_word, is_unspaced, normalised, terms};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Text to embed: the question without the authors that it names.
    pub meaning: String,
    /// Distinct terms to search for, without authors.
    pub terms: Vec<String>,
    /// Authors that the question names, spelled as stored.
    pub authors: Vec<String>,
}

impl Question {
    /// Parses a question. `authors` are the stored names of those who wrote the units. A name of
    /// several words matches as a whole or by its first word. A name that is also a common word
    /// (`Will`) must be written as it is stored.
    ///
    /// A question of names only keeps them in `meaning`, so that there is something to embed.
    #[must_use]
    pub fn read(text: &str, authors: &[String]) -> Self {
        let words: Vec<(usize, &str)> = text.unicode_word_indices().collect();
        let mut named = BTreeSet::new();
        let mut gone = vec![false; words.len()];
        for author in authors {
            let name: Vec<&str> = author.unicode_words().collect();
            for at in 0..words.len() {
                let said = matched_name_words(&words[at..], &name);
                if said > 0 {
                    named.insert(author.clone());
                    gone[at..at + said].fill(true);
                }
            }
        }
        let rest = without(text, &words, &gone);
        let meaning = if terms(&rest).is_empty() { text.trim().to_owned() } else { rest };
        let mut seen = BTreeSet::new();
        let terms = terms(&meaning).into_iter().filter(|t| seen.insert(t.clone())).collect();
        Self { meaning, terms, authors: named.into_iter().collect() }
    }
}

/// Returns how many words at the beginning match a name: all of its words, only the first, or 0.
fn matched_name_words(words: &[(usize, &str)], name: &[&str]) -> usize {
    let Some(first) = name.first() else { return 0 };
    let begins = words
        .iter()
        .zip(name)
        .take_while(|((_, word), part)| matches_name_part(word, part))
        .count();
    if begins == name.len() {
        return begins;
    }
    // A single character of a script without spaces is a word, not a first name.
    let alone = first.chars().count() > 1 && !first.chars().any(is_unspaced);
    usize::from(alone && begins > 0)
}

fn matches_name_part(word: &str, part: &str) -> bool {
    let plain = normalised(word);
    plain == normalised(part) && (!is_stop_word(&plain) || word.starts_with(part))
}

fn without(text: &str, words: &[(usize, &str)], gone: &[bool]) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut from = 0;
    for ((at, word), gone) in words.iter().zip(gone) {
        if *gone {
            rest.push_str(&text[from..*at]);
            from = at + word.len();
        }
    }
    rest.push_str(&text[from..]);
    rest.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::Question;

    fn read(text: &str, authors: &[&str]) -> Question {
        Question::read(text, &authors.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn an_author_who_is_named_becomes_a_signal_and_is_no_word() {
        let question = read("When did Ada's sister visit Bob in Rome?", &["Ada", "Bob", "Eve"]);

        assert_eq!(question.meaning, "When did sister visit in Rome?");
        assert_eq!(question.terms, ["sister", "visit", "rome"]);
        assert_eq!(question.authors, ["Ada", "Bob"]);
    }

    #[test]
    fn somebody_who_wrote_nothing_stays_a_word() {
        let question = read("What did Carol paint?", &["Ada"]);

        assert_eq!(question.meaning, "What did Carol paint?");
        assert_eq!(question.terms, ["carol", "paint"]);
        assert_eq!(question.authors, Vec::<String>::new());
    }

    #[test]
    fn a_full_name_is_found_whole_and_by_its_first_word() {
        assert_eq!(read("Did ada LOVELACE travel?", &["Ada Lovelace"]).meaning, "Did travel?");
        assert_eq!(read("Did Ada travel?", &["Ada Lovelace"]).authors, ["Ada Lovelace"]);
        assert_eq!(read("Did Lovelace travel?", &["Ada Lovelace"]).terms, ["lovelac", "travel"]);
    }

    #[test]
    fn a_name_within_a_word_is_not_the_name() {
        assert_eq!(read("Is Adaline here?", &["Ada"]).authors, Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_a_common_word_must_be_written_as_a_name() {
        assert_eq!(read("When will Ann travel?", &["Will"]).authors, Vec::<String>::new());
        assert_eq!(read("Where is Will's tea?", &["Will"]).authors, ["Will"]);
        assert_eq!(read("Is it a cat?", &["A", "a"]).authors, ["a"]);
    }

    #[test]
    fn a_chinese_name_is_found_within_the_text_and_its_family_name_alone_is_not() {
        let question = read("王伟喜欢喝茶吗", &["王伟"]);

        assert_eq!(question.authors, ["王伟"]);
        assert_eq!(question.meaning, "喜欢喝茶吗");
        assert_eq!(read("王府井在哪里", &["王伟"]).authors, Vec::<String>::new());
    }

    #[test]
    fn a_question_of_names_alone_is_still_asked() {
        let question = read("Who is Ada?", &["Ada"]);

        assert_eq!(question.meaning, "Who is Ada?");
        assert_eq!(question.terms, ["ada"]);
        assert_eq!(question.authors, ["Ada"]);
    }

    #[test]
    fn a_term_is_asked_for_once() {
        assert_eq!(read("tea, teas and tea", &[]).terms, ["tea"]);
    }

    #[test]
    fn authors_of_no_letters_and_an_empty_question_do_no_harm() {
        let question = read("  ", &["", "…"]);

        assert_eq!(
            question,
            Question { meaning: String::new(), terms: Vec::new(), authors: Vec::new() }
        );
    }
}
