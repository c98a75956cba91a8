//! Counters of Postgres: transactions, row versions, durability settings.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use sqlx::PgConnection;
use tokio::time::sleep;

/// Longer than a connection takes to tell how many transactions it has committed.
pub const STATS_DELAY: Duration = Duration::from_secs(12);

/// Longer than the server's processes take to read a changed setting.
const RELOAD_DELAY: Duration = Duration::from_secs(1);

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

/// Counts the statements that the server runs while something is done. It writes each to its log
/// meanwhile, so nothing else is measured at the same time. `dir` is the folder of the backends.
pub async fn count_statements(
    admin: &mut PgConnection,
    dir: &Path,
    what: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    const LOG: &str = "alter system set log_statement = 'all'";
    const RESET: &str = "alter system reset log_statement";
    let logged = async || {
        let log = dir.join("log/postgres.log");
        let text = tokio::fs::read(&log).await.context("the log of Postgres cannot be read")?;
        let text = String::from_utf8_lossy(&text);
        let is_statement =
            |line: &&str| line.contains(" LOG:  execute ") || line.contains(" LOG:  statement: ");
        anyhow::Ok(text.lines().filter(is_statement).count())
    };
    change_setting(admin, LOG).await?;
    let before = logged().await?;
    let done = what().await;
    let after = logged().await?;
    change_setting(admin, RESET).await?;
    done.map(|()| after - before)
}

async fn change_setting(admin: &mut PgConnection, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut *admin).await?;
    sqlx::query("select pg_reload_conf()").execute(admin).await?;
    sleep(RELOAD_DELAY).await;
    Ok(())
}
