//! `holdfast runs`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{GetRunRequest, ListRunsRequest};
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{ENTRY_COLUMNS, entry, run},
};

const COLUMNS: [&str; 7] = ["id", "session_id", "agent", "status", "steps", "model", "started_at"];

#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List the tenant's turns, newest first
    List {
        /// Show only turns of this session
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Maximum number of turns to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show one turn with its steps
    Show {
        /// Id of the turn's run
        run: String,
    },
}

impl Runs {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { session, limit } => {
                let request = client.request(ListRunsRequest { session, limit });
                let runs = client.answer(client.sessions().list_runs(request).await)?.runs;
                screen.list(&COLUMNS, runs.iter().map(run).collect())
            }
            Self::Show { run: run_id } => {
                let request = client.request(GetRunRequest { run_id });
                let found = client.answer(client.sessions().get_run(request).await)?;
                let shown = run(&found.run.unwrap_or_default());
                let entries: Vec<Value> = found.entries.iter().map(entry).collect();
                if screen.is_json() {
                    return screen.one(&[], &json!({"run": shown, "entries": entries}));
                }
                screen.one(&COLUMNS, &shown)?;
                screen.print("\n")?;
                screen.list(&ENTRY_COLUMNS, entries)
            }
        }
    }
}
