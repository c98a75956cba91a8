//! Web widget accounts.

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::{
    AllowList, ChannelKind, UnusableAccount,
    field_errors::{self, Field},
    schema_of,
};

pub(super) const KIND: ChannelKind = ChannelKind {
    name: "widget",
    required_secrets: &["secret"],
    secrets: field_errors::field_names::<WidgetSecrets>,
    schema: schema_of::<WidgetSettings>,
    check: |settings, secrets| WidgetSettings::read(settings, secrets).map(drop),
    actions: |_| &["send"],
    capabilities: &[],
};

const FIELDS: [Field; 5] = [
    ("origins", "a list of sites that may show it: [\"https://example.com\"]"),
    ("allow", "[\"*\"] for every visitor, or a list of known users: [\"user:42\"]"),
    ("title", "the name above the conversation: \"Ask us\""),
    ("greeting", "the text before the first message: \"How can I help?\""),
    ("messages_per_minute", "a number, 1 to 600"),
];
const SECRETS: &str = "{\"secret\": …}, and \"identity_secret\" if your site names its users";

const MIN_SECRET_BYTES: usize = 16;
const MAX_TEXT_BYTES: usize = 500;

/// Settings of a web widget.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WidgetSettings {
    /// Sites that may show the widget in a frame.
    pub origins: Vec<String>,
    pub allow: AllowList,
    pub title: String,
    pub greeting: String,
    /// Messages that one visitor may send in a minute; one address may send three times as many.
    pub messages_per_minute: u32,
}

impl Default for WidgetSettings {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            allow: AllowList::default(),
            title: "Chat".to_owned(),
            greeting: String::new(),
            messages_per_minute: 20,
        }
    }
}

/// Secrets of a web widget.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WidgetSecrets {
    /// Key of the visitors' tokens.
    pub secret: SecretString,
    /// Key with which the site's server signs the ids of its users.
    #[serde(default)]
    pub identity_secret: Option<SecretString>,
}

impl WidgetSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, WidgetSecrets), UnusableAccount> {
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        if !settings.origins.iter().all(|origin| is_origin(origin)) {
            return Err(UnusableAccount(
                "`settings.origins` has an entry that is no origin: write `https://example.com`, \
                 without a path"
                    .to_owned(),
            ));
        }
        for (field, text) in [("title", &settings.title), ("greeting", &settings.greeting)] {
            if text.len() > MAX_TEXT_BYTES {
                return Err(UnusableAccount(format!(
                    "`settings.{field}` has {} bytes, and {MAX_TEXT_BYTES} are the most",
                    text.len()
                )));
            }
        }
        if !(1..=600).contains(&settings.messages_per_minute) {
            return Err(UnusableAccount(format!(
                "`settings.messages_per_minute` is {}: write 1 to 600",
                settings.messages_per_minute
            )));
        }
        let secrets: WidgetSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        let given = [
            ("secret", Some(&secrets.secret)),
            ("identity_secret", secrets.identity_secret.as_ref()),
        ];
        for (field, secret) in given {
            let length = secret.map(|secret| secret.expose_secret().len());
            if length.is_some_and(|length| length < MIN_SECRET_BYTES) {
                return Err(UnusableAccount(format!(
                    "`secrets.{field}` is too short, and {MIN_SECRET_BYTES} bytes are the least: \
                     write what `openssl rand -hex 32` says"
                )));
            }
        }
        Ok((settings, secrets))
    }
}

/// Whether a text is `https://host` or `https://host:port`, which may stand in a header.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '*');
    host.is_some_and(|host| !host.is_empty() && host.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value, secrets: Value) -> Result<WidgetSettings, String> {
        let read = WidgetSettings::read(&settings, &secrets);
        read.map(|(settings, _)| settings).map_err(|refused| refused.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        let all = json!({"origins": ["https://example.com"], "allow": ["user:42"], "title": "T",
            "greeting": "G", "messages_per_minute": 5});
        assert_eq!(all.as_object().unwrap().len(), FIELDS.len());

        let settings = read(all, json!({"secret": "0123456789abcdef"})).unwrap();

        assert!(settings.allow.allows("user:42", "") && !settings.allow.allows("visitor:1", ""));
        assert_eq!((settings.title.as_str(), settings.messages_per_minute), ("T", 5));
    }

    #[test]
    fn a_refusal_says_what_to_write_and_repeats_no_secret() {
        let secrets = || json!({"secret": "0123456789abcdef"});
        for (settings, secrets, told) in [
            (json!({"origins": ["example.com"]}), secrets(), "`settings.origins` has an entry"),
            (json!({"origins": ["https://x; script-src *"]}), secrets(), "`settings.origins` has"),
            (json!({"messages_per_minute": 0}), secrets(), "`settings.messages_per_minute` is 0"),
            (json!({"color": 1}), secrets(), "`settings` has no `color`: there are `origins`"),
            (json!({}), json!({"secret": "S3CRET"}), "`secrets.secret` is too short"),
        ] {
            let refused = read(settings, secrets).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains("S3CRET"), "{refused}");
        }
    }
}
