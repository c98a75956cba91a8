//! What of the journal the model sees.
//!
//! Providers insist that each call is followed by exactly one result, before
//! anyone else speaks. The journal need not be so: someone spoke while a tool
//! ran, a turn was cut short, a runner was lost. Here it is put in order:
//!
//! | in the journal | what the model sees |
//! |---|---|
//! | heard between a call and its result | after the results |
//! | a call that never returned | a failed result that says what is known |
//! | a result of no call | nothing |
//! | a note that ends a turn | a short line in brackets |
//! | a summary | the summary, and nothing from before it |
//! | a seeded message of the assistant | its message |
//! | a seeded message of the system | nothing here: it is part of the instructions |

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{Body, ChatMessage, Entry, Note, SessionKind, ToolCall};

use crate::{
    step::UNKNOWN_OUTCOME,
    text::{line, name, shortened, tokens},
};

/// What the model is told of a call that its turn did not live to make.
const NOT_MADE: &str = "this call was not made: its turn ended before";

/// To how many characters an old output of a tool is shortened when all is too long.
const SHORT_OUTPUT: usize = 1_000;

/// The conversation as a model sees it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// The messages, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// How many exchanges before them are left out.
    pub(crate) left_out: usize,
}

/// Reads the conversation out of the journal: the newest of it that fits in a budget of tokens.
/// The last exchange is kept whatever it costs.
pub(crate) fn history(journal: &[Entry], kind: SessionKind, budget: usize) -> History {
    let mut exchanges = Reader::new(kind).read(journal);
    let mut left = budget;
    let fitting = exchanges
        .iter()
        .rev()
        .take_while(|exchange| match left.checked_sub(cost(exchange)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count();
    let left_out = exchanges.len() - fitting.max(1).min(exchanges.len());
    let mut kept = exchanges.split_off(left_out);
    if let (0, Some(last)) = (fitting, kept.last_mut()) {
        shorten(last, budget);
    }
    History { messages: kept.into_iter().flatten().collect(), left_out }
}

/// The instructions among seeded messages, oldest first.
pub(crate) fn instructions(journal: &[Entry]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for entry in journal {
        if let Entry::Heard { body, .. } = entry
            && is_system(body)
            && !found.contains(&body.text.trim())
        {
            found.push(body.text.trim());
        }
    }
    found
}

fn is_system(body: &Body) -> bool {
    matches!(body.role.as_deref(), Some("system" | "developer"))
}

fn cost(exchange: &[ChatMessage]) -> usize {
    exchange
        .iter()
        .map(|message| match message {
            ChatMessage::User { text, .. } => tokens(text),
            ChatMessage::Tool { output, .. } => tokens(output),
            ChatMessage::Assistant { text, calls, .. } => {
                let calls = calls.iter().map(|call| tokens(&call.tool) + tokens(&call.input));
                tokens(text) + calls.sum::<usize>()
            }
        })
        .sum()
}

/// Shortens outputs of tools, oldest first, until the exchange fits.
fn shorten(exchange: &mut [ChatMessage], budget: usize) {
    let mut over = cost(exchange).saturating_sub(budget);
    for message in exchange {
        if let (1.., ChatMessage::Tool { output, .. }) = (over, message) {
            let before = tokens(output);
            *output = shortened(output, SHORT_OUTPUT);
            over = over.saturating_sub(before.saturating_sub(tokens(output)));
        }
    }
}

/// Walks the journal; collects exchanges, each from what was said to what was answered.
struct Reader<'j> {
    kind: SessionKind,
    exchanges: Vec<Vec<ChatMessage>>,
    ended: bool,
    asked: Option<Asked<'j>>,
}

/// Calls that wait for their results, and what was said meanwhile.
struct Asked<'j> {
    calls: &'j [ToolCall],
    begun: BTreeSet<&'j str>,
    results: BTreeMap<&'j str, (&'j str, bool)>,
    meanwhile: Vec<ChatMessage>,
}

impl<'j> Reader<'j> {
    const fn new(kind: SessionKind) -> Self {
        Self { kind, exchanges: Vec::new(), ended: true, asked: None }
    }

    fn read(mut self, journal: &'j [Entry]) -> Vec<Vec<ChatMessage>> {
        let is_summary = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Summary, .. });
        let start = journal.iter().rposition(is_summary).unwrap_or(0);
        for entry in &journal[start..] {
            self.take(entry);
        }
        self.settle();
        self.exchanges
    }

    fn take(&mut self, entry: &'j Entry) {
        match entry {
            Entry::Heard { body, .. } => {
                if let Some(message) = self.message(body) {
                    self.say(message);
                }
            }
            Entry::Thought { text, calls, carry, .. } => {
                self.settle();
                if !text.trim().is_empty() || !calls.is_empty() {
                    self.push(ChatMessage::Assistant {
                        text: text.clone(),
                        calls: calls.clone(),
                        carry: carry.clone(),
                    });
                }
                if calls.is_empty() {
                    self.ended = true;
                } else {
                    self.asked = Some(Asked::new(calls));
                }
            }
            Entry::Called { call, .. } => {
                if let Some(asked) = &mut self.asked {
                    asked.begun.insert(call);
                }
            }
            Entry::Returned { call, output, failed } => {
                if let Some(asked) = &mut self.asked {
                    asked.results.entry(call).or_insert((output, *failed));
                }
            }
            Entry::Noted { note, text } => self.note(*note, text),
        }
    }

    fn note(&mut self, note: Note, text: &str) {
        let reason = line(text, 200);
        let (text, ends) = match note {
            Note::Interrupted => ("[the turn above was interrupted by newer input]".into(), true),
            Note::Cancelled => ("[the turn above was cancelled by the user]".into(), true),
            Note::Failed => (format!("[the turn above was given up: {reason}]"), true),
            Note::DeadlinePassed => (format!("[the wait ran past its deadline: {reason}]"), false),
            Note::Summary => (format!("[summary of the conversation before]\n{text}"), false),
        };
        if ends {
            self.settle();
        }
        self.say(ChatMessage::user(text));
        self.ended |= ends;
    }

    /// Adds what someone said: now, or when the calls that were asked for have their results.
    fn say(&mut self, message: ChatMessage) {
        match &mut self.asked {
            Some(asked) => asked.meanwhile.push(message),
            None => self.push(message),
        }
    }

    fn push(&mut self, message: ChatMessage) {
        let is_new = match (&message, self.exchanges.last().and_then(|last| last.last())) {
            (_, None) => true,
            (ChatMessage::User { .. }, Some(ChatMessage::Assistant { calls, .. })) => {
                calls.is_empty()
            }
            (ChatMessage::User { .. }, Some(_)) => self.ended,
            (ChatMessage::Assistant { .. } | ChatMessage::Tool { .. }, Some(_)) => false,
        };
        self.ended = false;
        match self.exchanges.last_mut() {
            Some(last) if !is_new => last.push(message),
            Some(_) | None => self.exchanges.push(vec![message]),
        }
    }

    /// Gives each call that was asked for its one result.
    fn settle(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        for call in asked.calls {
            let (output, failed) = asked.result(&call.id);
            self.push(ChatMessage::Tool {
                call: call.id.clone(),
                output: output.to_owned(),
                failed,
            });
        }
        for message in asked.meanwhile {
            self.push(message);
        }
    }

    fn message(&self, body: &Body) -> Option<ChatMessage> {
        if is_system(body) {
            return None;
        }
        if body.role.as_deref() == Some("assistant") {
            return Some(ChatMessage::assistant(body.text.clone(), Vec::new()));
        }
        Some(ChatMessage::user(said(body, self.kind)))
    }
}

impl<'j> Asked<'j> {
    const fn new(calls: &'j [ToolCall]) -> Self {
        Self { calls, begun: BTreeSet::new(), results: BTreeMap::new(), meanwhile: Vec::new() }
    }

    fn result(&self, call: &str) -> (&'j str, bool) {
        match self.results.get(call) {
            Some(result) => *result,
            None if self.begun.contains(call) => (UNKNOWN_OUTCOME, true),
            None => (NOT_MADE, true),
        }
    }
}

/// What was said, with what belongs to it: who said it, what it answers, what came with it.
fn said(body: &Body, kind: SessionKind) -> String {
    let mut text = String::with_capacity(body.text.len() + 32);
    if let Some(event) = &body.event {
        text.push_str(&format!("[event {}] ", line(event, 128)));
    } else if let (SessionKind::Group | SessionKind::Topic, Some(sender)) = (kind, &body.sender) {
        let shown = match name(&sender.name) {
            shown if shown.is_empty() => name(&sender.id),
            shown => shown,
        };
        if !shown.is_empty() {
            text.push_str(&shown);
            text.push_str(": ");
        }
    }
    if let Some(quoted) = body.reply_to.as_ref().map(|reply| line(&reply.text, 200))
        && !quoted.is_empty()
    {
        text.push_str(&format!("[in answer to: {quoted}] "));
    }
    text.push_str(&body.text);
    for attachment in &body.attachments {
        let shown = line(&format!("{} {}", attachment.kind, attachment.name), 128);
        text.push_str(&format!("\n[attached: {shown}]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use holdfast_types::{Attachment, Effect, ReplyTo, Sender};
    use proptest::prelude::*;

    use super::*;
    use crate::turn::tests::{call, called, heard, noted, overheard, returned, thought};

    const PLENTY: usize = 100_000;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn assistant(text: &str, calls: &[(&str, &str)]) -> ChatMessage {
        let calls = calls.iter().map(|(id, tool)| call(id, tool)).collect();
        ChatMessage::assistant(text, calls)
    }

    fn result(id: &str) -> ChatMessage {
        ChatMessage::Tool { call: id.into(), output: format!("result of {id}"), failed: false }
    }

    fn failed(id: &str, output: &str) -> ChatMessage {
        ChatMessage::Tool { call: id.into(), output: output.into(), failed: true }
    }

    fn read(journal: &[Entry]) -> Vec<ChatMessage> {
        history(journal, SessionKind::Main, PLENTY).messages
    }

    #[test]
    fn what_is_heard_between_a_call_and_its_result_comes_after_it() {
        let journal = [
            heard(1, "hi"),
            thought("look", &[("a", "read"), ("b", "read")]),
            called("a", Effect::Reads),
            heard(2, "hurry"),
            returned("b"),
            returned("a"),
            thought("done", &[]),
        ];

        assert_eq!(
            read(&journal),
            [
                user("hi"),
                assistant("look", &[("a", "read"), ("b", "read")]),
                result("a"),
                result("b"),
                user("hurry"),
                assistant("done", &[]),
            ]
        );
    }

    #[test]
    fn what_a_provider_wants_back_goes_with_the_reply_it_came_with() {
        let mut asked = thought("", &[("a", "read")]);
        let wanted = serde_json::json!({ "api": "x" });
        if let Entry::Thought { carry, .. } = &mut asked {
            *carry = Some(wanted.clone());
        }
        let messages = read(&[heard(1, "hi"), asked, returned("a")]);

        let carried = messages.iter().find_map(|message| match message {
            ChatMessage::Assistant { carry, .. } => carry.as_ref(),
            ChatMessage::User { .. } | ChatMessage::Tool { .. } => None,
        });
        assert_eq!(carried, Some(&wanted));
    }

    #[test]
    fn a_call_that_never_returned_has_a_result_that_says_what_is_known() {
        let journal = [
            heard(1, "hi"),
            thought("", &[("a", "act"), ("b", "read")]),
            called("a", Effect::Acts),
            noted(Note::Interrupted),
            heard(2, "stop"),
        ];

        assert_eq!(
            read(&journal),
            [
                user("hi"),
                assistant("", &[("a", "act"), ("b", "read")]),
                failed("a", UNKNOWN_OUTCOME),
                failed("b", NOT_MADE),
                user("[the turn above was interrupted by newer input]"),
                user("stop"),
            ]
        );
    }

    #[test]
    fn in_a_group_the_sender_is_named_and_cannot_forge_a_line() {
        let by = |id: &str, name: &str| {
            let sender = Some(Sender { id: id.into(), name: name.into() });
            Entry::Heard { seq: 1, body: Body { sender, ..Body::text("hi") } }
        };
        let journal = [by("7", "Ann\nBob"), by("8", "")];

        let group = history(&journal, SessionKind::Group, PLENTY).messages;

        assert_eq!(group, [user("Ann Bob: hi"), user("8: hi")]);
        assert_eq!(read(&journal), [user("hi"), user("hi")]);
    }

    #[test]
    fn what_belongs_to_a_message_is_said_in_brackets() {
        let photo = Attachment {
            kind: "photo".into(),
            reference: "file-1".into(),
            name: "cat\n.png".into(),
        };
        let body = Body {
            reply_to: Some(ReplyTo { message_id: "3".into(), text: "which\none?".into() }),
            attachments: vec![photo],
            ..Body::text("this")
        };
        let event = Body { event: Some("timer.fired".into()), ..Body::text("tea") };

        assert_eq!(
            read(&[Entry::Heard { seq: 1, body }, Entry::Heard { seq: 2, body: event }]),
            [
                user("[in answer to: which one?] this\n[attached: photo cat .png]"),
                user("[event timer.fired] tea"),
            ]
        );
    }

    #[test]
    fn a_seeded_history_keeps_its_roles() {
        let seeded = |role: &str, text: &str| Entry::Heard {
            seq: 1,
            body: Body { role: Some(role.into()), silent: true, ..Body::text(text) },
        };
        let journal = [
            seeded("system", " be brief "),
            overheard(2, "hi"),
            seeded("assistant", "hello"),
            heard(3, "and?"),
        ];

        assert_eq!(read(&journal), [user("hi"), assistant("hello", &[]), user("and?")]);
        assert_eq!(instructions(&journal), ["be brief"]);
    }

    #[test]
    fn a_summary_stands_for_what_came_before() {
        let journal =
            [heard(1, "old"), thought("older", &[]), noted(Note::Summary), heard(2, "new")];

        assert_eq!(
            read(&journal),
            [user("[summary of the conversation before]\nwhy"), user("new")]
        );
    }

    #[test]
    fn the_oldest_exchanges_are_left_out_whole() {
        let long = "x".repeat(400);
        let journal = [
            heard(1, &long),
            thought("", &[("a", "read")]),
            returned("a"),
            thought("one", &[]),
            heard(2, "short"),
            thought("two", &[]),
            heard(3, "now"),
        ];

        let all = history(&journal, SessionKind::Main, PLENTY);
        let some = history(&journal, SessionKind::Main, 20);
        let none = history(&journal, SessionKind::Main, 0);

        assert_eq!((all.messages.len(), all.left_out), (7, 0));
        assert_eq!(some.messages, [user("short"), assistant("two", &[]), user("now")]);
        assert_eq!(some.left_out, 1);
        assert_eq!((none.messages, none.left_out), (vec![user("now")], 2));
    }

    #[test]
    fn a_last_exchange_that_is_too_long_has_its_oldest_outputs_shortened() {
        let long = |id: &str| Entry::Returned {
            call: id.into(),
            output: "x".repeat(8_000),
            failed: false,
        };
        let journal =
            [heard(1, "hi"), thought("", &[("a", "read"), ("b", "read")]), long("a"), long("b")];

        let kept = history(&journal, SessionKind::Main, 3_000).messages;

        let lengths: Vec<usize> = kept
            .iter()
            .filter_map(|message| match message {
                ChatMessage::Tool { output, .. } => Some(output.len()),
                ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
            })
            .collect();
        assert_eq!(lengths, [SHORT_OUTPUT + "\n[shortened]".len(), 8_000]);
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let id = || prop_oneof![Just("a"), Just("b"), Just("c")];
        let calls = prop::collection::btree_set(id(), 0..3);
        prop_oneof![
            (1_i64..9).prop_map(|seq| heard(seq, "said")),
            calls.prop_map(|ids| thought("t", &ids.iter().map(|i| (*i, "t")).collect::<Vec<_>>())),
            id().prop_map(|id| called(id, Effect::Acts)),
            id().prop_map(returned),
            prop_oneof![Just(Note::Failed), Just(Note::Summary), Just(Note::DeadlinePassed)]
                .prop_map(noted),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_journal_each_call_has_one_result_at_once(
            journal in prop::collection::vec(entry(), 0..40),
            budget in 0_usize..60,
        ) {
            let mut open: BTreeMap<String, ()> = BTreeMap::new();
            for message in history(&journal, SessionKind::Main, budget).messages {
                match message {
                    ChatMessage::User { .. } => prop_assert!(open.is_empty()),
                    ChatMessage::Assistant { calls, .. } => {
                        prop_assert!(open.is_empty());
                        open.extend(calls.into_iter().map(|call| (call.id, ())));
                    }
                    ChatMessage::Tool { call, .. } => prop_assert!(open.remove(&call).is_some()),
                }
            }
            prop_assert!(open.is_empty());
        }
    }
}
