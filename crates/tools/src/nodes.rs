//! The `nodes` tool: gives agents access to the machines of their users.
//!
//! | action | purpose |
//! |---|---|
//! | `list`, `discover` | nodes that this conversation may use; those of them that are connected |
//! | `status`, `ping` | properties of a node; its response time |
//! | `exec` | runs a command there, after approval of exactly this command |
//!
//! A command is given to its node once. If its result is lost after that (the connection broke, the
//! runner died), the tool asks the node for it by the call's key, which starts nothing. So a
//! command runs at most once, however the node treats keys, and its outcome is known as long as the
//! node remembers it. Text from a node is marked as untrusted.

mod exec;
#[cfg(test)]
mod tests;

use std::{fmt::Write as _, future::Future, sync::Arc, time::Duration};

use holdfast_types::{Effect, NodeId, NodeReply, NodeRequest, NodeRequestOutcome};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Approval, Call, Registry, Tool, ToolError, untrusted, untrusted::one_line};

/// Timeout of the question whether a node is connected.
const CONNECTION_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of a node's description of itself, in characters.
const MAX_STATUS_CHARS: usize = 8_000;

/// Access of the tool to nodes; implemented by agent-runner and by a fake.
pub trait Nodes: Send + Sync + 'static {
    /// Lists the nodes that the call's conversation may use, by name.
    fn usable(&self, call: &Call) -> impl Future<Output = anyhow::Result<Vec<NodeLine>>> + Send;

    /// Sends a request to a node.
    fn ask(
        &self,
        call: &Call,
        node: NodeId,
        wish: &NodeRequest,
        patience: Duration,
    ) -> impl Future<Output = NodeRequestOutcome> + Send;
}

/// Stored description of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLine {
    pub id: NodeId,
    pub name: String,
    /// Operating system, as the node reported it.
    pub platform: String,
    /// Program version, as the node reported it.
    pub version: String,
    /// Patterns of permitted commands, as the node reported them.
    pub commands: Vec<String>,
    /// Time of the last connection or disconnection, as text; `None` if it never connected.
    pub last_seen: Option<String>,
}

/// Use the machines ("nodes") of the person you work for.
///
/// `list` shows those there are, `discover` those that are connected, `status` what one offers;
/// `exec` runs a command there, which the person must allow.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodesInput {
    #[serde(alias = "op")]
    action: Action,
    /// The node's name; not needed if there is one only.
    #[serde(default)]
    node: Option<String>,
    /// What its shell runs, for `exec`.
    #[serde(default)]
    command: Option<String>,
    /// Where that starts, within the folder that the node offers.
    #[serde(default, alias = "cwd")]
    workdir: Option<String>,
    /// Seconds that it may take: 60 if absent, 120 at most.
    #[serde(default)]
    timeout: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Discover,
    List,
    Status,
    Ping,
    Exec,
}

#[derive(Debug)]
pub struct NodesTool<N>(pub Arc<N>);

impl<N: Nodes> Tool for NodesTool<N> {
    const NAME: &'static str = "nodes";
    // Read-only actions are recorded too: a tool has one effect, and `exec` acts.
    const EFFECT: Effect = Effect::Acts;
    const TIMEOUT: Option<Duration> = Some(exec::CALL_TIMEOUT);
    type Input = NodesInput;

    async fn approval(&self, call: &Call, input: &NodesInput) -> Result<Approval, ToolError> {
        match input.action {
            Action::Exec => self.approval_of_exec(call, input).await,
            Action::Discover | Action::List | Action::Status | Action::Ping => Ok(Approval::Never),
        }
    }

    async fn call(&self, call: Call, input: NodesInput) -> Result<String, ToolError> {
        match input.action {
            Action::List => self.list(&call).await,
            Action::Discover => self.discover(&call).await,
            Action::Status => self.status(&call, input.node.as_deref()).await,
            Action::Ping => self.ping(&call, input.node.as_deref()).await,
            Action::Exec => self.exec(&call, &input).await,
        }
    }

    async fn find_outcome(&self, call: &Call, input: &NodesInput) -> Option<String> {
        match input.action {
            Action::Exec => self.find_exec_outcome(call, input).await,
            Action::Discover | Action::List | Action::Status | Action::Ping => None,
        }
    }
}

impl<N: Nodes> NodesTool<N> {
    async fn list(&self, call: &Call) -> Result<String, ToolError> {
        let nodes = self.0.usable(call).await?;
        if nodes.is_empty() {
            return Ok(no_nodes_message());
        }
        let mut text = String::new();
        for node in &nodes {
            let here = self.connected_since(call, node).await;
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "- {}: {}", node.name, connection_state(node, here.as_deref()));
        }
        Ok(text)
    }

    async fn discover(&self, call: &Call) -> Result<String, ToolError> {
        let nodes = self.0.usable(call).await?;
        let mut text = String::new();
        for node in &nodes {
            if let Some(since) = self.connected_since(call, node).await {
                let _ = writeln!(text, "- {}: {}", node.name, connection_state(node, Some(&since)));
            }
        }
        Ok(match text.is_empty() {
            true if nodes.is_empty() => no_nodes_message(),
            true => format!("None is connected. Set up: {}", names(&nodes)),
            false => text,
        })
    }

    async fn status(&self, call: &Call, named: Option<&str>) -> Result<String, ToolError> {
        let node = self.find(call, named).await?;
        let here = self.connected_since(call, &node).await;
        let mut text = format!("{}: {}\n", node.name, connection_state(&node, here.as_deref()));
        if node.last_seen.is_none() {
            return Ok(text);
        }
        let commands = match node.commands.as_slice() {
            [] => "none".to_owned(),
            commands => commands.join("\n"),
        };
        let (platform, version) = (one_line(&node.platform), one_line(&node.version));
        let said =
            format!("platform: {platform}\nversion: {version}\ncommands let through:\n{commands}");
        text.push_str(&untrusted(&call.key, &source(&node), &said, MAX_STATUS_CHARS));
        Ok(text)
    }

    async fn ping(&self, call: &Call, named: Option<&str>) -> Result<String, ToolError> {
        let node = self.find(call, named).await?;
        match self.0.ask(call, node.id, &NodeRequest::Ping, PING_TIMEOUT).await {
            NodeRequestOutcome::Answered(NodeReply::Pong { millis }) => {
                Ok(format!("{} answered after {millis} ms", node.name))
            }
            NodeRequestOutcome::NotConnected => tell(not_connected_message(&node)),
            NodeRequestOutcome::BusUnavailable => tell(UNREACHABLE_MESSAGE.to_owned()),
            NodeRequestOutcome::NoAnswer | NodeRequestOutcome::Answered(_) => {
                tell(format!("{} is connected and does not answer", node.name))
            }
        }
    }

    /// Time since which a node is connected; `None` if it is not.
    async fn connected_since(&self, call: &Call, node: &NodeLine) -> Option<String> {
        match self.0.ask(call, node.id, &NodeRequest::Here, CONNECTION_CHECK_TIMEOUT).await {
            NodeRequestOutcome::Answered(NodeReply::Here { since }) => Some(since),
            NodeRequestOutcome::Answered(_)
            | NodeRequestOutcome::NotConnected
            | NodeRequestOutcome::BusUnavailable
            | NodeRequestOutcome::NoAnswer => None,
        }
    }

    /// Finds the named node, or the only one.
    async fn find(&self, call: &Call, named: Option<&str>) -> Result<NodeLine, ToolError> {
        let mut nodes = self.0.usable(call).await?;
        let at = match (named, nodes.as_slice()) {
            (_, []) => return tell(no_nodes_message()),
            (None, [_]) => Some(0),
            (None, _) => {
                return tell(format!("there are several: give `node`, one of {}", names(&nodes)));
            }
            (Some(named), _) => nodes.iter().position(|node| node.name == named.trim()),
        };
        match at {
            Some(at) => Ok(nodes.swap_remove(at)),
            None => tell(format!("there is no such node; there are: {}", names(&nodes))),
        }
    }
}

/// Text for the case that the gateway cannot be reached.
const UNREACHABLE_MESSAGE: &str = "nodes cannot be reached now, which is a fault of ours; nothing was run: try \
                    again later";

fn tell<T>(text: String) -> Result<T, ToolError> {
    Err(ToolError::Tell(text))
}

fn no_nodes_message() -> String {
    "no node is set up for this conversation: its owner can add one".to_owned()
}

fn names(nodes: &[NodeLine]) -> String {
    nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn connection_state(node: &NodeLine, here: Option<&str>) -> String {
    match (here, &node.last_seen) {
        (Some(since), _) => format!("connected since {since}"),
        (None, Some(seen)) => format!("not connected, last seen {seen}"),
        (None, None) => "was never connected".to_owned(),
    }
}

fn not_connected_message(node: &NodeLine) -> String {
    let seen = node.last_seen.as_ref().map_or(String::new(), |seen| format!(" since {seen}"));
    format!(
        "`{}` is not connected{seen}; nothing was run: ask its owner to start `holdfast node run` \
         there",
        node.name
    )
}

fn source(node: &NodeLine) -> String {
    format!("the node `{}`", node.name)
}

impl Registry {
    #[must_use]
    pub fn with_nodes<N: Nodes>(self, nodes: Arc<N>) -> Self {
        self.with(NodesTool(nodes))
    }
}
