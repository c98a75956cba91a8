//! Erasure of rows, with a count of what remains.
//!
//! Deleting and counting happen in one transaction and use the same conditions; vectors and queue
//! entries are counted by the erased units.

use holdfast_pg::TenantTx;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erase {
    Item(Uuid),
    /// Everything of a session; with `Some`, only of these agents and users.
    Session(String, Option<(Vec<Uuid>, Vec<String>)>),
    /// The turns of a session; restricted as a session.
    Turns(String, Option<(Vec<Uuid>, Vec<String>)>),
    User(String),
    Agent(Uuid),
}

/// Table name and number of rows.
pub type Count = (&'static str, i64);

/// Tables with conversation content and the condition for each erasure. `$2` is the item, session,
/// user or agent; `$3` to `$5` restrict a session to agents and users.
const BY_ITEM: [(&str, &str); 2] = [("units", "source_id = $2"), ("items", "item_id = $2")];
const BY_SESSION: [(&str, &str); 2] = [
    ("units", "session = $2 and ($3 or (agent_id = any ($4) and user_id = any ($5)))"),
    ("items", "session = $2 and ($3 or (agent_id = any ($4) and user_id = any ($5)))"),
];
const BY_TURNS: [(&str, &str); 1] = [(
    "units",
    "session = $2 and kind = 5 and ($3 or (agent_id = any ($4) and user_id = any ($5)))",
)];
const BY_USER: [(&str, &str); 4] = [
    ("units", "user_id = $2"),
    ("items", "user_id = $2"),
    ("documents", "user_id = $2"),
    ("authors", "user_id = $2"),
];
const BY_AGENT: [(&str, &str); 5] = [
    ("units", "agent_id = $2 and place >= 0"),
    (
        "versions",
        "document_id in (select d.document_id from memory.documents d
                         where d.tenant_id = $1 and d.agent_id = $2 and d.version > 0)",
    ),
    ("items", "agent_id = $2 and kind > 0"),
    ("documents", "agent_id = $2 and version > 0"),
    ("authors", "agent_id = $2"),
];

impl Erase {
    const fn tables(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Item(_) => &BY_ITEM,
            Self::Session(..) => &BY_SESSION,
            Self::Turns(..) => &BY_TURNS,
            Self::User(_) => &BY_USER,
            Self::Agent(_) => &BY_AGENT,
        }
    }
}

macro_rules! bound {
    ($tx:ident, $what:ident, $sql:ident, $query:ident) => {{
        let query = holdfast_pg::$query(AssertSqlSafe($sql)).bind($tx.tenant().as_uuid());
        match $what {
            Erase::Item(id) | Erase::Agent(id) => query.bind(*id),
            Erase::User(user) => query.bind(user.clone()),
            Erase::Session(session, whose) | Erase::Turns(session, whose) => {
                let (agents, users) = whose.clone().unwrap_or_default();
                query.bind(session.clone()).bind(whose.is_none()).bind(agents).bind(users)
            }
        }
    }};
}

/// Erases rows. Returns the erased and the remaining rows by table; none should remain.
pub async fn erase(tx: &mut TenantTx, what: &Erase) -> sqlx::Result<(Vec<Count>, Vec<Count>)> {
    lock_items(tx, what).await?;
    let units: Vec<Uuid> = {
        let (_, condition) = what.tables()[0];
        let sql = format!("select unit_id from memory.units where tenant_id = $1 and {condition}");
        bound!(tx, what, sql, query_scalar).fetch_all(tx.conn()).await?
    };
    let mut erased = count_dependents(tx, &units).await?;
    if matches!(what, Erase::Session(..) | Erase::Turns(..)) {
        delete_unused_authors(tx, &units).await?;
    }
    for (table, condition) in what.tables() {
        let sql = format!("delete from memory.{table} where tenant_id = $1 and {condition}");
        let gone = bound!(tx, what, sql, query).execute(tx.conn()).await?.rows_affected();
        erased.push((table, i64::try_from(gone).unwrap_or(i64::MAX)));
    }
    let mut left = count_dependents(tx, &units).await?;
    for (table, condition) in what.tables() {
        let sql =
            format!("select count(*) from memory.{table} where tenant_id = $1 and {condition}");
        let rows = bound!(tx, what, sql, query_scalar).fetch_one(tx.conn()).await?;
        left.push((table, rows));
    }
    Ok((erased, left))
}

/// Returns the rows of units in the tables that refer to them.
pub async fn count_dependents(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<Vec<Count>> {
    const VECTORS: &str =
        "select count(*) from memory.vectors where tenant_id = $1 and unit_id = any ($2)";
    const QUEUE: &str =
        "select count(*) from memory.queue where tenant_id = $1 and unit_id = any ($2)";
    let own = own_tables(tx).await?;
    let tenant = tx.tenant().as_uuid();
    let mut counts = Vec::new();
    for (what, sql) in [("vectors", VECTORS), ("queue", QUEUE)] {
        let rows =
            holdfast_pg::query_scalar(sql).bind(tenant).bind(units).fetch_one(tx.conn()).await?;
        counts.push((what, rows));
    }
    let mut index = None;
    for own in own {
        let sql = format!("select count(*) from memory.{own} where unit_id = any ($1)");
        let rows: i64 =
            holdfast_pg::query_scalar(AssertSqlSafe(sql)).bind(units).fetch_one(tx.conn()).await?;
        index = Some(index.unwrap_or(0) + rows);
    }
    counts.extend(index.map(|rows| ("index", rows)));
    Ok(counts)
}

/// Returns how many of these units still exist.
pub async fn units_left(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<i64> {
    const SQL: &str =
        "select count(*) from memory.units where tenant_id = $1 and unit_id = any ($2)";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(units).fetch_one(tx.conn()).await
}

/// Deletes the author names that occur in no other units.
async fn delete_unused_authors(tx: &mut TenantTx, units: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        delete from memory.authors a
        using (select distinct agent_id, user_id, author from memory.units
               where tenant_id = $1 and unit_id = any ($2)) gone
        where a.tenant_id = $1 and a.agent_id = gone.agent_id and a.user_id = gone.user_id
          and a.name = gone.author
          and not exists (
              select from memory.units u
              where u.tenant_id = $1 and u.place >= 0 and u.agent_id = a.agent_id
                and u.user_id = a.user_id and u.author = a.name and u.unit_id <> all ($2))";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(units).execute(tx.conn()).await?;
    Ok(())
}

/// Locks the items: every change of an item locks its row first, so no units can be added for them.
async fn lock_items(tx: &mut TenantTx, what: &Erase) -> sqlx::Result<()> {
    let Some((_, condition)) = what.tables().iter().find(|(table, _)| *table == "items") else {
        return Ok(());
    };
    let sql = format!(
        "select item_id from memory.items where tenant_id = $1 and {condition}
         order by item_id for update"
    );
    bound!(tx, what, sql, query).execute(tx.conn()).await?;
    Ok(())
}

/// Returns the tenant's own tables: the searched one, and a former model's until it is dropped.
async fn own_tables(tx: &mut TenantTx) -> sqlx::Result<Vec<String>> {
    const SQL: &str = r"
        select relname::text from pg_class
        where relnamespace = 'memory'::regnamespace and relkind = 'r'
          and relname like 'own\_' || replace($1::uuid::text, '-', '') || '\_%'";
    // The lock prevents that one is created or dropped meanwhile.
    const LOCK: &str = "select from memory.spaces where tenant_id = $1 for share";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(LOCK).bind(tenant).execute(tx.conn()).await?;
    let own: Vec<String> = holdfast_pg::query_scalar(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let is_name = |own: &String| own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    Ok(own.into_iter().filter(is_name).collect())
}

/// Gives everything of one user to another. Returns the number of items and turns.
pub async fn move_user(tx: &mut TenantTx, from: &str, to: &str) -> sqlx::Result<i64> {
    const SQL: &str = "select memory.move_user($1, $2)";
    holdfast_pg::query_scalar(SQL).bind(from).bind(to).fetch_one(tx.conn()).await
}

/// Returns a tenant's rows by table.
pub async fn rows(tx: &mut TenantTx) -> sqlx::Result<Vec<Count>> {
    const SQL: [(&str, &str); 4] = [
        ("items", "select count(*) from memory.items where tenant_id = $1 and kind > 0"),
        ("documents", "select count(*) from memory.documents where tenant_id = $1 and version > 0"),
        ("units", "select count(*) from memory.units where tenant_id = $1 and place >= 0"),
        ("vectors", "select count(*) from memory.vectors where tenant_id = $1 and model > ''"),
    ];
    let tenant = tx.tenant().as_uuid();
    let mut counts = Vec::new();
    for (what, sql) in SQL {
        let rows = holdfast_pg::query_scalar(sql).bind(tenant).fetch_one(tx.conn()).await?;
        counts.push((what, rows));
    }
    Ok(counts)
}
