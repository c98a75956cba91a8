//! Conversations as the journal has them and as clients send them.

use holdfast_types::{Body, Entry, Handover, Note, ToolCall};

use super::{
    content::{ConversationMessage, Role},
    conversation::role_name,
};
use crate::follow::TurnResult;

/// Beginning of a message that replaces older ones.
pub const JOINED_PREFIX: &str = "[what was said before]\n";

/// Answer of a model that wants nothing to be sent.
const NO_REPLY: &str = "NO_REPLY";

/// Message of the user, and its answer if it has one.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    user: String,
    answer: Option<String>,
}

/// The messages of a journal since the conversation began, as bodies for a new session: those that
/// are too many are joined into one. Of the tool calls, only those of the client's tools are there.
pub fn bodies(entries: impl Iterator<Item = Entry>, keep: usize) -> Vec<Body> {
    let mut found = Vec::new();
    for entry in entries {
        match entry {
            Entry::Noted { note: Note::Reset, .. } => found.clear(),
            Entry::Noted { note: Note::HandedOver, text, .. } => {
                found.extend(Handover::parse(&text).map(seeded_calls));
            }
            Entry::Heard { body, .. } if !body.results.is_empty() || !body.calls.is_empty() => {
                let role = if body.calls.is_empty() { Role::Tool } else { Role::Assistant };
                let (calls, results) = (body.calls, body.results);
                let seeded = seed(role_name(role).to_owned(), body.text, body.attachments);
                found.push(Body { calls, results, ..seeded });
            }
            Entry::Heard { body, .. } if is_message(&body) => {
                let role = body.role.unwrap_or_else(|| role_name(Role::User).to_owned());
                found.push(seed(role, body.text, body.attachments));
            }
            Entry::Thought { text, calls, .. } if calls.is_empty() && is_answer(&text) => {
                found.push(seed(role_name(Role::Assistant).to_owned(), text, Vec::new()));
            }
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => {}
        }
    }
    let keep = keep.max(1);
    if found.len() > keep {
        let newest = found.split_off(found.len() - (keep - 1));
        let line = |body: &Body| format!("{}: {}", body.role.as_deref().unwrap_or(""), body.text);
        let told = found.iter().map(line).collect::<Vec<_>>().join("\n");
        let user = role_name(Role::User).to_owned();
        found = vec![seed(user, format!("{JOINED_PREFIX}{told}"), Vec::new())];
        found.extend(newest);
    }
    found
}

fn seeded_calls(handover: Handover) -> Body {
    let call = |call: holdfast_types::ClientCall| ToolCall {
        id: call.call,
        tool: call.name,
        input: call.arguments,
    };
    let calls = handover.calls.into_iter().map(call).collect();
    let assistant = role_name(Role::Assistant).to_owned();
    Body { calls, ..seed(assistant, handover.text, Vec::new()) }
}

fn seed(role: String, text: String, attachments: Vec<holdfast_types::Attachment>) -> Body {
    Body { role: Some(role), silent: true, attachments, ..Body::text(text) }
}

/// Whether a body is a message of the conversation; calls of the client's tools and their results
/// lie between messages.
fn is_message(body: &Body) -> bool {
    body.event.is_none()
        && body.command().is_none()
        && body.calls.is_empty()
        && body.results.is_empty()
}

fn is_answer(text: &str) -> bool {
    !matches!(text.trim(), "" | NO_REPLY)
}

/// Exchanges of a journal since the conversation began.
pub fn stored<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Exchange> {
    let mut found: Vec<Exchange> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Noted { note: Note::Reset, .. } => found.clear(),
            Entry::Heard { body, .. } if is_message(body) => match body.role.as_deref() {
                Some("system") => {}
                Some("assistant") => add_answer(&mut found, &body.text),
                Some(_) | None => add_message(&mut found, &body.text),
            },
            Entry::Thought { text, calls, .. } if calls.is_empty() => add_answer(&mut found, text),
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => {}
        }
    }
    found
}

/// Exchanges of the history that a client sent.
pub fn sent(turns: &[ConversationMessage]) -> Vec<Exchange> {
    let mut found = Vec::new();
    for turn in turns {
        match turn.role {
            Role::System | Role::Tool => {}
            Role::Assistant if !turn.calls.is_empty() => {}
            Role::Assistant => add_answer(&mut found, &turn.text),
            Role::User => add_message(&mut found, &turn.text),
        }
    }
    found
}

fn add_message(found: &mut Vec<Exchange>, text: &str) {
    found.push(Exchange { user: normalized(text), answer: None });
}

fn add_answer(found: &mut [Exchange], text: &str) {
    if let Some(last) = found.last_mut()
        && is_answer(text)
    {
        last.answer = Some(normalized(text));
    }
}

/// Text without differences that cleaning and storing make.
fn normalized(text: &str) -> String {
    let text = text.replace(|c: char| c.is_control() && !c.is_whitespace(), "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a stored conversation ends with the history that a client sent. `is_whole` if nothing is
/// stored before it.
///
/// Messages without an answer may be missing on either side: a turn failed, or a request was
/// refused. Clients may leave out the oldest messages.
pub fn ends_with(stored: &[Exchange], sent: &[Exchange], is_whole: bool) -> bool {
    let (mut stored, mut sent) = (stored, sent);
    loop {
        match (stored.split_last(), sent.split_last()) {
            (_, None) => return true,
            (None, Some((last, rest))) => {
                if !is_whole {
                    return true;
                }
                if last.answer.is_some() {
                    return false;
                }
                sent = rest;
            }
            (Some((ours, before)), Some((theirs, rest))) => {
                if ours.user.starts_with(JOINED_PREFIX.trim_end()) {
                    return true;
                } else if is_same(ours, theirs) {
                    (stored, sent) = (before, rest);
                } else if ours.answer.is_none() {
                    stored = before;
                } else if theirs.answer.is_none() {
                    sent = rest;
                } else {
                    return false;
                }
            }
        }
    }
}

/// A stream also has the texts before tool calls, and an answer may have been the request for an
/// approval.
fn is_same(ours: &Exchange, theirs: &Exchange) -> bool {
    let is_same_answer = match (&ours.answer, &theirs.answer) {
        (Some(ours), Some(theirs)) => {
            theirs.ends_with(ours.as_str()) || theirs.starts_with(TurnResult::APPROVAL_PREFIX)
        }
        (None, _) | (_, None) => true,
    };
    ours.user == theirs.user && is_same_answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `U` is a message, followed by its answer after `=`.
    fn exchanges(text: &str) -> Vec<Exchange> {
        text.split_whitespace()
            .map(|one| match one.split_once('=') {
                Some((user, answer)) => {
                    Exchange { user: user.to_owned(), answer: Some(answer.to_owned()) }
                }
                None => Exchange { user: one.to_owned(), answer: None },
            })
            .collect()
    }

    #[test]
    fn a_history_is_known_if_the_stored_conversation_ends_with_it() {
        for (stored, sent, is_known) in [
            ("a=1 b=2", "a=1 b=2", true),
            ("a=1 b=2", "b=2", true),
            ("a=1 b=2", "", true),
            // Edited, regenerated, another conversation, one message more.
            ("a=1 b=2", "a=1 c=2", false),
            ("a=1 b=2", "a=1 b=3", false),
            ("a=1 b=2", "a=1", false),
            ("a=1", "c=2", false),
            ("a=1", "c=2 a=1", false),
            // A turn failed, a request was refused, both; the message was sent again.
            ("a=1 b", "a=1", true),
            ("a=1", "a=1 b", true),
            ("a=1 b b=2", "a=1 b=2", true),
            ("a=1 b", "a=1 c", true),
            ("a=1", "z a=1", true),
            // Text before a tool call.
            ("a=1", "a=so1", true),
        ] {
            let known = ends_with(&exchanges(stored), &exchanges(sent), true);
            assert_eq!(known, is_known, "{stored} | {sent}");
        }
        assert!(ends_with(&exchanges("b=2"), &exchanges("a=1 b=2"), false));
    }

    #[test]
    fn both_sides_are_read_alike() {
        let heard = |text: &str| Entry::Heard { seq: 1, body: Body::text(text) };
        let journal = [
            heard("old"),
            Entry::noted(Note::Reset, ""),
            heard("/status"),
            heard("hi  there\r\n"),
            Entry::Thought {
                text: "hello".to_owned(),
                calls: Vec::new(),
                usage: holdfast_types::Usage::default(),
                model: String::new(),
                carry: None,
                record: None,
            },
        ];
        let turns = [
            ConversationMessage::text_only(Role::System, "be kind".to_owned()),
            ConversationMessage::text_only(Role::User, "hi there".to_owned()),
            ConversationMessage::text_only(Role::Assistant, "hello\n".to_owned()),
        ];

        assert_eq!(stored(journal.iter()), sent(&turns));
        assert_eq!(stored(journal.iter()).len(), 1);
        let roles: Vec<_> = bodies(journal.clone().into_iter(), 10)
            .into_iter()
            .map(|body| (body.role.unwrap(), body.text))
            .collect();
        assert_eq!(
            roles,
            [("user".to_owned(), "hi  there\r\n".to_owned()), ("assistant".into(), "hello".into())]
        );
        let joined = bodies(journal.into_iter(), 1).remove(0).text;
        assert_eq!(joined, format!("{JOINED_PREFIX}user: hi  there\r\n\nassistant: hello"));
    }
}
