//! Why a policy is refused, and what in it deserves a second look.

use std::fmt;

use holdfast_types::{Fault, Kind};

/// Why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not of the settings' form.
    #[error("the tool policy cannot be read: {0}")]
    Form(String),
    /// An entry could never name a tool.
    #[error(
        "`{entry}` in `{at}` names no tool: write a name, a `group:` or a pattern with `*`, of 1 to {} characters without spaces",
        crate::policy::entry::LONGEST
    )]
    Entry {
        /// Where it is written.
        at: String,
        /// What is written, shortened.
        entry: String,
    },
    /// A list is too long.
    #[error("`{at}` has {got} entries, and {limit} is the most")]
    TooMany {
        /// Where it is written.
        at: String,
        /// How many there are.
        got: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A time of day is none, or a window is empty.
    #[error("`{at}` is no time window: write `from` and `to` as `HH:MM`, and not the same")]
    Window {
        /// Where it is written.
        at: String,
    },
    /// A path scope leaves the workspace.
    #[error("`{path}` in `{at}` is no scope: write a path in the workspace, without `..`")]
    Scope {
        /// Where it is written.
        at: String,
        /// What is written, shortened.
        path: String,
    },
    /// Somebody is named in a way in which no door names anybody.
    #[error(
        "`{person}` in `{at}` is nobody: write the channel and the id there, as in `telegram:12345`, or `api:` and a key's id"
    )]
    Person {
        /// Where it is written.
        at: String,
        /// What is written, shortened.
        person: String,
    },
    /// A role cannot be given by a list.
    #[error("`{role}` in `{at}` is no role to give: {wanted}")]
    Role {
        /// Where it is written.
        at: String,
        /// What is written, shortened.
        role: String,
        /// What to do instead.
        wanted: &'static str,
    },
    /// An allow-list's pattern for commands is empty or unreadable.
    #[error("`{pattern}` in `{at}` is no command pattern: write words, as in `git log *`")]
    Command {
        /// Where it is written.
        at: String,
        /// What is written, shortened.
        pattern: String,
    },
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Something in a policy that works, and probably not as meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// An entry covers no tool that there is, nor one that there could be.
    Unknown {
        /// Where it is written.
        at: String,
        /// The entry.
        entry: String,
    },
    /// An allow-list names nothing of the product's own tools; they are kept.
    CoreKept {
        /// Where it is written.
        at: String,
    },
    /// A tool is left out since no entry could name it.
    Unnameable {
        /// The tool's name, shortened.
        tool: String,
    },
    /// A tool is left out since its name is another's.
    Clash {
        /// The tool's name.
        tool: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { at, entry } => write!(f, "`{entry}` in `{at}` covers no tool"),
            Self::CoreKept { at } => write!(
                f,
                "`{at}` names only tools of plugins or none at all: the tools that are no plugin's \
                 are kept; deny them if they are to go"
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

/// A text of a tenant's, short enough to be shown.
pub(crate) fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
