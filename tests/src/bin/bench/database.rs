//! Counters of Postgres: transactions, row versions, durability settings.

use sqlx::PgConnection;

/// Transactions since the cluster was made.
#[derive(Debug, Clone, Copy)]
pub struct Transactions {
    /// Those that wrote, exactly: each takes the next number.
    pub writing: i64,
    /// All that ended in a commit. Each connection tells with a delay of up to 10 s.
    pub all: i64,
}

pub async fn transactions(admin: &mut PgConnection) -> sqlx::Result<Transactions> {
    const SQL: &str = "
        select pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
               (select xact_commit from pg_stat_database where datname = current_database())";
    let (writing, all) = sqlx::query_as(SQL).fetch_one(admin).await?;
    Ok(Transactions { writing, all })
}

/// How many versions of rows were written to the database's tables.
pub async fn row_versions(admin: &mut PgConnection) -> sqlx::Result<i64> {
    const SQL: &str = "
        select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables";
    sqlx::query_scalar(SQL).fetch_one(admin).await
}

/// Which promises the server keeps.
pub async fn durability(admin: &mut PgConnection) -> sqlx::Result<String> {
    const SQL: &str = "
        select 'version ' || current_setting('server_version') || ', fsync '
               || current_setting('fsync') || ', synchronous_commit '
               || current_setting('synchronous_commit')";
    sqlx::query_scalar(SQL).fetch_one(admin).await
}
