//! What the login of each service can do with each table, tried with that login, and the secrets that the
//! product's own code opens with it and `secrets.kek`: tables of `docs/stolen-parts.md`.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_directory::{Agent, Directory, NewEventWebhook};
use holdfast_pg::Pools;
use holdfast_testkit::generated::check_stolen_parts;
use holdfast_types::{AccountId, TenantId};
use uuid::Uuid;

use crate::{
    connections::{HOME, calendar},
    mcp::{HERE, server},
    platform_keys::{MODEL, key},
    world::{BY, World, account, provider},
};

const SERVICES: [&str; 5] =
    ["gateway", "agent-runner", "scheduler", "memory-service", "channel-bridge"];

const SCHEMAS: [&str; 6] = ["control", "session", "workspace", "schedule", "work", "memory"];

/// Rows of the table: what a reader of the page looks for, and where it is. A column that is named is in no
/// row of its table, and a table that is named in none of its schema, which ends with a dot. Each table
/// of `control` is named.
const GROUPS: [(&str, &[&str]); 25] = [
    ("keys with which secrets of tenants are sealed", &["control.tenants.data_key"]),
    (
        "sealed secrets of model providers",
        &[
            "control.auth_profiles.secret",
            "control.platform_keys.secret",
            "control.providers.api_key",
            "control.providers.headers",
        ],
    ),
    ("sealed secrets of channel accounts", &["control.accounts.secrets"]),
    (
        "other sealed secrets (connections, MCP servers, skills, webhooks)",
        &[
            "control.connections.secret",
            "control.event_webhooks.old_secret",
            "control.event_webhooks.secret",
            "control.mcp_servers.secrets",
            "control.skill_env.value",
        ],
    ),
    ("secret of signed requests on NATS", &["control.request_key"]),
    (
        "hashes of API keys, sign-ins and invitations",
        &[
            "control.console_links.digest",
            "control.console_sessions.digest",
            "control.devices.digest",
            "control.invitations.digest",
            "control.keys.digest",
            "control.provider_sign_ins.refresh_token",
        ],
    ),
    (
        "API keys, devices, sign-ins, invitations",
        &[
            "control.console_links",
            "control.console_sessions",
            "control.device_requests",
            "control.devices",
            "control.invitations",
            "control.keys",
            "control.provider_sign_ins",
        ],
    ),
    ("nodes, with the hashes of their tokens", &["control.nodes"]),
    ("people", &["control.people", "control.person_identities"]),
    (
        "linked accounts of people",
        &["control.identities", "control.link_attempts", "control.link_codes"],
    ),
    (
        "tenants, plans, budgets, policies",
        &["control.budgets", "control.plans", "control.policies", "control.tenants"],
    ),
    (
        "agents and routing",
        &["control.agents", "control.bindings", "control.chains", "control.rules"],
    ),
    ("behaviours of agents", &["control.behaviors"]),
    (
        "model providers",
        &[
            "control.auth_orders",
            "control.auth_profiles",
            "control.auth_stats",
            "control.model_aliases",
            "control.models",
            "control.platform_keys",
            "control.platform_providers",
            "control.providers",
        ],
    ),
    (
        "connections, MCP servers, skills, webhooks",
        &[
            "control.connections",
            "control.event_webhooks",
            "control.mcp_servers",
            "control.skill_env",
        ],
    ),
    (
        "channel accounts",
        &[
            "control.account_positions",
            "control.account_status",
            "control.accounts",
            "control.widget_messages",
        ],
    ),
    (
        "audit log and notices",
        &["control.audit", "control.limit_notices", "control.tenant_events", "control.tools"],
    ),
    ("messages that wait", &["session.inbox"]),
    ("replies that are sent (deliveries)", &["session.deliveries"]),
    ("conversations, approvals and the rest of sessions", &["session."]),
    ("files", &["workspace."]),
    ("jobs from before signatures, until a gateway signs them", &["schedule.jobs_to_sign"]),
    ("jobs and heartbeats", &["schedule."]),
    ("todos, worklog, wallets, proposals", &["work."]),
    ("memories and articles", &["memory."]),
];

/// Creates a function that tries a statement with the rights of its caller. No statement changes rows.
const CREATE_TRIAL: &str = "
    create function public.is_permitted(statement text) returns boolean language plpgsql as $$
    begin
        execute statement;
        return true;
    exception when insufficient_privilege then
        return false;
    end $$";

const TRY_COLUMNS: &str = "
    select n.nspname || '.' || c.relname, a.attname::text,
           public.is_permitted(format('select %1$I from %2$I.%3$I where false',
               a.attname, n.nspname, c.relname)),
           a.attgenerated = '' and a.attidentity <> 'a' and public.is_permitted(format(
               'insert into %2$I.%3$I (%1$I) select (null::%2$I.%3$I).%1$I where false',
               a.attname, n.nspname, c.relname)),
           public.is_permitted(format('update %2$I.%3$I set %1$I = default where false',
               a.attname, n.nspname, c.relname)),
           public.is_permitted(format('delete from %1$I.%2$I where false', n.nspname, c.relname))
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where n.nspname = $1 and c.relkind in ('r', 'p')";

const TRY_FUNCTIONS: &str = "
    select public.is_permitted(format('select from %1$I.%2$I(%3$s)', n.nspname, p.proname, (
        select string_agg('null::' || format_type(kind, null), ', ') from unnest(p.proargtypes) kind)))
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'control' and starts_with(p.proname, 'find_')";

/// A column, and whether a login may read, insert, update it, and delete rows of its table.
type TriedColumn = (String, String, bool, bool, bool, bool);

/// Rights to the columns of all tables that one login has, by table and column.
type Rights = BTreeMap<(String, String), [bool; 4]>;

/// Index of the group of a column.
fn group_of(table: &str, column: &str) -> Option<usize> {
    let (schema, _) = table.split_once('.')?;
    let entries = [format!("{table}.{column}"), table.to_owned(), format!("{schema}.")];
    entries
        .iter()
        .find_map(|entry| GROUPS.iter().position(|(_, entries)| entries.contains(&entry.as_str())))
}

/// Tries both roles of a service: rows of a tenant, and rows of all.
async fn rights(pools: &Pools, tenant: TenantId) -> Rights {
    let mut rights = Rights::new();
    for schema in SCHEMAS {
        let mut of_tenant = pools.tenant(tenant).await.unwrap();
        let query = holdfast_pg::query_as(TRY_COLUMNS).bind(schema);
        let mut tried: Vec<TriedColumn> = query.fetch_all(of_tenant.conn()).await.unwrap();
        drop(of_tenant);
        let mut of_all = pools.system().await.unwrap();
        let query = holdfast_pg::query_as(TRY_COLUMNS).bind(schema);
        tried.extend::<Vec<TriedColumn>>(query.fetch_all(of_all.conn()).await.unwrap());
        for (table, column, reads, inserts, updates, deletes) in tried {
            let known: &mut [bool; 4] = rights.entry((table, column)).or_default();
            for (known, tried) in known.iter_mut().zip([reads, inserts, updates, deletes]) {
                *known |= tried;
            }
        }
    }
    rights
}

/// `r`, `i`, `u` and `d` for the rights to a group, in brackets if they do not include all of it.
fn cell(group: usize, rights: &Rights) -> String {
    let columns = || {
        // A runner reads the tenant of each row that it may delete.
        let others = rights.iter().filter(|((_, column), _)| column != "tenant_id");
        others.filter(move |((table, column), _)| group_of(table, column) == Some(group))
    };
    // Rights to insert and to delete are those of tables.
    let mut tables: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    for ((table, _), [_, inserts, _, deletes]) in columns() {
        let known = tables.entry(table).or_default();
        *known = [known[0] || *inserts, known[1] || *deletes];
    }
    // A group of columns has no rows of its own.
    let has_rows = !GROUPS[group].1.iter().all(|entry| entry.matches('.').count() == 2);
    let tried: [(&str, Vec<bool>); 4] = [
        ("r", columns().map(|(_, [reads, ..])| *reads).collect()),
        ("i", tables.values().map(|[inserts, _]| *inserts && has_rows).collect()),
        ("u", columns().map(|(_, [_, _, updates, _])| *updates).collect()),
        ("d", tables.values().map(|[_, deletes]| *deletes && has_rows).collect()),
    ];
    let letters = tried.iter().filter_map(|(letter, tried)| {
        match (tried.iter().all(|is_permitted| *is_permitted), tried.contains(&true)) {
            (true, true) => Some((*letter).to_owned()),
            (false, true) => Some(format!("({letter})")),
            _ => None,
        }
    });
    or_dash(&letters.collect::<Vec<_>>().join(" "))
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "—".to_owned() } else { text.to_owned() }
}

fn head() -> Vec<&'static str> {
    ["of"].into_iter().chain(SERVICES).collect()
}

#[tokio::test]
async fn the_page_says_what_each_login_can_do_with_each_table() -> anyhow::Result<()> {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    sqlx::query(CREATE_TRIAL).execute(&mut world.admin().await).await?;

    let (mut of_services, mut finders) = (Vec::new(), Vec::new());
    for service in SERVICES {
        let pools = world.pools_of(service);
        of_services.push(rights(&pools, tenant.id).await);
        let mut tx = pools.system().await?;
        let found: Vec<bool> =
            holdfast_pg::query_scalar(TRY_FUNCTIONS).fetch_all(tx.conn()).await?;
        drop(tx);
        pools.close().await;
        let (all, some) = (!found.contains(&false), found.contains(&true));
        assert!(found.len() > 4 && all == some, "{service}: {found:?}");
        finders.push(if all { "calls".to_owned() } else { "—".to_owned() });
    }

    let tried: BTreeSet<&(String, String)> = of_services.iter().flat_map(BTreeMap::keys).collect();
    let unnamed: Vec<_> =
        tried.iter().filter(|(table, column)| group_of(table, column).is_none()).collect();
    assert!(unnamed.is_empty(), "no row of the page has {unnamed:?}: add them to `GROUPS`");
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (group, (name, _)) in GROUPS.iter().enumerate() {
        let is_there = tried.iter().any(|(table, column)| group_of(table, column) == Some(group));
        assert!(is_there, "nothing is tried for `{name}`");
        let cells = of_services.iter().map(|rights| cell(group, rights));
        rows.push([(*name).to_owned()].into_iter().chain(cells).collect());
    }
    let finders =
        ["functions that find the holder of a credential".to_owned()].into_iter().chain(finders);
    rows.push(finders.collect());
    check_stolen_parts("postgres", &head(), &rows)
}

/// Secrets of a tenant, and whether a service can open each.
const SECRETS: [&str; 8] = [
    "keys of model providers",
    "keys of the platform, of tenants whose plan has them",
    "tokens of channel accounts",
    "secrets of connections",
    "secrets of MCP servers",
    "variables of skills",
    "secrets of webhooks",
    "keys of signed requests on NATS",
];

/// A tenant with one secret of each kind.
struct Tenant {
    id: TenantId,
    agent: Agent,
    account: AccountId,
    webhook: Uuid,
}

async fn tenant_with_secrets(world: &World) -> Tenant {
    let directory = &world.directory;
    let (tenant, _) = world.tenant("acme").await;
    let id = tenant.id;
    directory.platform_keys().put(&key("a", "sk-a")).await.unwrap();
    world.give_plan(id, &["openai"]).await;
    directory.providers().put(id, BY, provider("own", Some("sk-own"), Some("m"))).await.unwrap();
    let account = directory.accounts().create(id, BY, account("bot", "1:x")).await.unwrap();
    directory.connections().put(id, BY, calendar("home", HOME, Some("geheim"))).await.unwrap();
    directory.mcp_servers().put(id, BY, server("x", HERE, Some("s3cret"))).await.unwrap();
    directory.skill_env().put(id, BY, ("plants", "KEY"), &"s3cret".into()).await.unwrap();
    let webhook = NewEventWebhook {
        name: "crm".to_owned(),
        url: "https://crm.example/events".to_owned(),
        types: vec!["run.".to_owned()],
        ..NewEventWebhook::default()
    };
    let (webhook, _) = directory.event_webhooks().create(id, BY, webhook).await.unwrap();
    let agent = directory.agents().default_agent(id).await.unwrap();
    Tenant { id, agent, account: account.id, webhook: webhook.id }
}

/// Whether this service opens each of [`SECRETS`].
async fn opened(directory: &Directory, tenant: &Tenant) -> [bool; SECRETS.len()] {
    let id = tenant.id;
    let has_model_key = async |model: &str| {
        let agent = Agent { model: Some(model.to_owned()), ..tenant.agent.clone() };
        let choice = directory.models().of_agent(id, &agent).await;
        choice.is_ok_and(|choice| choice.api_key.is_some() || !choice.keys.profiles.is_empty())
    };
    [
        has_model_key("own:m").await,
        has_model_key(MODEL).await,
        directory.accounts().get(id, tenant.account).await.is_ok(),
        directory.connections().open(id, "home").await.is_ok(),
        directory.mcp_servers().open(id).await.is_ok(),
        directory.skill_env().open(id).await.is_ok(),
        directory.event_webhooks().open(id, tenant.webhook).await.is_ok(),
        directory.request_keys().await.is_ok(),
    ]
}

#[tokio::test]
async fn the_page_says_which_secrets_each_login_opens_with_the_key_encryption_key()
-> anyhow::Result<()> {
    let world = World::new().await;
    let tenant = tenant_with_secrets(&world).await;

    let mut rows: Vec<Vec<String>> = SECRETS.iter().map(|&name| vec![name.to_owned()]).collect();
    for service in SERVICES {
        let opened = opened(&world.directory_of(service), &tenant).await;
        for (row, is_opened) in rows.iter_mut().zip(opened) {
            row.push(if is_opened { "opens".to_owned() } else { "—".to_owned() });
        }
    }
    let without = opened(&world.with_another_kek(), &tenant).await;

    // The keys of requests follow from any key.
    assert!(rows.iter().all(|row| row[1] == "opens"), "the gateway opens all: {rows:?}");
    assert_eq!(without[..SECRETS.len() - 1], [false; SECRETS.len() - 1]);
    check_stolen_parts("secrets", &head(), &rows)
}
