//! Connections: accounts at other services that agents may use. Their secrets are not part of them.
//!
//! Services that create, use and store connections must agree on the settings, so the settings are
//! checked here, once.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

const MAX_TEXT_BYTES: usize = 2_000;
const MAX_RECIPIENTS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionKind {
    Caldav,
    /// Mail submission server (RFC 6409).
    Smtp,
    Notion,
}

impl ConnectionKind {
    pub const ALL: [Self; 3] = [Self::Caldav, Self::Smtp, Self::Notion];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caldav => "caldav",
            Self::Smtp => "smtp",
            Self::Notion => "notion",
        }
    }

    /// Name of the tool that uses such connections; not offered to the model without one.
    #[must_use]
    pub const fn tool(self) -> &'static str {
        match self {
            Self::Caldav => "calendar",
            Self::Smtp => "email",
            Self::Notion => "notion",
        }
    }

    #[must_use]
    pub fn of_tool(tool: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tool() == tool)
    }
}

impl FromStr for ConnectionKind {
    type Err = InvalidConnection;

    fn from_str(word: &str) -> Result<Self, InvalidConnection> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
            let shown: String = word.chars().take(80).collect();
            InvalidConnection(format!(
                "`{shown}` is not a kind of connection: use caldav, smtp or notion"
            ))
        })
    }
}

/// Message that says what is wrong with a connection and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConnection(String);

/// Sessions in which a connection is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionScope {
    /// Sessions with the agent's owner, and those in which the agent works by itself.
    Owner,
    /// Sessions of one person: the end of their session keys, such as `telegram:42` or `api:anna`.
    Person(String),
    Everyone,
}

impl fmt::Display for ConnectionScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "owner",
            Self::Person(person) => person,
            Self::Everyone => "everyone",
        })
    }
}

impl FromStr for ConnectionScope {
    type Err = InvalidConnection;

    fn from_str(text: &str) -> Result<Self, InvalidConnection> {
        match text.trim() {
            "" | "owner" => Ok(Self::Owner),
            "everyone" => Ok(Self::Everyone),
            person => match person.split_once(':') {
                Some((channel, peer))
                    if !channel.is_empty()
                        && !peer.is_empty()
                        && person.len() <= 300
                        && !person.contains(char::is_control) =>
                {
                    Ok(Self::Person(format!("{}:{peer}", channel.to_lowercase())))
                }
                Some(_) | None => Err(InvalidConnection(format!(
                    "`{}` is nobody: write `owner`, `everyone`, or a person as their sessions' \
                     keys end, as `telegram:42` or `api:anna`",
                    person.chars().take(80).collect::<String>()
                ))),
            },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caldav {
    /// URL of the calendar itself, as `https://dav.example.com/calendars/anna/home/`.
    pub url: String,
    /// User name; the secret is the password. If empty, the secret is a bearer token.
    pub user: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmtpSecurity {
    /// STARTTLS; nothing is sent if the server does not support it.
    #[default]
    Starttls,
    /// TLS from the start.
    Tls,
    /// No protection: only for servers that the operator listed.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpServer {
    pub host: String,
    pub port: u16,
    pub security: SmtpSecurity,
    /// User name; the secret is the password. If empty, there is no login.
    pub user: String,
    /// Sender of the mail, as `Anna <anna@example.com>`.
    pub from: String,
    /// Allowed recipients: addresses, and `@example.com` for a whole domain; empty allows all.
    pub to: Vec<String>,
}

impl Default for SmtpServer {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 587,
            security: SmtpSecurity::default(),
            user: String::new(),
            from: String::new(),
            to: Vec::new(),
        }
    }
}

impl SmtpServer {
    /// Whether mail may go to an address.
    #[must_use]
    pub fn may_write_to(&self, address: &str) -> bool {
        let address = address.to_lowercase();
        let fits = |entry: &String| match entry.strip_prefix('@') {
            Some(_) => address.ends_with(&entry.to_lowercase()),
            None => entry.to_lowercase() == address,
        };
        self.to.is_empty() || self.to.iter().any(fits)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notion {
    pub url: String,
    pub version: String,
}

impl Default for Notion {
    fn default() -> Self {
        Self { url: "https://api.notion.com".to_owned(), version: "2022-06-28".to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionSettings {
    Caldav(Caldav),
    Smtp(SmtpServer),
    Notion(Notion),
}

impl ConnectionSettings {
    /// Parses and checks the settings of a connection.
    ///
    /// # Errors
    ///
    /// If the settings have the wrong form or could never work.
    pub fn from_settings(kind: ConnectionKind, settings: Value) -> Result<Self, InvalidConnection> {
        let read = match kind {
            ConnectionKind::Caldav => Self::Caldav(parse(kind, settings)?),
            ConnectionKind::Smtp => Self::Smtp(parse(kind, settings)?),
            ConnectionKind::Notion => Self::Notion(parse(kind, settings)?),
        };
        match &read {
            Self::Caldav(calendar) => {
                check_url("url", &calendar.url)?;
                check_text("user", &calendar.user)?;
            }
            Self::Smtp(server) => check_server(server)?,
            Self::Notion(notion) => {
                check_url("url", &notion.url)?;
                check_text("version", &notion.version)?;
            }
        }
        Ok(read)
    }

    #[must_use]
    pub const fn kind(&self) -> ConnectionKind {
        match self {
            Self::Caldav(_) => ConnectionKind::Caldav,
            Self::Smtp(_) => ConnectionKind::Smtp,
            Self::Notion(_) => ConnectionKind::Notion,
        }
    }

    #[must_use]
    pub fn settings(&self) -> Value {
        let settings = match self {
            Self::Caldav(calendar) => serde_json::to_value(calendar),
            Self::Smtp(server) => serde_json::to_value(server),
            Self::Notion(notion) => serde_json::to_value(notion),
        };
        // Strings, numbers and lists of strings always convert to JSON.
        settings.unwrap_or_default()
    }

    /// The endpoint that gets the secret: if it changes, the secret must be given again.
    #[must_use]
    pub fn endpoint(&self) -> String {
        match self {
            Self::Caldav(calendar) => calendar.url.clone(),
            Self::Smtp(server) => format!("{}:{}:{:?}", server.host, server.port, server.security),
            Self::Notion(notion) => notion.url.clone(),
        }
    }
}

fn parse<T: DeserializeOwned>(
    kind: ConnectionKind,
    settings: Value,
) -> Result<T, InvalidConnection> {
    let settings = match settings {
        Value::Null => Value::Object(serde_json::Map::new()),
        settings => settings,
    };
    serde_json::from_value(settings).map_err(|error| {
        InvalidConnection(format!("the settings of a {} connection: {error}", kind.as_str()))
    })
}

fn check_server(server: &SmtpServer) -> Result<(), InvalidConnection> {
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    if server.host.is_empty() || server.host.len() > 253 || !server.host.chars().all(is_host) {
        return Err(InvalidConnection(
            "`host` is the mail server's name, as `smtp.example.com`".to_owned(),
        ));
    }
    if server.port == 0 {
        return Err(InvalidConnection("`port` is 587, 465 or another, and not 0".to_owned()));
    }
    if !server.from.contains('@') {
        return Err(InvalidConnection(
            "`from` is whom mail is from, as `anna@example.com`".to_owned(),
        ));
    }
    check_text("user", &server.user)?;
    check_text("from", &server.from)?;
    if server.to.len() > MAX_RECIPIENTS {
        return Err(InvalidConnection(format!(
            "`to` has {MAX_RECIPIENTS} entries at most, and this one {}",
            server.to.len()
        )));
    }
    for entry in &server.to {
        check_text("to", entry)?;
        if !entry.contains('@') {
            return Err(InvalidConnection(
                "`to` lists addresses, and `@example.com` for all of a domain".to_owned(),
            ));
        }
    }
    Ok(())
}

fn check_text(name: &str, text: &str) -> Result<(), InvalidConnection> {
    if text.len() > MAX_TEXT_BYTES || text.contains(char::is_control) {
        return Err(InvalidConnection(format!(
            "`{name}` has {MAX_TEXT_BYTES} bytes at most, and no line's end in it"
        )));
    }
    Ok(())
}

fn check_url(name: &str, url: &str) -> Result<(), InvalidConnection> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let is_plain = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    // A password in an address ends up in logs.
    if host.is_empty() || host.contains('@') || !is_plain || url.len() > MAX_TEXT_BYTES {
        return Err(InvalidConnection(format!(
            "`{name}` begins with https://, as `https://dav.example.com/anna/`, and holds no \
             password"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_read_says_the_same_again() {
        for (kind, settings) in [
            (ConnectionKind::Caldav, json!({"url": "https://dav.example.com/a/", "user": "anna"})),
            (
                ConnectionKind::Smtp,
                json!({
                    "host": "smtp.example.com", "port": 465, "security": "tls", "user": "anna",
                    "from": "Anna <anna@example.com>", "to": ["@example.com"],
                }),
            ),
            (
                ConnectionKind::Notion,
                json!({"url": "https://api.notion.com", "version": "2022-06-28"}),
            ),
        ] {
            let read = ConnectionSettings::from_settings(kind, settings.clone()).unwrap();

            assert_eq!((read.kind(), read.settings()), (kind, settings));
            assert_eq!(ConnectionKind::of_tool(kind.tool()), Some(kind));
            assert_eq!(kind.as_str().parse::<ConnectionKind>(), Ok(kind));
        }
        assert!(ConnectionSettings::from_settings(ConnectionKind::Notion, Value::Null).is_ok());
    }

    #[test]
    fn what_could_never_work_is_refused_with_what_to_write() {
        for (kind, settings, told) in [
            (ConnectionKind::Caldav, json!({}), "`url` begins with"),
            (ConnectionKind::Caldav, json!({"url": "https://a:b@h/"}), "holds no password"),
            (ConnectionKind::Caldav, json!({"url": "file:///etc/passwd"}), "`url` begins with"),
            (ConnectionKind::Caldav, json!({"uri": "x"}), "unknown field `uri`"),
            (ConnectionKind::Smtp, json!({"from": "a@b.c"}), "`host` is"),
            (ConnectionKind::Smtp, json!({"host": "h h", "from": "a@b.c"}), "`host` is"),
            (ConnectionKind::Smtp, json!({"host": "h", "from": "a@b.c\r\nBcc: x@y"}), "line's end"),
            (ConnectionKind::Smtp, json!({"host": "h", "from": "anna"}), "`from` is"),
            (ConnectionKind::Smtp, json!({"host": "h", "from": "a@b", "to": ["b"]}), "`to` lists"),
            (ConnectionKind::Smtp, json!({"host": "h", "from": "a@b", "port": 0}), "`port` is"),
        ] {
            let told_is =
                ConnectionSettings::from_settings(kind, settings.clone()).unwrap_err().to_string();

            assert!(told_is.contains(told), "{settings}: {told_is}");
        }
    }

    #[test]
    fn mail_goes_to_whom_the_list_names() {
        let to = ["@Example.com".to_owned(), "ben@home.test".to_owned()];
        let server = SmtpServer { to: to.to_vec(), ..SmtpServer::default() };

        for (address, may) in [
            ("anna@example.com", true),
            ("BEN@home.test", true),
            ("ben@home.test.evil.test", false),
            ("anna@notexample.com", false),
            ("x@sub.example.com", false),
        ] {
            assert_eq!(server.may_write_to(address), may, "{address}");
        }
        assert!(SmtpServer::default().may_write_to("whoever@x.test"));
    }

    #[test]
    fn who_uses_a_connection_reads_back() {
        for text in ["owner", "everyone", "telegram:42", "api:anna", "any:a:b"] {
            assert_eq!(text.parse::<ConnectionScope>().unwrap().to_string(), text);
        }
        assert_eq!(
            "Telegram:Ab".parse::<ConnectionScope>(),
            Ok(ConnectionScope::Person("telegram:Ab".to_owned()))
        );
        for text in ["anna", ":x", "x:", "a:\n"] {
            assert!(text.parse::<ConnectionScope>().is_err(), "{text}");
        }
    }
}
