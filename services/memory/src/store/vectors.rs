//! `memory.vectors`: embeddings of units, by model.
//!
//! Rows are inserted and deleted, never updated: statement triggers copy the changes to the
//! tenant's own table.

use holdfast_pg::TenantTx;
use uuid::Uuid;

#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    pub name: &'a str,
    pub dimension: usize,
}

/// Inserts the vectors of units that still exist.
pub async fn insert(
    tx: &mut TenantTx,
    model: Model<'_>,
    vectors: &[(Uuid, &[f32])],
) -> sqlx::Result<u64> {
    const SQL: &str = "
        insert into memory.vectors
            (tenant_id, unit_id, model, dimension, agent_id, user_id, kind, group_safe, hash, embedding)
        select u.tenant_id, u.unit_id, $2, $3, u.agent_id, u.user_id, u.kind, u.group_safe, u.hash,
               ($5::real[])[(n - 1) * $3 + 1 : n * $3]::vector
        from unnest($4::uuid[]) with ordinality as g (unit_id, n)
        join memory.units u on u.unit_id = g.unit_id and u.tenant_id = $1
        on conflict do nothing";

    let tenant = tx.tenant().as_uuid();
    let ids: Vec<Uuid> = vectors.iter().map(|(id, _)| *id).collect();
    let numbers: Vec<f32> = vectors.iter().flat_map(|(_, vector)| vector.iter().copied()).collect();
    let done = holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(model.name)
        .bind(i32::try_from(model.dimension).unwrap_or(i32::MAX))
        .bind(&ids)
        .bind(&numbers)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected())
}

/// Copies existing vectors to units with the same text. Returns the units that got one.
pub async fn reuse(tx: &mut TenantTx, model: &str, units: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "
        insert into memory.vectors
            (tenant_id, unit_id, model, dimension, agent_id, user_id, kind, group_safe, hash, embedding)
        select u.tenant_id, u.unit_id, same.model, same.dimension, u.agent_id, u.user_id, u.kind,
               u.group_safe, u.hash, same.embedding
        from memory.units u
        cross join lateral (
            select v.model, v.dimension, v.embedding from memory.vectors v
            where v.hash = u.hash and v.tenant_id = $1 and v.model = $2 limit 1
        ) same
        where u.tenant_id = $1 and u.unit_id = any ($3)
        on conflict do nothing
        returning unit_id";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(model).bind(units).fetch_all(tx.conn()).await
}

/// Returns the number of a tenant's vectors of a model, counted up to `most`.
pub async fn count(tx: &mut TenantTx, model: &str, most: i64) -> sqlx::Result<i64> {
    const SQL: &str = "
        select count(*) from (
            select from memory.vectors where tenant_id = $1 and model = $2 limit $3) counted";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_scalar(SQL).bind(tenant).bind(model).bind(most).fetch_one(tx.conn()).await
}

/// Deletes up to `most` vectors of a model. Returns how many.
pub async fn remove_some(tx: &mut TenantTx, model: &str, most: i64) -> sqlx::Result<u64> {
    const SQL: &str = "
        delete from memory.vectors where tenant_id = $1 and model = $2 and unit_id in (
            select unit_id from memory.vectors where tenant_id = $1 and model = $2 limit $3)";
    let tenant = tx.tenant().as_uuid();
    let done =
        holdfast_pg::query(SQL).bind(tenant).bind(model).bind(most).execute(tx.conn()).await?;
    Ok(done.rows_affected())
}

/// Memory with its similarity to a vector.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SimilarMemory {
    pub id: Uuid,
    pub text: String,
    /// Cosine, -1 to 1.
    pub cosine: f64,
}

/// Returns the memory of a type that is most similar to a vector, among those of exactly this agent
/// and user.
pub async fn nearest(
    tx: &mut TenantTx,
    model: &str,
    vector: &[f32],
    whose: (Uuid, &str, &str),
) -> sqlx::Result<Option<SimilarMemory>> {
    const SQL: &str = "
        select u.source_id as id, u.text, -(v.embedding <#> $3::real[]::vector) as cosine
        from memory.vectors v join memory.units u on u.unit_id = v.unit_id and u.tenant_id = $1
        where v.tenant_id = $1 and v.model = $2 and v.agent_id = $4 and v.user_id = $5
          and v.kind = 1 and u.type = $6 and (u.expires_at is null or u.expires_at > now())
        order by v.embedding <#> $3::real[]::vector limit 1";
    let (agent, user, of_type) = whose;
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query_as(SQL)
        .bind(tenant)
        .bind(model)
        .bind(vector)
        .bind(agent)
        .bind(user)
        .bind(of_type)
        .fetch_optional(tx.conn())
        .await
}
