//! Isolation of two tenants with the same names.

use holdfast_schedule::store::{AddOutcome, Changes, Error, JobFilter, RunMode};
use serde_json::json;
use uuid::Uuid;

use crate::world::{World, ago};

fn is_not_found<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NotFound(_)))
}

#[tokio::test]
async fn every_verb_says_not_found_to_another_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let hers = ada.due(60, json!({"every_s": 3600})).await?;
    let jobs = &world.jobs;

    assert!(is_not_found(jobs.get(eve.id, hers.id).await));
    assert!(is_not_found(jobs.find(eve.id, &hers.external_id, None).await));
    assert!(is_not_found(jobs.find(eve.id, &hers.short_id, None).await));
    assert!(is_not_found(jobs.update(eve.id, hers.id, None, Changes::default()).await));
    assert!(is_not_found(jobs.pause(eve.id, hers.id).await));
    assert!(is_not_found(jobs.resume(eve.id, hers.id).await));
    assert!(is_not_found(jobs.runs(eve.id, hers.id, 10).await));
    assert!(is_not_found(jobs.run_now(eve.id, hers.id, Uuid::now_v7(), RunMode::Force).await));
    assert!(is_not_found(jobs.backfill(eve.id, hers.id, &[ago(90)]).await));
    assert!(!jobs.remove(eve.id, hers.id).await?);
    assert!(jobs.load(eve.id, &[hers.id]).await?.is_empty());
    let filter = JobFilter { agent: Some(ada.agent), limit: 10, ..JobFilter::default() };
    assert!(jobs.list(eve.id, &filter).await?.is_empty());

    let firing = world.claim_one().await?;
    let mut stolen = firing;
    stolen.id.tenant = eve.id;
    assert_eq!(world.end(&stolen, holdfast_schedule::store::Outcome::Ok).await?, 0);
    assert_eq!(jobs.firing(&stolen.id).await?, None);
    assert!(jobs.firing(&firing.id).await?.is_some());
    Ok(())
}

#[tokio::test]
async fn the_same_ids_and_names_are_different_jobs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let mut new = ada.job(json!({"every_s": 3600}));
    new.external_id = Some("daily".to_owned());

    let hers = world.jobs.add(ada.id, new.clone()).await?;
    let other = world.jobs.add(eve.id, new.clone()).await?;
    world.jobs.remove(ada.id, new.id).await?;

    assert!(matches!((&hers, &other), (AddOutcome::Made(_), AddOutcome::Made(_))));
    assert_eq!(world.jobs.find(eve.id, "daily", None).await?.tenant, eve.id);
    Ok(())
}

#[tokio::test]
async fn row_level_security_holds_where_a_query_forgets_the_tenant() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    ada.due(5, json!({"every_s": 3600})).await?;
    let firing = world.claim_one().await?;
    world.end(&firing, holdfast_schedule::store::Outcome::Ok).await?;
    let pools = world.pools()?;

    for (tenant, rows) in [(ada.id, 3), (eve.id, 0)] {
        let mut tx = pools.tenant(tenant).await?;
        let sql = "select (select count(*) from schedule.jobs)
                        + (select count(*) from schedule.firings)
                        + (select count(*) from schedule.runs)";
        let found: i64 = holdfast_pg::query_scalar(sql).fetch_one(tx.conn()).await?;
        assert_eq!(found, rows);
    }
    Ok(())
}

#[tokio::test]
async fn the_system_role_reads_no_payload_and_no_name() -> anyhow::Result<()> {
    let world = World::start().await?;
    let pools = world.pools()?;

    for column in ["payload", "name", "description", "owner", "external_id", "isolation"] {
        let mut tx = pools.system().await?;
        let sql = format!("select {column} from schedule.jobs");
        let read = holdfast_pg::query(sqlx::AssertSqlSafe(sql)).execute(tx.conn()).await;
        assert!(read.unwrap_err().to_string().contains("permission denied"), "{column}");
    }
    Ok(())
}
