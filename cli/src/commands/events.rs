//! `holdfast events`.

mod webhooks;

use std::time::Duration;

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{Event, EventFilter, EventStart, SubscribeRequest};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Code;

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["at", "type", "agent", "session", "data", "id"];

/// Pause before a broken stream is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub enum Events {
    /// Print events as they happen, each as a line of JSON, until interrupted
    Follow {
        #[command(flatten)]
        filter: Filter,
        /// Begin with the oldest event that is kept
        #[arg(long, conflicts_with = "after")]
        earliest: bool,
    },
    /// List the events that are kept, oldest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Maximum number of events
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Send events to an address, signed
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
}

/// Which events
#[derive(Debug, Clone, Args)]
pub struct Selection {
    /// Only types that begin so, as in `run.`; may be given several times
    #[arg(long = "type")]
    types: Vec<String>,
    /// Only of this agent (name or id)
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Only of this session (id, key or name)
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
    /// Only messages and deliveries of this kind of channel
    #[arg(long, default_value = "", hide_default_value = true)]
    channel: String,
}

/// Which events are shown
#[derive(Debug, Clone, Args)]
pub struct Filter {
    #[command(flatten)]
    selection: Selection,
    /// Only events after this one (its id)
    #[arg(long, default_value = "", hide_default_value = true)]
    after: String,
    /// Add the texts of messages and answers
    #[arg(long)]
    content: bool,
}

impl Selection {
    fn filter(self) -> EventFilter {
        let Self { types, agent, session, channel } = self;
        EventFilter { types, agent, session, channel }
    }
}

impl Filter {
    fn request(self, start: EventStart) -> SubscribeRequest {
        SubscribeRequest {
            cursor: self.after,
            start: start.into(),
            filter: Some(self.selection.filter()),
            include_content: self.content,
            end_at_newest: false,
        }
    }
}

impl Events {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Follow { filter, earliest } => {
                let start = if earliest { EventStart::Earliest } else { EventStart::Now };
                follow(client, screen, filter.request(start)).await
            }
            Self::List { filter, limit } => {
                let wanted = SubscribeRequest {
                    end_at_newest: true,
                    ..filter.request(EventStart::Earliest)
                };
                let request = client.request(wanted);
                let mut items = client.answer(client.events().subscribe(request).await)?;
                let mut rows = Vec::new();
                while rows.len() < limit
                    && let Some(item) =
                        items.message().await.map_err(|status| client.error(status))?
                {
                    rows.extend(item.event.map(view));
                }
                screen.list(&COLUMNS, rows)
            }
            Self::Webhooks(command) => command.run(client, screen).await,
        }
    }
}

/// Prints events, and goes on behind the last one when the stream breaks.
async fn follow(
    client: &Client,
    screen: &Screen,
    mut wanted: SubscribeRequest,
) -> Result<(), Error> {
    loop {
        let request = client.request(wanted.clone());
        let mut items = client.answer(client.events().subscribe(request).await)?;
        let broken = loop {
            match items.message().await {
                Ok(Some(item)) => {
                    wanted.cursor = item.cursor;
                    if let Some(event) = item.event {
                        screen.print(&format!("{}\n", view(event)))?;
                    }
                }
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        match broken {
            Some(status)
                if !matches!(
                    status.code(),
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
                ) =>
            {
                return Err(client.error(status));
            }
            _ => sleep(RECONNECT_DELAY).await,
        }
    }
}

fn view(event: Event) -> Value {
    let mut view = json!({
        "id": event.id,
        "type": event.r#type,
        "schema_version": event.schema_version,
        "at": time(event.at.as_ref()),
        "agent": event.agent_id,
        "session": event.session_id,
        "channel": event.channel,
        "data": serde_json::from_str::<Value>(&event.data).unwrap_or_default(),
    });
    if let (Some(text), Some(fields)) = (event.text, view.as_object_mut()) {
        fields.insert("text".to_owned(), text.into());
    }
    view
}
