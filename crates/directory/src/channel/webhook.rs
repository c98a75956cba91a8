//! Accounts for signed webhooks.

use std::time::Duration;

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::{
    AllowList, ChannelKind, REPLY_TAGS, UnusableAccount,
    field_errors::{self, Field},
    schema_of,
};
use crate::url_syntax;

pub(super) const KIND: ChannelKind = ChannelKind {
    name: "webhook",
    required_secrets: &["secret"],
    secrets: field_errors::field_names::<WebhookSecrets>,
    schema: schema_of::<WebhookSettings>,
    check: |settings, secrets| WebhookSettings::read(settings, secrets).map(drop),
    actions: |settings| match settings["actions"] == Value::Bool(true) {
        true => &[
            "send", "media", "react", "delete", "pin", "unpin", "poll", "thread", "event", "embed",
        ],
        // A receiver that was written for texts would show an empty one.
        false => &["send"],
    },
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 4] = [
    ("url", "an address: \"https://example.com/replies\""),
    ("allow", "a list of senders, or [\"*\"]: [\"anna\"]"),
    ("tolerance", "seconds, 1 to 3600"),
    ("actions", "true, if the receiver understands `action`"),
];

const SECRETS: &str = "{\"secret\": …}, and \"authorization\" if the receiver asks for one";

/// Maximum length of a header, in bytes.
const MAX_HEADER_BYTES: usize = 2048;

/// Minimum length of a secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;

/// Maximum tolerance, in seconds. An older request cannot be distinguished from a replay.
const MAX_TOLERANCE_SECS: u64 = 3600;

/// Settings of a webhook account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// URL to which replies are posted; without it no replies are sent.
    pub url: Option<String>,
    pub allow: AllowList,
    /// Maximum age of a signature, in seconds.
    tolerance: u64,
    /// Whether the receiver understands actions other than text.
    pub actions: bool,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self { url: None, allow: AllowList::default(), tolerance: 300, actions: false }
    }
}

/// Secrets of a webhook account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSecrets {
    /// Key of the signatures in both directions.
    pub secret: SecretString,
    /// Header `Authorization` of posts to the URL, such as `Basic …`.
    #[serde(default)]
    pub authorization: Option<SecretString>,
}

impl WebhookSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, WebhookSecrets), UnusableAccount> {
        let mut settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        settings.url = settings.url.filter(|url| !url.is_empty());
        if settings.url.as_deref().is_some_and(|url| url_syntax::authority(url).is_none()) {
            let told = "`settings.url` is no address: write `https://host/path`, or leave it out";
            return Err(UnusableAccount(told.to_owned()));
        }
        if !(1..=MAX_TOLERANCE_SECS).contains(&settings.tolerance) {
            return Err(UnusableAccount(format!(
                "`settings.tolerance` is {} s: write 1 to {MAX_TOLERANCE_SECS}",
                settings.tolerance
            )));
        }
        let secrets: WebhookSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        let length = secrets.secret.expose_secret().len();
        if length < MIN_SECRET_BYTES {
            return Err(UnusableAccount(format!(
                "`secrets.secret` has {length} bytes, and {MIN_SECRET_BYTES} are the least: \
                 write what `openssl rand -hex 32` says"
            )));
        }
        let is_header = |text: &str| {
            text.len() <= MAX_HEADER_BYTES && text.chars().all(|c| matches!(c, ' '..='~'))
        };
        if secrets.authorization.as_ref().is_some_and(|text| !is_header(text.expose_secret())) {
            return Err(UnusableAccount(format!(
                "`secrets.authorization` cannot be a header: write `Basic …` or `Bearer …`, \
                 {MAX_HEADER_BYTES} bytes at most"
            )));
        }
        Ok((settings, secrets))
    }

    /// Returns the maximum age of a signature.
    #[must_use]
    pub const fn tolerance(&self) -> Duration {
        Duration::from_secs(self.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value) -> Result<WebhookSettings, String> {
        let secrets = json!({"secret": "0123456789abcdef"});
        let read = WebhookSettings::read(&settings, &secrets);
        read.map(|(settings, _)| settings).map_err(|refused| refused.to_string())
    }

    #[test]
    fn settings_have_safe_defaults() {
        let settings = read(json!({})).unwrap();

        assert!(!settings.allow.allows("7", ""));
        assert_eq!((settings.url, settings.tolerance), (None, 300));
    }

    #[test]
    fn every_setting_is_read() {
        let all =
            json!({"url": "https://x/y", "allow": ["anna"], "tolerance": 60, "actions": true});
        assert_eq!(all.as_object().unwrap().len(), FIELDS.len());

        let settings = read(all).unwrap();

        assert_eq!(settings.url.as_deref(), Some("https://x/y"));
        assert!(settings.allow.allows("anna", ""));
        assert_eq!(settings.tolerance(), Duration::from_secs(60));
        assert!(settings.actions);
        assert_eq!(read(json!({"url": ""})).unwrap().url, None);
    }

    #[test]
    fn a_refusal_says_which_field_and_what_to_write() {
        for (settings, told) in [
            (json!({"URL": "x"}), "`settings` has no `URL`: there are `url`, `allow`, `tolerance`"),
            (json!({"url": 7}), "`settings.url` is not what it should be: write an address"),
            (json!({"url": "ftp://x"}), "`settings.url` is no address: write `https://host/path`"),
            (json!({"url": "https://"}), "`settings.url` is no address: write"),
            (
                json!({"tolerance": "5m"}),
                "`settings.tolerance` is not what it should be: write sec",
            ),
            (json!({"tolerance": 0}), "`settings.tolerance` is 0 s: write 1 to 3600"),
            (json!({"tolerance": 3601}), "`settings.tolerance` is 3601 s: write 1 to 3600"),
        ] {
            let refused = read(settings).unwrap_err();
            assert!(refused.starts_with(told), "{refused}");
        }
    }

    #[test]
    fn a_secret_has_to_be_long_and_is_not_repeated() {
        for (secrets, told) in [
            (json!({"secret": "S3CRET"}), "`secrets.secret` has 6 bytes, and 16 are the least"),
            (
                json!({"secret": "0123456789abcdef", "authorization": "S3CRET\n"}),
                "`secrets.authorization` cannot be a header",
            ),
            (json!({"secret": ["S3CRET"]}), "the `secrets` are not what they should be: write {"),
        ] {
            let refused = WebhookSettings::read(&json!({}), &secrets).unwrap_err().to_string();

            assert!(refused.starts_with(told) && !refused.contains("S3CRET"), "{refused}");
        }
    }
}
