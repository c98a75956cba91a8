//! `holdfast sessions`.

mod rollback;
pub mod transfer;

use std::path::PathBuf;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    CancelRequest, DeleteSessionRequest, Done, GetCanvasRequest, GetHistoryRequest,
    GetSessionRequest, ListSessionsRequest, Outcome, PauseSessionRequest, ResumeSessionRequest,
    RollBackStepRequest, SendRequest, Session, SessionTags, Surface, UpdateSessionRequest,
    export_session_response::Part, run_event::Event,
};
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    screen::{Screen, plain},
    view::{ENTRY_COLUMNS, entry, time, usage},
};

const COLUMNS: [&str; 9] =
    ["id", "key", "agent", "tags", "state", "waiting", "approvals", "turns", "updated_at"];
/// Columns of a single session.
const DETAIL_COLUMNS: [&str; 10] = [
    "id",
    "key",
    "agent",
    "tags",
    "state",
    "waiting",
    "approvals",
    "turns",
    "updated_at",
    "summary",
];
const SURFACE_COLUMNS: [&str; 6] = ["name", "title", "kind", "shown", "version", "content"];
/// Maximum number of sessions that the gateway returns per call.
const MAX_PAGE_SIZE: u32 = 200;

#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// List the tenant's sessions, the last used first
    List {
        /// Show only sessions of this agent
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Show only sessions of this kind: main, dm, group, …
        #[arg(long, default_value = "", hide_default_value = true)]
        kind: String,
        /// Show only sessions whose key, label or summary contains this
        #[arg(long, default_value = "", hide_default_value = true)]
        search: String,
        /// Show only sessions with this tag
        #[arg(long, default_value = "", hide_default_value = true)]
        tag: String,
        /// Maximum number of sessions to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Label a session, tag it or pin it
    Update {
        /// Id or key of the session
        session: String,
        /// Label, at most 200 characters; empty removes it
        #[arg(long, required_unless_present_any = ["pinned", "tags"])]
        label: Option<String>,
        /// Whether it is pinned
        #[arg(long)]
        pinned: Option<bool>,
        /// Tag, 1 to 64 characters; repeat it for several, which replace those that it has; empty
        /// leaves those that its behaviours give it
        #[arg(long = "tag", value_name = "TAG")]
        tags: Option<Vec<String>>,
    },
    /// Show one session with its state
    Show {
        /// Id or key of the session
        session: String,
    },
    /// Show the journal of a session, newest last
    History {
        /// Id or key of the session
        session: String,
        /// Number of the newest entries to show
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Show only entries before this one, by its `seq`
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        before: i64,
        /// Show the whole journal
        #[arg(long, conflicts_with_all = ["limit", "before"])]
        all: bool,
    },
    /// Print a session with its whole journal as lines of JSON
    Export {
        /// Id or key of the session
        #[arg(long)]
        session: String,
    },
    /// Create a session with the journal of an exported one; nothing runs
    Import {
        /// The file to read; `-` is stdin
        #[arg(default_value = "-", hide_default_value = true)]
        file: PathBuf,
        /// Key of the new session, or any name of your choice [default: the exported one's]
        #[arg(long)]
        session: Option<String>,
        /// Name or id of the new session's agent [default: the tenant's default agent]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
    },
    /// Show the canvas of a session
    Canvas {
        /// Id or key of the session
        session: String,
    },
    /// Pause a session and its subagents: turns stop at their next step, input is queued
    Pause {
        /// Id or key of the session
        session: String,
    },
    /// Resume a session and those paused with it
    Resume {
        /// Id or key of the session
        session: String,
    },
    /// Cancel the current turn; waiting messages run next
    Cancel {
        /// Id or key of the session
        session: String,
    },
    /// Take back the last step of a session that works by behaviours: files, todos, memory
    Rollback {
        /// Id or key of the session
        session: String,
        /// Do it; without this, only show what would be restored
        #[arg(long)]
        yes: bool,
        /// Let the step run again after that, with the same messages
        #[arg(long, requires = "yes")]
        again: bool,
        /// Id of the step, as shown without `--yes`: refused if it is not the last one, and made
        /// once [default: the last step]
        #[arg(long, default_value = "", hide_default_value = true)]
        step: String,
    },
    /// Begin a new conversation in a session; its memories and files are kept
    Reset {
        /// Id or key of the session
        session: String,
    },
    /// Delete a session with its whole history
    Delete {
        /// Id or key of the session
        session: String,
    },
}

impl Sessions {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { agent, kind, search, tag, limit } => {
                let filter = ListSessionsRequest { agent, kind, search, tag, ..Default::default() };
                let sessions = list(client, filter, limit).await?;
                screen.list(&COLUMNS, sessions.iter().map(view).collect())
            }
            Self::Update { session, label, pinned, tags } => {
                let request = UpdateSessionRequest { session, label, pinned, tags: to_tags(tags) };
                let updated = client.sessions().update_session(client.request(request)).await;
                screen.done("updated", &view(&client.answer(updated)?.session.unwrap_or_default()))
            }
            Self::Show { session } => {
                let request = client.request(GetSessionRequest { session });
                let found = client.answer(client.sessions().get_session(request).await)?.session;
                screen.one(&DETAIL_COLUMNS, &view(&found.unwrap_or_default()))
            }
            Self::History { session, all: true, .. } => {
                let mut entries = Vec::new();
                let take = |part| {
                    if let Part::Entry(one) = part {
                        entries.push(entry(&one));
                    }
                    Ok(())
                };
                transfer::stream(client, session, take).await?;
                screen.list(&ENTRY_COLUMNS, entries)
            }
            Self::Export { session } => transfer::export(client, screen, session).await,
            Self::Import { file, session, agent } => {
                transfer::import(client, screen, &file, (agent, session)).await
            }
            Self::History { session, limit, before, all: false } => {
                let request =
                    GetHistoryRequest { session, limit, before_seq: before, ..Default::default() };
                let history =
                    client.answer(client.sessions().get_history(client.request(request)).await)?;
                screen.list(&ENTRY_COLUMNS, history.entries.iter().map(entry).collect())
            }
            Self::Canvas { session } => {
                let request = client.request(GetCanvasRequest { session });
                let canvas = client.answer(client.sessions().get_canvas(request).await)?;
                screen.list(&SURFACE_COLUMNS, canvas.surfaces.iter().map(surface).collect())
            }
            Self::Pause { session } => {
                let request = client.request(PauseSessionRequest { session });
                let paused = client.answer(client.sessions().pause_session(request).await)?.paused;
                screen.done(&format!("held {paused}"), &json!({"paused": paused}))
            }
            Self::Resume { session } => {
                let request = client.request(ResumeSessionRequest { session });
                let resumed = client.sessions().resume_session(request).await;
                let resumed = client.answer(resumed)?.resumed;
                screen.done(&format!("let {resumed} go on"), &json!({"resumed": resumed}))
            }
            Self::Cancel { session } => {
                let request = client.request(CancelRequest { session, agent: String::new() });
                let ended = client.answer(client.messages().cancel(request).await)?;
                let sentence = match (ended.running, ended.queued) {
                    (true, _) => "the turn ends",
                    (false, true) => "the turn waited for a runner, and ends when one has it",
                    (false, false) => "nothing runs there",
                };
                screen.done(sentence, &json!({"running": ended.running, "queued": ended.queued}))
            }
            Self::Rollback { session, yes, again, step } => {
                let request = RollBackStepRequest { session, step_id: step, again, dry_run: !yes };
                rollback::roll_back(client, screen, request).await
            }
            Self::Reset { session } => {
                let done = reset(client, &session).await?;
                screen.done(&plain(&done.text), &json!({"reset": session, "text": done.text}))
            }
            Self::Delete { session } => {
                let request = client.request(DeleteSessionRequest { session: session.clone() });
                client.answer(client.sessions().delete_session(request).await)?;
                screen.done("deleted", &json!({"deleted": session}))
            }
        }
    }
}

/// Tags as a request has them, without empty ones.
fn to_tags(tags: Option<Vec<String>>) -> Option<SessionTags> {
    let tags = tags?.into_iter().filter(|tag| !tag.trim().is_empty()).collect();
    Some(SessionTags { tags })
}

fn surface(one: &Surface) -> Value {
    json!({
        "name": one.name,
        "title": one.title,
        "kind": one.kind,
        "shown": one.shown,
        "version": one.version,
        "content": one.content,
        "updated_at": time(one.updated_at.as_ref()),
    })
}

/// Sends the command that begins a new conversation, and waits until it is done.
async fn reset(client: &Client, session: &str) -> Result<Done, Error> {
    let request = client.request(GetSessionRequest { session: session.to_owned() });
    let found = client.answer(client.sessions().get_session(request).await)?.session;
    let session = found.unwrap_or_default().id;
    let message = SendRequest { text: "/reset".to_owned(), session, ..SendRequest::default() };
    let events = client.messages().stream(client.request(message)).await;
    let mut events = client.answer(events)?;
    while let Some(event) = events.message().await.map_err(|status| client.error(status))? {
        match event.event {
            Some(Event::Done(done)) if done.outcome() == Outcome::Completed => return Ok(done),
            Some(Event::Done(done)) => return Err(Error::NoAnswer(done.text)),
            Some(_) | None => {}
        }
    }
    Err(Error::NoAnswer("the gateway ended the stream early".to_owned()))
}

/// Returns up to `limit` sessions, page by page.
async fn list(
    client: &Client,
    filter: ListSessionsRequest,
    limit: u32,
) -> Result<Vec<Session>, Error> {
    let (mut sessions, mut page_token) = (Vec::new(), String::new());
    let mut left = limit;
    while left > 0 {
        let request = client.request(ListSessionsRequest {
            limit: left.min(MAX_PAGE_SIZE),
            page_token,
            ..filter.clone()
        });
        let page = client.answer(client.sessions().list_sessions(request).await)?;
        left = left.saturating_sub(u32::try_from(page.sessions.len()).unwrap_or(u32::MAX));
        sessions.extend(page.sessions);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(sessions)
}

fn view(session: &Session) -> Value {
    json!({
        "id": session.id,
        "key": session.key,
        "kind": session.kind,
        "agent": session.agent,
        "parent_id": session.parent_id,
        "label": session.label,
        "tags": session.tags,
        "pinned": session.pinned,
        "workspace": session.workspace,
        "summary": session.summary,
        "state": session.state,
        "waiting": session.waiting,
        "approvals": session.approvals,
        "turns": session.turns,
        "usage": session.usage.as_ref().map(usage),
        "created_at": time(session.created_at.as_ref()),
        "updated_at": time(session.updated_at.as_ref()),
    })
}
