//! Messages for tests.

use std::collections::BTreeSet;

use holdfast_types::ChatMessage;
use proptest::prelude::*;

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

/// Exchanges: a user's message, calls with their results, an answer.
pub(crate) fn conversation() -> impl Strategy<Value = Vec<ChatMessage>> {
    let id = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let calls = prop::collection::btree_set(id(), 1..3).prop_map(|ids| {
        let ids: Vec<&str> = ids.into_iter().collect();
        [vec![asks_for(&ids)], ids.iter().map(|id| result(id)).collect()].concat()
    });
    let exchange = (prop::collection::vec(calls, 0..3), any::<bool>()).prop_map(|(calls, ends)| {
        let answer = ends.then(|| says("s"));
        [vec![user("u")], calls.concat(), answer.into_iter().collect()].concat()
    });
    prop::collection::vec(exchange, 0..12).prop_map(|exchanges| exchanges.concat())
}
