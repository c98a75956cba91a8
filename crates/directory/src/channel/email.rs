//! E-mail accounts.

use std::net::IpAddr;

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
    name: "email",
    required_secrets: &["password"],
    secrets: field_errors::field_names::<EmailSecrets>,
    schema: schema_of::<EmailSettings>,
    check: |settings, secrets| EmailSettings::read(settings, secrets).map(drop),
    actions: |_| &["send", "media"],
    capabilities: &[],
};

const FIELDS: [Field; 11] = [
    ("address", "the account's address: \"agent@example.com\""),
    ("name", "the name beside the address: \"Holdfast\""),
    ("user", "the name to sign in with, if it is not the address"),
    (
        "imap",
        "a JSON object: {\"host\": \"imap.example.com\", \"port\": 993, \"security\": \"tls\"}",
    ),
    (
        "smtp",
        "a JSON object: {\"host\": \"smtp.example.com\", \"port\": 465, \"security\": \"tls\"}",
    ),
    ("mailbox", "the name of a folder: \"INBOX\""),
    ("sent", "the name of the folder of sent mails: \"Sent\""),
    ("server_saves_sent", "true, if the server puts each sent mail into `sent` by itself"),
    ("allow", "a list of addresses, domains or \"*\": [\"anna@example.com\", \"@example.org\"]"),
    ("authentication", "\"required\", \"if_present\" or \"off\""),
    (
        "authserv",
        "the name at the beginning of the server's `Authentication-Results`: \"mx.example.com\"; \
         \"-\" if there is none",
    ),
];
const FIELDS_OF_SERVERS: [Field; 3] = [
    ("host", "a host name: \"imap.example.com\""),
    ("port", "a number, 1 to 65535"),
    ("security", "\"tls\", \"starttls\", or \"none\" for this machine"),
];

/// Settings of an e-mail account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmailSettings {
    pub address: String,
    pub name: String,
    /// Name to sign in with; empty for the address.
    user: String,
    pub imap: MailServer,
    pub smtp: MailServer,
    pub mailbox: String,
    /// Folder of sent mails; without it, the one that the server names so.
    pub sent: Option<String>,
    pub server_saves_sent: bool,
    pub allow: AllowList,
    pub authentication: MailAuthentication,
    /// Name at the beginning of the header `Authentication-Results` that the account's own server
    /// writes; several with spaces between them; `-` if it writes none. Empty learns it from a test
    /// mail.
    authserv: String,
}

impl Default for EmailSettings {
    fn default() -> Self {
        Self {
            address: String::new(),
            name: String::new(),
            user: String::new(),
            imap: MailServer::default(),
            smtp: MailServer::default(),
            mailbox: "INBOX".to_owned(),
            sent: None,
            server_saves_sent: false,
            allow: AllowList::default(),
            authentication: MailAuthentication::default(),
            authserv: String::new(),
        }
    }
}

/// Server for mails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MailServer {
    pub host: String,
    /// 0 for the port that belongs to the protection.
    pub port: u16,
    pub security: MailSecurity,
}

/// Protection of a connection to a mail server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// TLS from the beginning.
    #[default]
    Tls,
    /// TLS after the command `STARTTLS`, or no connection.
    Starttls,
    /// None: on this machine only.
    None,
}

/// What becomes of a mail whose sender the own server has not verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailAuthentication {
    /// The mail is refused, and stays unread in the mailbox.
    #[default]
    Required,
    /// The mail is refused if the check failed. If there was no check, its sender is a stranger
    /// without rights, whatever the address.
    IfPresent,
    /// Nothing is checked: all senders are strangers without rights, whatever their addresses.
    Off,
}

/// Secrets of an e-mail account.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailSecrets {
    pub password: SecretString,
}

impl EmailSettings {
    /// Parses settings and secrets, and checks that they fit together.
    ///
    /// # Errors
    ///
    /// [`UnusableAccount`] if the account could not be served.
    pub fn read(
        settings: &Value,
        secrets: &Value,
    ) -> Result<(Self, EmailSecrets), UnusableAccount> {
        for (at, field) in [("settings.imap", "imap"), ("settings.smtp", "smtp")] {
            if let Some(server) = settings.get(field) {
                field_errors::parse_settings::<MailServer>(at, &FIELDS_OF_SERVERS, server)?;
            }
        }
        let mut settings: Self = field_errors::parse_settings("settings", &FIELDS, settings)?;
        settings.address = settings.address.trim().to_lowercase();
        if !is_address(&settings.address) {
            return Err(UnusableAccount(
                "`settings.address` is no address: write `agent@example.com`".to_owned(),
            ));
        }
        for (field, server) in [("imap", &settings.imap), ("smtp", &settings.smtp)] {
            server.check(field)?;
        }
        for (field, text) in [
            ("name", &settings.name),
            ("user", &settings.user),
            ("mailbox", &settings.mailbox),
            ("sent", settings.sent.as_ref().unwrap_or(&settings.mailbox)),
            ("authserv", &settings.authserv),
        ] {
            if text.len() > 200 || text.chars().any(char::is_control) {
                return Err(UnusableAccount(format!(
                    "`settings.{field}` has {} bytes: 200 are the most, without control characters",
                    text.len()
                )));
            }
        }
        let secrets: EmailSecrets = field_errors::parse_secrets(secrets, "{\"password\": …}")?;
        let password = secrets.password.expose_secret();
        if password.is_empty() || password.contains(['\r', '\n', '\0']) {
            return Err(UnusableAccount(
                "`secrets.password` cannot be used: it is empty, or has a line break in it"
                    .to_owned(),
            ));
        }
        Ok((settings, secrets))
    }

    /// Returns the name to sign in with.
    #[must_use]
    pub fn user(&self) -> &str {
        if self.user.is_empty() { &self.address } else { &self.user }
    }

    /// Returns the names of the account's own server in `Authentication-Results`, in lower case;
    /// `None` stands for no name. Empty if they are not set.
    #[must_use]
    pub fn own_servers(&self) -> Vec<Option<String>> {
        let names = self.authserv.split_ascii_whitespace();
        names.map(|name| Some(name.to_ascii_lowercase()).filter(|name| name != "-")).collect()
    }

    /// Whether this address may write: it is listed, or its domain is, as `@example.com`.
    #[must_use]
    pub fn allows(&self, address: &str) -> bool {
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        self.allow.allows(address, address) || self.allow.allows("", domain)
    }
}

impl MailServer {
    fn check(&self, field: &str) -> Result<(), UnusableAccount> {
        let host = &self.host;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
        if host.is_empty() || host.len() > 255 || !host.chars().all(plain) {
            return Err(UnusableAccount(format!(
                "`settings.{field}.host` is no host name: write `{field}.example.com`"
            )));
        }
        if self.security == MailSecurity::None && !self.is_local() {
            return Err(UnusableAccount(format!(
                "`settings.{field}.security` is `none`, which is for this machine only: \
                 write `tls` or `starttls`"
            )));
        }
        Ok(())
    }

    fn is_local(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// Returns the port, which depends on the protection if none is set.
    #[must_use]
    pub const fn port(&self, of_tls: u16, of_others: u16) -> u16 {
        match (self.port, self.security) {
            (0, MailSecurity::Tls) => of_tls,
            (0, MailSecurity::Starttls | MailSecurity::None) => of_others,
            (port, _) => port,
        }
    }
}

fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    text.len() <= 254
        && text.chars().all(plain)
        && text.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty() && !domain.is_empty() && !domain.contains('@')
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value, secrets: Value) -> Result<EmailSettings, String> {
        let read = EmailSettings::read(&settings, &secrets);
        read.map(|(settings, _)| settings).map_err(|refused| refused.to_string())
    }

    fn least(more: Value) -> Value {
        let mut settings = json!({"address": "Agent@Example.com", "imap": {"host": "i.example.com"},
            "smtp": {"host": "s.example.com"}});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    }

    #[test]
    fn settings_have_safe_defaults() {
        let settings = read(least(json!({})), json!({"password": "p"})).unwrap();

        assert_eq!((settings.user(), settings.mailbox.as_str()), ("agent@example.com", "INBOX"));
        // The name is never guessed.
        assert_eq!((settings.own_servers(), settings.imap.security), (vec![], MailSecurity::Tls));
        assert_eq!((settings.imap.port(993, 143), settings.smtp.port(465, 587)), (993, 465));
        assert_eq!(settings.authentication, MailAuthentication::Required);
        assert!(!settings.allows("anna@example.com"));
    }

    #[test]
    fn every_setting_is_read() {
        let all = json!({
            "address": "a@x", "name": "A", "user": "u", "mailbox": "Agent", "sent": "Sent",
            "imap": {"host": "i", "port": 1143, "security": "starttls"},
            "smtp": {"host": "127.0.0.1", "port": 25, "security": "none"},
            "server_saves_sent": true, "allow": ["anna@x", "@y"], "authentication": "off",
            "authserv": "MX  mx2 -",
        });
        assert_eq!(all.as_object().unwrap().len(), FIELDS.len());
        assert_eq!(all["imap"].as_object().unwrap().len(), FIELDS_OF_SERVERS.len());

        let settings = read(all, json!({"password": "p"})).unwrap();

        assert_eq!((settings.user(), settings.imap.port(1, 2)), ("u", 1143));
        let names = [Some("mx".to_owned()), Some("mx2".to_owned()), None];
        assert_eq!(settings.own_servers(), names);
        assert_eq!(settings.authentication, MailAuthentication::Off);
        assert!(settings.allows("anna@x") && settings.allows("ANNA@x") && settings.allows("bob@y"));
        assert!(
            !settings.allows("bob@x") && !settings.allows("y@z") && !settings.allows("bob@z.y")
        );
    }

    #[test]
    fn a_refusal_says_what_to_write_and_repeats_no_secret() {
        for (settings, secrets, told) in [
            (json!({}), json!({"password": "S3CRET"}), "`settings.address` is no address"),
            (
                least(json!({"address": "a b@x"})),
                json!({"password": "p"}),
                "`settings.address` is no",
            ),
            (
                least(json!({"imap": {}})),
                json!({"password": "p"}),
                "`settings.imap.host` is no host",
            ),
            (
                least(json!({"smtp": {"host": "x", "security": "none"}})),
                json!({"password": "p"}),
                "`settings.smtp.security` is `none`, which is for this machine only",
            ),
            (
                least(json!({"imap": {"hots": 1}})),
                json!({"password": "p"}),
                "`settings.imap` has no `hots`",
            ),
            (
                least(json!({"name": "a\nb"})),
                json!({"password": "p"}),
                "`settings.name` has 3 bytes",
            ),
            (
                least(json!({})),
                json!({"password": "S3CRET\n"}),
                "`secrets.password` cannot be used",
            ),
            (least(json!({})), json!({"password": ["S3CRET"]}), "the `secrets` are not what they"),
        ] {
            let refused = read(settings, secrets).unwrap_err();
            assert!(refused.starts_with(told) && !refused.contains("S3CRET"), "{refused}");
        }
    }
}
