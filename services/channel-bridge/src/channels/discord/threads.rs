//! Known threads and their channels: Discord addresses both alike.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use super::client::{CallError, Rest, is_id};

/// Number of channels that are remembered.
const MAX_KNOWN: usize = 50_000;

/// Types of channels that are threads
/// (<https://discord.com/developers/docs/resources/channel#channel-object-channel-types>).
const THREAD_TYPES: std::ops::RangeInclusive<u64> = 10..=12;

/// Known channels: the parent of a thread, `None` for others.
#[derive(Debug, Default)]
pub(super) struct ThreadIndex(Mutex<HashMap<String, Option<String>>>);

impl ThreadIndex {
    /// Remembers a channel that an event described.
    pub(super) fn learn(&self, channel: &Value) {
        let Some(id) = channel["id"].as_str() else { return };
        let is_thread = channel["type"].as_u64().is_some_and(|kind| THREAD_TYPES.contains(&kind));
        let parent = channel["parent_id"].as_str().filter(|_| is_thread).map(str::to_owned);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(id.to_owned(), parent);
    }

    /// Returns the parent of a thread; `None` for another channel.
    pub(super) async fn parent(&self, rest: &Rest, id: &str) -> Result<Option<String>, CallError> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        if let Some(parent) = known {
            return Ok(parent);
        }
        if !is_id(id) {
            return Ok(None);
        }
        let channel = rest.get(&format!("/channels/{id}")).await?;
        self.learn(&channel);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.get(id).cloned().flatten())
    }
}
