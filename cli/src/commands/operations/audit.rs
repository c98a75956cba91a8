//! `holdfast audit`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{AuditEvent, ListAuditEventsRequest};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] = ["created_at", "by", "inviter", "via", "action", "about", "outcome"];
/// Events per request.
const PAGE_SIZE: u32 = 500;

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// List events, newest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Maximum number of events
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
        /// Events before this one: the id of the last event of the page before
        #[arg(long, default_value = "", hide_default_value = true)]
        before: String,
    },
    /// Print all events as JSON lines, newest first
    Export {
        #[command(flatten)]
        filter: Filter,
    },
}

/// Which events
#[derive(Debug, Clone, Args)]
pub struct Filter {
    /// Only by this key, person or agent (its id)
    #[arg(long, default_value = "", hide_default_value = true)]
    actor: String,
    /// Only actions or methods that begin so: `key.`, `Files/`
    #[arg(long, default_value = "", hide_default_value = true)]
    action: String,
    /// Only about this id or name
    #[arg(long, default_value = "", hide_default_value = true)]
    subject: String,
    /// Only with this outcome: `ok`, `permission_denied` and so on
    #[arg(long, default_value = "", hide_default_value = true)]
    outcome: String,
    /// Only of this request (header `x-request-id`)
    #[arg(long, default_value = "", hide_default_value = true)]
    request: String,
    /// Only from this time on, as in 2026-01-31T00:00:00Z
    #[arg(long)]
    since: Option<Timestamp>,
    /// Only before this time
    #[arg(long)]
    until: Option<Timestamp>,
}

impl Filter {
    fn request(&self, limit: u32, page_token: String) -> ListAuditEventsRequest {
        let moment = |at: Timestamp| prost_types::Timestamp {
            seconds: at.as_second(),
            nanos: at.subsec_nanosecond(),
        };
        ListAuditEventsRequest {
            limit,
            page_token,
            actor: self.actor.clone(),
            action: self.action.clone(),
            subject: self.subject.clone(),
            outcome: self.outcome.clone(),
            request_id: self.request.clone(),
            since: self.since.map(moment),
            until: self.until.map(moment),
        }
    }
}

impl Audit {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { filter, limit, before } => {
                let request = client.request(filter.request(limit, before));
                let listed = client.answer(client.audit().list_audit_events(request).await)?;
                screen.list(&COLUMNS, listed.events.iter().map(view).collect())?;
                if !listed.next_page_token.is_empty() && !screen.is_json() {
                    screen.note(&format!("There are more: --before {}", listed.next_page_token))?;
                }
                Ok(())
            }
            Self::Export { filter } => {
                let mut page_token = String::new();
                loop {
                    let request = client.request(filter.request(PAGE_SIZE, page_token));
                    let listed = client.answer(client.audit().list_audit_events(request).await)?;
                    for event in &listed.events {
                        screen.print(&format!("{}\n", view(event)))?;
                    }
                    page_token = listed.next_page_token;
                    if page_token.is_empty() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// The name, or else the id.
const fn shown<'e>(name: &'e str, id: &'e str) -> &'e str {
    if name.is_empty() { id } else { name }
}

fn view(event: &AuditEvent) -> Value {
    json!({
        "id": event.id,
        "created_at": time(event.created_at.as_ref()),
        "actor": event.actor,
        "actor_name": event.actor_name,
        // What a table shows: names where they are known.
        "by": shown(&event.actor_name, &event.actor),
        "invited_by": event.invited_by,
        "inviter": shown(&event.inviter_name, &event.invited_by),
        "via": event.via,
        "action": event.action,
        "subject": event.subject,
        "subject_name": event.subject_name,
        "about": shown(&event.subject_name, &event.subject),
        "method": event.method,
        "request_id": event.request_id,
        "outcome": event.outcome,
        "changes": serde_json::from_str::<Value>(&event.changes).unwrap_or_default(),
    })
}
