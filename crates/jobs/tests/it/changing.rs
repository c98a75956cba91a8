//! A job becomes what its user says, in the fields that a user may say, and no others.

use holdfast_jobs::{Changes, Error, JobKind, JobState, MUTABLE};
use serde_json::json;

use crate::world::{World, ago};

#[tokio::test]
async fn what_may_be_changed_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let patch = json!({
        "name": "n", "description": "d", "enabled": true, "delete_after_run": true,
        "schedule": {"kind": "cron", "every_s": 60}, "payload": {"kind": "systemEvent", "text": "t"},
        "session_target": "main", "wake_mode": "now", "isolation": {"postToMainMode": "full"},
    });
    assert_eq!(patch.as_object().map(serde_json::Map::len), Some(MUTABLE.len()));

    let changes = Changes::from_json(patch.clone())?;
    let changed = world.jobs.update(ada.id, job.id, Some(1), changes).await?;

    assert_eq!(changed, ada.get(job.id).await?);
    assert_eq!((changed.name.as_str(), changed.description.as_str()), ("n", "d"));
    assert_eq!((changed.kind, &changed.spec), (JobKind::Cron, &patch["schedule"]));
    assert_eq!(
        (&changed.payload, changed.isolation.as_ref()),
        (&patch["payload"], Some(&patch["isolation"]))
    );
    assert_eq!(
        (changed.session_target.as_deref(), changed.wake_mode.as_deref()),
        (Some("main"), Some("now"))
    );
    assert!(changed.delete_after_run && changed.next_slot < job.next_slot);
    assert_eq!((changed.version, changed.external_id), (2, job.external_id));
    Ok(())
}

#[test]
fn what_may_not_be_changed_is_refused_by_its_name() {
    for field in ["id", "tenant_id", "state", "owner", "agent_id", "due_at", "overlap", "version"] {
        let error = Changes::from_json(json!({"name": "n", field: "x"})).unwrap_err();

        assert!(matches!(&error, Error::NotMutable { field: named } if named == field));
        assert!(
            error.to_string().starts_with(&format!("`{field}` cannot be changed: only name, "))
        );
    }
    assert!(Changes::from_json(json!({"enabled": "yes"})).is_err());
    assert!(Changes::from_json(json!({"schedule": {"kind": "reminder"}})).is_err());
    assert!(Changes::from_json(json!([])).is_err());
}

#[tokio::test]
async fn a_job_that_was_changed_meanwhile_is_not_overwritten() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let named = |name: &str| Changes { name: Some(name.to_owned()), ..Changes::default() };

    world.jobs.update(ada.id, job.id, Some(1), named("mine")).await?;
    let late = world.jobs.update(ada.id, job.id, Some(1), named("yours")).await;

    assert!(matches!(late, Err(Error::Changed { have: 2, given: 1 })));
    assert_eq!(ada.get(job.id).await?.name, "mine");
    Ok(())
}

#[tokio::test]
async fn a_change_is_checked_as_a_new_job_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let change =
        async |patch| world.jobs.update(ada.id, job.id, None, Changes::from_json(patch)?).await;

    assert!(matches!(change(json!({"session_target": "main"})).await, Err(Error::Payload(_))));
    assert!(matches!(change(json!({"schedule": {"never": true}})).await, Err(Error::Never)));
    assert!(matches!(change(json!({"schedule": {"first": "x"}})).await, Err(Error::Schedule(_))));
    assert!(matches!(change(json!({"payload": "x"})).await, Err(Error::Field { .. })));
    assert_eq!(ada.get(job.id).await?, job);
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_switched_off_fires_no_more_until_it_is_resumed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(60, json!({"every_s": 3600})).await?;

    let paused = world.jobs.pause(ada.id, job.id).await?;
    assert_eq!((paused.state, paused.next_slot), (JobState::Paused, None));
    assert_eq!(world.jobs.pause(ada.id, job.id).await?.version, paused.version);
    assert!(world.claim().await?.is_empty());
    let resumed = world.jobs.resume(ada.id, job.id).await?;

    assert_eq!((resumed.state, resumed.next_slot), (JobState::Active, job.next_slot));
    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_job_that_broke_works_again_with_another_schedule() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"broken": true})).await?;
    world.claim().await?;

    let changes = Changes::from_json(json!({"schedule": {"every_s": 60}}))?;
    let mended = world.jobs.update(ada.id, job.id, None, changes).await?;

    assert_eq!(mended.state, JobState::Active);
    assert!(mended.next_slot.is_some_and(|slot| slot > ago(0)));
    Ok(())
}

#[tokio::test]
async fn a_job_is_removed_with_all_that_is_its_and_removing_it_again_is_no_error()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(35, json!({"every_s": 10, "missed": "all"})).await?;
    let firing = world.claim_one().await?;

    assert!(world.jobs.remove(ada.id, job.id).await?);
    assert!(!world.jobs.remove(ada.id, job.id).await?);

    for table in ["jobs", "firings", "runs"] {
        assert_eq!(world.number(&format!("select count(*) from schedule.{table}")).await?, 0);
    }
    assert_eq!(world.end(&firing, holdfast_jobs::Outcome::Ok).await?, 0);
    world.lapse().await?;
    assert!(world.sweep().await?.is_empty());
    Ok(())
}
