//! WhatsApp accounts (Cloud API).

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
    name: "whatsapp",
    required_secrets: &["access_token", "app_secret", "verify_token"],
    secrets: field_errors::field_names::<WhatsappSecrets>,
    schema: schema_of::<WhatsappSettings>,
    check: |settings, secrets| WhatsappSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media", "react"],
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 5] = [
    ("phone_number_id", "the number's id in Meta's dashboard: \"106540352242922\""),
    ("allow", "a list of phone numbers, or [\"*\"]: [\"+491701234567\"]"),
    ("template", "the name of a template with one variable: \"assistant_message\""),
    ("template_language", "the template's language: \"en_US\""),
    ("api_base", "an address: \"https://graph.facebook.com/v24.0\""),
];
const SECRETS: &str = "{\"access_token\": …, \"app_secret\": …, \"verify_token\": …}";

/// Minimum length of the token that Meta repeats when it verifies the address, in bytes.
const MIN_VERIFY_TOKEN_BYTES: usize = 16;

/// Settings of a WhatsApp account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatsappSettings {
    pub phone_number_id: String,
    pub allow: AllowList,
    /// Template that is sent when 24 hours have passed since the person's last message; without it
    /// such a reply fails.
    pub template: Option<String>,
    pub template_language: String,
    pub api_base: String,
}

impl Default for WhatsappSettings {
    fn default() -> Self {
        Self {
            phone_number_id: String::new(),
            allow: AllowList::default(),
            template: None,
            template_language: "en_US".to_owned(),
            api_base: "https://graph.facebook.com/v24.0".to_owned(),
        }
    }
}

/// Secrets of a WhatsApp account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatsappSecrets {
    pub access_token: SecretString,
    /// Key of the signatures of Meta's calls.
    pub app_secret: SecretString,
    /// Word that Meta repeats when it verifies the address.
    pub verify_token: SecretString,
}

impl WhatsappSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, WhatsappSecrets), UnusableAccount> {
        let refused = |why: &str| Err(UnusableAccount(why.to_owned()));
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        let id = &settings.phone_number_id;
        if id.is_empty() || id.len() > 32 || !id.chars().all(|c| c.is_ascii_digit()) {
            return refused(
                "`settings.phone_number_id` is no id: copy the number's id, not the number, from \
                 Meta's dashboard",
            );
        }
        let plain = |text: &String| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if settings.template.as_ref().is_some_and(|name| !plain(name)) {
            return refused("`settings.template` is no name: write `assistant_message`");
        }
        if !plain(&settings.template_language) {
            return refused("`settings.template_language` is none: write `en_US`");
        }
        if url_syntax::authority(&settings.api_base).is_none() {
            return refused(
                "`settings.api_base` is no address: write `https://host`, or leave it out",
            );
        }
        let secrets: WhatsappSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        for (name, secret, least) in [
            ("access_token", &secrets.access_token, 1),
            ("app_secret", &secrets.app_secret, 1),
            ("verify_token", &secrets.verify_token, MIN_VERIFY_TOKEN_BYTES),
        ] {
            let secret = secret.expose_secret();
            if secret.len() < least || !secret.chars().all(|c| c.is_ascii_graphic()) {
                return Err(UnusableAccount(format!(
                    "`secrets.{name}` cannot be used: it has at least {least} characters, without \
                     spaces"
                )));
            }
        }
        Ok((settings, secrets))
    }

    /// Whether this number may write, with or without `+`.
    #[must_use]
    pub fn allows(&self, number: &str) -> bool {
        self.allow.allows(number, &format!("+{number}"))
    }

    /// Whether the list names this number.
    #[must_use]
    pub fn names(&self, number: &str) -> bool {
        self.allow.names(number, &format!("+{number}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value, secrets: Value) -> Result<WhatsappSettings, String> {
        let read = WhatsappSettings::read(&settings, &secrets);
        read.map(|(settings, _)| settings).map_err(|refused| refused.to_string())
    }

    fn secrets() -> Value {
        json!({"access_token": "S3CRET", "app_secret": "S3CRET", "verify_token": "0123456789abcdef"})
    }

    #[test]
    fn every_setting_is_read() {
        let all = json!({"phone_number_id": "1065", "allow": ["+49170", 49171], "template": "t",
            "template_language": "de", "api_base": "http://x"});
        assert_eq!(all.as_object().unwrap().len(), FIELDS.len());

        let settings = read(all, secrets()).unwrap();

        assert!(settings.allows("49170") && settings.allows("49171") && settings.names("49170"));
        assert!(!settings.allows("4917"));
        assert_eq!(settings.template.as_deref(), Some("t"));
        let least = read(json!({"phone_number_id": "1065"}), secrets()).unwrap();
        assert!(
            !least.allows("49170") && least.api_base.starts_with("https://graph.facebook.com/")
        );
    }

    #[test]
    fn a_refusal_says_what_to_write_and_repeats_no_secret() {
        let short =
            json!({"access_token": "S3CRET", "app_secret": "S3CRET", "verify_token": "S3CRET"});
        for (settings, secrets, told) in [
            (json!({}), secrets(), "`settings.phone_number_id` is no id"),
            (
                json!({"phone_number_id": "+49 170"}),
                secrets(),
                "`settings.phone_number_id` is no id",
            ),
            (json!({"phone": "1"}), secrets(), "`settings` has no `phone`: there are"),
            (
                json!({"phone_number_id": "1", "template": "a b"}),
                secrets(),
                "`settings.template` is no",
            ),
            (
                json!({"phone_number_id": "1", "api_base": "x"}),
                secrets(),
                "`settings.api_base` is no",
            ),
            (json!({"phone_number_id": "1"}), short, "`secrets.verify_token` cannot be used"),
            (
                json!({"phone_number_id": "1"}),
                json!({"access_token": "S3CRET"}),
                "the `secrets` are",
            ),
        ] {
            let refused = read(settings, secrets).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains("S3CRET"), "{refused}");
        }
    }
}
