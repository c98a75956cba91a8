//! Slack accounts.

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

/// Its actions are those for which the Web API has a method (<https://docs.slack.dev/reference/methods>).
pub(super) const KIND: ChannelKind = ChannelKind {
    name: "slack",
    required_secrets: &["bot_token"],
    secrets: field_errors::field_names::<SlackSecrets>,
    schema: schema_of::<SlackSettings>,
    check: |settings, secrets| SlackSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media", "react", "delete", "pin", "unpin"],
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 4] = [
    ("mode", "\"socket\" or \"events\""),
    ("allow", "a list of people's ids, or [\"*\"]: [\"U012AB3CD\"]"),
    ("groups", "a JSON object: {\"allow\": [\"C012AB3CD\"], \"mention_only\": true}"),
    streaming::FIELD,
];
const SECRETS: &str = "{\"bot_token\": …}, with \"app_token\" for mode `socket`, or \
                       \"signing_secret\" for mode `events`";

/// Settings of a Slack account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlackSettings {
    pub mode: SlackMode,
    /// People who may write to the app directly.
    pub allow: AllowList,
    /// Channels that the app reads, by id.
    pub groups: GroupSettings,
    pub streaming: Streaming,
}

/// How the bridge receives a Slack app's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlackMode {
    /// The bridge connects to Slack (Socket Mode).
    #[default]
    Socket,
    /// Slack calls the bridge (Events API).
    Events,
}

/// Secrets of a Slack account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlackSecrets {
    pub bot_token: SecretString,
    /// Token that opens connections of Socket Mode.
    #[serde(default)]
    pub app_token: Option<SecretString>,
    /// Key of the signatures of the Events API.
    #[serde(default)]
    pub signing_secret: Option<SecretString>,
}

impl SlackSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, SlackSecrets), UnusableAccount> {
        groups::check(settings)?;
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        let secrets: SlackSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        let refused = |why: &str| Err(UnusableAccount(why.to_owned()));
        if !is_token(&secrets.bot_token, "xoxb-") {
            return refused("`secrets.bot_token` is none: copy the one that begins with `xoxb-`");
        }
        match (settings.mode, &secrets.app_token, &secrets.signing_secret) {
            (SlackMode::Socket, Some(token), _) if is_token(token, "xapp-") => {}
            (SlackMode::Socket, ..) => {
                return refused(
                    "mode `socket` needs `secrets.app_token`: copy the one that begins with `xapp-`",
                );
            }
            (SlackMode::Events, _, Some(secret)) if secret.expose_secret().len() >= 16 => {}
            (SlackMode::Events, ..) => {
                return refused(
                    "mode `events` needs `secrets.signing_secret`: copy it from the app's page \
                     Basic Information",
                );
            }
        }
        Ok((settings, secrets))
    }
}

fn is_token(token: &SecretString, prefix: &str) -> bool {
    let token = token.expose_secret();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    token.starts_with(prefix) && token.len() <= 300 && token.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_mode_needs_its_own_secret() {
        let read = |settings, secrets| {
            SlackSettings::read(&settings, &secrets).map_err(|error| error.to_string())
        };
        let socket = json!({"bot_token": "xoxb-1", "app_token": "xapp-1"});
        let events = json!({"bot_token": "xoxb-1", "signing_secret": "0123456789abcdef"});

        assert!(read(json!({}), socket.clone()).is_ok());
        assert!(read(json!({"mode": "events"}), events.clone()).is_ok());
        for (settings, secrets, told) in [
            (json!({}), events, "mode `socket` needs"),
            (json!({"mode": "events"}), socket.clone(), "mode `events` needs"),
            (json!({}), json!({"bot_token": "S3CRET"}), "`secrets.bot_token` is none"),
            (json!({"groups": []}), socket, "`settings.groups` is not what"),
        ] {
            let error = read(settings, secrets).unwrap_err();
            assert!(error.starts_with(told) && !error.contains("S3CRET"), "{error}");
        }
    }
}
