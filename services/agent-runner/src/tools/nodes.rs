//! Nodes that a conversation may use, and requests to them.
//!
//! A node is used only in the conversations it is meant for, like a connection (`connections.rs`).
//! It is looked up for each call, so a revoked node is unavailable at once.

use std::time::Duration;

use holdfast_bus::Bus;
use holdfast_directory::{Directory, Node};
use holdfast_tools::{Call, NodeLine};
use holdfast_types::{NodeId, NodeRequest, NodeRequestOutcome};

use crate::tools::{connections, tool_context::ToolContext};

/// Access to nodes for the sessions that run here.
#[derive(Debug)]
pub(crate) struct SessionNodes {
    directory: Directory,
    bus: Bus,
}

impl SessionNodes {
    pub(crate) const fn new(directory: Directory, bus: Bus) -> Self {
        Self { directory, bus }
    }
}

impl holdfast_tools::Nodes for SessionNodes {
    async fn usable(&self, call: &Call) -> anyhow::Result<Vec<NodeLine>> {
        let context = ToolContext::of(call)?;
        let is_usable = |node: &Node| {
            node.revoked_at.is_none()
                && connections::is_for(&node.used_by, context.kind, context.audience, &context.key)
        };
        let found = self.directory.nodes().list(call.tenant).await?;
        let mut usable: Vec<NodeLine> =
            found.into_iter().filter(is_usable).map(node_line).collect();
        usable.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(usable)
    }

    async fn ask(
        &self,
        call: &Call,
        node: NodeId,
        wish: &NodeRequest,
        patience: Duration,
    ) -> NodeRequestOutcome {
        self.bus.ask_node(call.tenant, node, wish, patience).await
    }
}

fn node_line(node: Node) -> NodeLine {
    let last_seen = node.last_seen_at.map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
    NodeLine {
        id: node.id,
        name: node.name,
        platform: node.report.platform,
        version: node.report.version,
        commands: node.report.commands,
        last_seen,
    }
}
