//! What of the journal the model sees.
//!
//! Providers insist that each call is followed by exactly one result, before
//! anyone else speaks. The journal need not be so: someone spoke while a tool
//! ran, a turn was cut short, a runner was lost. Here it is put in order:
//!
//! | in the journal | what the model sees |
//! |---|---|
//! | heard between a call and its result | after the results |
//! | heard twice at the same place, word for word | once |
//! | a call that never returned | a failed result that says what is known |
//! | a result of no call | nothing |
//! | a note that ends a turn | a short line in brackets |
//! | a summary | itself, apart from the messages; nothing of what it stands for |
//! | what asked for a turn that a summary stands for in part | said again, before the rest of it |
//! | a call that nobody spoke before | a short line in brackets before it |
//! | a seeded message of the assistant | its message |
//! | a command and its answer | nothing |
//! | a conversation that began anew | nothing from before it |
//! | a seeded message of the system | nothing here: it is part of the instructions |

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{Body, ChatMessage, Entry, Note, SessionKind, ToolCall};

use crate::{
    context::introduced,
    step::UNKNOWN_OUTCOME,
    text::{line, name, shortened},
    tokens::{CjkAware, messages_tokens, tokens},
    turn,
};

/// What the model is told of a call that its turn did not live to make.
pub(crate) const NOT_MADE: &str = "this call was not made: its turn ended before";

/// What stands for the words before a call, where there are none.
const NOT_SHOWN: &str = "[what was said before is not shown]";

/// To how many characters an old output of a tool is shortened when all is too long.
const SHORT_OUTPUT: usize = 1_000;

/// The conversation as a model sees it, within a budget.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// What was said before the messages, in short, with the words that introduce it.
    pub(crate) summary: Option<String>,
    /// The messages, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// How many exchanges before them are left out.
    pub(crate) left_out: usize,
}

/// Reads the conversation out of the journal: the newest of it that fits in a budget of tokens.
/// The summary and the last exchange are kept whatever they cost.
pub(crate) fn history(journal: &[Entry], kind: SessionKind, budget: usize) -> History {
    let Conversation { summary, mut messages, exchanges, .. } = Conversation::read(journal, kind);
    let summary = summary.map(introduced);
    let budget = budget.saturating_sub(summary.as_deref().map_or(0, tokens));
    let (mut left, mut first, mut end) = (budget, exchanges.len(), messages.len());
    for (at, start) in exchanges.iter().copied().enumerate().rev() {
        let Some(rest) = left.checked_sub(messages_tokens(&CjkAware, &messages[start..end])) else {
            break;
        };
        (left, first, end) = (rest, at, start);
    }
    let none_fits = first == exchanges.len();
    if let (true, Some(last)) = (none_fits, exchanges.last()) {
        (first, end) = (first - 1, *last);
    }
    messages.drain(..end);
    if none_fits {
        shorten(&mut messages, budget);
    }
    History { summary, messages, left_out: first }
}

/// The instructions among seeded messages, oldest first.
pub(crate) fn instructions(journal: &[Entry]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for entry in &journal[began(journal)..] {
        if let Entry::Heard { body, .. } = entry
            && is_system(body)
            && !found.contains(&body.text.trim())
        {
            found.push(body.text.trim());
        }
    }
    found
}

/// Where the conversation last began anew.
fn began(journal: &[Entry]) -> usize {
    let is_reset = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset, .. });
    journal.iter().rposition(is_reset).map_or(0, |reset| reset + 1)
}

fn is_system(body: &Body) -> bool {
    matches!(body.role.as_deref(), Some("system" | "developer"))
}

/// Shortens outputs of tools, oldest first, until the exchange fits.
fn shorten(exchange: &mut [ChatMessage], budget: usize) {
    let mut over = messages_tokens(&CjkAware, exchange).saturating_sub(budget);
    for message in exchange {
        if let (1.., ChatMessage::Tool { output, .. }) = (over, message) {
            let before = tokens(output);
            *output = shortened(output, SHORT_OUTPUT);
            over = over.saturating_sub(before.saturating_sub(tokens(output)));
        }
    }
}

/// The conversation since the summary that is in force, all of it, with the places where it may be
/// cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation<'j> {
    pub(crate) summary: Option<&'j str>,
    pub(crate) messages: Vec<ChatMessage>,
    /// For each message: the place in the journal that separates it and all after it from all that
    /// is before it, if there is one.
    pub(crate) cuts: Vec<Option<usize>>,
    /// The journal's end, if a cut there separates no call from its result.
    pub(crate) end: Option<usize>,
    /// How many entries the journal has.
    pub(crate) entries: usize,
    /// The first message of each exchange.
    exchanges: Vec<usize>,
}

impl<'j> Conversation<'j> {
    /// Reads it out of a journal, or out of the newest part of one.
    #[must_use]
    pub fn read(journal: &'j [Entry], kind: SessionKind) -> Self {
        let begun = began(journal);
        let (summary, start) = in_force(&journal[begun..]);
        let start = begun + start;
        let mut reader = Reader::new(kind, start, journal.len() - start);
        reader.pass_over(&journal[begun..start]);
        for (at, entry) in journal.iter().enumerate().skip(start) {
            reader.take(at, entry);
        }
        let is_clean = reader.asked.as_ref().is_none_or(Asked::is_answered);
        reader.settle();
        let end = Some(journal.len()).filter(|end| is_clean && *end > start);
        let Reader { messages, cuts, exchanges, .. } = reader;
        Self { summary, messages, cuts, end, entries: journal.len(), exchanges }
    }

    /// The messages since the summary, oldest first: valid for every provider as they are.
    #[must_use]
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// The summary that is in force, in its own words.
    #[must_use]
    pub const fn summary(&self) -> Option<&'j str> {
        self.summary
    }
}

/// The summary that stands for most, and where in the journal begins what it does not stand for.
fn in_force(journal: &[Entry]) -> (Option<&str>, usize) {
    let mut found: (Option<&str>, usize) = (None, 0);
    for (at, entry) in journal.iter().enumerate() {
        if let Entry::Noted { note: Note::Summary, text, keeps } = entry {
            let start = at.saturating_sub(usize::try_from(*keeps).unwrap_or(usize::MAX));
            if found.0.is_none() || start >= found.1 {
                found = (Some(text), start);
            }
        }
    }
    found
}

/// Walks the journal; collects messages, and where exchanges begin, each from what was said to what
/// was answered.
struct Reader<'j> {
    kind: SessionKind,
    /// Where the walk began: a cut there would take nothing away.
    start: usize,
    messages: Vec<ChatMessage>,
    cuts: Vec<Option<usize>>,
    exchanges: Vec<usize>,
    ended: bool,
    asked: Option<Asked<'j>>,
    heard: Vec<(i64, &'j Body)>,
}

/// Calls that wait for their results, and what was said meanwhile.
struct Asked<'j> {
    calls: &'j [ToolCall],
    begun: BTreeSet<&'j str>,
    results: BTreeMap<&'j str, (&'j str, bool)>,
    meanwhile: Vec<ChatMessage>,
}

impl<'j> Reader<'j> {
    fn new(kind: SessionKind, start: usize, room: usize) -> Self {
        Self {
            kind,
            start,
            messages: Vec::with_capacity(room),
            cuts: Vec::with_capacity(room),
            exchanges: Vec::new(),
            ended: true,
            asked: None,
            heard: Vec::new(),
        }
    }

    /// Takes note of what a summary stands for. What asked for the turn that it ends in the midst of
    /// is said again: the question must not go while it is being answered.
    fn pass_over(&mut self, summarised: &'j [Entry]) {
        let turn = summarised.len() - turn::open(summarised).len();
        for (at, entry) in summarised.iter().enumerate() {
            let Entry::Heard { seq, body } = entry else { continue };
            if at < turn || !turn::asks(entry) {
                self.is_repeated(*seq, body);
            } else if let Some(message) = self.message(*seq, body) {
                self.push(None, message);
            }
        }
    }

    fn take(&mut self, at: usize, entry: &'j Entry) {
        match entry {
            Entry::Heard { seq, body } => {
                if let Some(message) = self.message(*seq, body) {
                    self.say(at, message);
                }
            }
            Entry::Thought { text, calls, .. } => {
                self.settle();
                if !text.trim().is_empty() || !calls.is_empty() {
                    self.think(at, text, calls);
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
            Entry::Noted { note, text, .. } => self.note(at, *note, text),
        }
    }

    fn think(&mut self, at: usize, text: &str, calls: &[ToolCall]) {
        let mut cut = Some(at);
        let follows = |last: &ChatMessage| !matches!(last, ChatMessage::Assistant { .. });
        if !calls.is_empty() && !self.messages.last().is_some_and(follows) {
            self.push(cut.take(), ChatMessage::User { text: NOT_SHOWN.to_owned() });
        }
        self.push(cut, ChatMessage::Assistant { text: text.to_owned(), calls: calls.to_vec() });
    }

    fn note(&mut self, at: usize, note: Note, text: &str) {
        let reason = line(text, 200);
        let (text, ends) = match note {
            Note::Interrupted => ("[the turn above was interrupted by newer input]".into(), true),
            Note::Cancelled => ("[the turn above was cancelled by the user]".into(), true),
            Note::Failed => (format!("[the turn above was given up: {reason}]"), true),
            Note::DeadlinePassed => (format!("[the wait ran past its deadline: {reason}]"), false),
            Note::Command | Note::Reset => {
                self.ended = true;
                return;
            }
            // The one in force is told apart, and others have had their time.
            Note::Summary => return,
        };
        if ends {
            self.settle();
        }
        self.say(at, ChatMessage::User { text });
        self.ended |= ends;
    }

    /// Adds what someone said: now, or when the calls that were asked for have their results.
    fn say(&mut self, at: usize, message: ChatMessage) {
        match &mut self.asked {
            Some(asked) => asked.meanwhile.push(message),
            None => self.push(Some(at), message),
        }
    }

    fn push(&mut self, cut: Option<usize>, message: ChatMessage) {
        let is_new = match (&message, self.messages.last()) {
            (_, None) => true,
            (ChatMessage::User { .. }, Some(ChatMessage::Assistant { calls, .. })) => {
                calls.is_empty()
            }
            (ChatMessage::User { .. }, Some(_)) => self.ended,
            (ChatMessage::Assistant { .. } | ChatMessage::Tool { .. }, Some(_)) => false,
        };
        self.ended = false;
        if is_new {
            self.exchanges.push(self.messages.len());
        }
        self.messages.push(message);
        self.cuts.push(cut.filter(|cut| *cut > self.start));
    }

    /// Gives each call that was asked for its one result.
    fn settle(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        for call in asked.calls {
            let (output, failed) = asked.result(&call.id);
            let (call, output) = (call.id.clone(), output.to_owned());
            self.push(None, ChatMessage::Tool { call, output, failed });
        }
        for message in asked.meanwhile {
            self.push(None, message);
        }
    }

    /// `None` for instructions, and for what was heard already.
    fn message(&mut self, seq: i64, body: &'j Body) -> Option<ChatMessage> {
        if is_system(body) || body.command().is_some() || self.is_repeated(seq, body) {
            return None;
        }
        if body.role.as_deref() == Some("assistant") {
            return Some(ChatMessage::Assistant { text: body.text.clone(), calls: Vec::new() });
        }
        Some(ChatMessage::User { text: said(body, self.kind) })
    }

    /// Whether this very message was heard already. The inbox counts upwards, so that the look back
    /// is short.
    fn is_repeated(&mut self, seq: i64, body: &'j Body) -> bool {
        let since = self.heard.iter().rev().take_while(|(before, _)| *before >= seq);
        let found = since.into_iter().any(|heard| *heard == (seq, body));
        if !found {
            self.heard.push((seq, body));
        }
        found
    }
}

impl<'j> Asked<'j> {
    const fn new(calls: &'j [ToolCall]) -> Self {
        Self { calls, begun: BTreeSet::new(), results: BTreeMap::new(), meanwhile: Vec::new() }
    }

    fn is_answered(&self) -> bool {
        self.calls.iter().all(|call| self.results.contains_key(call.id.as_str()))
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
    use holdfast_types::{Attachment, Effect, ReplyTo, Sender};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::tests_of_hygiene::is_valid,
        turn::tests::{call, called, heard, noted, overheard, returned, thought},
    };

    const PLENTY: usize = 100_000;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::User { text: text.into() }
    }

    fn assistant(text: &str, calls: &[(&str, &str)]) -> ChatMessage {
        let calls = calls.iter().map(|(id, tool)| call(id, tool)).collect();
        ChatMessage::Assistant { text: text.into(), calls }
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

        let seen = history(&journal, SessionKind::Main, PLENTY);
        assert_eq!(seen.summary, Some(introduced("why")));
        assert_eq!(seen.messages, [user("new")]);
    }

    #[test]
    fn a_summary_leaves_what_it_keeps_to_be_seen_in_order() {
        let journal = [
            heard(1, "old"),
            thought("older", &[]),
            heard(2, "kept"),
            thought("too", &[]),
            Entry::summary("sum", 2),
            heard(3, "new"),
        ];

        let seen = history(&journal, SessionKind::Main, PLENTY);

        assert_eq!(seen.summary, Some(introduced("sum")));
        assert_eq!(seen.messages, [user("kept"), assistant("too", &[]), user("new")]);
        let part = history(&journal[3..], SessionKind::Main, PLENTY);
        assert_eq!(part.messages, [assistant("too", &[]), user("new")]);
    }

    #[test]
    fn of_two_summaries_the_one_that_stands_for_more_is_in_force() {
        let journal = [
            heard(1, "a"),
            thought("b", &[]),
            heard(2, "c"),
            Entry::summary("of all", 0),
            heard(3, "d"),
            Entry::summary("late, and only of a", 4),
            heard(4, "e"),
        ];

        let seen = history(&journal, SessionKind::Main, PLENTY);

        assert_eq!(seen.summary, Some(introduced("of all")));
        assert_eq!(seen.messages, [user("c"), user("d"), user("e")]);
        let later = history(
            &[journal.as_slice(), &[Entry::summary("newest", 1)]].concat(),
            SessionKind::Main,
            PLENTY,
        );
        assert_eq!(later.summary, Some(introduced("newest")));
    }

    #[test]
    fn a_turn_that_is_summarised_in_part_keeps_its_question() {
        let journal = [
            heard(1, "old"),
            thought("older", &[]),
            overheard(2, "psst"),
            heard(3, "why?"),
            thought("", &[("a", "read")]),
            returned("a"),
            thought("", &[("a", "read")]),
            returned("a"),
            Entry::summary("sum", 2),
            thought("so", &[]),
        ];

        assert_eq!(
            read(&journal),
            [user("why?"), assistant("", &[("a", "read")]), result("a"), assistant("so", &[])]
        );
    }

    #[test]
    fn what_was_heard_is_seen_once_however_often_it_was_written_down() {
        let journal = [heard(1, "hi"), heard(1, "hi"), heard(2, "hi"), heard(1, "hi")];

        assert_eq!(read(&journal), [user("hi"), user("hi")]);
    }

    #[test]
    fn a_journal_that_begins_in_the_midst_of_a_turn_is_still_led_by_someone() {
        let journal = [returned("x"), thought("", &[("a", "read")]), returned("a")];

        assert_eq!(read(&journal), [user(NOT_SHOWN), assistant("", &[("a", "read")]), result("a")]);
    }

    #[test]
    fn a_summary_takes_its_part_of_the_budget() {
        let journal = [heard(1, "a"), thought("b", &[]), heard(2, "c"), Entry::summary("s", 3)];
        let summary = tokens(&introduced("s"));

        let enough = history(&journal, SessionKind::Main, summary + 3);
        let less = history(&journal, SessionKind::Main, summary + 2);

        assert_eq!((enough.messages.len(), enough.left_out), (3, 0));
        assert_eq!((less.messages, less.left_out), (vec![user("c")], 1));
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
            prop_oneof![Just(Note::Failed), Just(Note::DeadlinePassed)].prop_map(noted),
            (0_u32..9).prop_map(|keeps| Entry::summary("sum", keeps)),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_journal_each_call_has_one_result_at_once(
            journal in prop::collection::vec(entry(), 0..40),
            budget in 0_usize..60,
        ) {
            let seen = history(&journal, SessionKind::Main, budget).messages;

            prop_assert!(is_valid(&seen), "{seen:?}");
        }

        #[test]
        fn every_cut_of_a_journal_parts_its_conversation_in_two(
            journal in prop::collection::vec(entry(), 0..40),
        ) {
            let all = Conversation::read(&journal, SessionKind::Main);
            let cuts = all.cuts.iter().copied().chain([all.end]).enumerate();

            for (at, entry) in cuts.filter_map(|(at, entry)| entry.map(|entry| (at, entry))) {
                let mut noted = journal.clone();
                let keeps = u32::try_from(journal.len() - entry).unwrap();
                noted.push(Entry::summary("s", keeps));
                let kept = Conversation::read(&noted, SessionKind::Main);

                prop_assert!(is_valid(&kept.messages), "{at}: {kept:?}");
                prop_assert!(kept.messages.ends_with(&all.messages[at..]), "{at}: {kept:?}");
                prop_assert_eq!(kept.summary, Some("s"));
            }
        }
    }
}
