//! Objects of Matrix's APIs, with the fields that the bridge reads.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    pub user_id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub event_id: String,
    /// Only in what is pushed to an application service.
    #[serde(default)]
    pub room_id: String,
    #[serde(default)]
    pub sender: String,
    /// Milliseconds since 1970, as the sender's server says.
    #[serde(default)]
    pub origin_server_ts: i64,
    #[serde(default)]
    pub content: Value,
    #[serde(default)]
    pub state_key: Option<String>,
    #[serde(default)]
    pub unsigned: Value,
}

impl Event {
    /// Returns the membership that the event gives to a user.
    pub fn membership_of(&self, user: &str) -> Option<&str> {
        let is_theirs = self.kind == "m.room.member" && self.state_key.as_deref() == Some(user);
        self.content["membership"].as_str().filter(|_| is_theirs)
    }

    /// Returns the relation of the event to another: its kind, and the other's id.
    pub fn relation(&self) -> Option<(&str, &str)> {
        let relation = &self.content["m.relates_to"];
        Some((relation["rel_type"].as_str()?, relation["event_id"].as_str()?))
    }

    /// Returns the id of the message that the event answers. In a thread it counts only if the
    /// sender chose it.
    pub fn replied_id(&self) -> Option<&str> {
        let relation = &self.content["m.relates_to"];
        let is_fallback = relation["is_falling_back"].as_bool().unwrap_or_default();
        relation["m.in_reply_to"]["event_id"].as_str().filter(|_| !is_fallback)
    }
}

#[derive(Debug, Deserialize)]
pub struct SyncResponse {
    pub next_batch: String,
    #[serde(default)]
    pub rooms: Rooms,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rooms {
    pub join: HashMap<String, JoinedRoom>,
    pub invite: HashMap<String, InvitedRoom>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JoinedRoom {
    pub timeline: Timeline,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timeline {
    #[serde(deserialize_with = "readable_events")]
    pub events: Vec<Event>,
    /// Whether there are more events before these.
    pub limited: bool,
    pub prev_batch: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct InvitedRoom {
    pub invite_state: InviteState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct InviteState {
    #[serde(deserialize_with = "readable_events")]
    pub events: Vec<Event>,
}

/// Part of a room's history.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct History {
    #[serde(deserialize_with = "readable_events")]
    pub chunk: Vec<Event>,
    /// Where the history goes on; `None` at its end.
    pub end: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Members {
    pub joined: HashMap<String, Value>,
}

/// Transaction that a homeserver pushes to an application service.
#[derive(Debug, Deserialize)]
pub struct Transaction {
    #[serde(default, deserialize_with = "readable_events")]
    pub events: Vec<Event>,
}

/// Reads events, without those that are none: one of a stranger must not hold up all others.
fn readable_events<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    let events = Vec::<Value>::deserialize(deserializer)?;
    Ok(events.into_iter().filter_map(|event| serde_json::from_value(event).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_none_holds_up_no_others() {
        let read: Transaction = serde_json::from_str(
            r#"{"events": [{"type": 7}, {"type": "a", "event_id": "$1"}, null]}"#,
        )
        .unwrap();

        assert_eq!(
            read.events.iter().map(|event| event.event_id.as_str()).collect::<Vec<_>>(),
            ["$1"]
        );
    }
}
