//! `holdfast mcp`.

use std::collections::HashMap;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeleteMcpServerRequest, ListMcpServersRequest, McpServer, McpTool, OmittedMcpTool,
    ProbeMcpServerRequest, PutMcpServerRequest,
};
use serde_json::{Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 6] = ["name", "transport", "place", "secrets", "agents", "enabled"];

const TOOL_COLUMNS: [&str; 4] = ["name", "reads", "left_out", "description"];

#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// List MCP servers
    List,
    /// Set an MCP server up, or change one; options that are not given stay unchanged
    #[command(after_help = "\
Examples:
  holdfast mcp add github --url https://api.githubcopilot.com/mcp/ \\
      --header 'Authorization: @github.token'
  holdfast mcp add everything -- mcp-server-everything stdio")]
    Add {
        /// Its name, of a-z, 0-9 and `_`: its tools are called `mcp_<name>_<tool>`
        name: String,
        /// Its endpoint, if it is reached by HTTP
        #[arg(long, conflicts_with = "command", required_unless_present = "command")]
        url: Option<String>,
        /// A header for it, as `Name: value`; a value of `@file` or `-` is read from there. Given
        /// headers replace all that are stored
        #[arg(long = "header", value_name = "HEADER", requires = "url")]
        headers: Vec<String>,
        /// A variable for it, as `NAME=value`; a value of `@file` or `-` is read from there. Given
        /// variables replace all that are stored
        #[arg(long = "env", value_name = "VARIABLE", requires = "command")]
        env: Vec<String>,
        /// Let it use the network, where the sandbox has one
        #[arg(long, requires = "command")]
        network: bool,
        /// Keep the files of its folder, /workspace, among the agent's files
        #[arg(long, requires = "command")]
        keep: bool,
        /// Call its read-only tools without an approval also after text from outside was read: it learns
        /// what they are asked
        #[arg(long)]
        harmless: bool,
        /// Take `--harmless` back
        #[arg(long, conflicts_with = "harmless")]
        no_harmless: bool,
        /// An agent that may use it, by name or id; without one every agent may use a new server
        #[arg(long = "agent", value_name = "AGENT")]
        agents: Vec<String>,
        /// Keep the headers or variables that are stored, also with `--replace`
        #[arg(long, conflicts_with_all = ["headers", "env"])]
        keep_secrets: bool,
        /// Set it up without using it yet, or use it no more
        #[arg(long)]
        disabled: bool,
        /// Let agents use a disabled server again
        #[arg(long, conflicts_with = "disabled")]
        enabled: bool,
        /// Replace the server as a whole: options that are not given are as for a new one
        #[arg(long)]
        replace: bool,
        /// The program to run in the sandbox, and its arguments, if it is a process
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Delete an MCP server and what is stored for it
    Remove {
        /// Its name
        name: String,
    },
    /// Connect to an MCP server as agents do, and list its tools; also those that are left out, and
    /// why
    Probe {
        /// Its name
        name: String,
    },
}

impl Mcp {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => screen.list(&COLUMNS, list(client).await?.iter().map(view).collect()),
            Self::Add {
                name,
                url,
                headers,
                env,
                network,
                keep,
                harmless,
                no_harmless,
                agents,
                keep_secrets,
                disabled,
                enabled,
                replace,
                command,
            } => {
                let (secrets, transport) = match url {
                    Some(_) => (pairs(&headers, ':')?, "http"),
                    None => (pairs(&env, '=')?, "stdio"),
                };
                let before = match replace {
                    true => None,
                    false => list(client).await?.into_iter().find(|server| server.name == name),
                };
                // The gateway refuses to keep what was given for another address or command.
                let keep_secrets = keep_secrets || (before.is_some() && secrets.is_empty());
                let before = before.unwrap_or(McpServer { enabled: true, ..McpServer::default() });
                let is_process = transport == "stdio";
                let mut words = command.into_iter();
                let (url, command) = (url.unwrap_or_default(), words.next().unwrap_or_default());
                let args: Vec<String> = words.collect();
                let network = network || (is_process && before.network);
                // Another address, command or network access ends the declaration.
                let is_same = (&before.url, &before.command, &before.args, before.network)
                    == (&url, &command, &args, network);
                let server = McpServer {
                    name,
                    transport: transport.to_owned(),
                    url,
                    command,
                    args,
                    network,
                    secret_names: Vec::new(),
                    agents: if agents.is_empty() { before.agents } else { agents },
                    enabled: enabled || (before.enabled && !disabled),
                    keep: keep || (is_process && before.keep),
                    harmless: harmless || (before.harmless && is_same && !no_harmless),
                };
                let put = PutMcpServerRequest { server: Some(server), secrets, keep_secrets };
                let request = client.request(put);
                let put = client.answer(client.mcp_servers().put_mcp_server(request).await)?;
                screen.one(&COLUMNS, &view(&put.server.unwrap_or_default()))
            }
            Self::Remove { name } => {
                let request = client.request(DeleteMcpServerRequest { name: name.clone() });
                client.answer(client.mcp_servers().delete_mcp_server(request).await)?;
                screen.done("deleted", &json!({"deleted": name}))
            }
            Self::Probe { name } => {
                let request = client.request(ProbeMcpServerRequest { name: name.clone() });
                let probed = client.answer(client.mcp_servers().probe_mcp_server(request).await)?;
                if !probed.error.is_empty() {
                    return Err(Error::Usage(format!("`{name}` cannot be used: {}", probed.error)));
                }
                let tools = probed.tools.iter().map(tool);
                let tools = tools.chain(probed.omitted.iter().map(omitted_tool));
                screen.list(&TOOL_COLUMNS, tools.collect())
            }
        }
    }
}

async fn list(client: &Client) -> Result<Vec<McpServer>, Error> {
    let request = client.request(ListMcpServersRequest {});
    Ok(client.answer(client.mcp_servers().list_mcp_servers(request).await)?.servers)
}

/// Names and values. What a value says is never repeated.
fn pairs(given: &[String], between: char) -> Result<HashMap<String, String>, Error> {
    let pair = |given: &String| match given.split_once(between) {
        Some((name, value)) => Ok((name.trim().to_owned(), option_values::secret(value.trim())?)),
        None => Err(Error::Usage(format!("write a name, `{between}` and a value"))),
    };
    given.iter().map(pair).collect()
}

fn view(server: &McpServer) -> Value {
    let words = std::iter::once(&server.command).chain(&server.args);
    let place = match server.transport.as_str() {
        "stdio" => words.map(String::as_str).collect::<Vec<_>>().join(" "),
        _ => server.url.clone(),
    };
    json!({
        "name": server.name,
        "transport": server.transport,
        "place": place,
        "url": server.url,
        "command": server.command,
        "args": server.args,
        "network": server.network,
        "keep": server.keep,
        "secrets": server.secret_names,
        "agents": server.agents,
        "enabled": server.enabled,
        "harmless": server.harmless,
    })
}

fn tool(tool: &McpTool) -> Value {
    json!({ "name": tool.name, "reads": tool.reads, "description": tool.description })
}

fn omitted_tool(tool: &OmittedMcpTool) -> Value {
    let name = if tool.name.is_empty() { "(further tools)" } else { &tool.name };
    json!({ "name": name, "left_out": tool.reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_split_once_and_never_repeated() {
        let given = ["Authorization: Bearer a:b".to_owned()];

        let pairs_of = pairs(&given, ':').unwrap();

        assert_eq!(pairs_of["Authorization"], "Bearer a:b");
        let error = pairs(&["s3cret".to_owned()], '=').unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
