//! Boundaries of turns.
//!
//! A turn ends with a thought without calls, or with a note that it was interrupted, cancelled,
//! given up, answered by a command, or that its calls are the client's. Later entries belong to the next turn; messages heard before
//! the end belong to this one.

use holdfast_types::{Entry, Note};

/// Whether an entry ends its turn.
pub(crate) fn ends(entry: &Entry) -> bool {
    match entry {
        Entry::Thought { calls, .. } => calls.is_empty(),
        Entry::Noted { note, .. } => match note {
            Note::Interrupted
            | Note::Cancelled
            | Note::Failed
            | Note::Command
            | Note::Reset
            | Note::HandedOver => true,
            Note::DeadlinePassed
            | Note::Summary
            | Note::Flush
            | Note::Flushed
            | Note::Asked
            | Note::Allowed
            | Note::Routed
            | Note::Told
            | Note::Posted
            | Note::Dispatched
            | Note::Unknown => false,
        },
        Entry::Heard { .. } | Entry::Called { .. } | Entry::Returned { .. } => false,
    }
}

/// Whether an entry asks the agent for an answer.
pub(crate) fn asks_for_answer(entry: &Entry) -> bool {
    match entry {
        Entry::Heard { body, .. } => !body.silent,
        Entry::Noted { note, .. } => *note == Note::DeadlinePassed,
        Entry::Thought { .. } | Entry::Called { .. } | Entry::Returned { .. } => false,
    }
}

/// Returns the entries after the last end of a turn: the open turn, if any of them asks.
pub(crate) fn open(journal: &[Entry]) -> &[Entry] {
    let start = journal.iter().rposition(ends).map_or(0, |end| end + 1);
    &journal[start..]
}

/// Whether a memory flush is open after an entry, given whether one was before: see
/// [`Note::Flush`].
pub(crate) fn is_flushing_after(entry: &Entry, before: bool) -> bool {
    match entry {
        Entry::Noted { note: Note::Flush, .. } => true,
        Entry::Noted { note: Note::Flushed, .. } => false,
        entry => before && !ends(entry),
    }
}

/// Returns the index of the note that starts the open flush of a turn, if any.
pub(crate) fn open_flush(turn: &[Entry]) -> Option<usize> {
    let is_mark = |entry: &Entry| match entry {
        Entry::Noted { note, .. } => matches!(note, Note::Flush | Note::Flushed),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. } => false,
    };
    let last = turn.iter().rposition(is_mark)?;
    is_flushing_after(&turn[last], false).then_some(last)
}

/// Returns the entries that decide a turn's next step. The entries of a finished flush do not;
/// while a flush is open, only its entries do.
pub(crate) fn deciding_entries(turn: &[Entry]) -> impl Iterator<Item = &Entry> {
    let own = open_flush(turn).map_or(turn, |flush| &turn[flush + 1..]);
    let mut aside = false;
    own.iter().filter(move |entry| {
        aside = is_flushing_after(entry, aside);
        !aside
    })
}

/// Whether a turn is open: there is a question or a thought after the last end.
pub(crate) fn is_open(after_last_end: &[Entry]) -> bool {
    after_last_end
        .iter()
        .any(|entry| asks_for_answer(entry) || matches!(entry, Entry::Thought { .. }))
}

/// Whether a turn is open that may have begun before these entries of a journal.
#[must_use]
pub fn may_begin_earlier(journal: &[Entry]) -> bool {
    !journal.iter().any(ends) && is_open(journal)
}

/// Returns the latest turn to the journal's end: the open one, else the last that ended.
pub(crate) fn latest(journal: &[Entry]) -> &[Entry] {
    let open = open(journal);
    if is_open(open) {
        return open;
    }
    let closed = journal.len() - open.len();
    let start = journal[..closed.saturating_sub(1)].iter().rposition(ends).map_or(0, |end| end + 1);
    &journal[start..]
}

#[cfg(test)]
pub(crate) mod tests {
    use holdfast_types::{Body, Effect, ToolCall, Usage};

    use super::*;

    pub(crate) fn call(id: &str, tool: &str) -> ToolCall {
        ToolCall { id: id.into(), tool: tool.into(), input: "{}".into() }
    }

    pub(crate) fn heard(seq: i64, text: &str) -> Entry {
        Entry::Heard { seq, body: Body::text(text) }
    }

    pub(crate) fn overheard(seq: i64, text: &str) -> Entry {
        Entry::Heard { seq, body: Body { silent: true, ..Body::text(text) } }
    }

    /// Returns a thought with the calls `(id, tool)`.
    pub(crate) fn thought(text: &str, calls: &[(&str, &str)]) -> Entry {
        Entry::Thought {
            text: text.into(),
            calls: calls.iter().map(|(id, tool)| call(id, tool)).collect(),
            usage: Usage::default(),
            model: "demo:demo".into(),
            carry: None,
            record: None,
        }
    }

    pub(crate) fn called(id: &str, effect: Effect) -> Entry {
        Entry::Called { call: id.into(), effect }
    }

    pub(crate) fn returned(id: &str) -> Entry {
        Entry::returned(id, format!("result of {id}"), false)
    }

    pub(crate) fn noted(note: Note) -> Entry {
        Entry::noted(note, "why")
    }

    #[test]
    fn the_latest_turn_is_the_open_one_else_the_last_that_ended() {
        let journal = [
            heard(1, "a"),
            thought("A", &[]),
            heard(2, "b"),
            noted(Note::Cancelled),
            heard(3, "c"),
            thought("", &[("x", "t")]),
        ];

        assert_eq!(latest(&journal), &journal[4..]);
        assert_eq!(latest(&journal[..4]), &journal[2..4]);
        assert_eq!(latest(&journal[..2]), &journal[..2]);
        assert!(latest(&[]).is_empty());
    }

    #[test]
    fn what_is_only_overheard_opens_no_turn() {
        let journal = [heard(1, "a"), thought("A", &[]), overheard(2, "b")];

        assert_eq!(latest(&journal), &journal[..]);
        assert!(!is_open(open(&journal)));
    }
}
