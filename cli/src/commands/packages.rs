//! `holdfast agents export`, `import` and `approve`: agents as package files.

use std::fs;

use holdfast_proto::gateway::v1::{ApproveAgentRequest, ExportAgentRequest, ImportAgentRequest};
use serde_json::json;

use super::files::local_folder::file_name;
use crate::{client::Client, error::Error, screen::Screen};

/// Exports an agent to a file or to stdout.
pub async fn export(
    client: &Client,
    screen: &Screen,
    request: ExportAgentRequest,
    to: Option<String>,
) -> Result<(), Error> {
    let request = client.request(request);
    let made = client.answer(client.packages().export_agent(request).await)?;
    match to {
        Some(to) if to == "-" => screen.print(&made.text),
        to => {
            let to = to.map_or_else(|| file_name(&made.file).map(str::to_owned), Ok)?;
            fs::write(&to, made.text)
                .map_err(|error| Error::Usage(format!("cannot write {to}: {error}")))?;
            screen.done(&format!("written to {to}"), &json!({ "file": to }))
        }
    }
}

/// Imports the agent of a package.
pub async fn import(client: &Client, screen: &Screen, text: String) -> Result<(), Error> {
    let request = client.request(ImportAgentRequest { text });
    let made = client.answer(client.packages().import_agent(request).await)?;
    let mut told = format!("made the agent {}", made.agent);
    if made.rule_waits {
        told.push_str(&format!(
            "; its rule is off until you have read it (`routing rules list`) and say \
             `agents approve {}`",
            made.agent
        ));
    }
    screen.done(
        &told,
        &json!({ "agent": made.agent, "id": made.agent_id, "rule_waits": made.rule_waits }),
    )
}

/// Enables the routing rules of an imported agent.
pub async fn approve(client: &Client, screen: &Screen, agent: String) -> Result<(), Error> {
    let request = client.request(ApproveAgentRequest { agent });
    let done = client.answer(client.packages().approve_agent(request).await)?;
    let told = match done.rules {
        0 => "no rule was off".to_owned(),
        1 => "its rule is on".to_owned(),
        many => format!("its {many} rules are on"),
    };
    screen.done(&told, &json!({ "rules": done.rules }))
}
