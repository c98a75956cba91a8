//! IRC accounts.

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
    name: "irc",
    required_secrets: &[],
    secrets: field_errors::field_names::<IrcSecrets>,
    schema: schema_of::<IrcSettings>,
    check: |settings, secrets| IrcSettings::read(settings, secrets).map(drop),
    actions: |_| &["send"],
    capabilities: &[],
};

const FIELDS: [Field; 9] = [
    ("server", "a host: \"irc.libera.chat\""),
    ("port", "a number, 1 to 65535"),
    ("tls", "true or false"),
    ("nick", "a nick of letters, digits and -_[]{}\\`^|, 30 at most"),
    ("account", "the name for SASL, if it is not the nick"),
    ("channels", "a list of channels: [\"#team\", \"#private\"]"),
    ("mention_only", "true or false"),
    ("identify_by", "\"account\" or \"nick\""),
    ("allow", "a list of names, or [\"*\"]: [\"anna\"]"),
];
const SECRETS: &str = "{}, or {\"password\": …} for SASL, {\"server_password\": …} for PASS, \
                       {\"channel_keys\": …} for channels";

/// Maximum length of all keys of channels, in bytes.
const MAX_CHANNEL_KEYS_BYTES: usize = 4096;

/// Maximum length of a nick, in bytes.
const MAX_NICK_BYTES: usize = 30;

/// Settings of an IRC account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IrcSettings {
    pub server: String,
    port: Option<u16>,
    pub tls: bool,
    pub nick: String,
    account: Option<String>,
    /// Channels to join. All members may write. Older accounts have keys here, each after its channel and a space.
    pub channels: Vec<String>,
    /// Whether only messages that name the nick are answered in channels; others are read too.
    pub mention_only: bool,
    pub identify_by: IrcIdentity,
    /// People who may write directly.
    pub allow: AllowList,
}

/// What identifies a person on IRC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IrcIdentity {
    /// The services account that the server vouches for (IRCv3 `account-tag`).
    #[default]
    Account,
    /// The nick, which anybody can take while its owner is away.
    Nick,
}

impl Default for IrcSettings {
    fn default() -> Self {
        Self {
            server: String::new(),
            port: None,
            tls: true,
            nick: String::new(),
            account: None,
            channels: Vec::new(),
            mention_only: true,
            identify_by: IrcIdentity::Account,
            allow: AllowList::default(),
        }
    }
}

/// Secrets of an IRC account.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IrcSecrets {
    /// Password of the services account, for SASL PLAIN.
    pub password: Option<SecretString>,
    /// Password of the server, for PASS.
    pub server_password: Option<SecretString>,
    /// Channels with their keys: `#private key, #other key`.
    pub channel_keys: Option<SecretString>,
}

impl IrcSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(settings: &Value, secrets: &Value) -> Result<(Self, IrcSecrets), UnusableAccount> {
        let mut settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        let secrets: IrcSecrets = field_errors::parse_secrets(secrets, SECRETS)?;
        let refused = |why: &str| Err(UnusableAccount(why.to_owned()));
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        if settings.server.is_empty() || !settings.server.chars().all(is_host) {
            return refused("`settings.server` is no host: write \"irc.libera.chat\"");
        }
        if !is_nick(&settings.nick) {
            return refused("`settings.nick` cannot be a nick: write letters, digits, `-` or `_`");
        }
        if settings.port == Some(0) {
            return refused("`settings.port` is 0: write 1 to 65535");
        }
        if settings.account.as_deref().is_some_and(|name| !is_word(name)) {
            return refused("`settings.account` is no name: write one word");
        }
        if let Some(keys) = &secrets.channel_keys {
            settings.add_channel_keys(keys.expose_secret())?;
        }
        for channel in &settings.channels {
            let words: Vec<&str> = channel.split(' ').collect();
            let is_channel = channel.starts_with(['#', '&', '+', '!'])
                && channel.len() <= 80
                && words.len() <= 2
                && words.iter().all(|word| is_word(word) && !word.contains(','));
            if !is_channel {
                return refused(
                    "`settings.channels` has an entry that is no channel: write \"#team\"",
                );
            }
        }
        for (name, secret) in
            [("password", &secrets.password), ("server_password", &secrets.server_password)]
        {
            let Some(secret) = secret else { continue };
            let secret = secret.expose_secret();
            if secret.is_empty() || secret.len() > 300 || secret.chars().any(char::is_control) {
                return Err(UnusableAccount(format!(
                    "`secrets.{name}` has {} bytes: write 1 to 300, without control characters",
                    secret.len()
                )));
            }
            if !settings.tls && !is_this_machine(&settings.server) {
                return Err(UnusableAccount(format!(
                    "`secrets.{name}` would be sent in the clear: set `settings.tls` to true"
                )));
            }
        }
        Ok((settings, secrets))
    }

    /// Adds keys to the channels that they belong to.
    fn add_channel_keys(&mut self, keys: &str) -> Result<(), UnusableAccount> {
        let refused = |why: &str| UnusableAccount(format!("`secrets.channel_keys` {why}"));
        if keys.len() > MAX_CHANNEL_KEYS_BYTES {
            return Err(refused("is too long"));
        }
        if !self.tls && !is_this_machine(&self.server) {
            return Err(refused("would be sent in the clear: set `settings.tls` to true"));
        }
        for entry in keys.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, key)) = entry.split_once(' ').filter(|(_, key)| is_word(key)) else {
                return Err(refused("has an entry without a key: write \"#private key\""));
            };
            let Some(channel) = self.channels.iter_mut().find(|channel| *channel == name) else {
                return Err(refused("names a channel that `settings.channels` does not have"));
            };
            *channel = format!("{name} {key}");
        }
        Ok(())
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls { 6697 } else { 6667 })
    }

    /// Returns the name for SASL.
    #[must_use]
    pub fn account(&self) -> &str {
        self.account.as_deref().unwrap_or(&self.nick)
    }
}

fn is_this_machine(server: &str) -> bool {
    ["localhost", "127.0.0.1", "::1"].contains(&server)
}

fn is_nick(nick: &str) -> bool {
    let special = |c: char| "-_[]{}\\`^|".contains(c);
    let is_first = nick.starts_with(|c: char| !c.is_ascii_digit() && c != '-');
    is_first
        && nick.len() <= MAX_NICK_BYTES
        && nick.chars().all(|c| c.is_ascii_alphanumeric() || special(c))
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && !word.chars().any(|c| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(settings: Value, secrets: Value) -> String {
        IrcSettings::read(&settings, &secrets).unwrap_err().to_string()
    }

    #[test]
    fn settings_have_safe_defaults() {
        let settings = json!({"server": "irc.example.org", "nick": "bot"});

        let (settings, _) = IrcSettings::read(&settings, &json!({})).unwrap();

        assert!(settings.tls && settings.mention_only && !settings.allow.allows("anna", "anna"));
        assert_eq!((settings.port(), settings.account()), (6697, "bot"));
        assert_eq!(settings.identify_by, IrcIdentity::Account);
    }

    #[test]
    fn keys_of_channels_are_secrets() {
        let settings =
            json!({"server": "irc.example.org", "nick": "bot", "channels": ["#a", "#b", "#c"]});
        let read = |keys: &str| IrcSettings::read(&settings, &json!({ "channel_keys": keys }));

        let (both, _) = read("#a one, #c two").unwrap();
        assert_eq!(both.channels, ["#a one", "#b", "#c two"]);
        for keys in ["#a", "#d S3CRET", "#a S3CRET two"] {
            let told = read(keys).unwrap_err().to_string();
            assert!(
                told.starts_with("`secrets.channel_keys`") && !told.contains("S3CRET"),
                "{told}"
            );
        }
        // As older versions stored it.
        let old = json!({"server": "irc.example.org", "nick": "bot", "channels": ["#a one"]});
        assert_eq!(IrcSettings::read(&old, &json!({})).unwrap().0.channels, ["#a one"]);
    }

    #[test]
    fn what_could_inject_a_command_or_show_a_secret_is_refused() {
        let with = |field: &str, value: Value| {
            let mut settings = json!({"server": "irc.example.org", "nick": "bot"});
            settings[field] = value;
            settings
        };
        for (settings, told) in [
            (with("nick", json!("a b")), "`settings.nick`"),
            (with("nick", json!("9a")), "`settings.nick`"),
            (with("server", json!("a/b")), "`settings.server`"),
            (with("channels", json!(["team"])), "`settings.channels`"),
            (with("channels", json!(["#a,#b"])), "`settings.channels`"),
            (with("channels", json!(["#a\r\nQUIT"])), "`settings.channels`"),
            (with("port", json!(0)), "`settings.port` is 0"),
            (with("prot", json!(1)), "`settings` has no `prot`"),
        ] {
            let error = refused(settings, json!({}));
            assert!(error.starts_with(told), "{error}");
        }
        let clear = refused(with("tls", json!(false)), json!({"password": "S3CRET"}));
        assert!(clear.contains("in the clear") && !clear.contains("S3CRET"), "{clear}");
        let broken = refused(with("tls", json!(true)), json!({"password": "S3CRET\r\nQUIT"}));
        assert!(broken.contains("control characters") && !broken.contains("S3CRET"), "{broken}");
    }
}
