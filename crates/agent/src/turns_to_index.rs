//! Conversation turns to index for search: what people and the agent said to each other.

use holdfast_types::{Command, Entry, Note};

use crate::{outcome::is_silent, prompt::HEARTBEAT_OK, text::shortened};

/// Maximum length of an indexed text, in characters; the rest of a longer one is not indexed.
const MAX_TEXT_CHARS: usize = 16_000;

/// Name of the agent as the author of a turn.
pub const ASSISTANT: &str = "assistant";

/// What is to be done for one journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexEntry {
    /// A text that somebody said; `author` is empty for the one person of a conversation.
    Turn { author: String, text: String },
    /// `/reset`: all earlier turns of the session are removed from the index.
    Reset,
}

/// Returns what to index of consecutive entries, with positions, and how many entries that covers.
///
/// Entries whose meaning depends on later ones are left for the next call: a flush that has
/// not ended, a command without its answer.
///
/// Left out are commands and their answers, what tools were asked and returned, silent messages and
/// replies, memory flushes, the messages of jobs and heartbeats, and heartbeat replies without news.
#[must_use]
pub fn turns_to_index<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
) -> (Vec<(usize, IndexEntry)>, usize) {
    let mut found = Vec::new();
    let mut count = 0;
    // Where the flush or the command began that has not ended.
    let (mut flush, mut reset) = (None, None);
    for (at, entry) in entries.into_iter().enumerate() {
        count = at + 1;
        match entry {
            Entry::Heard { body, .. } => {
                if matches!(body.command(), Some(Command::New)) {
                    let is_reset = body.text.trim().to_lowercase().starts_with("/reset");
                    reset = is_reset.then_some(at);
                    continue;
                }
                let is_made = body.event.is_some() || body.fired.is_some();
                if body.silent || is_made || body.heartbeat.is_some() || body.command().is_some() {
                    continue;
                }
                let author = match body.role.as_deref() {
                    None | Some("user") => {
                        body.sender.as_ref().map_or("", |sender| sender.name.trim())
                    }
                    Some("assistant") => ASSISTANT,
                    Some(_) => continue,
                };
                push(&mut found, at, author, &body.text_and_speech());
            }
            Entry::Thought { text, calls, .. }
                if flush.is_none()
                    && calls.is_empty()
                    && !is_silent(text)
                    && !text.contains(HEARTBEAT_OK) =>
            {
                push(&mut found, at, ASSISTANT, text);
            }
            Entry::Noted { note: Note::Flush, .. } => flush = Some(at),
            Entry::Noted { note: Note::Flushed, .. } => flush = None,
            Entry::Noted { note: Note::Reset, .. } => {
                if reset.take().is_some() {
                    found.clear();
                    found.push((at, IndexEntry::Reset));
                }
            }
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => {}
        }
    }
    let open = flush.into_iter().chain(reset).min().filter(|at| *at > 0);
    let covered = open.unwrap_or(count);
    found.retain(|(at, _)| *at < covered);
    (found, covered)
}

fn push(found: &mut Vec<(usize, IndexEntry)>, at: usize, author: &str, text: &str) {
    let text = text.trim();
    if !text.is_empty() {
        let author = shortened(author, 100);
        found.push((at, IndexEntry::Turn { author, text: shortened(text, MAX_TEXT_CHARS) }));
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Body, Sender};

    use super::*;
    use crate::turn::tests::{heard, noted, returned, thought};

    fn texts(entries: &[Entry]) -> Vec<String> {
        let text = |(at, one)| match one {
            IndexEntry::Turn { author, text } => format!("{at} {author}: {text}"),
            IndexEntry::Reset => format!("{at} reset"),
        };
        turns_to_index(entries).0.into_iter().map(text).collect()
    }

    #[test]
    fn what_people_and_the_agent_said_is_indexed_and_nothing_else() {
        let of = |body: Body| Entry::Heard { seq: 1, body };
        let sender = Some(Sender { id: "7".into(), name: "Ann".into() });
        let system = Some("system".to_owned());
        let journal = [
            heard(1, "my cat is Tom"),
            thought("let me see", &[("a", "web_fetch")]),
            returned("a"),
            thought("a fine cat", &[]),
            heard(2, "/status"),
            noted(Note::Command),
            thought("NO_REPLY", &[]),
            of(Body { silent: true, ..Body::text("psst") }),
            of(Body { role: system, ..Body::text("rules") }),
            of(Body { event: Some("approval".into()), ..Body::text("allowed") }),
            of(Body { heartbeat: Some(Box::default()), ..Body::text("anything?") }),
            thought("HEARTBEAT_OK", &[]),
            noted(Note::Flush),
            thought("Tom, a cat", &[]),
            noted(Note::Flushed),
            of(Body { sender, ..Body::text("and my dog") }),
        ];

        assert_eq!(
            texts(&journal),
            ["0 : my cat is Tom", "3 assistant: a fine cat", "15 Ann: and my dog"]
        );
        assert_eq!(turns_to_index(&journal).1, journal.len());
    }

    #[test]
    fn a_reset_removes_what_was_said_before_it_and_a_new_conversation_does_not() {
        let began =
            |command| [heard(1, "one"), heard(2, command), noted(Note::Reset), heard(3, "two")];

        assert_eq!(texts(&began("/reset")), ["2 reset", "3 : two"]);
        assert_eq!(texts(&began("/new")), ["0 : one", "3 : two"]);
    }

    #[test]
    fn an_open_flush_or_reset_is_left_for_the_next_call() {
        let flush = [heard(1, "one"), noted(Note::Flush), thought("kept", &[])];
        let reset = [heard(1, "one"), heard(2, "/reset")];

        assert_eq!(turns_to_index(&flush).1, 1);
        assert_eq!(turns_to_index(&reset).1, 1);
        assert_eq!(turns_to_index(&reset[1..]).1, 1, "it goes on");
    }
}
