//! Order of a prompt (CTX-006): the instructions (stable part, dynamic part, summary), then the
//! conversation, then the current message.

use holdfast_types::ChatMessage;

use crate::history::introduced;

/// Separator between the parts of the instructions.
pub const SEPARATOR: &str = "\n\n---\n\n";

/// Joins the non-blank parts of the instructions, for providers that accept a single text.
#[must_use]
pub fn system_text(stable: &str, dynamic: &str, summary: Option<&str>) -> String {
    let summary = summary.map(introduced).unwrap_or_default();
    let parts = [stable, dynamic, &summary];
    let room = parts.iter().map(|part| part.len() + SEPARATOR.len()).sum();
    let mut text = String::with_capacity(room);
    for part in parts.into_iter().filter(|part| !part.trim().is_empty()) {
        if !text.is_empty() {
            text.push_str(SEPARATOR);
        }
        text.push_str(part);
    }
    text
}

/// Appends the current message, unless it is blank or already there (CTX-006, CTX-016).
///
/// An equal last message without an answer is the current one: callers may read the history after
/// the message was stored.
#[must_use]
pub fn with_current(mut history: Vec<ChatMessage>, current: &str) -> Vec<ChatMessage> {
    let is_there =
        matches!(history.last(), Some(ChatMessage::User { text, .. }) if text == current);
    if !is_there && !current.trim().is_empty() {
        history.push(ChatMessage::user(current.to_owned()));
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn assistant(text: &str) -> ChatMessage {
        ChatMessage::assistant(text, Vec::new())
    }

    #[test]
    fn the_instructions_are_stable_then_dynamic_then_summary() {
        let text = system_text("S", "D", Some(" they met "));

        assert_eq!(text, format!("S\n\n---\n\nD\n\n---\n\n{}", introduced("they met")));
        assert!(text.ends_with("they are right.\n\nthey met"));
        assert_eq!(system_text("S", "  ", None), "S");
        assert_eq!(system_text("", "", None), "");
    }

    #[test]
    fn what_is_said_now_stands_at_the_end_once() {
        let history = vec![user("hi"), assistant("hello")];

        let stored_before = [history.as_slice(), &[user("and?")]].concat();
        let read_before = with_current(history, "and?");
        let read_after = with_current(stored_before, "and?");

        assert_eq!(read_before, [user("hi"), assistant("hello"), user("and?")]);
        assert_eq!(read_after, read_before);
        assert_eq!(with_current(vec![user("hi"), assistant("x")], "hi").len(), 3);
    }

    #[test]
    fn nothing_is_added_for_a_blank_message() {
        assert_eq!(with_current(vec![assistant("x")], " \n"), [assistant("x")]);
    }
}
