//! `holdfast tenants`. Needs the scope `platform`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    CreateTenantRequest, ListTenantsRequest, Tenant, UpdateTenantRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 7] = ["name", "state", "rate", "weight", "cap", "created_at", "id"];

#[derive(Debug, Subcommand)]
pub enum Tenants {
    /// List all tenants of the platform
    List,
    /// Create a tenant with an agent `main` and a first API key, which is shown only once
    Create {
        /// Name of the tenant: a-z, 0-9, `_` and `-`
        name: String,
    },
    /// Change a tenant; options that are not given stay unchanged
    Update {
        /// Name or id of the tenant
        tenant: String,
        /// State of the tenant; keys and channels of a suspended tenant do not work
        #[arg(long, value_parser = ["active", "suspended"])]
        state: Option<String>,
        /// Maximum number of requests per minute, for all its keys together
        #[arg(long)]
        rate: Option<u32>,
        /// Share of the runners relative to other tenants, 1 to 100
        #[arg(long)]
        weight: Option<u32>,
        /// Maximum number of sessions that are ready or running at once
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
