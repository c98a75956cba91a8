//! Channel accounts of a tenant: a bot, a webhook.

use std::fmt;

use holdfast_types::{AccountId, TenantId, account_name};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Error,
    channel::AllowList,
    channel::{self, CHANNELS},
};

const MAX_JSON_BYTES: usize = 16 * 1024;

/// A channel account, without its secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub id: AccountId,
    pub channel: String,
    /// Name that bindings refer to.
    pub name: String,
    /// Whether a bridge serves the account.
    pub enabled: bool,
    /// Settings that are not secret: a JSON object.
    pub settings: Value,
    /// Version, increased by each change; a bridge that sees another version reloads the account.
    pub version: i64,
    pub created_at: Timestamp,
}

impl Account {
    /// Returns the senders that may write to the account directly; empty, which allows nobody, if
    /// the settings name none.
    #[must_use]
    pub fn allow_list(&self) -> AllowList {
        let written = self.settings.get("allow").cloned().unwrap_or_default();
        serde_json::from_value(written).unwrap_or_default()
    }
}

/// Message of a web widget, to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewWidgetMessage<'a> {
    pub visitor: &'a str,
    /// Makes a repeated message the same.
    pub key: &'a str,
    pub from_visitor: bool,
    pub text: &'a str,
}

/// Message of a web widget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WidgetMessage {
    /// Position; later messages have higher ones.
    pub seq: i64,
    pub key: String,
    pub from_visitor: bool,
    pub text: String,
}

/// Account that bridges serve, in the list of all tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAccount {
    pub tenant: TenantId,
    pub id: AccountId,
    /// Version of the account, increased by each change.
    pub version: i64,
    pub channel: String,
}

/// What the bridge that serves an account last knew about its platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountStatus {
    pub state: AccountState,
    /// For people: as whom the account is signed in, or why it fails. Without secrets.
    pub detail: String,
}

/// State of an account's connection to its platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountState {
    /// The platform has not answered yet.
    Connecting,
    /// The platform accepts the credentials; nothing is missing.
    Working,
    /// The account cannot be served, or the platform cannot be reached or refuses the account.
    Failing,
}

impl AccountState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Working => "working",
            Self::Failing => "failing",
        }
    }
}

/// A stored status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedStatus {
    pub account: AccountId,
    /// Name of the [`AccountState`].
    pub state: String,
    pub detail: String,
    /// When the state began.
    pub since: Timestamp,
    /// When a bridge reported it last.
    pub checked_at: Timestamp,
}

/// A channel account with its secrets, for the bridge that serves it.
#[derive(Clone, PartialEq)]
pub struct OpenAccount {
    pub account: Account,
    /// Secrets: a JSON object.
    pub secrets: Value,
}

impl fmt::Debug for OpenAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAccount").field("account", &self.account).finish_non_exhaustive()
    }
}

/// A channel account to create, or the new values of one.
#[derive(Clone)]
pub struct NewAccount {
    /// Channel, one of [`CHANNELS`](crate::channel::CHANNELS). The channel never changes, so an
    /// update may leave it empty.
    pub channel: String,
    /// Name; normalised, and `default` if empty.
    pub name: String,
    /// Whether a bridge serves the account.
    pub enabled: bool,
    /// Settings that are not secret.
    pub settings: Value,
    /// Secrets; `None` keeps the stored ones.
    pub secrets: Option<Value>,
}

impl fmt::Debug for NewAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAccount")
            .field("channel", &self.channel)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl NewAccount {
    /// Validates the account and normalises its names.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = self.channel.trim().to_lowercase();
        let Some(kind) = channel::kind(&self.channel) else {
            let shown: String = self.channel.chars().take(80).collect();
            let known: Vec<&str> = CHANNELS.iter().map(|kind| kind.name).collect();
            return Err(Error::Invalid(format!(
                "`{shown}` is not a channel: use one of {}",
                known.join(", ")
            )));
        };
        self.name = account_name(&self.name);
        check_object("settings", &self.settings)?;
        if let Some(secrets) = &self.secrets {
            check_object("secrets", secrets)?;
            let given = |name: &str| secrets.get(name).and_then(Value::as_str).unwrap_or_default();
            let missing = kind.required_secrets.iter().find(|name| given(name).trim().is_empty());
            if let Some(needed) = missing {
                return Err(Error::Invalid(format!(
                    "the secrets of a {} account need a `{needed}`: write {{\"{needed}\": \"…\"}}",
                    self.channel
                )));
            }
        }
        Ok(self)
    }

    /// Checks that the channel's bridge can use the account with these secrets.
    pub(crate) fn check_usable(&self, secrets: &Value) -> Result<(), Error> {
        let told = |why: channel::UnusableAccount| {
            Error::Invalid(format!("this {} account could not be served: {why}", self.channel))
        };
        channel::check(&self.channel, &self.settings, secrets).map_err(told)
    }
}

fn check_object(what: &str, value: &Value) -> Result<(), Error> {
    if !value.is_object() {
        return Err(Error::Invalid(format!("an account's {what} are a JSON object: write {{…}}")));
    }
    let text = value.to_string();
    // Postgres' jsonb cannot store NUL.
    if text.contains("\\u0000") {
        return Err(Error::Invalid(format!("an account's {what} have a NUL in them: remove it")));
    }
    let length = text.len();
    if length > MAX_JSON_BYTES {
        return Err(Error::Invalid(format!(
            "an account's {what} have {MAX_JSON_BYTES} bytes at most, and these {length}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn new(channel: &str, settings: Value, secrets: Option<Value>) -> Result<NewAccount, Error> {
        let (channel, name) = (channel.to_owned(), "My Bot".to_owned());
        NewAccount { channel, name, enabled: true, settings, secrets }.check()
    }

    #[test]
    fn each_channel_needs_its_own_secret() {
        assert!(new("Telegram", json!({}), Some(json!({"token": "1:a"}))).is_ok());
        assert!(new("webhook", json!({}), Some(json!({"secret": "s"}))).is_ok());
        for secrets in
            [json!({"secret": "s"}), json!({"token": " "}), json!({"token": 1}), json!([])]
        {
            assert!(new("telegram", json!({}), Some(secrets.clone())).is_err(), "{secrets}");
        }
        assert_eq!(new("telegram", json!({}), None).unwrap().name, "my-bot");
    }

    #[test]
    fn an_unknown_channel_is_refused_with_those_that_there_are() {
        let error = new("fax", json!({}), None).unwrap_err().to_string();

        assert!(
            error.starts_with("`fax` is not a channel: use one of telegram, webhook"),
            "{error}"
        );
    }

    #[test]
    fn settings_are_an_object_of_a_bearable_size() {
        assert!(new("webhook", json!("x"), None).is_err());
        assert!(new("webhook", json!({"x": "a\0b"}), None).is_err());
        assert!(new("webhook", json!({"x": "x".repeat(20_000)}), None).is_err());
    }

    #[test]
    fn the_secrets_are_not_shown() {
        let account = new("telegram", json!({}), Some(json!({"token": "1:hush"}))).unwrap();

        assert!(!format!("{account:?}").contains("hush"));
    }
}
