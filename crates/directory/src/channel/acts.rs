//! What an agent can do on a channel, and what the channel can.

use serde_json::Value;

use super::{TELEGRAM, WEBHOOK};

/// What Telegram's Bot API has a method for (<https://core.telegram.org/bots/api>).
const ON_TELEGRAM: &[&str] =
    &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread"];

/// What a program can be told of.
const ON_WEBHOOK: &[&str] =
    &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread", "event", "embed"];

/// What an agent can do on an account with these settings, by the names that its tool `message`
/// has for it.
#[must_use]
pub fn acts(channel: &str, settings: &Value) -> &'static [&'static str] {
    match channel {
        TELEGRAM => ON_TELEGRAM,
        // A program that was written for texts would show an empty one.
        WEBHOOK if settings["actions"] == Value::Bool(true) => ON_WEBHOOK,
        _ => &["send"],
    }
}

/// What a channel is capable of, by the names that the prompt has for it (spec SYS-014): on both a
/// reply can quote a message.
#[must_use]
pub fn capabilities(channel: &str) -> &'static [&'static str] {
    match channel {
        TELEGRAM | WEBHOOK => &["replyTags"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_is_sent_texts_unless_it_says_that_it_understands_more() {
        assert_eq!(acts(WEBHOOK, &json!({})), ["send"]);
        assert!(acts(WEBHOOK, &json!({"actions": true})).contains(&"event"));
        assert!(!acts(TELEGRAM, &json!({})).contains(&"event"));
    }
}
