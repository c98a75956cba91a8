//! Actions that channels support.

use serde_json::Value;

use super::{TELEGRAM, WEBHOOK};

/// Actions for which Telegram's Bot API has a method (<https://core.telegram.org/bots/api>).
const TELEGRAM_ACTIONS: &[&str] =
    &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread"];

/// Actions that a webhook receiver can be sent.
const WEBHOOK_ACTIONS: &[&str] =
    &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread", "event", "embed"];

/// Returns the actions that an account with these settings supports, by their names in the tool
/// `message`.
#[must_use]
pub fn supported_actions(channel: &str, settings: &Value) -> &'static [&'static str] {
    match channel {
        TELEGRAM => TELEGRAM_ACTIONS,
        // A receiver that was written for texts would show an empty one.
        WEBHOOK if settings["actions"] == Value::Bool(true) => WEBHOOK_ACTIONS,
        _ => &["send"],
    }
}

/// Returns the capabilities of a channel, by their names in the prompt (spec SYS-014). On both
/// channels a reply can quote a message.
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
        assert_eq!(supported_actions(WEBHOOK, &json!({})), ["send"]);
        assert!(supported_actions(WEBHOOK, &json!({"actions": true})).contains(&"event"));
        assert!(!supported_actions(TELEGRAM, &json!({})).contains(&"event"));
    }
}
