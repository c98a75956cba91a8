//! Repair of imported message lists, so that providers accept them (CTX-015).
//!
//! The journal's own conversation is valid already; this is for imported, seeded or forwarded
//! messages.
//!
//! | in the list | result |
//! |---|---|
//! | an assistant's message with calls that follows neither a user nor a tool | removed with its results |
//! | a result without a call | removed |
//! | a second result of a call | removed |
//! | a call without a result | a failed result is added |
//! | a result after other messages | moved right after its call's message |
//! | an assistant's message without text or calls | removed |

use std::collections::BTreeMap;

use holdfast_types::ChatMessage;

use crate::history::CALL_NOT_MADE;

/// Repairs a list of messages: each call has exactly one result, before any other message.
#[must_use]
pub fn sanitised(messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let mut clean: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        let ChatMessage::Assistant { text, calls, .. } = &message else {
            if matches!(message, ChatMessage::User { .. }) {
                clean.push(message);
            }
            continue;
        };
        if calls.is_empty() {
            if !text.trim().is_empty() {
                clean.push(message);
            }
            continue;
        }
        let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        let follows =
            matches!(clean.last(), Some(ChatMessage::User { .. } | ChatMessage::Tool { .. }));
        let (mut results, mut others) = (BTreeMap::new(), Vec::new());
        // Results belong to a call only up to the next message with calls: ids may be reused after
        // it.
        while let Some(next) = rest.next_if(|next| !asks(next)) {
            match next {
                ChatMessage::Tool { ref call, .. } => {
                    results.entry(call.clone()).or_insert(next);
                }
                ChatMessage::User { .. } | ChatMessage::Assistant { .. } => others.push(next),
            }
        }
        if follows {
            clean.push(message);
            clean.extend(ids.into_iter().map(|id| {
                results.remove(&id).unwrap_or_else(|| ChatMessage::Tool {
                    call: id,
                    output: CALL_NOT_MADE.to_owned(),
                    failed: true,
                })
            }));
        }
        let says = |other: &ChatMessage| match other {
            ChatMessage::Assistant { text, .. } => !text.trim().is_empty(),
            ChatMessage::User { .. } | ChatMessage::Tool { .. } => true,
        };
        clean.extend(others.into_iter().filter(says));
    }
    clean
}

fn asks(message: &ChatMessage) -> bool {
    matches!(message, ChatMessage::Assistant { calls, .. } if !calls.is_empty())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::turn::tests::call;

    pub(crate) fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    pub(crate) fn says(text: &str) -> ChatMessage {
        ChatMessage::assistant(text, Vec::new())
    }

    pub(crate) fn asks_for(ids: &[&str]) -> ChatMessage {
        let calls = ids.iter().map(|id| call(id, "t")).collect();
        ChatMessage::assistant(String::new(), calls)
    }

    pub(crate) fn result(id: &str) -> ChatMessage {
        ChatMessage::Tool { call: id.into(), output: "out".into(), failed: false }
    }

    /// Whether every provider accepts the list: each call has one immediate result, and each
    /// assistant message with calls follows a user or a tool.
    pub(crate) fn is_valid(messages: &[ChatMessage]) -> bool {
        let mut open: BTreeSet<&str> = BTreeSet::new();
        let mut before: Option<&ChatMessage> = None;
        messages.iter().all(|message| {
            let is_right = match message {
                ChatMessage::User { .. } => open.is_empty(),
                ChatMessage::Tool { call, .. } => open.remove(call.as_str()),
                ChatMessage::Assistant { calls, .. } => {
                    let follows = calls.is_empty()
                        || before.is_some_and(|b| !matches!(b, ChatMessage::Assistant { .. }));
                    let was_closed = open.is_empty();
                    open.extend(calls.iter().map(|call| call.id.as_str()));
                    follows && was_closed
                }
            };
            before = Some(message);
            is_right
        }) && open.is_empty()
    }

    #[test]
    fn results_of_no_call_and_second_results_are_dropped() {
        let messages = vec![
            result("x"),
            user("hi"),
            asks_for(&["a"]),
            result("a"),
            result("a"),
            result("b"),
            says("done"),
        ];

        assert_eq!(sanitised(messages), [user("hi"), asks_for(&["a"]), result("a"), says("done")]);
    }

    #[test]
    fn calls_that_follow_neither_a_user_nor_a_tool_go_with_their_results() {
        let first = vec![asks_for(&["a"]), result("a"), user("hi")];
        let after_words = vec![user("hi"), says("x"), asks_for(&["a"]), result("a"), user("y")];

        assert_eq!(sanitised(first), [user("hi")]);
        assert_eq!(sanitised(after_words), [user("hi"), says("x"), user("y")]);
    }

    #[test]
    fn a_call_without_a_result_gets_one_that_failed_and_a_late_one_its_place() {
        let messages = vec![user("hi"), asks_for(&["a", "b"]), user("hurry"), result("b")];

        let clean = sanitised(messages);

        let missing =
            ChatMessage::Tool { call: "a".into(), output: CALL_NOT_MADE.into(), failed: true };
        assert_eq!(clean, [user("hi"), asks_for(&["a", "b"]), missing, result("b"), user("hurry")]);
    }

    pub(crate) fn message() -> impl Strategy<Value = ChatMessage> {
        let id = || prop_oneof![Just("a"), Just("b"), Just("c")];
        prop_oneof![
            Just(user("u")),
            prop_oneof![Just(""), Just("s")].prop_map(says),
            prop::collection::btree_set(id(), 1..3)
                .prop_map(|ids| asks_for(&ids.into_iter().collect::<Vec<_>>())),
            id().prop_map(result),
        ]
    }

    proptest! {
        #[test]
        fn whatever_comes_in_every_provider_takes_what_goes_out(
            messages in prop::collection::vec(message(), 0..30),
        ) {
            let users = |list: &[ChatMessage]| list.iter().filter(|m| **m == user("u")).count();
            let before = users(&messages);

            let clean = sanitised(messages);

            prop_assert!(is_valid(&clean), "{clean:?}");
            prop_assert_eq!(users(&clean), before);
            prop_assert_eq!(sanitised(clean.clone()), clean);
        }
    }
}
