//! `holdfast tenants`, which need the scope `platform`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    CreateTenantRequest, ListTenantsRequest, Tenant, UpdateTenantRequest,
};
use serde_json::{Value, json};

use super::view::time;
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 7] = ["name", "state", "rate", "weight", "cap", "created_at", "id"];

#[derive(Debug, Subcommand)]
pub enum Tenants {
    /// List tenants
    List,
    /// Make a tenant with an agent `main` and a first key, which is shown this once
    Create {
        /// Its name: a-z, 0-9, `_` and `-`
        name: String,
    },
    /// Change a tenant; what is not said stays
    Update {
        /// Its name or id
        tenant: String,
        /// Whether its keys and channels count
        #[arg(long, value_parser = ["active", "suspended"])]
        state: Option<String>,
        /// Requests a minute that its keys may make together
        #[arg(long)]
        rate: Option<u32>,
        /// Its share of the runners beside others', 1 to 100
        #[arg(long)]
        weight: Option<u32>,
        /// Sessions that may be ready or running at once
        #[arg(long)]
        cap: Option<u32>,
    },
}

impl Tenants {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListTenantsRequest {});
                let listed = client.answer(client.tenants().list_tenants(request).await)?;
                screen.list(&COLUMNS, listed.tenants.iter().map(view).collect())
            }
            Self::Create { name } => {
                let request = client.request(CreateTenantRequest { name });
                let made = client.answer(client.tenants().create_tenant(request).await)?;
                let mut shown = view(&made.tenant.unwrap_or_default());
                shown["secret"] = Value::String(made.secret);
                screen.one(&["secret", "name", "id"], &shown)?;
                if !screen.is_json() {
                    screen.note("The secret, its first key, is not shown again.")?;
                }
                Ok(())
            }
            Self::Update { tenant, state, rate, weight, cap } => {
                let is_id = tenant.starts_with("ten_");
                let (id, name) =
                    if is_id { (tenant, String::new()) } else { (String::new(), tenant) };
                let tenant = Tenant {
                    id,
                    name,
                    state: state.unwrap_or_default(),
                    rate: rate.unwrap_or_default(),
                    weight: weight.unwrap_or_default(),
                    cap: cap.unwrap_or_default(),
                    created_at: None,
                };
                let request = client.request(UpdateTenantRequest { tenant: Some(tenant) });
                let changed = client.answer(client.tenants().update_tenant(request).await)?.tenant;
                screen.one(&COLUMNS, &view(&changed.unwrap_or_default()))
            }
        }
    }
}

fn view(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id,
        "name": tenant.name,
        "state": tenant.state,
        "rate": tenant.rate,
        "weight": tenant.weight,
        "cap": tenant.cap,
        "created_at": time(tenant.created_at.as_ref()),
    })
}
