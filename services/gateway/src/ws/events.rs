//! Events of a tenant, rendered once for all connections of a protocol.

use serde_json::{Value, json};
use uuid::Uuid;

/// Connections that get an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// All that may read.
    Readers,
    /// Those that have subscribed to changes of the list of sessions.
    SessionList,
    /// Those that may read the session, and the one that started the run.
    Session {
        /// Key in the form in which clients know it.
        key: String,
        starter: Option<Uuid>,
        /// Whether only clients that show tool calls get it.
        is_tool_stream: bool,
    },
    /// All that may decide about approvals, and all that may read.
    Approvers,
    /// Connections that may manage a device.
    Pairing { device: String },
}

/// Something that happened, as clients are told.
#[derive(Debug, Clone)]
pub struct Event {
    /// Name in OpenClaw's protocol; empty if it has none.
    pub openclaw: &'static str,
    /// Name in LurkBot's protocol; empty if it has none.
    pub lurkbot: &'static str,
    /// JSON.
    payload: String,
    pub audience: Audience,
    /// Whether a later event makes it superfluous.
    pub is_droppable: bool,
}

impl Event {
    pub fn new(
        (openclaw, lurkbot): (&'static str, &'static str),
        payload: &Value,
        audience: Audience,
    ) -> Self {
        let payload = payload.to_string();
        Self { openclaw, lurkbot, payload, audience, is_droppable: false }
    }

    #[must_use]
    pub fn droppable(self) -> Self {
        Self { is_droppable: true, ..self }
    }

    pub fn tick(now_ms: i64) -> Self {
        Self::new(("tick", ""), &json!({ "ts": now_ms }), Audience::Readers).droppable()
    }

    pub fn shutdown() -> Self {
        let payload = json!({ "reason": "the gateway is stopping", "restartExpectedMs": 2_000 });
        Self::new(("shutdown", "gateway.shutdown"), &payload, Audience::Readers)
    }

    /// Frame of OpenClaw's protocol.
    pub fn openclaw_frame(&self, seq: u64) -> String {
        let Self { openclaw: name, payload, .. } = self;
        format!(r#"{{"type":"event","event":"{name}","payload":{payload},"seq":{seq}}}"#)
    }

    /// Frame of LurkBot's protocol. Ids are UUIDs of version 7, which sort by time.
    pub fn lurkbot_frame(&self, now_ms: i64) -> String {
        let Self { lurkbot: name, payload, .. } = self;
        let id = Uuid::now_v7();
        let session = self.session_key().map(|key| {
            // A text can always be serialized as JSON.
            format!(r#","sessionKey":{}"#, Value::String(key.to_owned()))
        });
        let session = session.unwrap_or_default();
        format!(
            r#"{{"id":"{id}","type":"event","at":{now_ms},"event":"{name}","payload":{payload}{session}}}"#
        )
    }

    pub fn session_key(&self) -> Option<&str> {
        match &self.audience {
            Audience::Session { key, .. } => Some(key),
            Audience::Readers
            | Audience::SessionList
            | Audience::Approvers
            | Audience::Pairing { .. } => None,
        }
    }
}

/// Name of the frames of a subscription to the durable log, in both protocols.
pub const LOG_EVENT: &str = "events.log";

/// Names of OpenClaw's protocol that are sent.
pub const OPENCLAW_EVENTS: &[&str] = &[
    "connect.challenge",
    "agent",
    "chat",
    "presence",
    "tick",
    "shutdown",
    "health",
    "cron",
    "session.message",
    "sessions.changed",
    "exec.approval.requested",
    "exec.approval.resolved",
    LOG_EVENT,
    "device.pair.requested",
    "device.pair.resolved",
];

/// Families of events of LurkBot's protocol.
pub const LURKBOT_EVENTS: &[&str] = &["agent.*", "session.*", "cron.*", "config.*", LOG_EVENT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_frame_of_each_protocol() {
        let audience =
            Audience::Session { key: "agent:a:main".into(), starter: None, is_tool_stream: false };
        let event = Event::new(("chat", "agent.reply"), &json!({"a": "\"b\""}), audience);

        let frame: Value = serde_json::from_str(&event.openclaw_frame(7)).unwrap();
        assert_eq!(
            frame,
            json!({"type": "event", "event": "chat", "payload": {"a": "\"b\""}, "seq": 7})
        );
        let frame: Value = serde_json::from_str(&event.lurkbot_frame(5)).unwrap();
        assert_eq!(
            (&frame["at"], &frame["event"], &frame["sessionKey"]),
            (&json!(5), &json!("agent.reply"), &json!("agent:a:main"))
        );
        assert!(Uuid::try_parse(frame["id"].as_str().unwrap()).is_ok());
    }
}
