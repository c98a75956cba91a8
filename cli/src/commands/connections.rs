//! `holdfast connections`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Connection, DeleteConnectionRequest, ListConnectionsRequest, PutConnectionRequest,
};
use serde_json::{Map, Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

/// Kinds of connections.
const KINDS: [&str; 3] = ["caldav", "smtp", "notion"];

const COLUMNS: [&str; 6] = ["name", "kind", "agent", "used_by", "has_secret", "settings"];

#[derive(Debug, Subcommand)]
pub enum Connections {
    /// List all connections of the tenant
    List,
    /// Create or change a connection; options and settings that are not given stay unchanged
    Add {
        /// Name of the connection, for example `anna-calendar`
        name: String,
        /// Kind of service to connect to
        #[arg(value_parser = KINDS)]
        kind: String,
        /// A setting, for example `url=https://dav.example.com/anna/home/`; may be repeated
        #[arg(long = "set", value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// Password or token: `@file`, `-` for stdin, or the secret itself; without it the stored
        /// one is kept
        #[arg(long, env = "HOLDFAST_CONNECTION_SECRET", hide_env_values = true)]
        secret: Option<String>,
        /// The agent that may use it; empty for every agent [default for a new one: every agent]
        #[arg(long)]
        agent: Option<String>,
        /// Conversations that may use it: those of `owner`, of `everyone`, or of a person such as
        /// `telegram:42` [default for a new one: owner]
        #[arg(long = "for")]
        used_by: Option<String>,
        /// Replace the connection as a whole: options that are not given are as for a new one
        #[arg(long)]
        replace: bool,
    },
    /// Delete a connection and its secret
    Remove {
        /// Name of the connection, as `list` shows it
        name: String,
    },
}

impl Connections {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => screen.list(&COLUMNS, list(client).await?.iter().map(view).collect()),
            Self::Add { name, kind, set, secret, agent, used_by, replace } => {
                let before = match replace {
                    true => None,
                    false => list(client).await?.into_iter().find(|one| one.name == name),
                };
                let before = before
                    .unwrap_or(Connection { used_by: "owner".to_owned(), ..Connection::default() });
                // Each kind has settings of its own.
                let known = match kind == before.kind {
                    true => serde_json::from_str(&before.settings).unwrap_or_default(),
                    false => Map::new(),
                };
                let settings = settings(known, &set)?.to_string();
                let agent = agent.unwrap_or(before.agent);
                let used_by = used_by.unwrap_or(before.used_by);
                let secret =
                    secret.as_deref().map(option_values::secret).transpose()?.unwrap_or_default();
                let connection =
                    Connection { name, kind, agent, used_by, settings, ..Default::default() };
                let request = PutConnectionRequest { connection: Some(connection), secret };
                let put = client.connections().put_connection(client.request(request)).await;
                let put = client.answer(put)?.connection.unwrap_or_default();
                screen.one(&COLUMNS, &view(&put))
            }
            Self::Remove { name } => {
                let request = client.request(DeleteConnectionRequest { name: name.clone() });
                client.answer(client.connections().delete_connection(request).await)?;
                screen.done("removed", &json!({"removed": name}))
            }
        }
    }
}

async fn list(client: &Client) -> Result<Vec<Connection>, Error> {
    let request = client.request(ListConnectionsRequest {});
    Ok(client.answer(client.connections().list_connections(request).await)?.connections)
}

/// Adds settings to a JSON object. `port` becomes a number, `to` a list, all others strings.
fn settings(mut settings: Map<String, Value>, given: &[String]) -> Result<Value, Error> {
    for pair in given {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::Usage(format!("`{pair}` is no setting: write NAME=VALUE")));
        };
        let value = match name {
            "port" => value.parse::<u16>().map(Value::from).map_err(|_| {
                Error::Usage(format!("`{value}` is no port: write a number up to 65535"))
            })?,
            "to" => value.split(',').map(str::trim).collect(),
            _ => Value::from(value),
        };
        settings.insert(name.to_owned(), value);
    }
    Ok(Value::Object(settings))
}

fn view(connection: &Connection) -> Value {
    let settings: Value = serde_json::from_str(&connection.settings).unwrap_or_default();
    json!({
        "name": connection.name,
        "kind": connection.kind,
        "agent": connection.agent,
        "used_by": connection.used_by,
        "has_secret": connection.has_secret,
        "settings": settings,
        "updated_at": time(connection.updated_at.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_their_service_takes() {
        let given = ["url=https://h/?a=b", "port=465", "to=@a.test, b@c.test"];

        let settings = settings(Map::new(), &given.map(str::to_owned)).unwrap();

        let url = "https://h/?a=b";
        assert_eq!(settings, json!({"url": url, "port": 465, "to": ["@a.test", "b@c.test"]}));
        for wrong in ["url", "port=x", "port=70000"] {
            assert!(super::settings(Map::new(), &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
