//! Adding jobs: once per id, and within the limits.

use holdfast_schedule::store::{AddOutcome, Error, JobFilter, JobKind, Limits};
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_job_is_made_once_however_often_it_is_sent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let new = ada.job(json!({"every_s": 3600}));

    let made = world.jobs.add(ada.id, new.clone()).await?;
    let again = world.jobs.add(ada.id, new.clone()).await?;

    assert!(matches!((&made, &again), (AddOutcome::Made(_), AddOutcome::AlreadyAdded(_))));
    assert_eq!(made.clone().into_job(), again.into_job());
    let job = made.into_job();
    assert_eq!((job.spec, job.payload), (new.spec, new.payload));
    assert_eq!(job.external_id, format!("every_{}", job.short_id));
    assert!(job.next_due.is_some());
    Ok(())
}

#[tokio::test]
async fn any_id_is_taken_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(json!({"every_s": 3600}));
    new.external_id = Some("reminder_u 1_ü".to_owned());
    new.owner = Some("u1".to_owned());
    let first = ada.add(new.clone()).await?;
    new.id = holdfast_types::JobId::generate();

    assert!(matches!(ada.add(new).await, Err(Error::Taken(_))));
    assert!(ada.get(first.id).await.is_ok());
    Ok(())
}

#[tokio::test]
async fn a_reminder_is_found_by_each_of_its_names_and_only_by_its_owner() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(json!({"every_s": 3600}));
    (new.kind, new.owner) = (JobKind::Reminder, Some("u1".to_owned()));
    let job = ada.add(new).await?;
    assert_eq!(job.external_id, format!("reminder_u1_{}", job.short_id));

    for name in [job.id.to_string(), job.external_id.clone(), job.short_id.clone()] {
        assert_eq!(world.jobs.find(ada.id, &name, Some("u1")).await?.id, job.id);
        assert_eq!(world.jobs.find(ada.id, &name, None).await?.id, job.id);
        let other = world.jobs.find(ada.id, &name, Some("u2")).await;
        assert!(matches!(other, Err(Error::NotFound(_))), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn no_more_jobs_are_made_than_there_may_be_though_many_come_at_once() -> anyhow::Result<()> {
    let limits = Limits { tenant: 5, owner: 3, reminders: 1 };
    let world = World::start().await?.with_limits(limits);
    let ada = world.tenant();
    let of = |owner: &str, kind| {
        let mut new = ada.job(json!({"every_s": 3600}));
        (new.owner, new.kind) = (Some(owner.to_owned()), kind);
        new
    };

    ada.add(of("u1", JobKind::Reminder)).await?;
    let reminder = ada.add(of("u1", JobKind::Reminder)).await.unwrap_err();
    let many = futures::future::join_all((0..6).map(|_| ada.add(of("u1", JobKind::Cron)))).await;
    let own = many.iter().filter(|added| added.is_ok()).count();
    let rest = futures::future::join_all((0..6).map(|_| ada.add(of("u2", JobKind::Cron)))).await;
    let all = rest.iter().filter(|added| added.is_ok()).count();

    assert_eq!(
        reminder.to_string(),
        "the user has 1 reminders, and 1 is the most: remove some first"
    );
    assert_eq!((own, all), (2, 2));
    let other = world.tenant();
    other.add(other.job(json!({"every_s": 3600}))).await?;
    Ok(())
}

#[tokio::test]
async fn a_job_without_a_slot_or_with_a_wrong_field_is_refused() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();

    let never = ada.add(ada.job(json!({"never": true}))).await;
    let schedule = ada.add(ada.job(json!({"first": "soon"}))).await;
    let mut main = ada.job(json!({"every_s": 60}));
    main.session_target = Some("main".to_owned());
    let payload = ada.add(main).await;
    let mut nul = ada.job(json!({"every_s": 60}));
    nul.name = "a\0b".to_owned();
    let name = ada.add(nul).await;

    assert!(matches!(never, Err(Error::Never)));
    assert!(matches!(schedule, Err(Error::Schedule(_))));
    assert!(matches!(payload, Err(Error::Payload(_))));
    assert!(matches!(name, Err(Error::Field { field: "name", .. })));
    assert_eq!(world.number("select count(*) from schedule.jobs").await?, 0);
    Ok(())
}

#[tokio::test]
async fn jobs_are_listed_page_by_page_by_agent_owner_and_kind() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut made = Vec::new();
    for n in 0..6 {
        let mut new = ada.job(json!({"every_s": 3600}));
        new.owner = Some(format!("u{}", n % 2));
        new.kind = if n < 3 { JobKind::Cron } else { JobKind::Reminder };
        made.push(ada.add(new).await?.id);
    }
    let list = async |filter: JobFilter| -> Result<Vec<_>, Error> {
        Ok(world.jobs.list(ada.id, &filter).await?.into_iter().map(|job| job.id).collect())
    };
    let all = JobFilter { limit: 4, ..JobFilter::default() };

    let first = list(all.clone()).await?;
    let second = list(JobFilter { after: first.last().copied(), ..all.clone() }).await?;
    let owner = list(JobFilter { owner: Some("u1".to_owned()), ..all.clone() }).await?;
    let kind = list(JobFilter { kind: Some(JobKind::Cron), agent: Some(ada.agent), ..all }).await?;

    assert_eq!([first, second].concat(), made);
    assert_eq!(owner, [made[1], made[3], made[5]]);
    assert_eq!(kind, made[..3]);
    assert!(matches!(list(JobFilter::default()).await, Err(Error::Field { field: "page", .. })));
    Ok(())
}

#[tokio::test]
async fn what_is_done_leaves_room_for_more_and_hearts_beat_however_full_it_is() -> anyhow::Result<()>
{
    let limits = Limits { tenant: 2, owner: 9, reminders: 9 };
    let world = World::start().await?.with_limits(limits);
    let ada = world.tenant();
    let reminder = || {
        let mut new = ada.job(json!({"every_s": 3600}));
        (new.owner, new.kind) = (Some("u1".to_owned()), JobKind::Reminder);
        new
    };
    let heart = |agent| {
        let mut new = ada.job(json!({"every_s": 3600}));
        (new.kind, new.agent) = (JobKind::Heartbeat, agent);
        new
    };

    for _ in 0..2 {
        ada.add(reminder()).await?;
    }
    let full = ada.add(reminder()).await;
    let beats = ada.add(heart(ada.agent)).await;
    world.admin("update schedule.jobs set state = 'done', slot_at = null, due_at = null").await?;
    ada.add(heart(holdfast_types::AgentId::generate())).await?;
    for _ in 0..2 {
        ada.add(reminder()).await?;
    }

    assert!(matches!(full, Err(Error::TooMany { whose: "the tenant", have: 2, .. })), "{full:?}");
    assert!(beats.is_ok(), "{beats:?}");
    Ok(())
}

#[tokio::test]
async fn a_reminder_for_which_the_tenant_has_no_room_is_not_said_to_be_the_users_to_make()
-> anyhow::Result<()> {
    use holdfast_schedule::reminder;
    let world = World::start().await?.with_limits(Limits { tenant: 0, owner: 9, reminders: 9 });
    let ada = world.tenant();
    let (session, zone) = ("agent:main:main".parse()?, holdfast_schedule::Zone::default());
    let remind = holdfast_schedule::store::NewReminder {
        id: holdfast_types::JobId::generate(),
        agent: ada.agent,
        user: "u1",
        session: &session,
        target: None,
        content: "drink",
        time: "in 20 minutes",
        zone: &zone,
        locale: reminder::Locale::En,
        auto_continue: false,
        author: None,
        renewal: None,
        outside: false,
    };

    let refused = world.jobs.set_reminder(ada.id, remind, reminder::Limits::default()).await?;

    let why = refused.unwrap_err();
    assert!(why.is_full());
    let told = "Error: there is no room for more jobs and reminders here: whoever runs this assistant \
                must remove some first";
    assert_eq!(why.user_message(reminder::Locale::En), told);
    Ok(())
}
