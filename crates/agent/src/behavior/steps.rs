//! Steps of a behaviour in the journal.
//!
//! | entries | meaning |
//! |---|---|
//! | messages, events | input of the next step |
//! | a thought without a call of [`RESULT_TOOL`] | a round of the model's own calls in the step |
//! | a thought whose last call is of [`RESULT_TOOL`] | the step's result, after its actions |
//! | the result of that call | the step is applied |
//!
//! **What can go wrong.** No model may name [`RESULT_TOOL`]: the runner refuses a reply that does,
//! before it is stored.

use std::borrow::Cow;

use holdfast_types::{
    Body, CallRecord, ChatMessage, Entry, Note, SessionKind, SystemEvent, ToolCall, Usage,
};

use crate::{
    history::{Conversation, EARLIER_NOT_SHOWN, render_message},
    turn,
};

/// Internal call that applies the result of a step. No tool has this name.
pub const RESULT_TOOL: &str = "behavior_result";

/// Whether a call applies the result of a step.
#[must_use]
pub fn is_result_call(call: &ToolCall) -> bool {
    call.tool == RESULT_TOOL
}

fn is_result(entry: &Entry) -> bool {
    matches!(entry, Entry::Thought { calls, .. } if calls.last().is_some_and(is_result_call))
}

/// Whether the newest thought is a step's result, whose actions are made before it is applied.
#[must_use]
pub fn makes_result(entries: &[Entry]) -> bool {
    let newest = entries.iter().rev().find(|entry| matches!(entry, Entry::Thought { .. }));
    newest.is_some_and(is_result)
}

/// The journal, divided at the beginning of the current step.
#[derive(Debug, Clone, Copy)]
pub struct StepEntries<'j> {
    before: &'j [Entry],
    /// Entries of the step before, if its messages are new to this one.
    forwarded: &'j [Entry],
    /// Up to the first thought of the step.
    input: &'j [Entry],
    /// From its first thought on.
    rounds: &'j [Entry],
}

/// Result of one call of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOutcome<'j> {
    pub call: &'j ToolCall,
    pub output: &'j str,
    pub failed: bool,
    pub record: &'j CallRecord,
    /// Whether the step's result asked for the call.
    pub is_action: bool,
}

/// A step that is not applied yet: its result is in the journal, or it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedEntries<'j> {
    /// Index of its first entry in the journal.
    pub first: usize,
    /// Model and usage of each of its thoughts.
    pub thoughts: Vec<(&'j str, Usage)>,
    /// Its calls that have returned, in their order.
    pub outcomes: Vec<CallOutcome<'j>>,
    /// Texts of the messages that it was the first to read.
    pub messages: Vec<Cow<'j, str>>,
}

impl<'j> FinishedEntries<'j> {
    /// Reads the last step of the open turn that has a result.
    #[must_use]
    pub fn of(journal: &'j [Entry]) -> Self {
        let turn = turn::open(journal);
        let Some(result) = turn.iter().rposition(is_result) else { return Self::default() };
        let start = turn[..result].iter().rposition(is_result).map_or(0, |before| before + 1);
        let first = journal.len() - turn.len() + start;
        Self::collect(&turn[start..], result - start, first)
    }

    /// Reads the current step of the open turn, which has no result.
    #[must_use]
    pub fn without_result(journal: &'j [Entry]) -> Self {
        let turn = turn::open(journal);
        let start = turn.iter().rposition(is_result).map_or(0, |before| before + 1);
        let step = &turn[start..];
        Self::collect(step, step.len(), journal.len() - step.len())
    }

    /// Reads a step whose result has this index in `step`, and its first entry in the journal.
    fn collect(step: &'j [Entry], result: usize, first: usize) -> Self {
        let mut finished = Self { first, ..Self::default() };
        for (at, entry) in step.iter().enumerate().take(result + 1) {
            match entry {
                Entry::Heard { body, .. } => finished.messages.push(body.text_and_speech()),
                Entry::Thought { calls, usage, model, .. } => {
                    finished.thoughts.push((model, *usage));
                    let rest = &step[at + 1..];
                    let own = rest.iter().position(|entry| matches!(entry, Entry::Thought { .. }));
                    let rest = &rest[..own.unwrap_or(rest.len())];
                    finished.outcomes.extend(outcomes_of(calls, rest, at == result));
                }
                Entry::Called { .. } | Entry::Returned { .. } | Entry::Noted { .. } => {}
            }
        }
        finished
    }

    /// Usage of the whole step.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut all = Usage::default();
        self.thoughts.iter().for_each(|(_, usage)| all += *usage);
        all
    }
}

fn outcomes_of<'j>(
    calls: &'j [ToolCall],
    rest: &'j [Entry],
    is_action: bool,
) -> impl Iterator<Item = CallOutcome<'j>> {
    calls.iter().filter(|call| !is_result_call(call)).filter_map(move |call| {
        rest.iter().find_map(|entry| match entry {
            Entry::Returned { call: id, output, failed, record, .. } if *id == call.id => {
                Some(CallOutcome { call, output, failed: *failed, record, is_action })
            }
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        })
    })
}

impl<'j> StepEntries<'j> {
    /// Divides a journal whose turn is open. `forwards` is whether the step before passed its
    /// messages on.
    #[must_use]
    pub fn of(journal: &'j [Entry], forwards: bool) -> Self {
        let turn = turn::open(journal);
        let after_result = |turn: &[Entry]| turn.iter().rposition(is_result).map_or(0, |at| at + 1);
        let own = after_result(turn);
        let first = match forwards {
            true => after_result(&turn[..own.saturating_sub(1)]),
            false => own,
        };
        let (before, turn) = journal.split_at(journal.len() - turn.len() + first);
        let (forwarded, step) = turn.split_at(own - first);
        let is_thought = |entry: &Entry| matches!(entry, Entry::Thought { .. });
        let (input, rounds) = step.split_at(step.iter().position(is_thought).unwrap_or(step.len()));
        Self { before, forwarded, input, rounds }
    }

    /// Messages that the step is the first to read.
    #[must_use]
    pub fn messages(&self, kind: SessionKind) -> Vec<String> {
        let said = |body: &&Body| body.event.is_none();
        self.heard().filter(said).map(|body| render_message(body, kind)).collect()
    }

    /// Events that the step is the first to read.
    #[must_use]
    pub fn events(&self, kind: SessionKind) -> Vec<String> {
        let mut events: Vec<String> = Vec::new();
        for entry in self.forwarded.iter().chain(self.input) {
            match entry {
                Entry::Heard { body, .. } if body.event.is_some() => {
                    events.push(render_message(body, kind));
                }
                Entry::Noted { note: Note::DeadlinePassed, text, .. } => {
                    events.push(format!("the wait is over: {text}"));
                }
                Entry::Noted { note: Note::Told, .. } => {
                    events.extend(SystemEvent::from_entry(entry).into_iter().map(|one| one.text));
                }
                Entry::Heard { .. }
                | Entry::Thought { .. }
                | Entry::Called { .. }
                | Entry::Returned { .. }
                | Entry::Noted { .. } => {}
            }
        }
        events
    }

    fn heard(&self) -> impl Iterator<Item = &'j Body> {
        self.forwarded.iter().chain(self.input).filter_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        })
    }

    /// Summary of what was said before [`history`](Self::history) begins.
    #[must_use]
    pub fn summary(&self, kind: SessionKind) -> Option<String> {
        Conversation::read(self.before, kind).summary().map(str::to_owned)
    }

    /// The conversation before the step, oldest first, one text for each message.
    #[must_use]
    pub fn history(&self, kind: SessionKind) -> Vec<String> {
        let conversation = Conversation::read(self.before, kind);
        let messages = conversation.messages().iter().filter_map(|message| match message {
            ChatMessage::User { text, .. } => Some(("user", text)),
            ChatMessage::Assistant { text, .. } => Some(("agent", text)),
            ChatMessage::Tool { .. } => None,
        });
        let said =
            messages.filter(|(_, text)| !text.trim().is_empty() && *text != EARLIER_NOT_SHOWN);
        said.map(|(who, text)| format!("{who}: {text}")).collect()
    }

    /// The step's rounds of calls with their results, and what was heard meanwhile.
    #[must_use]
    pub fn rounds(&self, kind: SessionKind) -> Vec<ChatMessage> {
        let mut messages = Conversation::read(self.rounds, kind).messages().to_vec();
        let is_placeholder = |message: &ChatMessage| matches!(message, ChatMessage::User { text, .. } if text == EARLIER_NOT_SHOWN);
        if messages.first().is_some_and(is_placeholder) {
            messages.remove(0);
        }
        messages
    }

    /// Number of the step's rounds of calls so far.
    #[must_use]
    pub fn round_count(&self) -> usize {
        self.rounds.iter().filter(|entry| matches!(entry, Entry::Thought { .. })).count()
    }
}

/// Returns the last text that a step of the open turn has said; empty if none has.
#[must_use]
pub fn last_reply(journal: &[Entry]) -> &str {
    let said = turn::open(journal).iter().rev().find_map(|entry| match entry {
        Entry::Thought { text, .. } if is_result(entry) && !text.trim().is_empty() => {
            Some(text.as_str())
        }
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    said.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::tests::{heard, noted, returned, thought};

    const KIND: SessionKind = SessionKind::Api;

    fn journal() -> Vec<Entry> {
        vec![
            heard(1, "hello"),
            thought("hi", &[("result", RESULT_TOOL)]),
            returned("result"),
            thought("hi", &[]),
            heard(2, "build it"),
            thought("I will", &[("a", "read"), ("result", RESULT_TOOL)]),
            returned("a"),
        ]
    }

    #[test]
    fn a_step_reads_what_came_after_the_result_before_it() {
        let mut journal = journal();
        let first = StepEntries::of(&journal[..5], false);
        assert_eq!(first.messages(KIND), ["build it"]);
        assert_eq!(first.history(KIND), ["user: hello", "agent: hi", "agent: hi"]);

        journal.extend([heard(3, "faster"), returned("result"), noted(Note::DeadlinePassed)]);
        let next = StepEntries::of(&journal, false);
        assert_eq!(next.messages(KIND), ["faster"]);
        assert_eq!(next.events(KIND), ["the wait is over: why"]);
        assert!(next.history(KIND).contains(&"user: build it".to_owned()));
        assert_eq!((next.round_count(), next.rounds(KIND)), (0, Vec::new()));

        let passed_on = StepEntries::of(&journal, true);
        assert_eq!(passed_on.messages(KIND), ["build it", "faster"]);
        assert!(!passed_on.history(KIND).contains(&"user: build it".to_owned()));
    }

    #[test]
    fn rounds_of_a_step_are_followed_by_what_was_heard_meanwhile() {
        let mut journal = journal();
        journal.extend([
            returned("result"),
            thought("let me see", &[("a", "read")]),
            heard(3, "faster"),
            returned("a"),
        ]);

        let step = StepEntries::of(&journal, false);
        let rounds = step.rounds(KIND);

        assert_eq!(step.round_count(), 1);
        assert!(step.messages(KIND).is_empty());
        assert!(matches!(&rounds[0], ChatMessage::Assistant { calls, .. } if calls.len() == 1));
        assert!(matches!(&rounds[1], ChatMessage::Tool { call, .. } if call == "a"));
        assert_eq!(rounds[2..], [ChatMessage::user("faster")]);
    }

    #[test]
    fn a_finished_step_has_its_messages_its_rounds_and_its_actions() {
        let mut journal = journal();
        journal.extend([
            returned("result"),
            heard(3, "faster"),
            thought("", &[("a", "read")]),
            returned("a"),
            thought("done", &[("b", "write"), ("result", RESULT_TOOL)]),
            returned("b"),
        ]);

        let first = FinishedEntries::of(&journal[..7]);
        let last = FinishedEntries::of(&journal);

        let calls = |step: &FinishedEntries<'_>| -> Vec<(String, String, bool)> {
            let of =
                |one: &CallOutcome<'_>| (one.call.tool.clone(), one.output.into(), one.is_action);
            step.outcomes.iter().map(of).collect()
        };
        assert_eq!(first.messages, ["build it"]);
        assert_eq!(calls(&first), [("read".to_owned(), "result of a".to_owned(), true)]);
        assert_eq!(last.messages, ["faster"]);
        assert_eq!(last.thoughts.len(), 2);
        let read = ("read".to_owned(), "result of a".to_owned(), false);
        let write = ("write".to_owned(), "result of b".to_owned(), true);
        assert_eq!(calls(&last), [read, write]);
        assert_eq!(last_reply(&journal), "done");
        assert_eq!(FinishedEntries::of(&journal[..5]), FinishedEntries::default());
        assert_eq!(last_reply(&journal[..5]), "");
    }
}
