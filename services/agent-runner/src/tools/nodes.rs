//! Nodes that a conversation may use, and requests to them.
//!
//! A node is used only in the conversations it is meant for, like a connection (`connections.rs`).
//! It is looked up for each call, so a revoked node is unavailable at once.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_bus::Bus;
use holdfast_directory::{Directory, Node};
use holdfast_grpc::NodeCommandSigner;
use holdfast_proto::gateway::v1 as pb;
use holdfast_tools::{Call, NodeLine};
use holdfast_types::{
    NodeCommand, NodeId, NodeReply, NodeRequest, NodeRequestOutcome, SignedCommand,
};

use crate::tools::{connections, tool_context::ToolContext};

/// Access to nodes for the sessions that run here.
#[derive(Debug)]
pub(crate) struct SessionNodes {
    directory: Directory,
    bus: Bus,
    signer: Option<NodeCommandSigner>,
}

impl SessionNodes {
    /// Without a `signer` no command can be sent.
    pub(crate) const fn new(
        directory: Directory,
        bus: Bus,
        signer: Option<NodeCommandSigner>,
    ) -> Self {
        Self { directory, bus, signer }
    }

    /// Signs a command for this node and this call. What a person approved was checked before, and
    /// is what the command consists of.
    fn sign(&self, call: &Call, node: NodeId, command: &NodeCommand) -> Option<SignedCommand> {
        let signed = self.signer.as_ref()?.sign(pb::NodeCommand {
            tenant_id: call.tenant.to_string(),
            node_id: node.to_string(),
            key: command.key.clone(),
            run_id: call.run.to_string(),
            script: command.script.clone(),
            workdir: command.workdir.clone(),
            timeout_seconds: command.timeout_s,
            ..pb::NodeCommand::default()
        });
        Some(SignedCommand {
            command: BASE64_STANDARD.encode(signed.command),
            signature: BASE64_STANDARD.encode(signed.signature),
        })
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
        let NodeRequest::Run { command, wait_ms } = wish else {
            return self.bus.ask_node(call.tenant, node, wish, patience).await;
        };
        let Some(signed) = self.sign(call, node, command) else {
            let why = "`mesh.node_key` is not set, so commands cannot be signed: tell the operator";
            return NodeRequestOutcome::Answered(NodeReply::Refused(why.to_owned()));
        };
        let command = NodeCommand { signed: Some(signed), ..command.clone() };
        let wish = NodeRequest::Run { command, wait_ms: *wait_ms };
        self.bus.ask_node(call.tenant, node, &wish, patience).await
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
