//! `holdfast events webhooks`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    CreateEventWebhookRequest, DeleteEventWebhookRequest, EventWebhook,
    ListEventDeadLettersRequest, ListEventWebhooksRequest, ReplayEventsRequest,
    RotateEventWebhookSecretRequest, UpdateEventWebhookRequest, replay_events_request::What,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["name", "url", "types", "state", "failures", "last_error"];
const DEAD_COLUMNS: [&str; 5] = ["dead_at", "type", "id", "attempts", "reason"];

#[derive(Debug, Subcommand)]
pub enum Webhooks {
    /// Create a webhook; its secret is shown this once
    Add {
        /// Name: lower-case letters, digits, `-` and `_`
        name: String,
        /// Address to which events are posted
        url: String,
        #[command(flatten)]
        filter: Filter,
        /// Begin with the oldest event that is kept
        #[arg(long)]
        earliest: bool,
    },
    /// List webhooks and how they fare
    List,
    /// Change a webhook's address, or disable and enable it
    Update {
        /// Name of the webhook
        name: String,
        /// Another address
        #[arg(long)]
        url: Option<String>,
        /// Send no events
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// Send events again, also if it was disabled for failing
        #[arg(long)]
        enable: bool,
    },
    /// Delete a webhook with its dead letters
    Remove {
        /// Name of the webhook
        name: String,
    },
    /// Make a new secret; the former one signs too for a day
    Rotate {
        /// Name of the webhook
        name: String,
    },
    /// List events that were given up, newest first
    Dead {
        /// Name of the webhook
        name: String,
        /// Maximum number of events
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Send events again
    Replay {
        /// Name of the webhook
        name: String,
        #[command(flatten)]
        what: ReplayedEvents,
    },
}

/// Which events are sent
#[derive(Debug, Clone, Args)]
pub struct Filter {
    #[command(flatten)]
    selection: super::Selection,
    /// Send the texts of messages and answers too
    #[arg(long)]
    content: bool,
}

#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct ReplayedEvents {
    /// Everything after this event (its id)
    #[arg(long)]
    after: Option<String>,
    /// The event with this id, which was given up
    #[arg(long)]
    dead: Option<String>,
    /// All events that were given up
    #[arg(long)]
    all_dead: bool,
}

impl Webhooks {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let mut webhooks = client.event_webhooks();
        match self {
            Self::Add { name, url, filter, earliest } => {
                add(client, screen, filter.webhook(name, url), earliest).await
            }
            Self::List => {
                let listed = list(client).await?;
                screen.list(&COLUMNS, listed.iter().map(view).collect())
            }
            Self::Update { name, url, disable, enable } => {
                let found = list(client).await?.into_iter().find(|found| found.name == name);
                let mut webhook = found
                    .ok_or_else(|| Error::NotFound(format!("there is no webhook `{name}`")))?;
                webhook.url = url.unwrap_or(webhook.url);
                webhook.disabled = (webhook.disabled && !enable) || disable;
                let request =
                    client.request(UpdateEventWebhookRequest { name, webhook: Some(webhook) });
                let updated = client.answer(webhooks.update_event_webhook(request).await)?;
                screen.one(&COLUMNS, &view(&updated.webhook.unwrap_or_default()))
            }
            Self::Remove { name } => {
                let request = client.request(DeleteEventWebhookRequest { name: name.clone() });
                client.answer(webhooks.delete_event_webhook(request).await)?;
                screen.done(&format!("Deleted the webhook {name}."), &json!({ "name": name }))
            }
            Self::Rotate { name } => {
                let request = client.request(RotateEventWebhookSecretRequest { name });
                let made = client.answer(webhooks.rotate_event_webhook_secret(request).await)?;
                let sentence = format!("Its new secret, shown this once: {}", made.secret);
                screen.done(&sentence, &json!({ "secret": made.secret }))
            }
            Self::Dead { name, limit } => list_dead(client, screen, name, limit).await,
            Self::Replay { name, what } => {
                let what = match (what.after, what.dead) {
                    (Some(cursor), _) => What::AfterCursor(cursor),
                    (None, Some(id)) => What::DeadLetter(id),
                    (None, None) => What::AllDeadLetters(what.all_dead),
                };
                let request =
                    client.request(ReplayEventsRequest { webhook: name, what: Some(what) });
                let answer = client.answer(webhooks.replay_events(request).await)?;
                let count = json!({ "dead_letters": answer.dead_letters });
                screen.done("They are sent again.", &count)
            }
        }
    }
}

impl Filter {
    fn webhook(self, name: String, url: String) -> EventWebhook {
        EventWebhook {
            name,
            url,
            include_content: self.content,
            filter: Some(self.selection.filter()),
            ..EventWebhook::default()
        }
    }
}

async fn add(
    client: &Client,
    screen: &Screen,
    webhook: EventWebhook,
    from_earliest: bool,
) -> Result<(), Error> {
    let webhook = Some(webhook);
    let request = client.request(CreateEventWebhookRequest { webhook, from_earliest });
    let made = client.answer(client.event_webhooks().create_event_webhook(request).await)?;
    let mut shown = view(&made.webhook.unwrap_or_default());
    shown["secret"] = made.secret.clone().into();
    screen.done(&format!("Its secret, shown this once: {}", made.secret), &shown)
}

async fn list_dead(
    client: &Client,
    screen: &Screen,
    webhook: String,
    limit: u32,
) -> Result<(), Error> {
    let request = client.request(ListEventDeadLettersRequest { webhook, limit });
    let listed = client.answer(client.event_webhooks().list_event_dead_letters(request).await)?;
    let rows = listed.dead_letters.into_iter().map(|letter| {
        let mut row = super::view(letter.event.unwrap_or_default());
        row["attempts"] = letter.attempts.into();
        row["reason"] = letter.reason.into();
        row["dead_at"] = time(letter.dead_at.as_ref());
        row
    });
    screen.list(&DEAD_COLUMNS, rows.collect())
}

async fn list(client: &Client) -> Result<Vec<EventWebhook>, Error> {
    let request = client.request(ListEventWebhooksRequest {});
    let listed = client.answer(client.event_webhooks().list_event_webhooks(request).await)?;
    Ok(listed.webhooks)
}

fn view(webhook: &EventWebhook) -> Value {
    let filter = webhook.filter.clone().unwrap_or_default();
    json!({
        "name": webhook.name,
        "url": webhook.url,
        "types": filter.types,
        "agent": filter.agent,
        "session": filter.session,
        "channel": filter.channel,
        "include_content": webhook.include_content,
        "state": if webhook.disabled { "disabled" } else { "active" },
        "reason": webhook.reason,
        "failures": webhook.failures,
        "last_error": webhook.last_error,
        "cursor": webhook.cursor,
        "succeeded_at": time(webhook.succeeded_at.as_ref()),
        "created_at": time(webhook.created_at.as_ref()),
    })
}
