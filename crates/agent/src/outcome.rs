//! Outcome of a turn.

use holdfast_types::{Entry, Note};

use crate::turn;

/// Answer of a model that wants nothing to be sent (spec C-35).
pub const NO_REPLY: &str = "NO_REPLY";

/// Outcome of the latest turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'j> {
    /// The turn is not over, or there was none.
    Open,
    Replied(&'j str),
    /// The model decided not to answer.
    Silent,
    /// The turn was cut short.
    Ended {
        note: Note,
        text: &'j str,
    },
}

/// Returns the outcome of the latest turn.
#[must_use]
pub fn outcome_of(journal: &[Entry]) -> Outcome<'_> {
    match turn::latest(journal).iter().rfind(|entry| turn::ends(entry)) {
        Some(Entry::Thought { text, .. }) if is_silent(text) => Outcome::Silent,
        Some(Entry::Thought { text, .. }) => Outcome::Replied(text),
        Some(Entry::Noted { note, text, .. }) => Outcome::Ended { note: *note, text },
        Some(Entry::Heard { .. } | Entry::Called { .. } | Entry::Returned { .. }) | None => {
            Outcome::Open
        }
    }
}

/// Returns the inbox positions of the messages that the latest turn has heard, in that order.
///
/// Silent messages since the turn's end are included: nothing else would complete them.
#[must_use]
pub fn heard_seqs(journal: &[Entry]) -> Vec<i64> {
    let heard = |entry: &Entry| match entry {
        Entry::Heard { seq, .. } => Some(*seq),
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    };
    turn::latest(journal).iter().filter_map(heard).collect()
}

/// Whether a reply means that nothing is to be sent. `NO_REPLY` counts only as the whole text.
#[must_use]
pub fn is_silent(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text == NO_REPLY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::tests::{heard, noted, overheard, returned, thought};

    #[test]
    fn the_final_text_of_the_turn_is_its_reply() {
        let journal = [
            heard(1, "hi"),
            thought("let me see", &[("a", "read")]),
            returned("a"),
            thought("it is so", &[]),
        ];

        assert_eq!(outcome_of(&journal), Outcome::Replied("it is so"));
        assert_eq!(outcome_of(&journal[..3]), Outcome::Open);
        assert_eq!(outcome_of(&[]), Outcome::Open);
    }

    #[test]
    fn an_open_turn_does_not_answer_with_the_reply_of_the_one_before() {
        let journal = [heard(1, "hi"), thought("hello", &[]), heard(2, "and?")];

        assert_eq!(outcome_of(&journal), Outcome::Open);
        assert_eq!(heard_seqs(&journal), [2]);
    }

    #[test]
    fn no_reply_counts_only_as_the_whole_message() {
        for (text, silent) in [
            ("NO_REPLY", true),
            ("  NO_REPLY\n", true),
            ("", true),
            ("NO_REPLY.", false),
            ("no_reply", false),
            ("I said NO_REPLY", false),
        ] {
            assert_eq!(is_silent(text), silent, "{text:?}");
        }
        assert_eq!(outcome_of(&[heard(1, "hi"), thought(" NO_REPLY ", &[])]), Outcome::Silent);
    }

    #[test]
    fn a_turn_that_was_cut_short_says_how() {
        let journal = [heard(1, "hi"), noted(Note::Cancelled)];

        assert_eq!(outcome_of(&journal), Outcome::Ended { note: Note::Cancelled, text: "why" });
    }

    #[test]
    fn a_turn_completes_all_that_it_has_heard() {
        let journal = [
            heard(1, "hi"),
            thought("hello", &[]),
            overheard(2, "psst"),
            heard(3, "you"),
            thought("", &[("a", "read")]),
            heard(4, "hurry"),
            returned("a"),
            thought("done", &[]),
            overheard(5, "psst"),
        ];

        assert_eq!(heard_seqs(&journal), [2, 3, 4, 5]);
        assert_eq!(heard_seqs(&journal[..2]), [1]);
        assert_eq!(outcome_of(&journal), Outcome::Replied("done"));
    }
}
