//! Nodes: people's own machines, and their tokens.

use holdfast_types::{ConnectionScope, NodeId, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, tenant::check_name};

/// Maximum number of command patterns that are stored of a node's report.
const MAX_COMMANDS: usize = 100;

/// Maximum length of each text in a node's report, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// A node without its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Name, unique among the tenant's nodes that are not revoked.
    pub name: String,
    /// Conversations in which the node may be used.
    pub used_by: ConnectionScope,
    /// Report of the last connection.
    pub report: NodeReport,
    /// Whether the last known connection has not ended. After a crash of its gateway this stays
    /// true.
    pub may_be_connected: bool,
    /// Time of the last connect or disconnect.
    pub last_seen_at: Option<Timestamp>,
    /// When it was set up.
    pub created_at: Timestamp,
    /// Time of revocation; `None` if the node is not revoked.
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    pub name: String,
    /// Conversations in which the node may be used.
    pub used_by: ConnectionScope,
}

/// A node's report about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// Operating system and architecture, for example `linux x86_64`.
    pub platform: String,
    /// Version of the node program.
    pub version: String,
    /// Patterns of the commands that the node allows.
    pub commands: Vec<String>,
}

/// A node that has authenticated by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedNode {
    pub tenant: TenantId,
    pub node: NodeId,
    pub name: String,
    /// Requests per minute that all keys of the tenant share.
    pub rate: u32,
    /// Calls that the tenant may have open at once in one process, if its plan limits them.
    pub concurrent_calls: Option<u32>,
}

/// Cached lookup of a node; the secret is not verified yet.
#[derive(Debug, Clone)]
pub(crate) struct CachedNode {
    pub digest: Vec<u8>,
    pub live: bool,
    pub active: bool,
    pub who: AuthenticatedNode,
}

/// Id of one connection of a node.
pub type NodeConnection = Uuid;

impl NewNode {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("node", &self.name)
    }
}

impl NodeReport {
    /// Truncates the texts and removes control characters, because people and models read them.
    pub(crate) fn truncate(self) -> Self {
        let short = |text: String| -> String {
            text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
        };
        let commands = self.commands.into_iter().take(MAX_COMMANDS).map(short).collect();
        Self { platform: short(self.platform), version: short(self.version), commands }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_node_says_no_more_is_kept_than_can_be_shown() {
        let said = NodeReport {
            platform: "linux\u{1b}[2J".repeat(100),
            version: "1".to_owned(),
            commands: vec!["git\n*".to_owned(); 500],
        };

        let kept = said.truncate();

        assert_eq!(kept.platform.chars().count(), MAX_TEXT_CHARS);
        assert!(!kept.platform.contains('\u{1b}'));
        assert_eq!((kept.commands.len(), kept.commands[0].as_str()), (MAX_COMMANDS, "git*"));
    }
}
