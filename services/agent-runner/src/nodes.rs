//! Nodes that a conversation may use, and requests to them.
//!
//! A node is used only in the conversations it is meant for, like a connection (`connections.rs`).
//! It is looked up for each call, so a revoked node is unavailable at once.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_bus::Bus;
use holdfast_directory::{Directory, Node};
use holdfast_tools::{Call, NodeLine};
use holdfast_types::{NodeId, NodeRequest, NodeRequestOutcome};

use crate::{connections, leases::Leases};

/// Access to nodes for the sessions that run here.
#[derive(Debug)]
pub(crate) struct SessionNodes {
    directory: Directory,
    bus: Bus,
    held: Arc<Leases>,
}

impl SessionNodes {
    pub(crate) const fn new(directory: Directory, bus: Bus, held: Arc<Leases>) -> Self {
        Self { directory, bus, held }
    }
}

impl holdfast_tools::Nodes for SessionNodes {
    async fn usable(&self, call: &Call) -> anyhow::Result<Vec<NodeLine>> {
        let hold = self.held.get(call.session).context("the session is not held here")?;
        let (kind, audience, key) = {
            let desk = hold.tool_context();
            (desk.kind.context("the turn has no desk")?, desk.audience, desk.key.clone())
        };
        let is_usable = |node: &Node| {
            node.revoked_at.is_none() && connections::is_for(&node.used_by, kind, audience, &key)
        };
        let found = self.directory.nodes(call.tenant).await?;
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
