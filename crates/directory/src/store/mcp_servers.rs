//! `control.mcp_servers`.

use holdfast_pg::TenantTx;
use holdfast_types::AgentId;
use uuid::Uuid;

use crate::{Error, McpServer, McpTransport};

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    url: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    network: bool,
    keep: bool,
    secret_names: Vec<String>,
    agents: Option<Vec<Uuid>>,
    enabled: bool,
    harmless: bool,
    version: Uuid,
}

/// A row with its sealed secrets.
#[derive(sqlx::FromRow)]
struct SealedRow {
    #[sqlx(flatten)]
    row: Row,
    secrets: Option<Vec<u8>>,
}

impl Row {
    fn read(self) -> Result<McpServer, Error> {
        let transport = match (self.url, self.command) {
            (Some(url), None) => McpTransport::Http { url },
            (None, Some(command)) => {
                let (args, network, keep) = (self.args, self.network, self.keep);
                McpTransport::Stdio { command, args, network, keep }
            }
            _ => {
                let why = anyhow::anyhow!("it is neither at an address nor a command");
                return Err(Error::corrupt("mcp server", why));
            }
        };
        let agents = self.agents.map(|agents| agents.into_iter().map(AgentId::from).collect());
        Ok(McpServer {
            name: self.name,
            transport,
            secret_names: self.secret_names,
            agents,
            enabled: self.enabled,
            harmless: self.harmless,
            version: self.version,
        })
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> Result<Vec<McpServer>, Error> {
    const SQL: &str = "select name, url, command, args, network, keep, secret_names, agents, \
                       enabled, harmless, version from control.mcp_servers \
                       where tenant_id = $1 order by name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(Row::read).collect()
}

pub(crate) async fn get(tx: &mut TenantTx, name: &str) -> Result<Option<McpServer>, Error> {
    const SQL: &str = "select name, url, command, args, network, keep, secret_names, agents, \
                       enabled, harmless, version from control.mcp_servers \
                       where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    row.map(Row::read).transpose()
}

/// Returns the enabled servers, each with its sealed secrets.
pub(crate) async fn enabled(tx: &mut TenantTx) -> Result<Vec<(McpServer, Option<Vec<u8>>)>, Error> {
    const SQL: &str = "select name, url, command, args, network, keep, secret_names, agents, \
                       enabled, harmless, version, secrets from control.mcp_servers \
                       where tenant_id = $1 and enabled order by name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<SealedRow> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    rows.into_iter().map(|SealedRow { row, secrets }| Ok((row.read()?, secrets))).collect()
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.mcp_servers where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

/// Sealed secrets to store; `None` keeps the stored ones, `Some(None)` deletes them.
pub(crate) type Secrets<'a> = Option<Option<&'a [u8]>>;

pub(crate) async fn put(
    tx: &mut TenantTx,
    server: &McpServer,
    secrets: Secrets<'_>,
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.mcp_servers as s (tenant_id, name, transport, url, \
                       command, args, network, secrets, secret_names, agents, enabled, version, \
                       keep, harmless) \
                       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15) \
                       on conflict (tenant_id, name) do update set \
                       transport = excluded.transport, url = excluded.url, \
                       command = excluded.command, args = excluded.args, \
                       network = excluded.network, keep = excluded.keep, \
                       secrets = case when $13 then s.secrets else excluded.secrets end, \
                       secret_names = excluded.secret_names, agents = excluded.agents, \
                       enabled = excluded.enabled, harmless = excluded.harmless, \
                       version = excluded.version, \
                       updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    let (word, url, command, args, network, keep) = match &server.transport {
        McpTransport::Http { url } => ("http", Some(url), None, &[][..], false, false),
        McpTransport::Stdio { command, args, network, keep } => {
            ("stdio", None, Some(command), args.as_slice(), *network, *keep)
        }
    };
    let agents = server.agents.as_ref();
    let agents = agents.map(|agents| agents.iter().map(|agent| agent.as_uuid()).collect());
    let agents: Option<Vec<Uuid>> = agents;
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(&server.name)
        .bind(word)
        .bind(url)
        .bind(command)
        .bind(args)
        .bind(network)
        .bind(secrets.flatten())
        .bind(&server.secret_names)
        .bind(agents)
        .bind(server.enabled)
        .bind(server.version)
        .bind(secrets.is_none())
        .bind(keep)
        .bind(server.harmless)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the server existed.
pub(crate) async fn delete(tx: &mut TenantTx, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.mcp_servers where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
