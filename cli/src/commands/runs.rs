//! `holdfast runs`; what turns planned and did: todos, worklogs, tasks, the ledger.

pub mod records;
pub mod todo;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{GetRunRequest, ListRunsRequest, ListToolCallsRequest};
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{ENTRY_COLUMNS, FAILURE_COLUMNS, entry, run, tool_call},
};

const COLUMNS: [&str; 7] = ["id", "session_id", "agent", "status", "steps", "model", "started_at"];

const CALL_COLUMNS: [&str; 7] =
    ["id", "tool", "state", "started_at", "duration_ms", "cost_micros", "error"];

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
    /// List the tool calls of a turn or a session: state, times, cost, failure and details
    Calls {
        /// Id of the turn's run, which may not have ended
        #[arg(required_unless_present = "session")]
        run: Option<String>,
        /// Show the newest calls of this session
        #[arg(long)]
        session: Option<String>,
        /// Maximum number of calls to list
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

impl Runs {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { session, limit } => {
                let request =
                    client.request(ListRunsRequest { session, limit, ..Default::default() });
                let runs = client.answer(client.sessions().list_runs(request).await)?.runs;
                screen.list(&COLUMNS, runs.iter().map(run).collect())
            }
            Self::Show { run: run_id } => {
                let request = client.request(GetRunRequest { run_id });
                let found = client.answer(client.sessions().get_run(request).await)?;
                let mut shown = run(&found.run.unwrap_or_default());
                let entries: Vec<Value> = found.entries.iter().map(entry).collect();
                if screen.is_json() {
                    return screen.one(&[], &json!({"run": shown, "entries": entries}));
                }
                let fields = shown.as_object_mut();
                let failures = fields.and_then(|fields| fields.remove("provider_failures"));
                screen.one(&COLUMNS, &shown)?;
                for failure in failures.iter().filter_map(Value::as_array).flatten() {
                    screen.print("\nrequest to a model that failed\n")?;
                    screen.one(&FAILURE_COLUMNS, failure)?;
                }
                screen.print("\n")?;
                screen.list(&ENTRY_COLUMNS, entries)
            }
            Self::Calls { run, session, limit } => {
                let (run_id, session) = (run.unwrap_or_default(), session.unwrap_or_default());
                let request = client.request(ListToolCallsRequest { session, run_id, limit });
                let calls = client.answer(client.sessions().list_tool_calls(request).await)?.calls;
                screen.list(&CALL_COLUMNS, calls.iter().map(tool_call).collect())
            }
        }
    }
}
