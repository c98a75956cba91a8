//! `holdfast status`.

use std::collections::HashMap;

use holdfast_proto::gateway::v1::GetStatusRequest;
use serde_json::{Map, Value, json};

use super::doctor::describe_wait;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 6] =
    ["tenant", "version", "agents", "sessions", "waiting_messages", "oldest_wait_ms"];

pub async fn run(client: &Client, screen: &Screen) -> Result<(), Error> {
    let request = client.request(GetStatusRequest {});
    let status = client.answer(client.operations().get_status(request).await)?;
    let waits: Vec<String> = status.wait_reasons.iter().map(describe_wait).collect();
    let waits = waits.join("; ");
    screen.one(
        &COLUMNS,
        &json!({
            "tenant": status.tenant,
            "version": status.version,
            "agents": status.agents,
            "sessions": counts(status.sessions),
            "waiting_messages": status.waiting_messages,
            "oldest_wait_ms": status.oldest_wait_ms,
            "waits": waits,
            "dead_letters": status.dead_letters,
            "deliveries": counts(status.deliveries),
            "sandboxes": counts(status.sandboxes),
            "no_commands": counts(status.no_commands),
        }),
    )
}

/// Returns the counts as an object, sorted by name.
fn counts(counts: HashMap<String, i64>) -> Value {
    let mut counts: Vec<(String, i64)> = counts.into_iter().collect();
    counts.sort();
    Value::Object(counts.into_iter().map(|(name, n)| (name, n.into())).collect::<Map<_, _>>())
}
