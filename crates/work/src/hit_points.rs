//! Hit points of agents: charged in the transaction that saves the work, recovered by time.
//!
//! A row has the level at one time; what was recovered since then is computed. An agent without a
//! row has the maximum. An agent whose level reached zero is disabled, and recovers nothing until a
//! person enables it.

use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, HitPointSettings};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::{
    Error, Place,
    ledger::{self, LedgerKind, NewEntry},
    to_column,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HitPoints {
    /// In thousandths of a hit point.
    pub level_milli: u64,
    /// When the level reached zero; `None` while the agent is enabled.
    pub disabled_at: Option<Timestamp>,
}

#[derive(FromRow)]
struct Row {
    level: i64,
    disabled_at: Option<jiff_sqlx::Timestamp>,
}

impl Row {
    fn read(self) -> HitPoints {
        HitPoints {
            level_milli: self.level.unsigned_abs(),
            disabled_at: self.disabled_at.map(jiff_sqlx::Timestamp::to_jiff),
        }
    }
}

/// Level of the row `h` at this time: `$3` is the maximum, `$4` the recovery in a second.
macro_rules! level_now {
    () => {
        "case when h.disabled_at is not null then h.level
              else least($3, h.level + floor($4 * greatest(
                  0, extract(epoch from clock_timestamp() - h.at)))::bigint) end"
    };
}

/// Returns the hit points of an agent at this time.
pub async fn hit_points(
    tx: &mut TenantTx,
    agent: AgentId,
    settings: &HitPointSettings,
) -> Result<HitPoints, Error> {
    const SQL: &str = concat!(
        "select ",
        level_now!(),
        " as level, h.disabled_at from work.hit_points h where tenant_id = $1 and agent_id = $2"
    );
    let tenant = tx.tenant().as_uuid();
    let found: Option<Row> = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(agent.as_uuid())
        .bind(to_column(settings.max_milli()))
        .bind(i64::from(settings.recovery_milli))
        .fetch_optional(tx.conn())
        .await?;
    Ok(found.map_or(HitPoints { level_milli: settings.max_milli(), disabled_at: None }, Row::read))
}

/// Charges the agent of a place, with an entry of the ledger. To be called in the transaction that
/// saves the work, after other writes: sessions of one agent lock the same row here.
pub async fn charge_hit_points(
    tx: &mut TenantTx,
    place: &Place,
    settings: &HitPointSettings,
    cost_milli: u64,
) -> Result<HitPoints, Error> {
    const SQL: &str = concat!(
        "insert into work.hit_points as h (tenant_id, agent_id, level, at, disabled_at)
         values ($1, $2, greatest(0, $3 - $5), clock_timestamp(),
                 case when $3 <= $5 then clock_timestamp() end)
         on conflict (tenant_id, agent_id) do update
             set level = greatest(0, ",
        level_now!(),
        " - $5), at = clock_timestamp(),
                 disabled_at = case when h.disabled_at is null and ",
        level_now!(),
        " > $5 then null else coalesce(h.disabled_at, clock_timestamp()) end
         returning level, disabled_at"
    );
    let tenant = tx.tenant().as_uuid();
    let charged: Row = holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(place.agent.as_uuid())
        .bind(to_column(settings.max_milli()))
        .bind(i64::from(settings.recovery_milli))
        .bind(to_column(cost_milli))
        .fetch_one(tx.conn())
        .await?;
    let charged = charged.read();
    let outcome = if charged.disabled_at.is_some() { "disabled" } else { "charged" };
    let entry = NewEntry::of_amount(LedgerKind::HitPoints, "work", outcome, cost_milli);
    ledger::insert(tx, place, &[entry]).await?;
    Ok(charged)
}

/// Returns the agents of the tenant whose level reached zero.
pub async fn exhausted_agents(tx: &mut TenantTx) -> Result<Vec<AgentId>, Error> {
    const SQL: &str =
        "select agent_id from work.hit_points where tenant_id = $1 and disabled_at is not null";
    let tenant = tx.tenant().as_uuid();
    let agents: Vec<uuid::Uuid> =
        holdfast_pg::query_scalar(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(agents.into_iter().map(AgentId::from).collect())
}

/// Enables an agent again, with hit points down to the floor if it has fewer.
pub async fn enable_agent(
    tx: &mut TenantTx,
    agent: AgentId,
    settings: &HitPointSettings,
) -> Result<(), Error> {
    const SQL: &str = "
        update work.hit_points
        set disabled_at = null, at = clock_timestamp(), level = greatest(level, $3)
        where tenant_id = $1 and agent_id = $2 and disabled_at is not null";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(agent.as_uuid())
        .bind(to_column(settings.floor_milli()))
        .execute(tx.conn())
        .await?;
    Ok(())
}
