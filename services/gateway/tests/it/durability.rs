//! Warnings about settings of the database that lose what was acknowledged.

use holdfast_pg::Pools;
use holdfast_testkit::Database;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

#[tokio::test]
async fn a_database_that_loses_acknowledged_messages_is_warned_of() -> anyhow::Result<()> {
    let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
        holdfast_pg::migrate(&url).await?;
        Ok(())
    })
    .await?;
    let mut admin = PgConnection::connect(&database.admin_url()).await?;
    let name: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut admin).await?;
    for (value, is_named) in [("off", true), ("on", false)] {
        let set = format!("alter database {name:?} set synchronous_commit = {value}");
        sqlx::query(AssertSqlSafe(set)).execute(&mut admin).await?;
        let config =
            holdfast_pg::Config { url: database.url().into(), ..holdfast_pg::Config::default() };
        let pools = Pools::lazy(&config, "test")?;

        let problems = holdfast_pg::durability_problems(&pools).await?;

        let told = "`synchronous_commit` of the database is `off`: a crash can lose messages";
        assert_eq!(problems.iter().any(|one| one.starts_with(told)), is_named, "{problems:?}");
        holdfast_pg::log_durability(&pools).await?;
    }
    Ok(())
}
