//! `holdfast usage`.

use clap::Args;
use holdfast_proto::gateway::v1::{GetUsageRequest, UsageLine};
use serde_json::{Value, json};

use super::budgets::dollars;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 8] =
    ["day", "agent", "model", "runs", "input_tokens", "cached_tokens", "output_tokens", "usd"];

/// Tokens and costs of turns
#[derive(Debug, Args)]
pub struct Usage {
    /// Show only usage of this agent, by name or id
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Number of days (UTC) including today, at most 90
    #[arg(long, default_value_t = 7)]
    days: u32,
}

impl Usage {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let request = client.request(GetUsageRequest { agent: self.agent, days: self.days });
        let usage = client.answer(client.budgets().get_usage(request).await)?;
        screen.list(&COLUMNS, usage.lines.iter().map(view).collect())
    }
}

fn view(line: &UsageLine) -> Value {
    json!({
        "day": line.day,
        "agent": line.agent,
        "model": line.model,
        "runs": line.runs,
        "input_tokens": line.input_tokens,
        "cached_tokens": line.cached_tokens,
        "output_tokens": line.output_tokens,
        "usd": dollars(line.micros),
        "micros": line.micros,
    })
}
