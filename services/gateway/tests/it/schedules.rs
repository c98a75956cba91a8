//! Jobs and reminders over gRPC.

use std::time::Duration;

use holdfast_directory::Actor;
use holdfast_proto::gateway::v1::{
    self as pb, AddJobRequest, AddReminderRequest, BackfillJobRequest, CancelReminderRequest,
    DeleteJobRequest, EraseMemoriesRequest, GetScheduleStatusRequest, ListJobRunsRequest,
    ListJobsRequest, ListNextTimesRequest, ListRemindersRequest, PauseJobRequest, ResumeJobRequest,
    RunJobRequest, UpdateJobRequest, WakeAgentRequest, memories_client::MemoriesClient,
    schedules_client::SchedulesClient,
};
use holdfast_session::{MessageWithSettings, NewMessage};
use holdfast_types::{Body, QueueMode, SessionKey, SessionSettings, Source};
use serde_json::{Value, json};
use tonic::{Code, transport::Channel};

use crate::world::World;

async fn client(world: &World) -> anyhow::Result<SchedulesClient<Channel>> {
    Ok(SchedulesClient::new(world.channel().await?))
}

fn tea(schedule: Value) -> AddJobRequest {
    let job = json!({"name": "tea", "schedule": schedule,
                     "payload": {"kind": "systemEvent", "text": "tea is ready"}});
    AddJobRequest { job: job.to_string(), ..AddJobRequest::default() }
}

async fn add(world: &World, request: AddJobRequest) -> Result<pb::Job, tonic::Status> {
    let mut client =
        client(world).await.map_err(|error| tonic::Status::internal(error.to_string()))?;
    let made = client.add_job(world.anna.request(request)).await?.into_inner();
    made.job.ok_or_else(|| tonic::Status::internal("no job"))
}

#[tokio::test]
async fn a_job_is_made_once_changed_held_and_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let anna = &world.anna;
    let every = json!({"kind": "every", "every_ms": 3_600_000});
    let request = AddJobRequest { request_id: "r".into(), ..tea(every) };

    let made = add(&world, request.clone()).await?;
    let again = add(&world, request).await?;
    let patch = r#"{"name":"coffee","wake_mode":"now"}"#.to_owned();
    let update = UpdateJobRequest { job: made.id.clone(), patch, version: made.version };
    let changed = client.update_job(anna.request(update.clone())).await?.into_inner();
    let stale = client.update_job(anna.request(update)).await.unwrap_err();
    let job = made.id.clone();
    let paused = client.pause_job(anna.request(PauseJobRequest { job: job.clone() })).await?;
    let resumed = client.resume_job(anna.request(ResumeJobRequest { job: job.clone() })).await?;
    let run =
        |mode: &str| RunJobRequest { job: job.clone(), mode: mode.into(), ..Default::default() };
    let due = client.run_job(anna.request(run(""))).await?.into_inner();
    let forced = client.run_job(anna.request(run("force"))).await?.into_inner();
    let status = client.get_schedule_status(anna.request(GetScheduleStatusRequest {})).await?;
    let runs = client
        .list_job_runs(anna.request(ListJobRunsRequest { job: job.clone(), limit: 0 }))
        .await?
        .into_inner();
    let delete = DeleteJobRequest { job: job.clone() };
    let deleted = client.delete_job(anna.request(delete.clone())).await?.into_inner();
    let gone = client.delete_job(anna.request(delete)).await?.into_inner();

    assert!(made.id.starts_with("cron_") && made.id.len() == 13, "{}", made.id);
    assert_eq!((again.id, again.long_id), (made.id, made.long_id));
    let what: Value = serde_json::from_str(&changed.job.unwrap_or_default().what)?;
    assert_eq!((&what["name"], &what["wake_mode"]), (&json!("coffee"), &json!("now")));
    assert_eq!(what["payload"], json!({"kind": "systemEvent", "message": "tea is ready"}));
    assert_eq!(stale.code(), Code::Aborted, "{stale}");
    let (paused, resumed) = (paused.into_inner().job, resumed.into_inner().job);
    let paused = paused.unwrap_or_default();
    assert_eq!((paused.state.as_str(), paused.next_run_at), ("paused", None));
    assert!(resumed.is_some_and(|job| job.state == "active" && job.next_run_at.is_some()));
    assert_eq!((due.status.as_str(), due.reason.as_str()), ("skipped", "not due"));
    assert_eq!(forced.status, "started");
    let status = status.into_inner();
    assert_eq!((status.jobs_count, status.active_count), (1, 1));
    assert_eq!(status.next_job, "coffee");
    assert!(runs.runs.is_empty());
    assert!(deleted.existed && !gone.existed);
    Ok(())
}

#[tokio::test]
async fn a_timer_is_added_for_a_session_of_its_agent_and_listed_with_the_jobs() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let timer = |event: &str, session: Option<&str>| {
        let every = json!({"kind": "every", "every_ms": 180_000});
        let payload = json!({"kind": "timer", "event": event, "session": session});
        let job = json!({"name": "tea", "schedule": every, "payload": payload}).to_string();
        AddJobRequest { job, ..AddJobRequest::default() }
    };

    let made = add(&world, timer("tea", None)).await?;
    add(&world, timer("tea", Some("agent:main:api:anna"))).await?;
    let others = add(&world, timer("tea", Some("agent:other:main"))).await.unwrap_err();
    let name = add(&world, timer("Tea time", None)).await.unwrap_err();
    let listed = client.list_jobs(world.anna.request(ListJobsRequest::default())).await?;
    let listed = listed.into_inner().jobs;

    assert_eq!((made.kind.as_str(), listed.len()), ("timer", 2));
    let what: Value = serde_json::from_str(&made.what)?;
    assert_eq!(what["payload"], json!({"kind": "timer", "event": "tea"}));
    assert_eq!(others.code(), Code::InvalidArgument);
    assert!(others.message().starts_with("payload.session is another"), "{others}");
    assert!(name.message().starts_with("payload.event is `Tea time`: it must be"), "{name}");
    Ok(())
}

#[tokio::test]
async fn a_timer_without_an_interval_fires_every_three_minutes() -> anyhow::Result<()> {
    let world = World::start().await?;
    let job = |payload: Value| {
        let job = json!({"name": "tea", "payload": payload}).to_string();
        AddJobRequest { job, ..AddJobRequest::default() }
    };

    let timer = add(&world, job(json!({"kind": "timer", "event": "tea"}))).await?;
    let event = add(&world, job(json!({"kind": "systemEvent", "message": "tea"}))).await?;

    let every = |job: &pb::Job| -> anyhow::Result<Value> {
        Ok(serde_json::from_str::<Value>(&job.what)?["schedule"]["every_ms"].clone())
    };
    assert_eq!((every(&timer)?, every(&event)?), (json!(180_000), json!(3_600_000)));
    let next = timer.next_run_at.unwrap_or_default().seconds;
    let from = timer.created_at.unwrap_or_default().seconds;
    assert!((1..=181).contains(&(next - from)), "it first fires after {} s", next - from);
    Ok(())
}

#[tokio::test]
async fn a_text_to_be_said_is_a_job_in_a_session_of_its_agent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let daily = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"});
    let message =
        |session: &str| json!({"kind": "message", "message": "Good morning.", "session": session});
    let job = |payload: Value| {
        let job = json!({"name": "morning", "schedule": daily, "payload": payload}).to_string();
        AddJobRequest { job, ..AddJobRequest::default() }
    };

    let made = add(&world, job(message("agent:main:api:anna"))).await?;
    let foreign = add(&world, job(message("agent:other:main"))).await.unwrap_err();
    let patch = json!({"payload": message("agent:other:main")}).to_string();
    let update = UpdateJobRequest { job: made.id.clone(), patch, version: 0 };
    let moved = client.update_job(world.anna.request(update)).await.unwrap_err();
    let listed = client.list_jobs(world.anna.request(ListJobsRequest::default())).await?;
    let listed = listed.into_inner().jobs;

    assert_eq!((listed.len(), listed[0].kind.as_str()), (1, "cron"));
    let what: Value = serde_json::from_str(&listed[0].what)?;
    assert_eq!((&what["schedule"], &what["session_target"]), (&daily, &json!("main")));
    assert_eq!(what["payload"], message("agent:main:api:anna"));
    assert!(listed[0].next_run_at.is_some());
    for refused in [foreign, moved] {
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("payload.session is another"), "{refused}");
    }
    Ok(())
}

#[tokio::test]
async fn a_job_shows_who_wrote_what_it_does_and_has_their_rights() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let operator = world.anna.by(&world.key(&world.anna, &["admin", "read"], None).await?);
    let turn = |name: &str, text: &str| {
        let job = json!({"name": name, "session_target": "isolated",
                         "schedule": {"kind": "every", "every_ms": 3_600_000},
                         "payload": {"kind": "agentTurn", "message": text}});
        AddJobRequest { id: name.to_owned(), job: job.to_string(), ..AddJobRequest::default() }
    };
    let patch = |job: &str, patch: Value| UpdateJobRequest {
        job: job.to_owned(),
        patch: patch.to_string(),
        version: 0,
    };
    let text = |text: &str| json!({"payload": {"message": text}});
    let author = async |client: &mut SchedulesClient<Channel>, job: &str| {
        let get = pb::GetJobRequest { job: job.to_owned() };
        let job = client.get_job(world.anna.request(get)).await?.into_inner().job;
        Ok::<_, anyhow::Error>(job.map(|job| job.author).unwrap_or_default())
    };

    let owners = client.add_job(world.anna.request(turn("owners", "a"))).await?.into_inner().job;
    let theirs = client.add_job(operator.request(turn("theirs", "a"))).await?.into_inner().job;
    let (owners, theirs) = (owners.unwrap_or_default(), theirs.unwrap_or_default());
    let (owner, operators) = (owners.author.clone(), theirs.author.clone());
    client.add_job(operator.request(turn("mesh", "a"))).await?;
    // As a job from before there were authors.
    let before = "update schedule.jobs set author = null where external_id = 'mesh' returning name";
    assert_eq!(world.texts(before).await?, ["mesh"]);

    let authors = vec![operators.clone(), "nobody".to_owned()];
    let of_operator = ListJobsRequest { authors, ..ListJobsRequest::default() };
    let found = client.list_jobs(operator.request(of_operator)).await?.into_inner().jobs;
    assert_eq!(found.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["theirs"]);

    // An owner's change gives the other words no rights.
    client.update_job(world.anna.request(patch("theirs", text("b")))).await?;
    assert_eq!(author(&mut client, "theirs").await?, operators);
    // Another name or time says nothing; other words do.
    let aside = json!({"name": "x", "schedule": {"every_ms": 7_200_000}, "enabled": false});
    for job in ["owners", "mesh"] {
        let before = author(&mut client, job).await?;
        client.update_job(operator.request(patch(job, aside.clone()))).await?;
        assert_eq!(author(&mut client, job).await?, before);
        client.update_job(operator.request(patch(job, text("b")))).await?;
        assert_eq!(author(&mut client, job).await?, operators, "{job}");
    }
    let listed = client.list_jobs(operator.request(ListJobsRequest::default())).await?.into_inner();

    assert!(owner.starts_with("api:key_") || owner.starts_with("person:per_"), "{owner}");
    assert!(operators.starts_with("api:key_") && operators != owner, "{operators}");
    assert!(!owners.author_name.is_empty() && !theirs.author_name.is_empty());
    assert!(listed.jobs.iter().all(|job| job.author_name == theirs.author_name), "{listed:?}");
    let roles = world.texts("select author->>'roles' from schedule.jobs").await?;
    assert!(roles.iter().all(|roles| roles == r#"["admin", "member"]"#), "{roles:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_job_is_told_in_the_words_of_the_specification() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let told = async |job: Value| {
        let request = AddJobRequest { job: job.to_string(), ..AddJobRequest::default() };
        let refused = add(&world, request).await.unwrap_err();
        (refused.code(), refused.message().to_owned())
    };
    let turn = json!({"kind": "agentTurn", "message": "m"});
    let event = json!({"kind": "systemEvent", "message": "m"});

    let main = told(json!({"name": "a", "payload": turn})).await;
    let isolated = told(json!({"name": "a", "session_target": "isolated", "payload": event})).await;
    let never = told(json!({"name": "a", "payload": event,
                            "schedule": {"kind": "cron", "expr": "0 0 30 2 *"}}))
    .await;
    let zone = told(json!({"name": "a", "payload": event,
                           "schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Mars/X"}}))
    .await;
    let fast = told(json!({"name": "a", "payload": event,
                           "schedule": {"kind": "every", "every_ms": 5}}))
    .await;
    let job = UpdateJobRequest { job: "cron_0a1b2c3d".into(), patch: "{}".into(), version: 0 };
    let unknown = client.update_job(world.anna.request(job)).await.unwrap_err();

    assert_eq!(main, (Code::InvalidArgument, "main session must use systemEvent payload".into()));
    assert_eq!(isolated.1, "isolated session must use agentTurn payload");
    assert!(never.1.contains("never comes"), "{never:?}");
    assert!(zone.1.contains("`Mars/X` is not a time zone"), "{zone:?}");
    assert!(fast.1.starts_with("every_ms is 5: it must be"), "{fast:?}");
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "Job not found: cron_0a1b2c3d");
    Ok(())
}

#[tokio::test]
async fn the_times_of_a_job_are_shown_on_two_clocks_and_past_ones_are_caught_up_with()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let daily = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Oslo"});
    let job = add(&world, tea(daily.clone())).await?.id;

    let of_job = ListNextTimesRequest { job: job.clone(), ..Default::default() };
    let of_job = client.list_next_times(world.anna.request(of_job)).await?.into_inner().times;
    let schedule = daily.to_string();
    let (count, time_zone) = (2, "Asia/Tokyo".to_owned());
    let asked = ListNextTimesRequest { schedule, count, time_zone, ..Default::default() };
    let of_none = client.list_next_times(world.anna.request(asked)).await?.into_inner().times;
    let now = jiff::Timestamp::now().as_second();
    let from = Some(prost_types::Timestamp { seconds: now - 3 * 86_400, nanos: 0 });
    // At 09:00 another time would pass between the calls.
    let until = Some(prost_types::Timestamp { seconds: now, nanos: 0 });
    let backfill = BackfillJobRequest { job, from, until };
    let first = client.backfill_job(world.anna.request(backfill.clone())).await?.into_inner();
    let second = client.backfill_job(world.anna.request(backfill)).await?.into_inner();

    assert_eq!(of_job.len(), 5);
    assert!(of_job.iter().all(|time| time.scheduled.contains(" 09:00 +")), "{of_job:?}");
    assert!(of_job[0].local.ends_with(" UTC"), "{of_job:?}");
    assert_eq!(of_none.len(), 2);
    assert!(of_none[0].local.ends_with(" +09:00 Asia/Tokyo"), "{of_none:?}");
    assert_eq!((first.count, second.count), (3, 0));
    Ok(())
}

#[tokio::test]
async fn a_users_reminders_are_set_listed_and_cancelled_and_are_no_jobs_of_the_cron_service()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let anna = &world.anna;
    let remind = |user: &str, time: &str| AddReminderRequest {
        user: user.into(),
        time: time.into(),
        content: "喝水".into(),
        ..AddReminderRequest::default()
    };

    let set = client.add_reminder(anna.request(remind("telegram:42", "20分钟后"))).await?;
    let set = set.into_inner();
    let past = client.add_reminder(anna.request(remind("owner", "2020-01-01 09:00"))).await;
    let nobody = client.add_reminder(anna.request(remind("anna", "9:00"))).await;
    let of = |user: &str| ListRemindersRequest { user: user.into() };
    let listed = client.list_reminders(anna.request(of("telegram:42"))).await?.into_inner();
    let others = client.list_reminders(anna.request(of("owner"))).await?.into_inner();
    let jobs = client.list_jobs(anna.request(ListJobsRequest::default())).await?.into_inner();
    let id = listed.reminders[0].id.rsplit('_').next().unwrap_or_default().to_owned();
    let cancel = |user: &str| CancelReminderRequest { user: user.into(), id: id.clone() };
    let foreign = client.cancel_reminder(anna.request(cancel("owner"))).await.unwrap_err();
    let own = client.cancel_reminder(anna.request(cancel("telegram:42"))).await?.into_inner();

    assert!(
        set.text.starts_with("已设置单次提醒：") && set.text.ends_with(" - 喝水"),
        "{}",
        set.text
    );
    assert_eq!(set.reminder.clone().unwrap_or_default().session, "agent:main:dm:telegram:42");
    assert_eq!(past.unwrap_err().message(), "错误: 提醒时间已过去，请设置未来时间");
    assert!(nobody.unwrap_err().message().contains("is no user"));
    assert_eq!(listed.reminders, [set.reminder.unwrap_or_default()]);
    assert!(others.reminders.is_empty() && jobs.jobs.is_empty());
    assert_eq!(foreign.code(), Code::NotFound);
    assert_eq!(own.id, listed.reminders[0].id);
    Ok(())
}

#[tokio::test]
async fn an_agent_is_told_something_with_its_next_turn_once() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut client = client(&world).await?;
    let wake = WakeAgentRequest {
        text: "the build is green".into(),
        request_id: "w".into(),
        ..WakeAgentRequest::default()
    };

    let first = client.wake_agent(world.anna.request(wake.clone())).await?.into_inner();
    let again = client.wake_agent(world.anna.request(wake)).await?.into_inner();

    assert!(!first.duplicate && again.duplicate);
    let mut tx = world.pools.tenant(world.anna.id).await?;
    let pending: Vec<(String, String)> =
        holdfast_pg::query_as("select key, text from session.system_events where gone_at is null")
            .fetch_all(tx.conn())
            .await?;
    assert_eq!(pending, [("agent:main:main".to_owned(), "the build is green".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn a_reminders_time_is_on_the_clock_of_whoever_it_is_for() -> anyhow::Result<()> {
    let world = World::start_with_memory().await?;
    let mut client = client(&world).await?;
    let anna = &world.anna;
    let key: SessionKey = "agent:main:api:u".parse()?;
    let time_zone = Some("Asia/Tokyo".to_owned());
    let agent = world.directory.agents().default_agent(anna.id).await?.id;
    let message = NewMessage {
        key,
        agent,
        label: None,
        source: Source::Internal("test".into()),
        idem_key: "u".into(),
        body: Body { silent: true, ..Body::text("hi") },
        target: None,
        mode: QueueMode::Followup,
        debounce: Duration::ZERO,
        trace: None,
    };
    // A conversation of one of several bots with the owner: its key does not end with the owner's
    // id.
    let bots = NewMessage {
        key: "agent:main:dm:telegram:bot:7".parse()?,
        idem_key: "7".into(),
        ..message.clone()
    };
    let opening = MessageWithSettings {
        message,
        settings: SessionSettings { time_zone, ..SessionSettings::default() },
    };
    world.sessions.ingest_many(anna.id, &[opening]).await?.remove(0)?;
    let bots = world.sessions.ingest(anna.id, bots).await?;
    let day = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_hours(240))?;
    let day = day.strftime("%Y-%m-%d").to_string();
    let remind = |user: &str, time_zone: &str| AddReminderRequest {
        user: user.into(),
        time: format!("{day} 09:30"),
        content: "stretch".into(),
        time_zone: time_zone.into(),
        ..AddReminderRequest::default()
    };
    let midnight = format!("{day}T00:00:00Z").parse::<jiff::Timestamp>()?.as_second();
    let mut minutes = async |user: &str, zone: &str| -> anyhow::Result<i64> {
        let set = client.add_reminder(anna.request(remind(user, zone))).await?.into_inner();
        let at = set.reminder.unwrap_or_default().at.unwrap_or_default().seconds;
        Ok((at - midnight) / 60)
    };

    assert_eq!(minutes("api:u", "").await?, 30);
    assert_eq!(minutes("api:u", "UTC").await?, 570);
    assert_eq!(minutes("api:other", "").await?, 570);
    // A time zone set in one conversation holds in the others, and the owner has it under every id.
    let mut tx = world.pools.tenant(anna.id).await?;
    let heard = json!({"kind": "heard", "body": {"text": "hi", "author": {"id": "telegram:7"}}});
    holdfast_pg::query(
        "insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
         values ($1, $2, 0, 1, gen_random_uuid(), 'heard', $3)",
    )
    .bind(anna.id.as_uuid())
    .bind(bots.session.as_uuid())
    .bind(heard)
    .execute(tx.conn())
    .await?;
    for person in ["api:v", "owner"] {
        holdfast_pg::query(
            "insert into session.zones (tenant_id, agent_id, person, zone)
             values ($1, $2, $3, 'Asia/Tokyo')",
        )
        .bind(anna.id.as_uuid())
        .bind(agent.as_uuid())
        .bind(person)
        .execute(tx.conn())
        .await?;
    }
    tx.commit().await?;
    let policy = serde_json::json!({ "owners": ["telegram:7"] });
    world.directory.policies().put(anna.id, Actor::Operator, None, None, &policy).await?;
    assert_eq!(minutes("api:v/work", "").await?, 30);
    assert_eq!(minutes("owner", "").await?, 30);
    assert_eq!(minutes("telegram:7", "").await?, 30);
    assert_eq!(minutes("telegram:bot:7", "").await?, 30);
    assert_eq!(minutes("telegram:42", "").await?, 570);
    // Erasing a user deletes their time zone too.
    let mut memories = MemoriesClient::new(world.channel().await?);
    let erase = EraseMemoriesRequest { user: "api:v".into(), ..Default::default() };
    let erased = memories.erase_memories(anna.request(erase)).await?.into_inner().erased;
    assert!(erased.iter().any(|count| (count.what.as_str(), count.rows) == ("zones", 1)));
    assert_eq!(minutes("api:v/work", "").await?, 570);
    Ok(())
}
