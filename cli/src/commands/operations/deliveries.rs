//! `holdfast deliveries`: replies on their way to channels.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{Delivery, ListDeliveriesRequest, ResendDeliveryRequest};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] = ["id", "channel", "chat", "state", "attempt", "reason", "created_at"];

#[derive(Debug, Subcommand)]
pub enum Deliveries {
    /// List the tenant's deliveries, newest first
    List {
        /// Show only deliveries in this state; `unknown` may or may not have arrived
        #[arg(long, value_parser = ["pending", "sending", "sent", "unknown", "dead"])]
        state: Option<String>,
        /// Maximum number of deliveries to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Send an unknown or dead delivery again; it may arrive twice
    Resend {
        /// Id of the delivery, as `list` shows it
        id: String,
    },
}

impl Deliveries {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { state, limit } => {
                let state = state.unwrap_or_default();
                let request = ListDeliveriesRequest { state, limit, ..Default::default() };
                let listed = client.operations().list_deliveries(client.request(request)).await;
                let listed = client.answer(listed)?;
                screen.list(&COLUMNS, listed.deliveries.iter().map(view).collect())
            }
            Self::Resend { id } => {
                let request = client.request(ResendDeliveryRequest { id: id.clone() });
                client.answer(client.operations().resend_delivery(request).await)?;
                screen.done("it is sent once more", &json!({"resent": id}))
            }
        }
    }
}

fn view(delivery: &Delivery) -> Value {
    json!({
        "id": delivery.id,
        "session_id": delivery.session_id,
        "run_id": delivery.run_id,
        "channel": delivery.channel,
        "account_id": delivery.account_id,
        "chat": delivery.chat,
        "state": delivery.state,
        "attempt": delivery.attempt,
        "reason": delivery.reason,
        "platform_id": delivery.platform_id,
        "created_at": time(delivery.created_at.as_ref()),
        "finished_at": time(delivery.finished_at.as_ref()),
    })
}
