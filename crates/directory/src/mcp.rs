//! MCP servers whose tools a tenant's agents can use.

use std::{collections::BTreeMap, fmt};

use holdfast_types::AgentId;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::{Error, url_syntax};

const MAX_NAME_BYTES: usize = 32;
const MAX_URL_BYTES: usize = 2_000;
const MAX_COMMAND_BYTES: usize = 1_000;
const MAX_ARG_BYTES: usize = 4_000;
const MAX_ARGS: usize = 64;
const MAX_SECRETS: usize = 32;
const MAX_SECRET_BYTES: usize = 8_000;
const MAX_AGENTS: usize = 200;

/// Headers that the protocol and the HTTP client set themselves.
const RESERVED_HEADERS: [&str; 11] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// An MCP server without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Name; the middle part of its tools' names.
    pub name: String,
    pub transport: McpTransport,
    /// Names of the stored headers or environment variables.
    pub secret_names: Vec<String>,
    /// Agents that may use the server; `None` allows all.
    pub agents: Option<Vec<AgentId>>,
    /// Whether agents can use the server.
    pub enabled: bool,
    /// Whether tools that the server marks read-only need no approval after text from outside.
    pub harmless: bool,
    /// Version; a new value after each change.
    pub version: Uuid,
}

/// Transport of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    Http {
        /// Endpoint, for example `https://host/mcp`.
        url: String,
    },
    /// A process with its standard input and output.
    Stdio {
        command: String,
        args: Vec<String>,
        /// Whether the process may use the network.
        network: bool,
        /// Whether the files of its folder are kept, as files of the agent.
        keep: bool,
    },
}

/// An MCP server to create, or the new values of one.
#[derive(Clone)]
pub struct NewMcpServer {
    /// Name; the middle part of its tools' names.
    pub name: String,
    pub transport: McpTransport,
    /// Headers or environment variables; `None` keeps the stored ones.
    pub secrets: Option<BTreeMap<String, SecretString>>,
    /// Names or ids of the agents that may use the server; empty allows all.
    pub agents: Vec<String>,
    /// Whether agents can use the server.
    pub enabled: bool,
    /// Whether tools that the server marks read-only need no approval after text from outside.
    pub harmless: bool,
}

/// An MCP server with its secrets.
#[derive(Debug, Clone)]
pub struct OpenMcpServer {
    pub server: McpServer,
    /// Headers or environment variables.
    pub secrets: Vec<(String, SecretString)>,
}

impl fmt::Debug for NewMcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMcpServer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl McpServer {
    /// Whether the agent may use the server.
    #[must_use]
    pub fn is_for(&self, agent: AgentId) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.contains(&agent))
    }
}

impl NewMcpServer {
    /// Validates the name, the transport and the secrets.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        if self.agents.len() > MAX_AGENTS {
            return Err(invalid(format!(
                "`agents` has {MAX_AGENTS} at most: leave it empty for all"
            )));
        }
        let secrets = self.secrets.iter().flatten();
        let secrets = secrets.map(|(name, value)| (name.as_str(), value.expose_secret()));
        match &self.transport {
            McpTransport::Http { url } => {
                check_url(url)?;
                check_secrets("header", secrets, is_header, |value| {
                    value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
                })
            }
            McpTransport::Stdio { command, args, .. } => {
                check_command(command, args)?;
                check_secrets("variable", secrets, is_variable, |value| !value.contains('\0'))
            }
        }
    }
}

impl McpTransport {
    /// Whether a secret that was given for one transport may be sent to the other.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Http { url }, Self::Http { url: other }) => url == other,
            (
                Self::Stdio { command, args, network, .. },
                Self::Stdio { command: other, args: others, network: theirs, .. },
            ) => command == other && args == others && network == theirs,
            (Self::Http { .. }, Self::Stdio { .. }) | (Self::Stdio { .. }, Self::Http { .. }) => {
                false
            }
        }
    }
}

/// Checks the form of a server's name.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_letter) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(invalid(format!(
        "`{shown}` is not an MCP server's name: write 1 to {MAX_NAME_BYTES} of a-z, 0-9 and `_`"
    )))
}

fn check_url(url: &str) -> Result<(), Error> {
    // A password in a URL ends up in logs.
    if url_syntax::authority(url).is_none_or(|host| host.contains('@')) || url.len() > MAX_URL_BYTES
    {
        return Err(invalid(
            "an MCP server's `url` begins with https:// or http://, as in \
             `https://host/mcp`, and holds no password: use a header"
                .to_owned(),
        ));
    }
    Ok(())
}

fn check_command(command: &str, args: &[String]) -> Result<(), Error> {
    if command.trim().is_empty() || command.len() > MAX_COMMAND_BYTES || command.contains('\0') {
        return Err(invalid(format!(
            "`command` is the program to start, of 1 to {MAX_COMMAND_BYTES} bytes, as in `npx`; what \
             comes after it goes into `args`"
        )));
    }
    let is_wrong = |arg: &String| arg.len() > MAX_ARG_BYTES || arg.contains('\0');
    if args.len() > MAX_ARGS || args.iter().any(is_wrong) {
        return Err(invalid(format!(
            "`args` has {MAX_ARGS} arguments at most, each of {MAX_ARG_BYTES} bytes at most"
        )));
    }
    Ok(())
}

fn check_secrets<'a>(
    what: &str,
    secrets: impl Iterator<Item = (&'a str, &'a str)>,
    is_name: fn(&str) -> bool,
    is_value: fn(&str) -> bool,
) -> Result<(), Error> {
    for (at, (name, value)) in secrets.enumerate() {
        if at >= MAX_SECRETS {
            return Err(invalid(format!("an MCP server has {MAX_SECRETS} {what}s at most")));
        }
        if !is_name(name) {
            let shown: String = name.chars().take(80).collect();
            return Err(invalid(format!(
                "`{shown}` cannot be a {what}'s name here: it is none, or the protocol's own"
            )));
        }
        if value.len() > MAX_SECRET_BYTES || !is_value(value) {
            return Err(invalid(format!(
                "the value of the {what} `{name}` is too long, or holds what no {what} can: \
                 {MAX_SECRET_BYTES} bytes are the most"
            )));
        }
    }
    Ok(())
}

fn is_header(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let lower = name.to_ascii_lowercase();
    (1..=100).contains(&name.len())
        && name.bytes().all(is_token)
        && !RESERVED_HEADERS.contains(&lower.as_str())
        && !lower.starts_with("mcp-param-")
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 100
        && bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

fn invalid(why: String) -> Error {
    Error::Invalid(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str) -> NewMcpServer {
        NewMcpServer {
            name: "x".to_owned(),
            transport: McpTransport::Http { url: url.to_owned() },
            secrets: None,
            agents: Vec::new(),
            enabled: true,
            harmless: false,
        }
    }

    fn stdio(command: &str, args: &[&str]) -> NewMcpServer {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let transport =
            McpTransport::Stdio { command: command.to_owned(), args, network: false, keep: false };
        NewMcpServer { transport, ..http("") }
    }

    fn with(new: NewMcpServer, name: &str, value: &str) -> NewMcpServer {
        NewMcpServer { secrets: Some([(name.to_owned(), value.into())].into()), ..new }
    }

    #[test]
    fn a_name_is_fit_to_be_a_part_of_a_tools_name() {
        for name in ["a", "0", "git_hub", &"x".repeat(32)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "A", "a-b", "a b", "ä", &"x".repeat(33)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn only_urls_of_the_web_without_a_password_are_taken() {
        assert!(http("https://host/mcp").check().is_ok());
        for url in ["", "host/mcp", "file:///x", "https://u:p@host/", "https://a b/"] {
            assert!(http(url).check().is_err(), "{url}");
        }
    }

    #[test]
    fn a_command_is_one_program_and_its_arguments() {
        assert!(stdio("npx", &["-y", "server", "a b", ""]).check().is_ok());
        assert!(stdio(" ", &[]).check().is_err());
        assert!(stdio("a\0", &[]).check().is_err());
        assert!(stdio("a", &["\0"]).check().is_err());
        assert!(stdio("a", &["x"; 65]).check().is_err());
    }

    #[test]
    fn headers_and_variables_are_what_they_must_be() {
        let here = || http("https://host/mcp");
        assert!(with(here(), "Authorization", "Bearer x").check().is_ok());
        for name in ["", "a b", "Host", "MCP-Session-Id", "content-type", "mcp-param-x", "a:"] {
            assert!(with(here(), name, "x").check().is_err(), "{name}");
        }
        for value in ["a\nb", "é", "\0"] {
            assert!(with(here(), "x", value).check().is_err(), "{value:?}");
        }
        assert!(with(stdio("a", &[]), "API_KEY", "é\n").check().is_ok());
        for name in ["", "1A", "A-B", "A=B"] {
            assert!(with(stdio("a", &[]), name, "x").check().is_err(), "{name}");
        }
    }

    #[test]
    fn secrets_are_not_shown_nor_repeated_in_errors() {
        let new = with(http("https://host/mcp"), "x", "s3cret\n");

        assert!(!format!("{new:?}").contains("s3cret"));
        assert!(!new.check().unwrap_err().to_string().contains("s3cret"));
    }
}
