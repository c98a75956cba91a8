//! Changes of jobs: allowed fields only.

use holdfast_schedule::Schedule;
use holdfast_schedule::store::{
    Changes, Editor, Error, JobKind, JobState, NewJob, NewSchedule, Origin, Outcome, Reminder,
    RunMode,
};
use holdfast_types::{Author, JobId};
use jiff::Timestamp;
use serde_json::json;

use crate::world::{World, ago};

/// The changes of these fields.
fn changes(fields: &serde_json::Value) -> Changes {
    let text = |name: &str| fields.get(name).and_then(|field| field.as_str()).map(str::to_owned);
    let flag = |name: &str| fields.get(name).and_then(serde_json::Value::as_bool);
    let schedule = fields.get("schedule").cloned().map(|spec| {
        let kind = spec.get("kind").and_then(|kind| kind.as_str()).and_then(JobKind::parse);
        NewSchedule { kind, spec }
    });
    Changes {
        name: text("name"),
        description: text("description"),
        enabled: flag("enabled"),
        schedule,
        payload: fields.get("payload").cloned(),
        session_target: text("session_target"),
        wake_mode: text("wake_mode"),
        isolation: fields.get("isolation").cloned().map(Some),
        delete_after_run: flag("delete_after_run"),
        overlap: None,
        editor: None,
    }
}

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

    let changes = changes(&patch);
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
async fn what_a_job_does_has_the_rights_of_who_wrote_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let author = |id: &str| Author { id: id.to_owned(), roles: vec!["member".to_owned()] };
    let editor = |id: &str, is_owner| Some(Editor { author: author(id), is_owner });
    let (bo, eve) = ("person:bo", "person:eve");
    let says = |text: &str| json!({"payload": {"kind": "agentTurn", "message": text}});
    let aside = json!({"name": "n", "enabled": true, "schedule": {"every_s": 60}});

    for (made_by, changed_by, change, author_after) in [
        // Words that stay from before must not gain rights.
        (Some(bo), editor("person:owner", true), says("b"), Some(bo)),
        (None, editor("person:owner", true), says("b"), None),
        (None, None, says("b"), None),
        (Some(bo), None, says("b"), Some(bo)),
        // New words must not have somebody else's.
        (None, editor(eve, false), says("b"), Some(eve)),
        (Some(bo), editor(eve, false), says("b"), Some(eve)),
        (Some(bo), editor(eve, false), json!({"session_target": "isolated"}), Some(eve)),
        (Some(bo), editor(eve, false), json!({"isolation": {"postToMainMode": "full"}}), Some(eve)),
        (Some(bo), editor(bo, true), says("b"), Some(bo)),
        // When it runs is nothing that it says.
        (Some(bo), editor(eve, false), aside.clone(), Some(bo)),
        (None, editor(eve, false), aside.clone(), None),
        (None, editor(eve, false), json!({}), None),
    ] {
        let new = ada.job(json!({"every_s": 3600}));
        let new = NewJob { author: made_by.map(author), ..new };
        let new = NewJob { session_target: Some("isolated".to_owned()), ..new };
        let new = match change.get("session_target") {
            Some(_) => NewJob { session_target: None, ..new },
            None => new,
        };
        let job = ada.add(new).await?;
        let changes = Changes { editor: changed_by.clone(), ..changes(&change) };

        let changed = world.jobs.update(ada.id, job.id, None, changes).await?;

        let is_after = changed.author.as_ref().map(|author| author.id.as_str());
        assert_eq!(is_after, author_after, "{made_by:?} {changed_by:?} {change}");
        assert_eq!(ada.get(job.id).await?.author, changed.author);
        world.jobs.remove(ada.id, job.id).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_is_checked_as_a_new_job_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let change = async |patch| world.jobs.update(ada.id, job.id, None, changes(&patch)).await;

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

    let changes = changes(&json!({"schedule": {"every_s": 60}}));
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
    assert_eq!(world.end(&firing, holdfast_schedule::store::Outcome::Ok).await?, 0);
    world.lapse().await?;
    assert!(world.sweep().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_is_to_be_tried_again_waits_while_its_job_is_switched_off() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({})).await?;
    let firing = world.claim_one().await?;
    world.end(&firing, Outcome::Error).await?;
    world.jobs.pause(ada.id, job.id).await?;

    let its_time = "update schedule.firings set offer_at = now() where state = 'pending'";
    world.admin(its_time).await?;
    assert_eq!(world.sweep().await?, []);
    assert_eq!(world.jobs.next_due().await?, None, "nobody is kept awake");
    world.jobs.run_now(ada.id, job.id, uuid::Uuid::now_v7(), RunMode::Force).await?;
    let forced = world.sweep().await?;
    assert_eq!(forced.iter().map(|one| one.origin).collect::<Vec<_>>(), [Origin::Forced]);
    world.end(&forced[0], Outcome::Ok).await?;
    assert_eq!(world.sweep().await?, []);

    let no_slot_left = r#"update schedule.jobs set spec = '{"never": true}'"#;
    world.admin(no_slot_left).await?;
    let resumed = world.jobs.resume(ada.id, job.id).await?;
    assert_eq!((resumed.state, resumed.next_slot), (JobState::Active, None));
    let again = world.sweep().await?;
    assert_eq!(again.iter().map(|one| one.origin).collect::<Vec<_>>(), [Origin::Retry]);
    world.end(&again[0], Outcome::Ok).await?;
    assert_eq!(ada.get(job.id).await?.state, JobState::Done);
    Ok(())
}

#[tokio::test]
async fn catching_up_stops_where_its_job_is_switched_off_and_goes_on_when_it_is_resumed()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.add(ada.job(json!({"every_s": 3600}))).await?;
    let slots = [ago(180), ago(120), ago(60)];
    assert_eq!(world.jobs.backfill(ada.id, job.id, &slots).await?, 3);
    let first = world.sweep().await?;
    assert_eq!(first.iter().map(|one| one.at).collect::<Vec<_>>(), slots[..1]);

    world.jobs.pause(ada.id, job.id).await?;
    world.end(&first[0], Outcome::Ok).await?;
    assert_eq!(world.sweep().await?, []);
    world.jobs.resume(ada.id, job.id).await?;

    for slot in &slots[1..] {
        let next = world.sweep().await?;
        assert_eq!(next.iter().map(|one| one.at).collect::<Vec<_>>(), [*slot]);
        world.end(&next[0], Outcome::Ok).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_reminder_that_is_to_be_tried_again_is_listed_and_can_be_cancelled() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let what = Reminder {
        content: "tea".to_owned(),
        session: "agent:main:main".to_owned(),
        auto_continue: false,
        locale: "en".to_owned(),
        target: None,
        renewals: 0,
        author: None,
        outside: false,
    };
    let at = Schedule::at(Timestamp::now().as_millisecond() + 3_600_000)?;
    let new = NewJob::reminder(JobId::generate(), ada.agent, "anna".to_owned(), at, &what);
    let job = ada.add(new).await?;
    world.admin("update schedule.jobs set slot_at = now(), due_at = now()").await?;
    let firing = world.claim_one().await?;
    assert_eq!(world.jobs.reminders(ada.id, "anna").await?, [], "it is said just now");

    world.end(&firing, Outcome::Error).await?;
    let waiting = world.jobs.reminders(ada.id, "anna").await?;
    assert_eq!(waiting.iter().map(|one| one.job.id).collect::<Vec<_>>(), [job.id]);
    assert!(waiting[0].at > firing.at);
    let cancelled = world.jobs.cancel_reminder(ada.id, "anna", &job.external_id).await?;

    assert_eq!(cancelled, Ok(job.external_id));
    assert_eq!(world.number("select count(*) from schedule.firings").await?, 0);
    Ok(())
}
