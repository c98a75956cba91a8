//! Nodes: people's own machines, and their tokens.

use holdfast_types::{NodeId, TenantId, UsedBy};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, tenant::check_name};

/// The most patterns of commands that are kept of what a node says.
const MOST_COMMANDS: usize = 100;

/// The longest that any of what a node says of itself may be, in characters.
const LONGEST: usize = 200;

/// A node as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its name, unique among the tenant's nodes that are not revoked.
    pub name: String,
    /// In whose conversations it may be used.
    pub used_by: UsedBy,
    /// What it said of itself when it last connected.
    pub said: NodeSelf,
    /// Whether it was connected when its gateway last said so; a gateway that died said nothing.
    pub may_be_connected: bool,
    /// When it last came or went.
    pub last_seen_at: Option<Timestamp>,
    /// When it was set up.
    pub created_at: Timestamp,
    /// When its token was ended.
    pub revoked_at: Option<Timestamp>,
}

/// A node to set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its name.
    pub name: String,
    /// In whose conversations it may be used.
    pub used_by: UsedBy,
}

/// What a node says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSelf {
    /// Its system, as `linux x86_64`.
    pub platform: String,
    /// The version of its program.
    pub version: String,
    /// The commands that it lets through, as patterns.
    pub commands: Vec<String>,
}

/// A node that has shown its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its id.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Requests a minute that the tenant's keys may make together.
    pub rate: u32,
}

/// One connection of a node.
pub type NodeConnection = Uuid;

impl NewNode {
    /// Refuses what could never work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("node", &self.name)
    }
}

impl NodeSelf {
    /// As much of it as is kept: it is shown to people and to models.
    pub(crate) fn within(self) -> Self {
        let short = |text: String| -> String {
            text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
        };
        let commands = self.commands.into_iter().take(MOST_COMMANDS).map(short).collect();
        Self { platform: short(self.platform), version: short(self.version), commands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_node_says_no_more_is_kept_than_can_be_shown() {
        let said = NodeSelf {
            platform: "linux\u{1b}[2J".repeat(100),
            version: "1".to_owned(),
            commands: vec!["git\n*".to_owned(); 500],
        };

        let kept = said.within();

        assert_eq!(kept.platform.chars().count(), LONGEST);
        assert!(!kept.platform.contains('\u{1b}'));
        assert_eq!((kept.commands.len(), kept.commands[0].as_str()), (MOST_COMMANDS, "git*"));
    }
}
