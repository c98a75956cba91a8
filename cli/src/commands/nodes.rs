//! `holdfast nodes`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    CreateNodeRequest, GetNodeRequest, ListNodesRequest, Node, RevokeNodeRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] =
    ["name", "used_by", "connected", "platform", "last_seen_at", "revoked_at"];

#[derive(Debug, Subcommand)]
pub enum Nodes {
    /// List nodes and whether they are connected
    List,
    /// Create a node; its connection token is shown only once
    Create {
        /// Name of the node, for example `laptop`
        name: String,
        /// Conversations that may use it: those of `owner`, of `everyone`, or of a person such as
        /// `telegram:42`
        #[arg(long = "for", default_value = "owner")]
        used_by: String,
    },
    /// Show the allowed commands of a node, and whether it is connected
    Status {
        /// Name or id of the node
        node: String,
    },
    /// Revoke a node's token and close its connection
    Remove {
        /// Name or id of the node
        node: String,
    },
}

impl Nodes {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListNodesRequest {});
                let nodes = client.answer(client.nodes().list_nodes(request).await)?.nodes;
                screen.list(&COLUMNS, nodes.iter().map(view).collect())
            }
            Self::Create { name, used_by } => {
                let request = client.request(CreateNodeRequest { name, used_by });
                let made = client.answer(client.nodes().create_node(request).await)?;
                let mut shown = view(&made.node.unwrap_or_default());
                shown["token"] = Value::String(made.token);
                screen.one(&["token", "name", "used_by", "id"], &shown)?;
                if !screen.is_json() {
                    screen.note(
                        "The token is not shown again. Put it into a file on that machine, and \
                         there run:\n  holdfast node run --token-file FILE --allow 'git status'",
                    )?;
                }
                Ok(())
            }
            Self::Status { node } => {
                let request = client.request(GetNodeRequest { node });
                let node = client.answer(client.nodes().get_node(request).await)?.node;
                screen.one(&COLUMNS, &view(&node.unwrap_or_default()))
            }
            Self::Remove { node } => {
                let request = client.request(RevokeNodeRequest { node: node.clone() });
                client.answer(client.nodes().revoke_node(request).await)?;
                screen.done("removed", &json!({"removed": node}))
            }
        }
    }
}

fn view(node: &Node) -> Value {
    json!({
        "id": node.id,
        "name": node.name,
        "used_by": node.used_by,
        "connected": node.connected,
        "platform": node.platform,
        "version": node.version,
        "commands": node.commands,
        "last_seen_at": time(node.last_seen_at.as_ref()),
        "created_at": time(node.created_at.as_ref()),
        "revoked_at": time(node.revoked_at.as_ref()),
    })
}
