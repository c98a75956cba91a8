//! `holdfast usage` and its export.

use clap::{Args, Subcommand, ValueEnum};
use holdfast_proto::gateway::v1::{
    ExportUsageRequest, ExportUsageResponse, GetUsageRequest, UsageLine,
};
use jiff::civil::Date;
use serde_json::{Value, json};

use super::budgets::dollars;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 8] =
    ["day", "agent", "model", "runs", "input_tokens", "cached_tokens", "output_tokens", "usd"];

/// Columns of an export, in the order of the CSV file.
const EXPORT_COLUMNS: [&str; 15] = [
    "day",
    "tenant",
    "tenant_id",
    "agent",
    "agent_id",
    "model",
    "runs",
    "messages",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "micros",
    "commands",
    "storage_bytes",
    "platform_micros",
];

/// Tokens and costs of turns
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Usage {
    #[command(subcommand)]
    command: Option<UsageCommand>,
    /// Show only usage of this agent, by name or id
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// Number of days (UTC) including today, at most 90
    #[arg(long, default_value_t = 7)]
    days: u32,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Print one row for each day, agent and model, with messages, commands and storage
    Export(Export),
}

/// Which rows are exported, and how
#[derive(Debug, Args)]
struct Export {
    /// First day (UTC), as in 2026-01-31
    #[arg(long)]
    from: Date,
    /// Last day (UTC), which is included
    #[arg(long)]
    to: Date,
    /// Format of the rows
    #[arg(long, value_enum, default_value = "csv")]
    format: ExportFormat,
    /// Export this tenant, by name or id; another than one's own needs the scope `platform`
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Export all tenants; needs the scope `platform`
    #[arg(long, conflicts_with = "tenant")]
    all_tenants: bool,
}

/// Format of an export
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// With a line of column names
    Csv,
    /// One JSON object per line
    Json,
}

impl Export {
    async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let request = client.request(ExportUsageRequest {
            tenant: self.tenant,
            all_tenants: self.all_tenants,
            from: self.from.to_string(),
            to: self.to.to_string(),
        });
        let mut rows = client.answer(client.usage().export_usage(request).await)?;
        if self.format == ExportFormat::Csv {
            screen.print(&format!("{}\n", EXPORT_COLUMNS.join(",")))?;
        }
        loop {
            let row = rows.message().await.map_err(|status| client.error(status))?;
            let Some(row) = row else { return Ok(()) };
            let row = export_view(&row);
            screen.print(&match self.format {
                ExportFormat::Csv => csv_line(&row),
                ExportFormat::Json => format!("{row}\n"),
            })?;
        }
    }
}

fn export_view(row: &ExportUsageResponse) -> Value {
    json!({
        "day": row.day,
        "tenant": row.tenant,
        "tenant_id": row.tenant_id,
        "agent": row.agent,
        "agent_id": row.agent_id,
        "model": row.model,
        "runs": row.runs,
        "messages": row.messages,
        "input_tokens": row.input_tokens,
        "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
        "micros": row.micros,
        "commands": row.commands,
        "storage_bytes": row.storage_bytes,
        "platform_micros": row.platform_micros,
    })
}

fn csv_line(row: &Value) -> String {
    let fields = EXPORT_COLUMNS.map(|column| match &row[column] {
        Value::String(text) => csv_field(text),
        other => other.to_string(),
    });
    format!("{}\n", fields.join(","))
}

/// Quotes a text where CSV needs it.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

impl Usage {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        if let Some(UsageCommand::Export(export)) = self.command {
            return export.run(client, screen).await;
        }
        let request = GetUsageRequest { agent: self.agent, days: self.days, group_by: Vec::new() };
        let request = client.request(request);
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
        "platform_micros": line.platform_micros,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_line_has_all_columns_and_quotes_what_needs_it() {
        let row = ExportUsageResponse {
            day: "2026-11-22".into(),
            agent: "a, \"b\"".into(),
            runs: 3,
            storage_bytes: 7,
            ..ExportUsageResponse::default()
        };

        let line = csv_line(&export_view(&row));

        assert_eq!(line, "2026-11-22,,,\"a, \"\"b\"\"\",,,3,0,0,0,0,0,0,7,0\n");
    }
}
