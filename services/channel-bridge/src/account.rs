//! What an account's owner chooses: settings and secrets, as the directory stores them.
//!
//! docs/channels.md is the reference. What is unknown is refused, and an error
//! never repeats a secret.

mod allow;

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

pub use allow::AllowList;

/// Why an account cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Its settings are not understood.
    #[error("its settings cannot be used: {0}")]
    Settings(String),
    /// Its secrets are not understood.
    #[error("its secrets cannot be used: {0}")]
    Secrets(&'static str),
    /// Nobody serves its kind of channel.
    #[error("`{0}` is no channel that this bridge serves")]
    Channel(String),
}

/// The settings of a Telegram account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelegramSettings {
    /// How updates come.
    pub mode: Mode,
    /// Who may write to the bot.
    pub allow: AllowList,
    /// Which groups it listens to, and when it answers there.
    pub groups: Groups,
    /// How replies are formatted.
    pub parse: Parse,
    /// Another server of the Bot API than the installation's.
    pub api_base: Option<String>,
}

/// How a bot's updates come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The bridge asks for them.
    #[default]
    Poll,
    /// Telegram calls the bridge.
    Webhook,
}

/// A bot in groups.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// It answers only where it is mentioned; the rest is heard and not answered.
    pub mention_only: bool,
    /// The groups that it listens to; everybody in them may write.
    pub allow: AllowList,
}

impl Default for Groups {
    fn default() -> Self {
        Self { mention_only: true, allow: AllowList::default() }
    }
}

/// How replies are formatted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parse {
    /// Markdown is rendered.
    #[default]
    Html,
    /// The text is sent as the agent wrote it.
    Plain,
}

/// The secrets of a Telegram account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelegramSecrets {
    /// The bot's token.
    pub token: SecretString,
    /// What Telegram shows when it calls the webhook.
    #[serde(default)]
    pub webhook_secret: Option<SecretString>,
}

/// The settings of a webhook account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Where replies are posted to; without it there are none.
    pub url: Option<String>,
    /// Which senders may write.
    pub allow: AllowList,
    /// How old a signature may be, in seconds.
    tolerance: u64,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self { url: None, allow: AllowList::default(), tolerance: 300 }
    }
}

impl WebhookSettings {
    /// How old a signature may be.
    #[must_use]
    pub const fn tolerance(&self) -> Duration {
        Duration::from_secs(self.tolerance)
    }
}

/// The secrets of a webhook account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSecrets {
    /// What both sides sign with.
    pub secret: SecretString,
}

/// The fewest bytes of a webhook's secret.
const SHORTEST_SECRET: usize = 16;

/// The longest tolerance, in seconds: older requests cannot be told from replays.
const LONGEST_TOLERANCE: u64 = 3600;

impl TelegramSettings {
    /// Reads settings and secrets, and checks what they mean together.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn read(settings: &Value, secrets: &Value) -> Result<(Self, TelegramSecrets), Unusable> {
        let settings: Self = read(settings)?;
        const LOOKS: &str = "write {\"token\": …}, and \"webhook_secret\" for mode `webhook`";
        let secrets: TelegramSecrets = read_secrets(secrets, LOOKS)?;
        match (&settings.mode, &secrets.webhook_secret) {
            (Mode::Webhook, None) => {
                return Err(Unusable::Secrets("mode `webhook` needs a `webhook_secret`"));
            }
            (_, Some(secret)) if !is_webhook_secret(secret) => {
                return Err(Unusable::Secrets(
                    "`webhook_secret` is 16 to 256 letters, digits, `_` and `-`",
                ));
            }
            (Mode::Poll | Mode::Webhook, _) => {}
        }
        Ok((settings, secrets))
    }
}

impl WebhookSettings {
    /// Reads settings and secrets, and checks what they mean together.
    ///
    /// # Errors
    ///
    /// If they cannot be used.
    pub fn read(settings: &Value, secrets: &Value) -> Result<(Self, WebhookSecrets), Unusable> {
        use secrecy::ExposeSecret as _;

        let settings: Self = read(settings)?;
        if !(1..=LONGEST_TOLERANCE).contains(&settings.tolerance) {
            return Err(Unusable::Settings(format!(
                "`tolerance` is {} s, and may be 1 to {LONGEST_TOLERANCE}",
                settings.tolerance
            )));
        }
        let secrets: WebhookSecrets = read_secrets(secrets, "write {\"secret\": …}")?;
        if secrets.secret.expose_secret().len() < SHORTEST_SECRET {
            return Err(Unusable::Secrets("`secret` has less than 16 bytes"));
        }
        Ok((settings, secrets))
    }
}

fn is_webhook_secret(secret: &SecretString) -> bool {
    use secrecy::ExposeSecret as _;

    let secret = secret.expose_secret();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (SHORTEST_SECRET..=256).contains(&secret.len()) && secret.chars().all(is_plain)
}

fn read<T: DeserializeOwned>(settings: &Value) -> Result<T, Unusable> {
    T::deserialize(settings).map_err(|error| Unusable::Settings(error.to_string()))
}

/// The parser's own words could repeat a secret.
fn read_secrets<T: DeserializeOwned>(secrets: &Value, looks: &'static str) -> Result<T, Unusable> {
    T::deserialize(secrets).map_err(|_| Unusable::Secrets(looks))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_safe_defaults() {
        let (telegram, _) = TelegramSettings::read(&json!({}), &json!({"token": "1:a"})).unwrap();
        let (webhook, _) =
            WebhookSettings::read(&json!({}), &json!({"secret": "0123456789abcdef"})).unwrap();

        assert_eq!(telegram, TelegramSettings::default());
        assert!(telegram.groups.mention_only);
        assert!(!telegram.allow.allows("7", "anna") && !webhook.allow.allows("7", ""));
        assert_eq!(webhook.tolerance(), Duration::from_secs(300));
    }

    #[test]
    fn every_setting_is_read() {
        let settings = json!({
            "mode": "webhook", "allow": [7, "@anna"], "parse": "plain",
            "groups": {"mention_only": false, "allow": [-100]}, "api_base": "http://x",
        });
        let secrets = json!({"token": "1:a", "webhook_secret": "abcdefgh-12345678"});

        let (settings, _) = TelegramSettings::read(&settings, &secrets).unwrap();

        assert_eq!((settings.mode, settings.parse), (Mode::Webhook, Parse::Plain));
        assert!(settings.allow.allows("7", "") && settings.groups.allow.allows("-100", ""));
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        let read = |settings| {
            TelegramSettings::read(&settings, &json!({"token": "1:a"})).unwrap_err().to_string()
        };

        assert!(read(json!({"allowed": []})).contains("unknown field `allowed`"));
        assert!(read(json!({"groups": {"x": 1}})).contains("unknown field `x`"));
        assert!(read(json!({"mode": "push"})).contains("unknown variant `push`"));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let webhook = json!({"mode": "webhook"});

        assert!(TelegramSettings::read(&webhook, &json!({"token": "1:a"})).is_err());
        let short = json!({"token": "1:a", "webhook_secret": "short"});
        assert!(TelegramSettings::read(&webhook, &short).is_err());
        let secret = json!({"secret": "0123456789abcdef"});
        assert!(WebhookSettings::read(&json!({"tolerance": 0}), &secret).is_err());
        assert!(WebhookSettings::read(&json!({}), &json!({"secret": "short"})).is_err());
    }

    #[test]
    fn no_error_repeats_a_secret() {
        for secrets in
            [json!({"token": ["S3CRET"]}), json!({"token": "1:a", "S3CRET": 1}), json!("S3CRET")]
        {
            let error = TelegramSettings::read(&json!({}), &secrets).unwrap_err();

            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
    }
}
