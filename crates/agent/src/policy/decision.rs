//! Decisions about tools and calls, and the rules behind them.

use std::fmt;

use super::layer::Layer;

/// Decision about a tool or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny { layer: DecisionSource, rule: Rule },
    NeedApproval { reason: Reason },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionSource {
    /// One of the nine layers.
    Layer(Layer),
    Visibility,
    /// The tool does not exist.
    Catalog,
    Action,
    Exec,
}

impl DecisionSource {
    /// Label in the metric of denials.
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

    /// Number of the layer; `None` for other sources.
    #[must_use]
    pub const fn number(self) -> Option<u8> {
        match self {
            Self::Layer(layer) => Some(layer.number()),
            Self::Visibility | Self::Catalog | Self::Action | Self::Exec => None,
        }
    }
}

/// Allow-list that is not part of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnList {
    Own,
    /// List of the route or of a message.
    Message,
    Toolbox,
    Bundle,
}

impl TurnList {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "the agent's own list of tools",
            Self::Message => "the list that came with the message",
            Self::Toolbox => "the behaviour's toolbox",
            Self::Bundle => "what it was spawned with",
        }
    }
}

/// Rule that denied. The texts are stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// An entry of a list denies the tool.
    Denied {
        entry: String,
        list: String,
    },
    /// An allow-list does not contain the tool.
    NotAllowed {
        list: String,
    },
    /// An allow-list of the turn does not contain the tool.
    NotListed(TurnList),
    /// A subagent spawns no others.
    SubagentSpawns,
    /// No visibility filter shows the tool to this user, here and now.
    Hidden,
    /// The tool does not exist.
    Unknown,
    /// A path is outside the scope.
    OutOfScope {
        access: &'static str,
    },
    NoExec,
    Command(super::exec::ExecReason),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { entry, list } => write!(f, "denied by `{entry}` in {list}"),
            Self::NotAllowed { list } => write!(f, "not in {list}"),
            Self::NotListed(list) => write!(f, "not in {}", list.as_str()),
            Self::SubagentSpawns => f.write_str("a subagent spawns none"),
            Self::Hidden => f.write_str("shown by no filter here, now, to this person"),
            Self::Unknown => f.write_str("there is no such tool"),
            Self::OutOfScope { access } => write!(f, "a path is outside the {access} scope"),
            Self::NoExec => f.write_str("commands may not be run"),
            Self::Command(reason) => write!(f, "{reason}"),
        }
    }
}

/// Reason of an approval. The texts are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Always,
    /// The call writes to a protected path, or names no path.
    Protected,
    Exec,
    /// The call pays money.
    Payment,
    Command(super::exec::ExecReason),
    /// The call changes what the agent does later, in a conversation with text from outside.
    OutsideText,
    /// The call sends something to others, in a conversation with text from outside.
    SentAfterOutsideText,
    /// The call costs money, in a conversation with text from outside.
    PaidAfterOutsideText,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("each call needs approval"),
            Self::Protected => f.write_str("writing to a protected path needs approval"),
            Self::Exec => f.write_str("running commands needs approval"),
            Self::Payment => f.write_str("each payment needs approval"),
            Self::Command(reason) => write!(f, "the command needs approval: {reason}"),
            Self::OutsideText => f.write_str(
                "it changes what the agent does later, and the agent has read text from outside",
            ),
            Self::SentAfterOutsideText => f.write_str(
                "it may tell others what the agent knows, and the agent has read text from outside",
            ),
            Self::PaidAfterOutsideText => {
                f.write_str("it costs money, and the agent has read text from outside")
            }
        }
    }
}
