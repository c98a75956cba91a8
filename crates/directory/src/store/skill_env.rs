//! `control.skill_env`.

use holdfast_pg::TenantTx;

use crate::SkillVariable;

#[derive(sqlx::FromRow)]
pub(crate) struct SealedVariable {
    pub(crate) skill: String,
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

pub(crate) async fn all(tx: &mut TenantTx) -> sqlx::Result<Vec<SkillVariable>> {
    #[derive(sqlx::FromRow)]
    struct Row {
        skill: String,
        name: String,
        updated_at: jiff_sqlx::Timestamp,
    }
    const SQL: &str = "select skill, name, updated_at from control.skill_env \
                       where tenant_id = $1 order by skill, name";
    let tenant = tx.tenant().as_uuid();
    let rows: Vec<Row> = holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await?;
    let read = |row: Row| SkillVariable {
        skill: row.skill,
        name: row.name,
        updated_at: row.updated_at.to_jiff(),
    };
    Ok(rows.into_iter().map(read).collect())
}

pub(crate) async fn sealed(tx: &mut TenantTx) -> sqlx::Result<Vec<SealedVariable>> {
    const SQL: &str = "select skill, name, value from control.skill_env \
                       where tenant_id = $1 order by skill, name";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL).bind(tenant).fetch_all(tx.conn()).await
}

pub(crate) async fn count(tx: &mut TenantTx) -> sqlx::Result<i64> {
    const SQL: &str = "select count(*) from control.skill_env where tenant_id = $1";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).fetch_one(tx.conn()).await
}

pub(crate) async fn put(
    tx: &mut TenantTx,
    (skill, name): (&str, &str),
    value: &[u8],
) -> sqlx::Result<()> {
    const SQL: &str = "insert into control.skill_env (tenant_id, skill, name, value) \
                       values ($1, $2, $3, $4) \
                       on conflict (tenant_id, skill, name) do update set \
                       value = excluded.value, updated_at = now()";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(skill)
        .bind(name)
        .bind(value)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Returns whether the variable existed.
pub(crate) async fn delete(tx: &mut TenantTx, skill: &str, name: &str) -> sqlx::Result<bool> {
    const SQL: &str =
        "delete from control.skill_env where tenant_id = $1 and skill = $2 and name = $3";
    let tenant = tx.tenant().as_uuid();
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(skill).bind(name).execute(tx.conn()).await?;
    Ok(done.rows_affected() > 0)
}
