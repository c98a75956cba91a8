//! What is said of a tool, and which rule says it.

use std::fmt;

use super::layer::Layer;

/// What is decided of a tool, or of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may be used.
    Allow,
    /// It may not.
    Deny {
        /// Who decided.
        layer: Place,
        /// By which rule.
        rule: Rule,
    },
    /// It may be used once a person has agreed.
    NeedApproval {
        /// Why they are asked.
        reason: Reason,
    },
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// One of the nine layers.
    Layer(Layer),
    /// The filters of who sees what.
    Visibility,
    /// The catalogue: there is no such tool.
    Catalog,
    /// The permissions of actions: what may be run, reached, read, written.
    Action,
    /// The approvals of commands.
    Exec,
}

impl Place {
    /// Its word: what the metric of denials is labelled with.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Layer(layer) => layer.as_str(),
            Self::Visibility => "visibility",
            Self::Catalog => "catalog",
            Self::Action => "action",
            Self::Exec => "exec",
        }
    }

    /// Its number, if it is one of the nine.
    #[must_use]
    pub const fn number(self) -> Option<u8> {
        match self {
            Self::Layer(layer) => Some(layer.number()),
            Self::Visibility | Self::Catalog | Self::Action | Self::Exec => None,
        }
    }
}

/// A list that names the only tools there are, and is not a tenant's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// The agent's own.
    Own,
    /// The route's or a message's.
    Message,
    /// The behaviour's toolbox.
    Toolbox,
    /// What the session was spawned with.
    Bundle,
}

impl List {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "the agent's own list of tools",
            Self::Message => "the list that came with the message",
            Self::Toolbox => "the behaviour's toolbox",
            Self::Bundle => "what it was spawned with",
        }
    }
}

/// The rule that denied. Its wording is stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// An entry denies it.
    Denied {
        /// The entry.
        entry: String,
        /// The list that it stands in.
        list: String,
    },
    /// A list of what is allowed does not have it.
    NotAllowed {
        /// The list.
        list: String,
    },
    /// The same, of a list that came with the turn.
    NotListed(List),
    /// A subagent as deep as this spawns no more.
    TooDeep {
        /// How deep it is.
        depth: u8,
        /// How deep one that spawns may be, at most.
        limit: u8,
    },
    /// No filter shows it here, now, to this person.
    Hidden,
    /// There is no such tool.
    Unknown,
    /// A path is outside what may be read or written.
    OutOfScope {
        /// `read` or `write`.
        access: &'static str,
    },
    /// Commands may not be run.
    NoExec,
    /// The network may not be reached.
    NoNetwork,
    /// The command is refused.
    Command(super::exec::ExecReason),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { entry, list } => write!(f, "denied by `{entry}` in {list}"),
            Self::NotAllowed { list } => write!(f, "not in {list}"),
            Self::NotListed(list) => write!(f, "not in {}", list.as_str()),
            Self::TooDeep { depth, limit } => {
                write!(f, "a session {depth} spawns deep spawns none: {limit} is the limit")
            }
            Self::Hidden => f.write_str("shown by no filter here, now, to this person"),
            Self::Unknown => f.write_str("there is no such tool"),
            Self::OutOfScope { access } => write!(f, "a path is outside the {access} scope"),
            Self::NoExec => f.write_str("commands may not be run"),
            Self::NoNetwork => f.write_str("the network may not be reached"),
            Self::Command(reason) => write!(f, "{reason}"),
        }
    }
}

/// Why a person is asked. Its wording is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Each call is asked about.
    Always,
    /// The call writes to a protected path, or does not say to which it writes.
    Protected,
    /// The action reaches the network.
    Network,
    /// Commands are asked about.
    Exec,
    /// The command is not in the allow-list.
    Command(super::exec::ExecReason),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("each call needs approval"),
            Self::Protected => f.write_str("writing to a protected path needs approval"),
            Self::Network => f.write_str("reaching the network needs approval"),
            Self::Exec => f.write_str("running commands needs approval"),
            Self::Command(reason) => write!(f, "the command needs approval: {reason}"),
        }
    }
}
