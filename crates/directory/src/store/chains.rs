//! `control.chains`.

use holdfast_pg::TenantTx;
use holdfast_types::Chain;
use jiff::Timestamp;
use sqlx::types::Json;

use crate::NamedChain;

#[derive(sqlx::FromRow)]
struct Row {
    name: String,
    spec: Json<Chain>,
    version: i64,
    updated_us: i64,
}

impl Row {
    fn read(self) -> NamedChain {
        NamedChain {
            name: self.name,
            chain: self.spec.0,
            shipped: false,
            version: self.version,
            updated_at: Timestamp::from_microsecond(self.updated_us).ok(),
        }
    }
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<NamedChain>> {
    const SQL: &str = "select name, spec, version,
                              (extract(epoch from updated_at) * 1000000)::bigint as updated_us
                       from control.chains where tenant_id = $1 order by name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    Ok(rows.into_iter().map(Row::read).collect())
}

pub(crate) async fn get(tx: &mut TenantTx, name: &str) -> sqlx::Result<Option<NamedChain>> {
    const SQL: &str = "select name, spec, version,
                              (extract(epoch from updated_at) * 1000000)::bigint as updated_us
                       from control.chains where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let row: Option<Row> =
        holdfast_pg::query_as(SQL).bind(tenant).bind(name).fetch_optional(tx.conn()).await?;
    Ok(row.map(Row::read))
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.chains where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn put(tx: &mut TenantTx, name: &str, chain: &Chain) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into control.chains (tenant_id, name, spec) values ($1, $2, $3)
        on conflict (tenant_id, name) do update
        set spec = excluded.spec, version = chains.version + 1, updated_at = clock_timestamp()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL).bind(tenant).bind(name).bind(Json(chain)).execute(tx.conn()).await?;
    Ok(())
}

pub(crate) async fn delete(tx: &mut TenantTx, name: &str) -> sqlx::Result<bool> {
    const SQL: &str = "delete from control.chains where tenant_id = $1 and name = $2";
    let tenant = tx.tenant().as_uuid();
    let done = holdfast_pg::query(SQL).bind(tenant).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
