//! Errors and warnings of policy settings.

use std::fmt;

use holdfast_types::{Fault, Kind};

/// Invalid policy settings. `at` is the path of the setting; quoted texts are shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The JSON does not have the form of the settings.
    #[error("the tool policy cannot be read: {0}")]
    Form(String),
    /// The entry can never name a tool.
    #[error(
        "`{entry}` in `{at}` names no tool: write a name, a `group:` or a pattern with `*`, of 1 to {} characters without spaces",
        crate::policy::entry::MAX_ENTRY_CHARS
    )]
    Entry { at: String, entry: String },
    #[error("`{at}` has {got} entries, and {limit} is the most")]
    TooMany { at: String, got: usize, limit: usize },
    /// An invalid time of day, or an empty window.
    #[error("`{at}` is no time window: write `from` and `to` as `HH:MM`, and not the same")]
    Window { at: String },
    /// A path scope outside the workspace.
    #[error("`{path}` in `{at}` is no scope: write a path in the workspace, without `..`")]
    Scope { at: String, path: String },
    #[error("`{host}` in `{at}` is no host: write `example.com`, or `*.example.com`")]
    Host { at: String, host: String },
    #[error(
        "`{person}` in `{at}` is nobody: write the channel and the id there, as in `telegram:12345`, or `api:` and a key's id"
    )]
    Person { at: String, person: String },
    /// A role that a list cannot give.
    #[error("`{role}` in `{at}` is no role to give: {wanted}")]
    Role { at: String, role: String, wanted: &'static str },
    /// An empty or unreadable pattern in a command allow-list.
    #[error("`{pattern}` in `{at}` is no command pattern: write words, as in `git log *`")]
    Command { at: String, pattern: String },
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Setting that is valid but probably a mistake. `at` is its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The entry covers no existing or known tool.
    Unknown { at: String, entry: String },
    /// The allow-list names none of the product's own tools, so they stay allowed.
    CoreKept { at: String },
    /// The tool is left out because no entry could name it.
    Unnameable { tool: String },
    /// The tool is left out because another one has its name.
    Clash { tool: String },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { at, entry } => write!(f, "`{entry}` in `{at}` covers no tool"),
            Self::CoreKept { at } => write!(
                f,
                "`{at}` names only tools of MCP servers or none at all: the product's own tools are \
                 kept; deny them if they are to go"
            ),
            Self::Unnameable { tool } => {
                write!(f, "the tool `{tool}` is left out: no policy could name it")
            }
            Self::Clash { tool } => {
                write!(f, "the tool `{tool}` is left out: its name is another tool's")
            }
        }
    }
}

/// Shortens a tenant's text for an error.
pub(crate) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
