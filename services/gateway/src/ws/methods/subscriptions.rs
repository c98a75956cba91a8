//! `events.*` of LurkBot's protocol: which events a connection wants.

use serde::Deserialize;
use serde_json::json;

use super::{super::call::Call, Method, READ, Reply, method, sessions::NoParams};
use crate::permissions::rights::ConversationRight;
use crate::ws::{error::MethodError, keys};

pub const METHODS: &[Method] = &[
    method!("events.subscribe", READ, subscribe),
    method!("events.unsubscribe", READ, unsubscribe),
];

/// Beginnings of names that one connection may give.
const MAX_PREFIXES: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SubscribeParams {
    session_key: Option<String>,
    /// Beginnings of names; empty is all. A `*` at the end means the same as nothing.
    #[serde(default)]
    events: Vec<String>,
}

/// Limits the events to one session, to names with these beginnings, or both.
async fn subscribe(call: Call, params: SubscribeParams) -> Reply {
    if params.events.len() > MAX_PREFIXES {
        return Err(MethodError::invalid(format!(
            "invalid events.subscribe params: events: {MAX_PREFIXES} at most"
        )));
    }
    let session_filter = match params.session_key {
        Some(key) => {
            Some(keys::shown(call.place("", &key, ConversationRight::Read).await?.key.as_str()))
        }
        None => None,
    };
    let mut subscriptions = call.connection.subscriptions();
    subscriptions.session_filter = session_filter;
    subscriptions.prefixes =
        params.events.iter().map(|name| name.trim_end_matches('*').to_owned()).collect();
    drop(subscriptions);
    Ok(json!({ "subscribed": true }))
}

/// All events are sent again.
async fn unsubscribe(call: Call, NoParams {}: NoParams) -> Reply {
    let mut subscriptions = call.connection.subscriptions();
    (subscriptions.session_filter, subscriptions.prefixes) = (None, Vec::new());
    drop(subscriptions);
    Ok(json!({ "subscribed": true }))
}
