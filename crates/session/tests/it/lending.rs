//! A pool lends connections up to its limit.

use std::collections::BTreeSet;

use holdfast_pg::{Config, Pools};
use holdfast_testkit::Database;
use holdfast_types::TenantId;

#[tokio::test]
async fn no_more_connections_are_open_than_a_pool_may_have() -> anyhow::Result<()> {
    let database = Database::create().await?;
    let config = Config { url: database.url().into(), pool_size: 2, ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;
    let mut seen = BTreeSet::new();

    // A second request at once, before the first connection is returned.
    for _ in 0..50 {
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut tx = pools.tenant(TenantId::generate()).await?;
            let pid: i32 =
                sqlx::query_scalar("select pg_backend_pid()").fetch_one(tx.conn()).await?;
            seen.insert(pid);
            both.push(tx);
        }
        both.into_iter().for_each(holdfast_pg::TenantTx::finish_reading);
    }

    assert_eq!(seen.len(), 2);
    Ok(())
}
