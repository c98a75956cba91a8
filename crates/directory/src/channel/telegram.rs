//! Telegram accounts.

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::{
    AllowList, ChannelKind, GroupSettings, REPLY_TAGS, UnusableAccount,
    field_errors::{self, Field},
    groups, schema_of,
    streaming::{self, Streaming},
};
use crate::url_syntax;

/// Its actions are those for which the Bot API has a method (<https://core.telegram.org/bots/api>).
pub(super) const KIND: ChannelKind = ChannelKind {
    name: "telegram",
    required_secrets: &["token"],
    secrets: field_errors::field_names::<TelegramSecrets>,
    schema: schema_of::<TelegramSettings>,
    check: |settings, secrets| TelegramSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread"],
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 6] = [
    ("mode", "\"poll\" or \"webhook\""),
    ("allow", "a list of ids, names or \"*\": [12345, \"@anna\"]"),
    ("groups", "a JSON object: {\"allow\": [-100123], \"mention_only\": true}"),
    ("parse", "\"html\" or \"plain\""),
    ("api_base", "an address: \"https://api.telegram.org\""),
    streaming::FIELD,
];
const SECRETS: &str = "{\"token\": …}, and \"webhook_secret\" for mode `webhook`";

/// Allowed length of a webhook secret, in bytes.
const SECRET_LENGTH: std::ops::RangeInclusive<usize> = 16..=256;

/// Settings of a Telegram account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelegramSettings {
    pub mode: UpdateMode,
    /// Senders that may write to the bot directly.
    pub allow: AllowList,
    pub groups: GroupSettings,
    pub parse: ReplyFormat,
    /// Base URL of another Bot API server than the installation's.
    pub api_base: Option<String>,
    pub streaming: Streaming,
}

/// How the bridge receives a bot's updates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpdateMode {
    /// The bridge requests them by long polling.
    #[default]
    Poll,
    /// Telegram calls the bridge.
    Webhook,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplyFormat {
    /// Markdown is converted to HTML.
    #[default]
    Html,
    /// The text is sent unchanged.
    Plain,
}

/// Secrets of a Telegram account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelegramSecrets {
    pub token: SecretString,
    /// Secret that Telegram sends with each webhook call.
    #[serde(default)]
    pub webhook_secret: Option<SecretString>,
}

impl TelegramSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, TelegramSecrets), UnusableAccount> {
        groups::check(settings)?;
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        if settings.api_base.as_deref().is_some_and(|base| url_syntax::authority(base).is_none()) {
            let told = "`settings.api_base` is no address: write `https://host`, or leave it out";
            return Err(UnusableAccount(told.to_owned()));
        }
        let secrets: TelegramSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        secrets.check(settings.mode)?;
        Ok((settings, secrets))
    }
}

impl TelegramSecrets {
    fn check(&self, mode: UpdateMode) -> Result<(), UnusableAccount> {
        let refused = |why: &str| Err(UnusableAccount(why.to_owned()));
        if !is_token(self.token.expose_secret()) {
            return refused("`secrets.token` is none: copy it from @BotFather, `123456:ABC-DEF`");
        }
        match (mode, &self.webhook_secret) {
            (UpdateMode::Webhook, None) => refused(
                "`settings.mode` is `webhook`, and `secrets.webhook_secret` is missing: write one",
            ),
            (_, Some(secret)) if !is_webhook_secret(secret.expose_secret()) => refused(
                "`secrets.webhook_secret` cannot be used: write 16 to 256 letters, digits, `_` and `-`",
            ),
            (UpdateMode::Poll | UpdateMode::Webhook, _) => Ok(()),
        }
    }
}

/// Whether a token contains no character with a meaning in a URL path, of which it becomes a part.
fn is_token(token: &str) -> bool {
    token.split_once(':').is_some_and(|(id, rest)| {
        let is_number = !id.is_empty() && id.chars().all(|c| c.is_ascii_digit());
        is_number && !rest.is_empty() && rest.chars().all(is_plain)
    })
}

fn is_webhook_secret(secret: &str) -> bool {
    SECRET_LENGTH.contains(&secret.len()) && secret.chars().all(is_plain)
}

const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(settings: Value) -> String {
        TelegramSettings::read(&settings, &json!({"token": "1:a"})).unwrap_err().to_string()
    }

    #[test]
    fn settings_have_safe_defaults() {
        let (settings, _) = TelegramSettings::read(&json!({}), &json!({"token": "1:a"})).unwrap();

        assert_eq!(settings, TelegramSettings::default());
        assert!(settings.groups.mention_only && !settings.allow.allows("7", "anna"));
    }

    #[test]
    fn every_setting_is_read() {
        let settings = json!({
            "mode": "webhook", "allow": [7, "@anna"], "parse": "plain",
            "groups": {"mention_only": false, "allow": [-100]}, "api_base": "http://x",
            "streaming": "edits",
        });
        let names = |value: &Value| {
            let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        let known = |fields: &[Field]| {
            let mut known: Vec<_> = fields.iter().map(|(name, _)| (*name).to_owned()).collect();
            known.sort();
            known
        };
        assert_eq!(names(&settings), known(&FIELDS));
        let secrets = json!({"token": "1:a", "webhook_secret": "abcdefgh-12345678"});

        let (settings, _) = TelegramSettings::read(&settings, &secrets).unwrap();

        assert_eq!((settings.mode, settings.parse), (UpdateMode::Webhook, ReplyFormat::Plain));
        assert!(settings.allow.allows("7", "") && settings.groups.allow.allows("-100", ""));
    }

    #[test]
    fn a_refusal_says_which_field_and_what_to_write() {
        for (settings, told) in [
            (json!({"alow": []}), "`settings` has no `alow`: there are `mode`, `allow`, `groups`"),
            (
                json!({"mode": "push"}),
                "`settings.mode` is not what it should be: write \"poll\" or",
            ),
            (json!({"allow": "anna"}), "`settings.allow` is not what it should be: write a list"),
            (json!({"allow": [true]}), "`settings.allow` is not what it should be: write a list"),
            (
                json!({"groups": []}),
                "`settings.groups` is not what it should be: write a JSON object",
            ),
            (json!({"groups": {"x": 1}}), "`settings.groups` has no `x`: there are `allow`"),
            (json!({"groups": {"mention_only": 1}}), "`settings.groups.mention_only` is not what"),
            (json!({"parse": null}), "`settings.parse` is not what it should be: write \"html\""),
            (json!({"api_base": "x"}), "`settings.api_base` is no address: write `https://host`"),
        ] {
            let refused = refused(settings);
            assert!(refused.starts_with(told), "{refused}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let webhook = json!({"mode": "webhook"});
        for secrets in [
            json!({"token": "1:a"}),
            json!({"token": "1:a", "webhook_secret": "short"}),
            json!({"token": "no token", "webhook_secret": "abcdefgh-12345678"}),
        ] {
            assert!(TelegramSettings::read(&webhook, &secrets).is_err(), "{secrets}");
        }
    }

    #[test]
    fn a_token_may_mean_nothing_in_a_path() {
        assert!(is_token("123456:ABC-def_7"));
        for token in ["", ":", "1:", ":a", "a:b", "1:a/b", "1:a?b", "1:../x", "1:a b"] {
            assert!(!is_token(token), "{token}");
        }
    }

    #[test]
    fn no_refusal_repeats_a_secret() {
        for (settings, secrets) in [
            (json!({}), json!({"token": ["S3CRET"]})),
            (json!({}), json!({"token": "S3CRET"})),
            (json!({}), json!({"token": "1:a", "S3CRET": 1})),
            (json!({}), json!("S3CRET")),
            (json!({}), json!(["1:S3CRET"])),
            (json!({"mode": "S3CRET"}), json!({"token": "1:a"})),
        ] {
            let error = TelegramSettings::read(&settings, &secrets).unwrap_err();

            assert!(!error.to_string().contains("S3CRET"), "{error}");
        }
    }
}
