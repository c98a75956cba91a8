//! Settings and secrets of channel accounts.
//!
//! docs/channels.md is the reference. A channel is one file here, and one entry in [`CHANNELS`].
//! Settings are checked when they are stored, and the bridge
//! reads them with the same structs. Unknown fields are refused with a list of the known ones. No
//! error repeats a secret or a text value, which may be a secret in the wrong field.

mod allow_list;
mod concealed;
mod discord;
mod email;
mod field_errors;
mod groups;
mod irc;
mod matrix;
mod slack;
mod streaming;
mod telegram;
mod webhook;
mod whatsapp;
mod widget;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

pub use allow_list::AllowList;
pub use concealed::concealed;
pub use discord::{DiscordSecrets, DiscordSettings};
pub use email::{EmailSecrets, EmailSettings, MailAuthentication, MailSecurity, MailServer};
pub use groups::GroupSettings;
pub use irc::{IrcIdentity, IrcSecrets, IrcSettings};
pub use matrix::{MatrixMode, MatrixSecrets, MatrixSettings};
pub use slack::{SlackMode, SlackSecrets, SlackSettings};
pub use streaming::Streaming;
pub use telegram::{ReplyFormat, TelegramSecrets, TelegramSettings, UpdateMode};
pub use webhook::{WebhookSecrets, WebhookSettings};
pub use whatsapp::{WhatsappSecrets, WhatsappSettings};
pub use widget::{WidgetSecrets, WidgetSettings};

/// A kind of channel.
#[derive(Debug)]
pub struct ChannelKind {
    /// Name in commands, session keys and paths: `telegram`.
    pub name: &'static str,
    /// Secrets that every account needs. The first one is the account's own credential.
    pub required_secrets: &'static [&'static str],
    /// Names of all secrets that an account can have.
    secrets: fn() -> &'static [&'static str],
    /// JSON schema of the settings.
    schema: fn() -> Value,
    /// Checks settings and secrets as the bridge reads them.
    check: fn(&Value, &Value) -> Result<(), UnusableAccount>,
    /// Actions that an account with these settings supports, by their names in the tool `message`.
    actions: fn(&Value) -> &'static [&'static str],
    /// Capabilities, by their names in the prompt (spec SYS-014).
    capabilities: &'static [&'static str],
}

impl ChannelKind {
    /// Names of all secrets that an account can have, of which some may depend on its settings.
    #[must_use]
    pub fn secrets(&self) -> &'static [&'static str] {
        (self.secrets)()
    }

    /// JSON schema of the settings, with descriptions for people.
    #[must_use]
    pub fn settings_schema(&self) -> Value {
        (self.schema)()
    }
}

/// JSON schema of a type, without references, as forms are made of it.
fn schema_of<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// All channels.
pub static CHANNELS: [&ChannelKind; 9] = [
    &telegram::KIND,
    &webhook::KIND,
    &irc::KIND,
    &discord::KIND,
    &slack::KIND,
    &matrix::KIND,
    &email::KIND,
    &whatsapp::KIND,
    &widget::KIND,
];

/// Name of the Telegram channel.
pub const TELEGRAM: &str = telegram::KIND.name;

/// Name of the signed webhook channel.
pub const WEBHOOK: &str = webhook::KIND.name;

/// Name of the Discord channel.
pub const DISCORD: &str = discord::KIND.name;

/// Name of the Slack channel.
pub const SLACK: &str = slack::KIND.name;

/// Name of the IRC channel.
pub const IRC: &str = irc::KIND.name;

/// Name of the web widget channel.
pub const WIDGET: &str = widget::KIND.name;

/// Name of the WhatsApp channel.
pub const WHATSAPP: &str = whatsapp::KIND.name;

/// Name of the e-mail channel.
pub const EMAIL: &str = email::KIND.name;

/// Name of the Matrix channel.
pub const MATRIX: &str = matrix::KIND.name;

/// Capability: a reply can quote a message.
const REPLY_TAGS: &str = "replyTags";

/// Reason why an account cannot be served, naming the field and the expected value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableAccount(pub(crate) String);

/// Checks that the channel's bridge can use the account.
pub(crate) fn check(
    channel: &str,
    settings: &Value,
    secrets: &Value,
) -> Result<(), UnusableAccount> {
    concealed::check(settings)?;
    // The caller has checked the channel.
    kind(channel).map_or(Ok(()), |kind| (kind.check)(settings, secrets))
}

/// Returns the channel with this name.
#[must_use]
pub fn kind(name: &str) -> Option<&'static ChannelKind> {
    CHANNELS.iter().find(|kind| kind.name == name).copied()
}

/// Returns the actions that an account with these settings supports, by their names in the tool
/// `message`.
#[must_use]
pub fn supported_actions(channel: &str, settings: &Value) -> &'static [&'static str] {
    kind(channel).map_or(&["send"], |kind| (kind.actions)(settings))
}

/// Returns the capabilities of a channel, by their names in the prompt (spec SYS-014).
#[must_use]
pub fn capabilities(channel: &str) -> &'static [&'static str] {
    kind(channel).map_or(&[], |kind| kind.capabilities)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secrets_of_a_channel_are_the_fields_that_it_reads() {
        let slack = kind(SLACK).unwrap();
        assert_eq!(slack.secrets(), ["bot_token", "app_token", "signing_secret"]);
        for kind in CHANNELS {
            assert!(!kind.secrets().is_empty(), "{}", kind.name);
            for required in kind.required_secrets {
                assert!(kind.secrets().contains(required), "{} {required}", kind.name);
            }
        }
    }

    #[test]
    fn a_webhook_is_sent_texts_unless_it_says_that_it_understands_more() {
        assert_eq!(supported_actions(WEBHOOK, &json!({})), ["send"]);
        assert!(supported_actions(WEBHOOK, &json!({"actions": true})).contains(&"event"));
        assert!(!supported_actions(TELEGRAM, &json!({})).contains(&"event"));
    }
}
