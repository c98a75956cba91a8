//! Matrix accounts.

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::{
    AllowList, ChannelKind, GroupSettings, REPLY_TAGS, ReplyFormat, UnusableAccount,
    field_errors::{self, Field},
    groups, schema_of,
    streaming::{self, Streaming},
};
use crate::url_syntax;

pub(super) const KIND: ChannelKind = ChannelKind {
    name: "matrix",
    required_secrets: &["access_token"],
    secrets: field_errors::field_names::<MatrixSecrets>,
    schema: schema_of::<MatrixSettings>,
    check: |settings, secrets| MatrixSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media", "react", "delete", "pin", "unpin", "thread"],
    capabilities: &[REPLY_TAGS],
};

const FIELDS: [Field; 7] = [
    ("homeserver", "the address of the homeserver: \"https://matrix.example.org\""),
    ("mode", "\"sync\" or \"appservice\""),
    ("user", "the id of a user of the application service: \"@holdfast_bot:example.org\""),
    ("allow", "a list of user ids, or [\"*\"]: [\"@anna:example.org\"]"),
    ("groups", "a JSON object: {\"allow\": [\"!id:example.org\"], \"mention_only\": true}"),
    ("parse", "\"html\" or \"plain\""),
    streaming::FIELD,
];
const SECRETS: &str = "{\"access_token\": …}, and \"hs_token\" for mode `appservice`";

/// Minimum length of the homeserver's token, in bytes.
const MIN_HS_TOKEN_BYTES: usize = 16;

/// Settings of a Matrix account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct MatrixSettings {
    /// Base URL of the homeserver's client API.
    pub homeserver: String,
    pub mode: MatrixMode,
    /// User of the application service that the account is; without it, the service's own user.
    pub user: Option<String>,
    /// Users that may write directly and invite.
    pub allow: AllowList,
    pub groups: GroupSettings,
    pub parse: ReplyFormat,
    pub streaming: Streaming,
}

/// How the bridge receives a Matrix account's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixMode {
    /// The bridge requests them by long polling, as an ordinary user.
    #[default]
    Sync,
    /// The homeserver pushes them to the bridge, which is registered as an application service.
    Appservice,
}

/// Secrets of a Matrix account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixSecrets {
    /// Access token of the user, or the `as_token` of the application service.
    pub access_token: SecretString,
    /// Token with which the homeserver calls the application service.
    #[serde(default)]
    pub hs_token: Option<SecretString>,
}

impl MatrixSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, MatrixSecrets), UnusableAccount> {
        let refused = |why: &str| Err(UnusableAccount(why.to_owned()));
        groups::check(settings)?;
        let settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        if url_syntax::authority(&settings.homeserver).is_none() {
            return refused(
                "`settings.homeserver` is no address: write `https://matrix.example.org`",
            );
        }
        match (&settings.user, settings.mode) {
            (Some(_), MatrixMode::Sync) => {
                return refused(
                    "`settings.user` is for mode `appservice`: in mode `sync` the access token \
                     says who the account is; leave it out",
                );
            }
            (Some(user), MatrixMode::Appservice) if !is_user_id(user) => {
                return refused("`settings.user` is no user id: write `@holdfast_bot:example.org`");
            }
            (Some(_) | None, _) => {}
        }
        let secrets: MatrixSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        if !is_token(secrets.access_token.expose_secret()) {
            return refused("`secrets.access_token` is none: it is empty, or has spaces in it");
        }
        match (settings.mode, &secrets.hs_token) {
            (MatrixMode::Appservice, None) => refused(
                "`settings.mode` is `appservice`, and `secrets.hs_token` is missing: write that of \
                 the registration file",
            ),
            (_, Some(token))
                if token.expose_secret().len() < MIN_HS_TOKEN_BYTES
                    || !is_token(token.expose_secret()) =>
            {
                refused(
                    "`secrets.hs_token` cannot be used: write what `openssl rand -hex 32` says, \
                     also into the registration file",
                )
            }
            (MatrixMode::Sync | MatrixMode::Appservice, _) => Ok((settings, secrets)),
        }
    }
}

fn is_token(token: &str) -> bool {
    !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic())
}

/// Whether a text is `@localpart:server`.
fn is_user_id(id: &str) -> bool {
    let parts = id.strip_prefix('@').and_then(|rest| rest.split_once(':'));
    parts.is_some_and(|(name, server)| {
        !name.is_empty() && !server.is_empty() && id.chars().all(|c| c.is_ascii_graphic())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value, secrets: Value) -> Result<MatrixSettings, String> {
        let read = MatrixSettings::read(&settings, &secrets);
        read.map(|(settings, _)| settings).map_err(|refused| refused.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        let all = json!({
            "homeserver": "https://m.example", "mode": "appservice", "user": "@bot:example",
            "allow": ["@anna:example"], "groups": {"allow": ["!a:example"], "mention_only": false},
            "parse": "plain", "streaming": "edits",
        });
        assert_eq!(all.as_object().unwrap().len(), FIELDS.len());
        let secrets = json!({"access_token": "a", "hs_token": "0123456789abcdef"});

        let settings = read(all, secrets).unwrap();

        assert_eq!((settings.mode, settings.parse), (MatrixMode::Appservice, ReplyFormat::Plain));
        assert!(
            settings.allow.allows("@anna:example", "") && settings.allow.names_id("@anna:example")
        );
        assert!(!settings.allow.allows("@anna:other", ""));
        assert!(settings.groups.allow.allows("!a:example", "") && !settings.groups.mention_only);
    }

    #[test]
    fn a_refusal_says_what_to_write_and_repeats_no_secret() {
        let token = || json!({"access_token": "S3CRET"});
        for (settings, secrets, told) in [
            (json!({}), token(), "`settings.homeserver` is no address: write `https://"),
            (json!({"homeserver": "matrix.org"}), token(), "`settings.homeserver` is no address"),
            (json!({"server": "x"}), token(), "`settings` has no `server`: there are `homeserver`"),
            (json!({"homeserver": "https://x", "user": "@a:b"}), token(), "`settings.user` is for"),
            (
                json!({"homeserver": "https://x", "mode": "appservice", "user": "bot"}),
                token(),
                "`settings.user` is no user id",
            ),
            (
                json!({"homeserver": "https://x", "mode": "appservice"}),
                token(),
                "`settings.mode` is `appservice`, and `secrets.hs_token` is missing",
            ),
            (
                json!({"homeserver": "https://x", "mode": "appservice"}),
                json!({"access_token": "S3CRET", "hs_token": "S3CRET"}),
                "`secrets.hs_token` cannot be used",
            ),
            (
                json!({"homeserver": "https://x"}),
                json!({"access_token": "S3CRET\n"}),
                "`secrets.access_token` is none",
            ),
            (
                json!({"homeserver": "https://x", "groups": {"alow": []}}),
                token(),
                "`settings.groups` has no `alow`",
            ),
        ] {
            let refused = read(settings, secrets).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains("S3CRET"), "{refused}");
        }
    }
}
