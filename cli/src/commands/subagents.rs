//! `holdfast agents runs`: what agents have others do for them.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    ListSubagentsRequest, SendToSubagentRequest, StopSubagentRequest, Subagent,
};
use serde_json::{Value, json};

use super::{given, view::time};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 6] = ["label", "status", "seconds", "tokens", "step", "session_id"];

#[derive(Debug, Subcommand)]
pub enum Subagents {
    /// List subagents, newest first
    List {
        /// Only those of this session: its id or key
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Only those that have not ended
        #[arg(long)]
        running: bool,
        /// How many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// End a subagent; whoever asked for it is told
    Stop {
        /// Its session's id or key
        session: String,
    },
    /// Say something to a subagent
    Send {
        /// Its session's id or key
        session: String,
        /// What to say: text, `@file`, or `-` for stdin
        text: String,
        /// The same for the same message, so that it is said once
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
                let text = given::text(&text)?;
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
