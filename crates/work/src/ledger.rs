//! Ledger: what runs, models and tools used, for audits. Ids, names and numbers; no texts.
//!
//! Entries are appended by the transactions of turns. The writer of the chain, one at a time for a
//! tenant, gives committed entries their positions, and each a hash over itself and the hash before
//! it. An entry that is changed or removed later breaks the chain, and so does a removed end, since
//! the newest position and hash are also kept apart.

use std::time::Duration;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, RunId, SessionId, TenantId, Usage};
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sqlx::{FromRow, types::Json};
use uuid::Uuid;

use crate::{Error, Place};

/// Entries that one query of [`Ledger::verify`] reads.
const ENTRIES_PER_QUERY: i64 = 1_000;

/// Tenants that one query for unchained entries returns.
const TENANTS_PER_QUERY: i64 = 100;

type Hash = Vec<u8>;

/// Hash before the first entry.
fn first_hash() -> Hash {
    vec![0; 32]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LedgerKind {
    /// A run until it ends or yields.
    Period,
    /// A request to a model.
    Model,
    /// A call of a tool.
    Tool,
    /// Hit points that work cost an agent.
    HitPoints,
    /// A payment of a wallet, or an income.
    Wallet,
    /// A step that a person has rolled back. What it cost stays.
    Rollback,
}

/// An entry to be written.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewEntry {
    pub kind: LedgerKind,
    pub name: String,
    pub outcome: String,
    pub usage: Usage,
    pub micros: u64,
    #[serde(skip)]
    pub duration: Duration,
    pub steps: u32,
    pub trace: Option<String>,
    /// Thousandths of a hit point, or millionths of a wallet's currency.
    pub amount: Option<i64>,
}

impl NewEntry {
    pub fn of_amount(kind: LedgerKind, name: &str, outcome: &str, amount: u64) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            outcome: outcome.to_owned(),
            usage: Usage::default(),
            micros: 0,
            duration: Duration::ZERO,
            steps: 0,
            trace: None,
            amount: Some(crate::to_column(amount)),
        }
    }
}

pub(crate) async fn insert(
    tx: &mut TenantTx,
    place: &Place,
    entries: &[NewEntry],
) -> Result<(), Error> {
    insert_of(tx, place.agent, (Some(place.session), place.run), entries).await
}

/// Inserts entries that a session may have caused, or nobody.
pub(crate) async fn insert_of(
    tx: &mut TenantTx,
    agent: AgentId,
    (session, run): (Option<SessionId>, Option<RunId>),
    entries: &[NewEntry],
) -> Result<(), Error> {
    const SQL: &str = "
        insert into work.ledger
            (tenant_id, entry_id, kind, agent_id, session_id, run_id, name, outcome, input_tokens,
             cached_tokens, output_tokens, cost_micros, duration_ms, steps, trace, amount)
        select $1, e.id, e.body->>'kind', $2, $3, $4, e.body->>'name', e.body->>'outcome',
               (e.body#>>'{usage,input}')::bigint, (e.body#>>'{usage,cached}')::bigint,
               (e.body#>>'{usage,output}')::bigint, (e.body->>'micros')::bigint, e.duration,
               (e.body->>'steps')::integer, e.body->>'trace', (e.body->>'amount')::bigint
        from unnest($5::uuid[], $6::bigint[], $7::jsonb[]) e (id, duration, body)";
    if entries.is_empty() {
        return Ok(());
    }
    let tenant = tx.tenant().as_uuid();
    let millis = |entry: &NewEntry| i64::try_from(entry.duration.as_millis()).unwrap_or(i64::MAX);
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(agent.as_uuid())
        .bind(session.map(SessionId::as_uuid))
        .bind(run.map(RunId::as_uuid))
        .bind(entries.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
        .bind(entries.iter().map(millis).collect::<Vec<_>>())
        .bind(entries.iter().map(Json).collect::<Vec<_>>())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// An entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    pub id: Uuid,
    pub at: Timestamp,
    /// `period`, `model`, `tool`, `hit_points`, `wallet` or `rollback`.
    pub kind: String,
    pub agent: AgentId,
    /// `None` if no session caused the entry.
    pub session: Option<SessionId>,
    pub run: Option<RunId>,
    pub name: String,
    pub outcome: String,
    pub usage: Usage,
    /// Cost in millionths of a US dollar.
    pub micros: u64,
    pub duration: Duration,
    pub steps: u32,
    pub trace: Option<String>,
    /// Thousandths of a hit point, or millionths of a wallet's currency; `None` in other entries.
    pub amount: Option<i64>,
    /// Position in the chain; `None` until the entry is chained.
    pub position: Option<i64>,
    /// Hash in hexadecimal; empty until the entry is chained.
    pub hash: String,
}

/// Columns of an entry. Everything except position and hash is hashed.
#[derive(Debug, FromRow, Serialize)]
struct Row {
    tenant_id: Uuid,
    entry_id: Uuid,
    at_us: i64,
    kind: String,
    agent_id: Uuid,
    session_id: Option<Uuid>,
    run_id: Option<Uuid>,
    name: String,
    outcome: String,
    input_tokens: i64,
    cached_tokens: i64,
    output_tokens: i64,
    cost_micros: i64,
    duration_ms: i64,
    steps: i32,
    trace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(skip)]
    position: Option<i64>,
    #[serde(skip)]
    hash: Option<Hash>,
}

/// Query for entries; the parameter is its condition and order.
macro_rules! entries {
    ($which:literal) => {
        concat!(
            "select tenant_id, entry_id, (extract(epoch from at) * 1000000)::bigint as at_us, kind,
                    agent_id, session_id, run_id, name, outcome, input_tokens, cached_tokens,
                    output_tokens, cost_micros, duration_ms, steps, trace, amount, position, hash
             from work.ledger where tenant_id = $1 and ",
            $which
        )
    };
}

impl Row {
    /// Hash of this entry at a position, behind an entry with the hash `before`.
    fn chained_hash(&self, position: i64, before: &[u8]) -> Result<Hash, Error> {
        let body = serde_json::to_vec(self).map_err(|_| Error::Corrupt("ledger entry"))?;
        let mut hasher = Sha256::new();
        hasher.update(before);
        hasher.update(position.to_be_bytes());
        hasher.update(body);
        Ok(hasher.finalize().to_vec())
    }

    fn read(self) -> Result<LedgerEntry, Error> {
        let at = Timestamp::from_microsecond(self.at_us);
        Ok(LedgerEntry {
            id: self.entry_id,
            at: at.map_err(|_| Error::Corrupt("time of a ledger entry"))?,
            kind: self.kind,
            agent: self.agent_id.into(),
            session: self.session_id.map(SessionId::from),
            run: self.run_id.map(RunId::from),
            name: self.name,
            outcome: self.outcome,
            usage: Usage {
                input: self.input_tokens.unsigned_abs(),
                cached: self.cached_tokens.unsigned_abs(),
                output: self.output_tokens.unsigned_abs(),
                ..Usage::default()
            },
            micros: self.cost_micros.unsigned_abs(),
            duration: Duration::from_millis(self.duration_ms.unsigned_abs()),
            steps: self.steps.unsigned_abs(),
            trace: self.trace,
            amount: self.amount,
            position: self.position,
            hash: self.hash.as_deref().map(hex).unwrap_or_default(),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Which entries a page has, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    pub session: Option<SessionId>,
    /// Id of the entry before which the page begins.
    pub before: Option<Uuid>,
    pub limit: u32,
}

/// Result of a check of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainCheck {
    /// Number of entries in the chain that were found to be right.
    pub entries: u64,
    /// Number of entries that are not in the chain yet.
    pub unchained: u64,
    /// Hash of the chain's end, in hexadecimal.
    pub head: String,
    /// First position where the chain is broken.
    pub broken_at: Option<i64>,
}

/// The ledger of each tenant.
#[derive(Debug, Clone)]
pub struct Ledger {
    pools: Pools,
}

#[derive(FromRow)]
struct HeadRow {
    position: i64,
    hash: Hash,
}

impl Ledger {
    #[must_use]
    pub const fn new(pools: Pools) -> Self {
        Self { pools }
    }

    /// Reads a page of a tenant's ledger.
    pub async fn page(
        &self,
        tenant: TenantId,
        filter: &LedgerFilter,
    ) -> Result<Vec<LedgerEntry>, Error> {
        const SQL: &str = entries!(
            "entry_id < $2 and ($3::uuid is null or session_id = $3)
             order by entry_id desc limit $4"
        );
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(filter.before.unwrap_or(Uuid::max()))
            .bind(filter.session.map(SessionId::as_uuid))
            .bind(i64::from(filter.limit))
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        rows.into_iter().map(Row::read).collect()
    }

    /// Returns tenants with entries that are not in the chain.
    pub async fn unchained(&self) -> Result<Vec<TenantId>, Error> {
        const SQL: &str = "
            select distinct tenant_id from (
                select tenant_id from work.ledger where position is null limit $1) found";
        let mut once = self.pools.system_connection().await?;
        let query = holdfast_pg::query_scalar(SQL).bind(TENANTS_PER_QUERY * 100);
        let tenants: Vec<Uuid> = query.fetch_all(once.conn()).await?;
        once.done();
        Ok(tenants.into_iter().map(TenantId::from).collect())
    }

    /// Adds up to `limit` committed entries to a tenant's chain. Returns their number; 0 if another
    /// process is writing the chain.
    pub async fn chain(&self, tenant: TenantId, limit: u32) -> Result<u64, Error> {
        const LOCK: &str =
            "select pg_try_advisory_xact_lock(hashtextextended('work.ledger:' || $1, 0))";
        const ENTRIES: &str = entries!("position is null order by entry_id limit $2");
        const CHAIN: &str = "
            update work.ledger l set position = c.position, hash = c.hash
            from unnest($2::uuid[], $3::bigint[], $4::bytea[]) c (entry_id, position, hash)
            where l.tenant_id = $1 and l.entry_id = c.entry_id and l.position is null";
        const HEAD: &str = "
            insert into work.ledger_heads (tenant_id, position, hash) values ($1, $2, $3)
            on conflict (tenant_id) do update
                set position = excluded.position, hash = excluded.hash";

        let mut tx = self.pools.tenant(tenant).await?;
        let query = holdfast_pg::query_scalar(LOCK).bind(tenant.as_uuid().to_string());
        let is_ours: bool = query.fetch_one(tx.conn()).await?;
        if !is_ours {
            return Ok(0);
        }
        let HeadRow { mut position, mut hash } = head(&mut tx).await?;
        let query = holdfast_pg::query_as(ENTRIES).bind(tenant.as_uuid()).bind(i64::from(limit));
        let rows: Vec<Row> = query.fetch_all(tx.conn()).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let (mut ids, mut positions, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            position += 1;
            hash = row.chained_hash(position, &hash)?;
            ids.push(row.entry_id);
            positions.push(position);
            hashes.push(hash.clone());
        }
        let query = holdfast_pg::query(CHAIN).bind(tenant.as_uuid()).bind(ids).bind(positions);
        query.bind(hashes).execute(tx.conn()).await?;
        let query = holdfast_pg::query(HEAD).bind(tenant.as_uuid()).bind(position).bind(hash);
        query.execute(tx.conn()).await?;
        tx.commit().await?;
        Ok(rows.len() as u64)
    }

    /// Computes the chain of a tenant again, and compares.
    pub async fn verify(&self, tenant: TenantId) -> Result<ChainCheck, Error> {
        const PAGE: &str = entries!("position > $2 and position <= $3 order by position limit $4");
        const UNCHAINED: &str =
            "select count(*) from work.ledger where tenant_id = $1 and position is null";

        let mut tx = self.pools.tenant(tenant).await?;
        let end = head(&mut tx).await?;
        let query = holdfast_pg::query_scalar(UNCHAINED).bind(tenant.as_uuid());
        let unchained: i64 = query.fetch_one(tx.conn()).await?;
        let (mut position, mut hash) = (0, first_hash());
        let mut broken_at = None;
        while position < end.position && broken_at.is_none() {
            let rows: Vec<Row> = holdfast_pg::query_as(PAGE)
                .bind(tenant.as_uuid())
                .bind(position)
                .bind(end.position)
                .bind(ENTRIES_PER_QUERY)
                .fetch_all(tx.conn())
                .await?;
            if rows.is_empty() {
                broken_at = Some(position + 1);
            }
            for row in rows {
                let wanted = row.chained_hash(position + 1, &hash)?;
                if row.position != Some(position + 1) || row.hash.as_ref() != Some(&wanted) {
                    broken_at = Some(position + 1);
                    break;
                }
                (position, hash) = (position + 1, wanted);
            }
        }
        tx.finish_reading();
        if broken_at.is_none() && hash != end.hash {
            broken_at = Some(end.position);
        }
        Ok(ChainCheck {
            entries: position.unsigned_abs(),
            unchained: unchained.unsigned_abs(),
            head: hex(&end.hash),
            broken_at,
        })
    }
}

/// End of a tenant's chain.
async fn head(tx: &mut TenantTx) -> Result<HeadRow, Error> {
    const SQL: &str = "select position, hash from work.ledger_heads where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    let found = holdfast_pg::query_as(SQL).bind(tenant).fetch_optional(tx.conn()).await?;
    Ok(found.unwrap_or_else(|| HeadRow { position: 0, hash: first_hash() }))
}
