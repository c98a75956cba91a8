//! Discord accounts.

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

/// Its actions are those for which the API has a method
/// (<https://discord.com/developers/docs/resources/message>).
pub(super) const KIND: ChannelKind = ChannelKind {
    name: "discord",
    required_secrets: &["token"],
    secrets: field_errors::field_names::<DiscordSecrets>,
    schema: schema_of::<DiscordSettings>,
    check: |settings, secrets| DiscordSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media", "react", "delete", "pin", "unpin", "poll", "thread"],
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 3] = [
    ("allow", "a list of ids, names or \"*\": [\"80351110224678912\", \"@anna\"]"),
    ("groups", "a JSON object: {\"allow\": [\"41771983423143937\"], \"mention_only\": true}"),
    streaming::FIELD,
];
const SECRETS: &str = "{\"token\": …}";

/// Settings of a Discord account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiscordSettings {
    /// People who may write to the bot directly.
    pub allow: AllowList,
    /// Servers or channels that the bot reads, by id.
    pub groups: GroupSettings,
    pub streaming: Streaming,
}

/// Secrets of a Discord account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscordSecrets {
    pub token: SecretString,
}

impl DiscordSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, DiscordSecrets), UnusableAccount> {
        groups::check(settings)?;
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        let secrets: DiscordSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        let token = secrets.token.expose_secret();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if token.len() < 20 || token.len() > 200 || !token.chars().all(is_token) {
            return Err(UnusableAccount(
                "`secrets.token` is none: copy the bot's token from discord.com/developers, \
                 without `Bot `"
                    .to_owned(),
            ));
        }
        Ok((settings, secrets))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nobody_may_write_until_it_is_permitted() {
        let secrets = json!({"token": "abcdefghijklmnopqrstuvwxyz.12"});

        let (settings, _) = DiscordSettings::read(&json!({}), &secrets).unwrap();

        assert!(!settings.allow.allows("1", "anna") && settings.groups.mention_only);
        for (settings, secrets, told) in [
            (json!({}), json!({"token": "Bot S3CRET"}), "`secrets.token` is none"),
            (json!({"groups": {"x": 1}}), secrets.clone(), "`settings.groups` has no `x`"),
            (json!({"mode": 1}), secrets, "`settings` has no `mode`"),
        ] {
            let error = DiscordSettings::read(&settings, &secrets).unwrap_err().to_string();
            assert!(error.starts_with(told) && !error.contains("S3CRET"), "{error}");
        }
    }
}
