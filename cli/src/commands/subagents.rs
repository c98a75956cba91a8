//! `holdfast agents runs`: subagents and their tasks.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    ListSubagentsRequest, SendToSubagentRequest, StopSubagentRequest, Subagent,
};
use serde_json::{Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["label", "status", "seconds", "tokens", "step", "session_id"];

#[derive(Debug, Subcommand)]
pub enum Subagents {
    /// List the tenant's subagents, newest first
    List {
        /// Show only subagents of this session, by its id or key
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Show only subagents that still run
        #[arg(long)]
        running: bool,
        /// Maximum number of subagents to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Stop a subagent and notify its requester
    Stop {
        /// Id or key of the subagent's session
        session: String,
    },
    /// Send a message to a subagent
    Send {
        /// Id or key of the subagent's session
        session: String,
        /// The message: text, `@file`, or `-` for stdin
        text: String,
        /// Idempotency key of your choice: the same message is sent once
        #[arg(long, default_value = "", hide_default_value = true)]
        request_id: String,
    },
}

impl Subagents {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { session, running, limit } => {
                let request = client.request(ListSubagentsRequest { session, running, limit });
                let listed = client.answer(client.subagents().list_subagents(request).await)?;
                screen.list(&COLUMNS, listed.subagents.iter().map(view).collect())
            }
            Self::Stop { session } => {
                let request = client.request(StopSubagentRequest { session: session.clone() });
                client.answer(client.subagents().stop_subagent(request).await)?;
                screen.done("stopped", &json!({"stopped": session}))
            }
            Self::Send { session, text, request_id } => {
                let text = option_values::text(&text)?;
                let request = client.request(SendToSubagentRequest { session, text, request_id });
                let sent = client.answer(client.subagents().send_to_subagent(request).await)?;
                let sent = json!({"message_id": sent.message_id, "duplicate": sent.duplicate});
                screen.done("said", &sent)
            }
        }
    }
}

fn view(one: &Subagent) -> Value {
    json!({
        "session_id": one.session_id,
        "session": one.session,
        "parent_session_id": one.parent_session_id,
        "label": one.label,
        "task": one.task,
        "status": one.status,
        "result": one.result,
        "error": one.error,
        "tokens": one.tokens,
        "seconds": one.seconds.round(),
        "started_at": time(one.started_at.as_ref()),
        "bundle": one.bundle,
        "tools": one.tools,
        "read": one.read,
        "write": one.write,
        "chain_run_id": one.chain_run_id,
        "step": one.step,
    })
}
