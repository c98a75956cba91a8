//! What an account's owner chooses on each channel: settings, which can be read back, and secrets.
//!
//! docs/channels.md is the reference. Settings are checked when they are stored, and read by the
//! bridge with the same structs. What is unknown is refused, with what may be written instead; no
//! error repeats a secret, or a value, which may be a secret in the wrong place.

mod acts;
mod allow;
mod blame;
mod telegram;
mod webhook;

use serde_json::Value;

pub use acts::{acts, capabilities};
pub use allow::AllowList;
pub use telegram::{Groups, Mode, Parse, TelegramSecrets, TelegramSettings};
pub use webhook::{WebhookSecrets, WebhookSettings};

/// Telegram's name.
pub const TELEGRAM: &str = "telegram";

/// The signed webhook's name.
pub const WEBHOOK: &str = "webhook";

/// The channels that there are, and the secret that an account on each cannot do without.
pub const CHANNELS: [(&str, &str); 2] = [(TELEGRAM, "token"), (WEBHOOK, "secret")];

/// Why an account could not be served: the field, and what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);

/// Refuses what the channel's bridge could not use.
pub(crate) fn check(channel: &str, settings: &Value, secrets: &Value) -> Result<(), Unusable> {
    match channel {
        TELEGRAM => TelegramSettings::read(settings, secrets).map(drop),
        WEBHOOK => WebhookSettings::read(settings, secrets).map(drop),
        // Which channels there are was checked before.
        _ => Ok(()),
    }
}
