//! Messages from users to a bot.

use serde_json::{Value, json};

/// A message on its way to a bot.
#[derive(Debug, Clone)]
pub struct Incoming {
    chat: i64,
    user: i64,
    text: String,
    topic: Option<i64>,
    reply_to: Option<i64>,
    pub(super) edited: Option<i64>,
}

impl Incoming {
    /// In a chat with the bot alone, which has its user's number.
    pub fn private(user: i64, text: impl Into<String>) -> Self {
        Self { chat: user, user, text: text.into(), topic: None, reply_to: None, edited: None }
    }

    /// In a group, whose number is negative. `@name` and `/command` in the text become entities.
    pub fn group(chat: i64, user: i64, text: impl Into<String>) -> Self {
        Self { chat, ..Self::private(user, text) }
    }

    /// In a topic of a forum.
    #[must_use]
    pub const fn topic(mut self, topic: i64) -> Self {
        self.topic = Some(topic);
        self
    }

    /// In reply to a message.
    #[must_use]
    pub const fn reply_to(mut self, message_id: i64) -> Self {
        self.reply_to = Some(message_id);
        self
    }

    /// As the new text of a message that was sent before.
    #[must_use]
    pub const fn edited(mut self, message_id: i64) -> Self {
        self.edited = Some(message_id);
        self
    }

    pub(super) fn update(&self, message_id: i64) -> Value {
        let mut chat = json!({"id": self.chat, "type": "private", "first_name": "Test"});
        if self.chat < 0 {
            chat = json!({"id": self.chat, "type": "supergroup", "title": "Tests"});
        }
        let mut message = json!({
            "message_id": message_id, "date": 1_800_000_000, "text": self.text, "chat": chat,
            "from": {"id": self.user, "is_bot": false, "first_name": "Test",
                     "username": format!("user{}", self.user)},
        });
        let entities = entities(&self.text);
        if !entities.is_empty() {
            message["entities"] = Value::Array(entities);
        }
        if let Some(topic) = self.topic {
            message["chat"]["is_forum"] = json!(true);
            message["is_topic_message"] = json!(true);
            message["message_thread_id"] = json!(topic);
        }
        if let Some(replied) = self.reply_to {
            message["reply_to_message"] =
                json!({"message_id": replied, "date": 1_800_000_000, "chat": message["chat"]});
        }
        if self.edited.is_some() {
            message["edit_date"] = json!(1_800_000_001);
            return json!({"edited_message": message});
        }
        json!({"message": message})
    }
}

/// Mentions and commands, at offsets in UTF-16 units, as Telegram counts.
fn entities(text: &str) -> Vec<Value> {
    let mut offset = 0;
    let mut found = Vec::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let units = word.encode_utf16().count();
        let name = word.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '_'));
        let kind = match name.chars().next() {
            Some('@') => Some("mention"),
            Some('/') => Some("bot_command"),
            _ => None,
        };
        if let Some(kind) = kind {
            let length = name.encode_utf16().count();
            found.push(json!({"type": kind, "offset": offset, "length": length}));
        }
        offset += units;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_counted_in_utf16_units() {
        let found = entities("👋 @holdfast_bot, /new");

        assert_eq!(
            found,
            [
                json!({"type": "mention", "offset": 3, "length": 13}),
                json!({"type": "bot_command", "offset": 18, "length": 4}),
            ]
        );
    }
}
