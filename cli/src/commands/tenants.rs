//! `holdfast tenants`. Needs the scope `platform`, except for the usage and the events of one's own.

use std::time::Duration;

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    CreateTenantRequest, DeleteTenantRequest, GetTenantUsageRequest, GetTenantUsageResponse,
    LimitUsage, ListTenantEventsRequest, ListTenantsRequest, Product, ProductCommand, Retention,
    Tenant, TenantEvent, UpdateTenantRequest,
};
use serde_json::{Value, json};

use super::plans::limits_view;
use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 9] =
    ["name", "state", "plan", "rate", "weight", "cap", "pool", "created_at", "id"];
const USAGE_COLUMNS: [&str; 5] = ["name", "used", "limit", "level", "is_own"];
const EVENT_COLUMNS: [&str; 5] = ["id", "at", "tenant", "kind", "detail"];
/// Pause between two looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Events per request.
const EVENTS_PER_PAGE: u32 = 500;

#[derive(Debug, Subcommand)]
pub enum Tenants {
    /// List all tenants of the platform
    List,
    /// Create a tenant with an agent `main` and a first API key, which is shown only once
    Create {
        /// Name of the tenant: a-z, 0-9, `_` and `-`
        name: String,
        /// Pool of the runners that work for it [default: the default pool]
        #[arg(long, default_value = "", hide_default_value = true)]
        pool: String,
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
        /// Maximum number of sessions, whatever their state
        #[arg(long)]
        max_sessions: Option<u32>,
        /// Pool of the runners that work for it; turns that run end where they are
        #[arg(long)]
        pool: Option<String>,
        /// Give it the default pool again
        #[arg(long, conflicts_with = "pool")]
        no_pool: bool,
        /// Time at which the tenant is suspended by itself, as in 2026-12-31T00:00:00Z, or `never`
        #[arg(long)]
        expires_at: Option<String>,
        /// Let a limit of the tenant's own follow its plan again; may be given several times
        #[arg(long, value_parser = ["calls_per_minute", "parallel_runs", "sessions"])]
        follow_plan: Vec<String>,
        #[command(flatten)]
        product: Box<ProductChanges>,
        #[command(flatten)]
        retention: Box<RetentionChanges>,
    },
    /// Give a tenant a plan; limits that were set for it alone stay
    SetPlan {
        /// Name or id of the tenant
        tenant: String,
        /// Name of the plan
        #[arg(required_unless_present = "none")]
        plan: Option<String>,
        /// Take its plan away
        #[arg(long, conflicts_with = "plan")]
        none: bool,
    },
    /// Suspend a tenant: its calls are refused, and its messages and jobs wait
    Suspend {
        /// Name or id of the tenant
        tenant: String,
    },
    /// Let a suspended tenant go on
    Resume {
        /// Name or id of the tenant
        tenant: String,
    },
    /// Show a tenant's plan, and what it uses of its limits
    Usage {
        /// Name or id of the tenant [default: that of the key]
        #[arg(default_value = "", hide_default_value = true)]
        tenant: String,
    },
    /// List events: changes of tenants' lives, limits and settings, oldest first
    Events {
        /// Name or id of the tenant [default: that of the key]
        #[arg(default_value = "", hide_default_value = true)]
        tenant: String,
        /// Events of all tenants
        #[arg(long, conflicts_with = "tenant")]
        all_tenants: bool,
        /// Only events after this one (its id)
        #[arg(long, default_value_t = 0, hide_default_value = true)]
        after: i64,
        /// Wait for further events, and print each as a line of JSON
        #[arg(long)]
        follow: bool,
    },
    /// Delete a tenant with everything that it has; there is no way back
    Delete {
        /// Name of the tenant
        name: String,
        /// Confirms the deletion
        #[arg(long)]
        yes: bool,
    },
}

/// Days that finished rows of the tenant are kept; 0 is the installation's default
#[derive(Debug, Clone, Copy, Args)]
pub struct RetentionChanges {
    /// Days that finished messages are kept
    #[arg(long)]
    keep_messages: Option<u32>,
    /// Days that idempotency keys are kept after their message was deleted
    #[arg(long)]
    keep_keys: Option<u32>,
    /// Days that finished deliveries are kept
    #[arg(long)]
    keep_deliveries: Option<u32>,
    /// Days that records of turns, subagents, approvals, spending and job runs are kept
    #[arg(long)]
    keep_runs: Option<u32>,
    /// Days that entries of journals are kept; by default as long as their session
    #[arg(long)]
    keep_journals: Option<u32>,
}

impl RetentionChanges {
    const fn is_empty(self) -> bool {
        self.keep_messages.is_none()
            && self.keep_keys.is_none()
            && self.keep_deliveries.is_none()
            && self.keep_runs.is_none()
            && self.keep_journals.is_none()
    }

    /// Returns the retention with the given options applied.
    fn apply(self, retention: Retention) -> Retention {
        Retention {
            messages: self.keep_messages.unwrap_or(retention.messages),
            keys: self.keep_keys.unwrap_or(retention.keys),
            deliveries: self.keep_deliveries.unwrap_or(retention.deliveries),
            runs: self.keep_runs.unwrap_or(retention.runs),
            journals: self.keep_journals.unwrap_or(retention.journals),
        }
    }
}

/// The product that the tenant's agents say they run in
#[derive(Debug, Args)]
pub struct ProductChanges {
    /// Name of the product; empty is Holdfast
    #[arg(long)]
    product_name: Option<String>,
    /// Address of the product's documentation; empty for none
    #[arg(long)]
    docs_url: Option<String>,
    /// Command of the product as `command=what it does`; all that are given replace the earlier
    /// ones, and an empty one removes them
    #[arg(long = "product-command")]
    product_commands: Vec<String>,
}

impl ProductChanges {
    const fn is_empty(&self) -> bool {
        self.product_name.is_none() && self.docs_url.is_none() && self.product_commands.is_empty()
    }

    /// Returns the product with the given options applied.
    fn apply(self, mut product: Product) -> Result<Product, Error> {
        if let Some(name) = self.product_name {
            product.name = name;
        }
        if let Some(docs_url) = self.docs_url {
            product.docs_url = docs_url;
        }
        if !self.product_commands.is_empty() {
            let given = self.product_commands.iter().filter(|given| !given.is_empty());
            let command = |given: &String| match given.split_once('=') {
                Some((command, description)) => Ok(ProductCommand {
                    command: command.to_owned(),
                    description: description.to_owned(),
                }),
                None => Err(Error::Usage(format!(
                    "`{given}` is no command: write `command=what it does`"
                ))),
            };
            product.commands = given.map(command).collect::<Result<_, _>>()?;
        }
        Ok(product)
    }
}

impl Tenants {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let request = client.request(ListTenantsRequest {});
                let listed = client.answer(client.tenants().list_tenants(request).await)?;
                screen.list(&COLUMNS, listed.tenants.iter().map(view).collect())
            }
            Self::Create { name, pool } => {
                let request = client.request(CreateTenantRequest { name, pool });
                let made = client.answer(client.tenants().create_tenant(request).await)?;
                let tenant = made.tenant.unwrap_or_default();
                warn_of_empty_pool(screen, &tenant)?;
                let mut shown = view(&tenant);
                shown["secret"] = Value::String(made.secret);
                screen.one(&["secret", "name", "id"], &shown)?;
                if !screen.is_json() {
                    screen.note("The secret, its first key, is not shown again.")?;
                }
                Ok(())
            }
            Self::Update {
                tenant,
                state,
                rate,
                weight,
                cap,
                max_sessions,
                pool,
                no_pool,
                expires_at,
                follow_plan,
                product,
                retention,
            } => {
                let mut wanted = Tenant {
                    state: state.unwrap_or_default(),
                    rate: rate.unwrap_or_default(),
                    weight: weight.unwrap_or_default(),
                    cap: cap.unwrap_or_default(),
                    max_sessions: max_sessions.unwrap_or_default(),
                    pool: pool.unwrap_or_default(),
                    ..Tenant::default()
                };
                if !product.is_empty() || !retention.is_empty() {
                    let current = current(client, &tenant).await?;
                    if !product.is_empty() {
                        wanted.product = Some(product.apply(current.product.unwrap_or_default())?);
                    }
                    if !retention.is_empty() {
                        let before = current.retention.unwrap_or_default();
                        wanted.retention = Some(retention.apply(before));
                    }
                }
                let never_expires = expires_at.as_deref() == Some("never");
                if let Some(at) = expires_at.filter(|_| !never_expires) {
                    wanted.expires_at = Some(moment(&at)?);
                }
                let request = UpdateTenantRequest {
                    never_expires,
                    follow_plan,
                    no_pool,
                    ..UpdateTenantRequest::default()
                };
                update(client, screen, &tenant, (wanted, request)).await
            }
            Self::SetPlan { tenant, plan, none } => {
                let wanted = Tenant { plan: plan.unwrap_or_default(), ..Tenant::default() };
                let request =
                    UpdateTenantRequest { no_plan: none, ..UpdateTenantRequest::default() };
                update(client, screen, &tenant, (wanted, request)).await
            }
            Self::Suspend { tenant } => set_state(client, screen, &tenant, "suspended").await,
            Self::Resume { tenant } => set_state(client, screen, &tenant, "active").await,
            Self::Usage { tenant } => {
                let request = client.request(GetTenantUsageRequest { tenant });
                let usage = client.answer(client.usage().get_tenant_usage(request).await)?;
                if screen.is_json() {
                    return screen.one(&[], &usage_view(&usage));
                }
                let plan = if usage.plan.is_empty() { "no plan" } else { &usage.plan };
                screen.note(&format!("{}: {plan}, {}", usage.tenant, usage.state))?;
                screen.list(&USAGE_COLUMNS, usage.limits.iter().map(limit_view).collect())
            }
            Self::Events { tenant, all_tenants, after, follow } => {
                let request =
                    ListTenantEventsRequest { tenant, all_tenants, after, limit: EVENTS_PER_PAGE };
                list_events(client, screen, request, follow).await
            }
            Self::Delete { name, yes } => {
                if !yes {
                    return Err(Error::Usage(format!(
                        "this deletes `{name}` with all conversations, files, memories and keys, \
                         and cannot be undone: add `--yes`"
                    )));
                }
                let request = client.request(DeleteTenantRequest { name });
                client.answer(client.tenants().delete_tenant(request).await)?;
                screen.note("The tenant is suspended, and deleted in the background.")
            }
        }
    }
}

async fn update(
    client: &Client,
    screen: &Screen,
    tenant: &str,
    (mut wanted, request): (Tenant, UpdateTenantRequest),
) -> Result<(), Error> {
    if tenant.starts_with("ten_") {
        tenant.clone_into(&mut wanted.id);
    } else {
        tenant.clone_into(&mut wanted.name);
    }
    let request = client.request(UpdateTenantRequest { tenant: Some(wanted), ..request });
    let changed = client.answer(client.tenants().update_tenant(request).await)?.tenant;
    let changed = changed.unwrap_or_default();
    warn_of_empty_pool(screen, &changed)?;
    screen.one(&COLUMNS, &view(&changed))
}

async fn set_state(
    client: &Client,
    screen: &Screen,
    tenant: &str,
    state: &str,
) -> Result<(), Error> {
    let wanted = Tenant { state: state.to_owned(), ..Tenant::default() };
    update(client, screen, tenant, (wanted, UpdateTenantRequest::default())).await
}

/// Lists all events after the given one; with `follow` also those that come later.
async fn list_events(
    client: &Client,
    screen: &Screen,
    mut wanted: ListTenantEventsRequest,
    follow: bool,
) -> Result<(), Error> {
    let mut rows = Vec::new();
    loop {
        let request = client.request(wanted.clone());
        let events = client.answer(client.usage().list_tenant_events(request).await)?.events;
        let Some(last) = events.last() else {
            if !follow {
                return screen.list(&EVENT_COLUMNS, rows);
            }
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            continue;
        };
        wanted.after = last.id;
        let views = events.iter().map(event_view);
        if follow {
            for event in views {
                screen.print(&format!("{event}\n"))?;
            }
        } else {
            rows.extend(views);
        }
    }
}

fn event_view(event: &TenantEvent) -> Value {
    json!({
        "id": event.id,
        "at": time(event.at.as_ref()),
        "tenant": event.tenant,
        "tenant_id": event.tenant_id,
        "kind": event.kind,
        "detail": serde_json::from_str::<Value>(&event.detail).unwrap_or_default(),
    })
}

fn usage_view(usage: &GetTenantUsageResponse) -> Value {
    json!({
        "tenant": usage.tenant,
        "tenant_id": usage.tenant_id,
        "plan": usage.plan,
        "state": usage.state,
        "expires_at": time(usage.expires_at.as_ref()),
        "limits": usage.limits.iter().map(limit_view).collect::<Vec<_>>(),
    })
}

fn limit_view(limit: &LimitUsage) -> Value {
    json!({
        "name": limit.name,
        "used": limit.used,
        "limit": limit.limit,
        "level": limit.level,
        "is_own": limit.is_own,
    })
}

/// Says that nobody works for a tenant whose pool has no runner.
fn warn_of_empty_pool(screen: &Screen, tenant: &Tenant) -> Result<(), Error> {
    if tenant.pool.is_empty() || tenant.pool_runners > 0 {
        return Ok(());
    }
    let Tenant { name, pool, .. } = tenant;
    screen.warn(&[format!(
        "no runner of the pool `{pool}` is alive: messages of `{name}` wait until one is started \
         with `runner.pool = \"{pool}\"`"
    )])
}

/// Parses a time.
fn moment(at: &str) -> Result<prost_types::Timestamp, Error> {
    let at: jiff::Timestamp = at.parse().map_err(|_| {
        Error::Usage(format!("`{at}` is no time: write it as 2026-12-31T00:00:00Z, or `never`"))
    })?;
    Ok(prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() })
}

/// Returns the tenant with this name or id; an empty one if there is none.
async fn current(client: &Client, tenant: &str) -> Result<Tenant, Error> {
    let request = client.request(ListTenantsRequest {});
    let listed = client.answer(client.tenants().list_tenants(request).await)?.tenants;
    let found = listed.into_iter().find(|known| known.id == tenant || known.name == tenant);
    Ok(found.unwrap_or_default())
}

fn view(tenant: &Tenant) -> Value {
    json!({
        "id": tenant.id,
        "name": tenant.name,
        "state": tenant.state,
        "rate": tenant.rate,
        "weight": tenant.weight,
        "cap": tenant.cap,
        "max_sessions": tenant.max_sessions,
        "pool": tenant.pool,
        "pool_runners": tenant.pool_runners,
        "plan": tenant.plan,
        "limits": limits_view(&tenant.limits.unwrap_or_default()),
        "own_limits": tenant.own_limits,
        "expires_at": time(tenant.expires_at.as_ref()),
        "product": product_view(tenant.product.clone().unwrap_or_default()),
        "retention_days": retention_view(tenant.retention.unwrap_or_default()),
        "created_at": time(tenant.created_at.as_ref()),
    })
}

/// Days of each period; `null` is the installation's default.
fn retention_view(retention: Retention) -> Value {
    let days = |days: u32| Some(days).filter(|days| *days > 0);
    json!({
        "messages": days(retention.messages),
        "keys": days(retention.keys),
        "deliveries": days(retention.deliveries),
        "runs": days(retention.runs),
        "journals": days(retention.journals),
    })
}

fn product_view(product: Product) -> Value {
    let command =
        |one: &ProductCommand| json!({ "command": one.command, "description": one.description });
    json!({
        "name": product.name,
        "docs_url": product.docs_url,
        "commands": product.commands.iter().map(command).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_of_a_product_stays() {
        let change = |name: Option<&str>, commands: &[&str]| ProductChanges {
            product_name: name.map(str::to_owned),
            docs_url: None,
            product_commands: commands.iter().map(|&command| command.to_owned()).collect(),
        };
        let docs_url = "https://acme.example".to_owned();
        let before = Product { docs_url, ..Product::default() };

        let named = change(Some("Acme"), &["acme chat=talk", "acme=help"]).apply(before).unwrap();

        assert_eq!((&*named.name, &*named.docs_url), ("Acme", "https://acme.example"));
        assert_eq!(named.commands.len(), 2);
        let bare = change(None, &[""]).apply(named.clone()).unwrap();
        assert_eq!(bare, Product { commands: Vec::new(), ..named });
        assert!(change(None, &["acme chat"]).apply(bare).is_err());
    }
}
