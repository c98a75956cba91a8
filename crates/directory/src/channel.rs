//! Settings and secrets of channel accounts.
//!
//! docs/channels.md is the reference. Settings are checked when they are stored, and the bridge
//! reads them with the same structs. Unknown fields are refused with a list of the known ones. No
//! error repeats a secret or a text value, which may be a secret in the wrong field.

mod actions;
mod allow_list;
mod field_errors;
mod telegram;
mod webhook;

use serde_json::Value;

pub use actions::{capabilities, supported_actions};
pub use allow_list::AllowList;
pub use telegram::{GroupSettings, ReplyFormat, TelegramSecrets, TelegramSettings, UpdateMode};
pub use webhook::{WebhookSecrets, WebhookSettings};

/// Name of the Telegram channel.
pub const TELEGRAM: &str = "telegram";

/// Name of the signed webhook channel.
pub const WEBHOOK: &str = "webhook";

/// Channels, each with the secret that its accounts require.
pub const CHANNELS: [(&str, &str); 2] = [(TELEGRAM, "token"), (WEBHOOK, "secret")];

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
    match channel {
        TELEGRAM => TelegramSettings::read(settings, secrets).map(drop),
        WEBHOOK => WebhookSettings::read(settings, secrets).map(drop),
        // The caller has checked the channel.
        _ => Ok(()),
    }
}
