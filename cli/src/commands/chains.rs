//! `holdfast chains`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Chain, DeleteChainRequest, GetChainRequest, ListChainsRequest, PutChainRequest,
};
use serde_json::{Value, json};

use super::option_values;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 4] = ["name", "stages", "shipped", "description"];

#[derive(Debug, Subcommand)]
pub enum Chains {
    /// List all chains of the tenant
    List,
    /// Show one chain with its specification
    Show {
        /// Name of the chain, as `list` shows it
        name: String,
    },
    /// Create or replace a chain
    Put {
        /// Name of the chain: a-z, 0-9, `_` and `-`
        name: String,
        /// Specification in JSON: text, `@file`, or `-` for stdin
        spec: String,
    },
    /// Delete a chain by its name
    Delete {
        /// Name of the chain, as `list` shows it
        name: String,
    },
}

impl Chains {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListChainsRequest {});
                let chains = client.answer(client.chains().list_chains(request).await)?.chains;
                screen.list(&COLUMNS, chains.iter().map(view).collect())
            }
            Self::Show { name } => {
                let request = client.request(GetChainRequest { name });
                let chain = client.answer(client.chains().get_chain(request).await)?.chain;
                let chain = chain.unwrap_or_default();
                if screen.is_json() {
                    return screen.one(&[], &view(&chain));
                }
                let spec = spec(&chain);
                screen.print(&format!("{spec:#}\n"))
            }
            Self::Put { name, spec } => {
                let chain =
                    Some(Chain { name, spec: option_values::text(&spec)?, ..Chain::default() });
                let request = client.request(PutChainRequest { chain });
                let chain = client.answer(client.chains().put_chain(request).await)?.chain;
                screen.one(&COLUMNS, &view(&chain.unwrap_or_default()))
            }
            Self::Delete { name } => {
                let request = client.request(DeleteChainRequest { name: name.clone() });
                client.answer(client.chains().delete_chain(request).await)?;
                screen.done("deleted", &json!({"deleted": name}))
            }
        }
    }
}

fn spec(chain: &Chain) -> Value {
    serde_json::from_str(&chain.spec).unwrap_or_default()
}

fn view(chain: &Chain) -> Value {
    let spec = spec(chain);
    json!({
        "name": chain.name,
        "description": spec["description"].as_str().unwrap_or_default(),
        "stages": spec["stages"].as_array().map_or(0, Vec::len),
        "shipped": chain.shipped,
        "version": chain.version,
        "updated_at": time(chain.updated_at.as_ref()),
        "spec": spec,
    })
}
