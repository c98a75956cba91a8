//! Memory flush: the model saves what should outlive a compaction.
//!
//! ```text
//! … conversation …  [flush  thought ─ called ─ returned … flushed]  … conversation …
//!                    └── not part of the conversation ───────────┘
//! ```
//!
//! The marks and the entries between them are ordinary entries, so another runner can continue the
//! flush and a call is made once. The model reads the entries that the summary will replace, then
//! the instruction, then its own work so far.

use holdfast_types::{Body, ChatMessage, Entry, Note, SessionKind};

use crate::{
    history::{Conversation, history},
    turn,
};

pub const FLUSH_TOOLS: [&str; 4] = ["append_file", "edit", "read", "write"];

/// Returns the entry that starts a flush; the `keeps` newest entries are left out.
#[must_use]
pub fn flush_entry(instruction: String, keeps: u32) -> Entry {
    Entry::Noted { note: Note::Flush, text: instruction, keeps, failures: Vec::new() }
}

/// Whether a memory flush is open.
#[must_use]
pub fn is_flushing(journal: &[Entry]) -> bool {
    turn::open_flush(turn::open(journal)).is_some()
}

/// Number of model requests in the open flush.
#[must_use]
pub fn flush_rounds(journal: &[Entry]) -> usize {
    let open = turn::open(journal);
    let flush = turn::open_flush(open).map_or(&[][..], |flush| &open[flush..]);
    flush.iter().filter(|entry| matches!(entry, Entry::Thought { .. })).count()
}

/// Returns the number of compactions of a conversation, and that number at its last flush.
#[must_use]
pub fn flush_counts(journal: &[Entry]) -> (u32, Option<u32>) {
    let (mut compactions, mut flushed_at) = (0_u32, None);
    for entry in journal {
        match entry {
            Entry::Noted { note: Note::Summary, .. } => compactions = compactions.saturating_add(1),
            Entry::Noted { note: Note::Flush, .. } => flushed_at = Some(compactions),
            // A new conversation begins, which has not been flushed.
            Entry::Noted { note: Note::Reset, .. } => flushed_at = None,
            Entry::Noted { .. }
            | Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. } => {}
        }
    }
    (compactions, flushed_at)
}

/// Returns the model's messages during a flush: the newest messages that the compaction will remove
/// and that fit in `budget` tokens, then the instruction and the work so far. `None` if no flush is
/// open.
#[must_use]
pub fn flush_messages(
    journal: &[Entry],
    kind: SessionKind,
    budget: usize,
) -> Option<Vec<ChatMessage>> {
    let open = turn::open(journal);
    let at = journal.len() - open.len() + turn::open_flush(open)?;
    let Entry::Noted { text, keeps, .. } = &journal[at] else { return None };
    let goes = at.saturating_sub(usize::try_from(*keeps).unwrap_or(usize::MAX));
    let mut messages = history(&journal[..goes], kind, &[], budget).messages;
    // New messages wait until the flush has ended.
    let own = journal[at + 1..].iter().filter(|entry| !matches!(entry, Entry::Heard { .. }));
    let told = Entry::Heard { seq: 0, body: Body::text(text.clone()) };
    let aside: Vec<Entry> = std::iter::once(told).chain(own.cloned()).collect();
    messages.extend(Conversation::read(&aside, SessionKind::Main).messages);
    Some(messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::tests::{heard, noted, returned, thought};

    fn texts(messages: &[ChatMessage]) -> Vec<String> {
        let text = |message: &ChatMessage| match message {
            ChatMessage::User { text, .. } => format!("user: {text}"),
            ChatMessage::Assistant { text, calls, .. } => format!("agent: {text}{}", calls.len()),
            ChatMessage::Tool { output, .. } => format!("tool: {output}"),
        };
        messages.iter().map(text).collect()
    }

    #[test]
    fn the_model_reads_what_goes_and_what_it_has_done_about_it() {
        let journal = [
            heard(1, "my cat is Tom"),
            thought("noted", &[]),
            heard(2, "and now?"),
            flush_entry("store it".into(), 1),
            thought("", &[("a", "write")]),
            heard(3, "hurry"),
            returned("a"),
        ];

        let read = flush_messages(&journal, SessionKind::Main, 1_000).unwrap();

        let expected = [
            "user: my cat is Tom",
            "agent: noted0",
            "user: store it",
            "agent: 1",
            "tool: result of a",
        ];
        assert_eq!(texts(&read), expected);
        assert_eq!(flush_rounds(&journal), 1);
        assert!(is_flushing(&journal) && !is_flushing(&journal[..3]));
    }

    #[test]
    fn what_was_written_down_is_no_part_of_the_conversation() {
        let journal = [
            heard(1, "hi"),
            flush_entry("store it".into(), 0),
            thought("", &[("a", "write")]),
            heard(2, "hurry"),
            returned("a"),
            noted(Note::Flushed),
            thought("here you are", &[]),
        ];

        let all = texts(Conversation::read(&journal, SessionKind::Main).messages());
        let half = texts(Conversation::read(&journal[..4], SessionKind::Main).messages());

        assert_eq!(all, ["user: hi", "user: hurry", "agent: here you are0"]);
        assert_eq!(half, ["user: hi", "user: hurry"]);
        assert!(!is_flushing(&journal) && flush_messages(&journal, SessionKind::Main, 9).is_none());
    }

    #[test]
    fn a_summary_that_begins_in_the_midst_of_a_flush_shows_nothing_of_it() {
        let journal = [
            heard(1, "hi"),
            flush_entry("store it".into(), 0),
            heard(2, "hurry"),
            thought("", &[("a", "write")]),
            returned("a"),
            noted(Note::Flushed),
            Entry::summary("they met", 4),
            thought("done", &[]),
        ];

        let read = Conversation::read(&journal, SessionKind::Main);

        assert_eq!(read.summary(), Some("they met"));
        assert!(texts(read.messages()).iter().all(|text| !text.starts_with("tool")));
    }

    #[test]
    fn a_flush_counts_for_the_compaction_after_it_and_not_for_the_next() {
        let mut journal = vec![heard(1, "hi")];
        assert_eq!(flush_counts(&journal), (0, None));

        journal.push(flush_entry("store it".into(), 0));
        assert_eq!(flush_counts(&journal), (0, Some(0)));

        journal.extend([noted(Note::Flushed), Entry::summary("s", 0)]);
        assert_eq!(flush_counts(&journal), (1, Some(0)));
    }
}
