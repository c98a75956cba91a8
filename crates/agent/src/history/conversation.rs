//! Conversation of a journal, in a form that every provider accepts.
//!
//! Providers require that each call is followed by exactly one result before any other message. The
//! journal need not be so: a message arrived while a tool ran, a turn was cut short, a runner was
//! lost.
//!
//! | in the journal | what the model sees |
//! |---|---|
//! | a message between a call and its result | after the results |
//! | images of a message or a call | with the message, or after the results; those that were not loaded are named |
//! | the same message heard twice | once in each turn |
//! | a call that never returned | a failed result that says what is known |
//! | a result of no call | nothing |
//! | a note that ends a turn | a short line in brackets |
//! | system events | one line each, with a tag in brackets |
//! | a summary | apart from the messages; nothing of what it replaces |
//! | the question of a turn that a summary replaces in part | repeated before the rest of the turn |
//! | a call without a message before it | a short line in brackets before it |
//! | a seeded message of the assistant | its message, with its calls |
//! | results of a client's tools | results of the calls before them |
//! | a command and its answer | nothing |
//! | directives at a message's ends | nothing |
//! | an approval request and its decision | nothing: the call's result tells |
//! | a conversation that started anew | nothing from before it |
//! | the entries of a memory flush | nothing |
//! | a seeded system message | nothing here: it is part of the instructions |

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::{
    Body, ChatMessage, Entry, Image, Media, Note, SessionKind, StoredFile, SystemEvent, ToolCall,
};

use super::message_text::{is_system, render_message};
use crate::{
    step::UNKNOWN_OUTCOME,
    text::{line, shortened},
    turn,
};

/// Result of a call that was not started before its turn ended.
pub(crate) const CALL_NOT_MADE: &str = "this call was not made: its turn ended before";

/// Maximum length of a repeated question, in characters: without it, the summary of a very long
/// question would save nothing.
pub(super) const MAX_QUESTION_CHARS: usize = 4_000;

/// Maximum length of a system event, in characters.
const MAX_EVENT_CHARS: usize = 2_000;

/// Placeholder for the missing message before a call.
pub(crate) const EARLIER_NOT_SHOWN: &str = "[what was said before is not shown]";

/// Loaded image of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Hash of the content: [`StoredFile::hash`].
    pub hash: String,
    pub image: Image,
}

/// Whole conversation since the current summary, with the places where it may be cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation<'j> {
    pub(crate) summary: Option<&'j str>,
    pub(crate) messages: Vec<ChatMessage>,
    /// For each message: the index of the journal's entry that separates it from everything before
    /// it, if there is one.
    pub(crate) cuts: Vec<Option<usize>>,
    /// Journal's end, if a cut there separates no call from its result.
    pub(crate) end: Option<usize>,
    /// Number of entries in the journal.
    pub(crate) entries: usize,
    /// Index of the first message of each exchange.
    pub(crate) exchanges: Vec<usize>,
}

impl<'j> Conversation<'j> {
    /// Reads a journal, or the newest part of one.
    #[must_use]
    pub fn read(journal: &'j [Entry], kind: SessionKind) -> Self {
        Self::with_pictures(journal, kind, &[])
    }

    /// Reads a journal and includes the loaded images.
    #[must_use]
    pub fn with_pictures(journal: &'j [Entry], kind: SessionKind, pictures: &'j [Picture]) -> Self {
        let begun = conversation_start(journal);
        let (summary, start) = current_summary(&journal[begun..]);
        let start = begun + start;
        let mut reader = Reader::new(kind, start, journal.len() - start);
        reader.pictures = pictures;
        reader.skip_summarised(&journal[begun..start]);
        for (at, entry) in journal.iter().enumerate().skip(start) {
            reader.take(at, entry);
        }
        let is_clean = reader.open_calls.as_ref().is_none_or(OpenCalls::is_answered);
        reader.settle();
        let end = Some(journal.len()).filter(|end| is_clean && *end > start);
        let Reader { messages, cuts, exchanges, .. } = reader;
        Self { summary, messages, cuts, end, entries: journal.len(), exchanges }
    }

    /// Returns the messages since the summary, oldest first. Every provider accepts them.
    #[must_use]
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    #[must_use]
    pub const fn summary(&self) -> Option<&'j str> {
        self.summary
    }
}

/// Formats system events, one line each: untrusted text cannot add lines.
fn format_system_events(text: &str) -> String {
    let events: Vec<SystemEvent> = serde_json::from_str(text).unwrap_or_default();
    let lines =
        events.iter().map(|event| format!("[system event] {}", line(&event.text, MAX_EVENT_CHARS)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the index at which the current conversation starts.
pub(super) fn conversation_start(journal: &[Entry]) -> usize {
    let is_reset = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset, .. });
    journal.iter().rposition(is_reset).map_or(0, |reset| reset + 1)
}

/// Returns the summary that replaces most, and the index of the first entry that it does not
/// replace.
fn current_summary(journal: &[Entry]) -> (Option<&str>, usize) {
    let mut found: (Option<&str>, usize) = (None, 0);
    for (at, entry) in journal.iter().enumerate() {
        if let Entry::Noted { note: Note::Summary, text, keeps, .. } = entry {
            let start = at.saturating_sub(usize::try_from(*keeps).unwrap_or(usize::MAX));
            if found.0.is_none() || start >= found.1 {
                found = (Some(text), start);
            }
        }
    }
    found
}

/// Whether a message has results of the client's tools and nothing else.
fn is_only_results(body: &Body) -> bool {
    !body.results.is_empty() && body.text.is_empty() && body.attachments.is_empty()
}

/// Reader of a journal: collects messages and the starts of exchanges, each from a question to its
/// answer.
struct Reader<'j> {
    kind: SessionKind,
    /// Index of the first entry; a cut there would remove nothing.
    start: usize,
    messages: Vec<ChatMessage>,
    cuts: Vec<Option<usize>>,
    exchanges: Vec<usize>,
    ended: bool,
    open_calls: Option<OpenCalls<'j>>,
    heard: Vec<(i64, &'j Body)>,
    pictures: &'j [Picture],
    /// Whether a memory flush is open.
    is_flushing: bool,
}

/// Calls that wait for results, and messages heard meanwhile.
struct OpenCalls<'j> {
    calls: &'j [ToolCall],
    begun: BTreeSet<&'j str>,
    results: BTreeMap<&'j str, (&'j str, bool)>,
    shown: Vec<&'j StoredFile>,
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
            open_calls: None,
            heard: Vec::new(),
            pictures: &[],
            is_flushing: false,
        }
    }

    /// Reads the entries that a summary replaces. If the summary ends within a turn, the turn's
    /// question is repeated, so that it is not lost while it is being answered.
    fn skip_summarised(&mut self, summarised: &'j [Entry]) {
        let turn = summarised.len() - turn::open(summarised).len();
        for (at, entry) in summarised.iter().enumerate() {
            self.is_flushing = turn::is_flushing_after(entry, self.is_flushing);
            self.forget_heard_before(entry);
            let Entry::Heard { seq, body } = entry else { continue };
            if at < turn || !turn::asks_for_answer(entry) || is_only_results(body) {
                self.is_repeated(*seq, body);
            } else if let Some(ChatMessage::User { text, .. }) = self.message(*seq, body) {
                self.push(None, ChatMessage::user(shortened(&text, MAX_QUESTION_CHARS)));
            }
        }
    }

    fn take(&mut self, at: usize, entry: &'j Entry) {
        let was_aside = self.is_flushing;
        self.is_flushing = turn::is_flushing_after(entry, was_aside);
        self.forget_heard_before(entry);
        match entry {
            Entry::Thought { .. } | Entry::Called { .. } | Entry::Returned { .. } if was_aside => {}
            Entry::Heard { seq, body } => self.hear(at, *seq, body),
            Entry::Thought { text, calls, carry, .. } => {
                self.settle();
                if !text.trim().is_empty() || !calls.is_empty() {
                    self.think(at, text, calls, carry.as_ref());
                }
                if calls.is_empty() {
                    self.ended = true;
                } else {
                    self.open_calls = Some(OpenCalls::new(calls));
                }
            }
            Entry::Called { call, .. } => {
                if let Some(asked) = &mut self.open_calls {
                    asked.begun.insert(call);
                }
            }
            Entry::Returned { call, output, failed, media, record: _ } => {
                if let Some(asked) = &mut self.open_calls {
                    asked.take(call, (output, *failed), Some(media));
                }
            }
            Entry::Noted { note, text, .. } => self.note(at, *note, text),
        }
    }

    fn hear(&mut self, at: usize, seq: i64, body: &'j Body) {
        let is_known = self.heard.contains(&(seq, body));
        if let (Some(asked), false) = (&mut self.open_calls, is_known) {
            for result in &body.results {
                asked.take(&result.call, (&result.output, false), None);
            }
        }
        let has_calls = !body.calls.is_empty();
        if has_calls && !is_known {
            self.heard.push((seq, body));
            self.settle();
            self.think(at, &body.text, &body.calls, None);
            self.open_calls = Some(OpenCalls::new(&body.calls));
        } else if let Some(message) = self.message(seq, body)
            && !is_only_results(body)
        {
            self.say(at, message);
        }
    }

    fn think(
        &mut self,
        at: usize,
        text: &str,
        calls: &[ToolCall],
        carry: Option<&serde_json::Value>,
    ) {
        let mut cut = Some(at);
        let follows = |last: &ChatMessage| !matches!(last, ChatMessage::Assistant { .. });
        if !calls.is_empty() && !self.messages.last().is_some_and(follows) {
            self.push(cut.take(), ChatMessage::user(EARLIER_NOT_SHOWN.to_owned()));
        }
        self.push(
            cut,
            ChatMessage::Assistant {
                text: text.to_owned(),
                calls: calls.to_vec(),
                carry: carry.cloned(),
            },
        );
    }

    fn note(&mut self, at: usize, note: Note, text: &str) {
        let reason = line(text, 200);
        let (text, ends) = match note {
            Note::Interrupted => ("[the turn above was interrupted by newer input]".into(), true),
            Note::Cancelled => ("[the turn above was cancelled by the user]".into(), true),
            Note::Failed => (format!("[the turn above was given up: {reason}]"), true),
            Note::DeadlinePassed => (format!("[the wait ran past its deadline: {reason}]"), false),
            Note::Told => {
                let told = format_system_events(text);
                if told.is_empty() {
                    return;
                }
                (told, false)
            }
            Note::Command | Note::Reset => {
                self.ended = true;
                return;
            }
            // Summaries are shown apart from the messages; the other notes are either for the
            // record or visible in a call's result.
            Note::Summary
            | Note::Flush
            | Note::Flushed
            | Note::Asked
            | Note::Allowed
            | Note::Routed
            | Note::Posted
            | Note::Dispatched
            | Note::HandedOver
            | Note::Unknown => return,
        };
        if ends {
            self.settle();
        }
        self.say(at, ChatMessage::user(text));
        self.ended |= ends;
    }

    /// Adds a message, or keeps it until the open calls have their results.
    fn say(&mut self, at: usize, message: ChatMessage) {
        match &mut self.open_calls {
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

    /// Gives each open call its one result.
    fn settle(&mut self) {
        let Some(asked) = self.open_calls.take() else { return };
        for call in asked.calls {
            let (output, failed) = asked.result(&call.id);
            let (call, output) = (call.id.clone(), output.to_owned());
            self.push(None, ChatMessage::Tool { call, output, failed });
        }
        // Not every provider accepts images in results; all accept them in user messages.
        let images = self.loaded(asked.shown.iter().copied());
        if !images.is_empty() {
            let names: Vec<String> =
                asked.shown.iter().map(|file| line(file.name(), 128)).collect();
            let text = format!("[pictures of the calls above: {}]", names.join(", "));
            self.push(None, ChatMessage::User { text, images });
        }
        for message in asked.meanwhile {
            self.push(None, message);
        }
    }

    /// Converts a message; `None` for instructions, commands and repeated messages.
    fn message(&mut self, seq: i64, body: &'j Body) -> Option<ChatMessage> {
        if is_system(body) || body.command().is_some() || self.is_repeated(seq, body) {
            return None;
        }
        if body.role.as_deref() == Some("assistant") {
            return Some(ChatMessage::assistant(body.text.clone(), Vec::new()));
        }
        let files = body.attachments.iter().filter_map(|attachment| attachment.file.as_ref());
        Some(ChatMessage::User {
            text: render_message(body, self.kind),
            images: self.loaded(files),
        })
    }

    fn loaded(&self, files: impl Iterator<Item = &'j StoredFile>) -> Vec<Image> {
        let picture =
            |file: &StoredFile| self.pictures.iter().find(|picture| picture.hash == file.hash);
        files.filter_map(picture).map(|picture| picture.image.clone()).collect()
    }

    /// A failed turn's message may be asked again in the next turn. Show it there too, not only
    /// above the failure's note.
    fn forget_heard_before(&mut self, entry: &Entry) {
        if matches!(entry, Entry::Noted { .. }) && turn::ends(entry) {
            self.heard.clear();
        }
    }

    /// Whether this message was already heard. The inbox is ordered, so the search is short.
    fn is_repeated(&mut self, seq: i64, body: &'j Body) -> bool {
        let since = self.heard.iter().rev().take_while(|(before, _)| *before >= seq);
        let found = since.into_iter().any(|heard| *heard == (seq, body));
        if !found {
            self.heard.push((seq, body));
        }
        found
    }
}

impl<'j> OpenCalls<'j> {
    const fn new(calls: &'j [ToolCall]) -> Self {
        Self {
            calls,
            begun: BTreeSet::new(),
            results: BTreeMap::new(),
            shown: Vec::new(),
            meanwhile: Vec::new(),
        }
    }

    /// Adds a result; only the first result of a call counts.
    fn take(&mut self, call: &'j str, result: (&'j str, bool), media: Option<&'j Media>) {
        if self.results.contains_key(call) {
            return;
        }
        self.results.insert(call, result);
        if self.calls.iter().any(|asked| asked.id == call) {
            self.shown.extend(media.into_iter().flat_map(|media| &media.shown));
        }
    }

    fn is_answered(&self) -> bool {
        self.calls.iter().all(|call| self.results.contains_key(call.id.as_str()))
    }

    fn result(&self, call: &str) -> (&'j str, bool) {
        match self.results.get(call) {
            Some(result) => *result,
            None if self.begun.contains(call) => (UNKNOWN_OUTCOME, true),
            None => (CALL_NOT_MADE, true),
        }
    }
}
