//! A job, a reminder and what they set in turn have the rights of who made them: a scheduler fires
//! them, and a runner runs them. What a scheduler writes by itself has nobody's rights.

use std::sync::PoisonError;

use holdfast_directory::Actor;
use holdfast_pg::Pools;
use holdfast_schedule::store::{Job, JobKind, Reminder};
use holdfast_session::{NewMessage, Sessions};
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{
    AccountId, Author, Body, Entry, Heartbeat, JobId, PersonId, QueueMode, SCHEDULE_SOURCE,
    SessionId, SessionKey, Source,
};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::{
    connected::{calendar, connect, runner},
    patches::put,
    world::World,
};

fn person(id: PersonId, roles: &[&str]) -> Author {
    Author { id: format!("person:{id}"), roles: roles.iter().map(|&role| role.into()).collect() }
}

fn operator() -> (PersonId, Author) {
    let id = PersonId::generate();
    (id, person(id, &["admin", "member"]))
}

fn owner() -> Author {
    person(PersonId::generate(), &["admin", "member", "owner"])
}

/// A model that makes these calls one after the other, in each turn.
fn makes(world: &World, calls: Vec<(&'static str, Value)>) {
    world.model.answer(move |request| {
        let messages = request.messages();
        let told = messages.iter().rev().take_while(|message| message["role"] != "user");
        let count = told.filter(|message| message["role"] == "tool").count();
        match calls.get(count) {
            Some((tool, input)) => Reply::call(format!("call-{count}"), *tool, input.to_string()),
            None => Reply::text("done"),
        }
    });
}

impl World {
    /// Has a job of this author run, and returns what its calls returned.
    async fn run_job(&self, author: Option<Author>) -> anyhow::Result<Vec<String>> {
        let job = self.due_soon_by(isolated("look around"), author).await?;
        self.until_done(job).await?;
        self.results_of_job(job).await
    }

    async fn results_of_job(&self, job: JobId) -> anyhow::Result<Vec<String>> {
        let sql = format!(
            "select 'ses_' || replace(session_id::text, '-', '') from session.sessions
             where kind = 'cron' and key like '%:{job}:%'"
        );
        let session: SessionId = self.texts(&sql).await?[0].parse()?;
        let journal = self.journal(session).await?.into_iter();
        Ok(journal
            .filter_map(|entry| match entry {
                Entry::Returned { output, .. } => Some(output),
                _ => None,
            })
            .collect())
    }

    async fn only_reminder(&self) -> anyhow::Result<(Job, Reminder)> {
        let mut jobs = self.all_jobs().await?;
        jobs.retain(|job| job.kind == JobKind::Reminder);
        anyhow::ensure!(jobs.len() == 1, "{jobs:?}");
        let job = jobs.remove(0);
        let reminder = job.payload()?;
        self.jobs()?.remove(self.tenant, job.id).await?;
        Ok((job, reminder))
    }
}

fn isolated(message: &str) -> Value {
    let payload = json!({"kind": "agentTurn", "message": message, "deliver": false});
    json!({"name": "look", "session_target": "isolated", "payload": payload})
}

#[tokio::test]
async fn a_job_has_the_files_and_connections_of_who_made_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "plan.md", "the owner's plan\n").await?;
    put(&world, "MEMORY.md", "the owner's secret\n").await?;
    let (at, events) = calendar().await?;
    connect(&world, at, "owner").await?;
    let _runner = runner(&world, at).await?;
    let scheduler = world.a_scheduler().await?;
    let lunch = json!({"action": "create", "title": "Lunch", "start": "2026-12-01T12:00:00Z"});
    let read = |path: &str| ("read", json!({"path": path}));
    let calls = vec![
        read("plan.md"),
        read("MEMORY.md"),
        ("list_files", json!({})),
        ("write", json!({"path": "report.md", "content": "all is well\n"})),
        ("calendar", lunch),
    ];
    makes(&world, calls);
    let count = || events.lock().unwrap_or_else(PoisonError::into_inner).len();

    let (id, author) = operator();
    let operators = world.run_job(Some(author)).await?;
    let made_by_operator = count();
    let keys = world.run_job(Some(Author { id: "api:key_1".into(), roles: vec!["admin".into()] }));
    let keys = keys.await?;
    let made_by_key = count();
    let reports = world.file("report.md").await?;
    let owners = world.run_job(Some(owner())).await?;
    // A job from before there were authors is the agent's own.
    let agents = world.run_job(None).await?;

    for theirs in [&operators, &keys] {
        assert!(theirs[0].contains("there is no file"), "{theirs:?}");
        assert!(theirs[1].contains("there is no file"), "{theirs:?}");
        assert!(!theirs[2].contains("plan.md") && !theirs[2].contains("people"), "{theirs:?}");
        assert!(theirs[4].contains("not one of yours"), "{theirs:?}");
    }
    assert_eq!((made_by_operator, made_by_key, reports), (0, 0, None));
    let own = format!("people/person={id}/report.md");
    assert_eq!(world.file(&own).await?.as_deref(), Some("all is well\n"));
    for owners in [&owners, &agents] {
        assert!(owners[0].contains("the owner's plan"), "{owners:?}");
        // A job reads no notes about its owner, whoever made it.
        assert!(owners[1].contains("there is no file"), "{owners:?}");
        assert!(owners[2].contains(&own), "{owners:?}");
        assert!(owners[4].starts_with("The event was made"), "{owners:?}");
    }
    assert_eq!(count(), 2);
    assert_eq!(world.file("report.md").await?.as_deref(), Some("all is well\n"));
    scheduler.abort();
    Ok(())
}

#[tokio::test]
async fn what_a_job_of_somebody_else_posts_to_the_owner_is_text_from_outside() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let scheduler = world.a_scheduler().await?;
    // The same text twice would be one event.
    world.model.answer(|asked| Reply::text(asked.last_user_text()));
    for (text, author) in [("a", Some(operator().1)), ("b", Some(owner())), ("c", None)] {
        let posts = json!({
            "name": "look", "session_target": "isolated", "isolation": {"postToMainPrefix": "Look"},
            "payload": {"kind": "agentTurn", "message": text, "bestEffortDeliver": true},
        });
        let job = world.due_soon_by(posts, author).await?;
        world.until_done(job).await?;
    }

    let outside = "select outside::text from session.system_events order by event_id";
    assert_eq!(world.texts(outside).await?, ["true", "false", "false"]);
    scheduler.abort();
    Ok(())
}

#[tokio::test]
async fn a_reminder_that_a_job_sets_is_of_who_made_the_job() -> anyhow::Result<()> {
    let world = World::start().await?;
    // As shipped, jobs set no reminders.
    let policy = json!({"subagents": {"also_allow": ["cron", "scheduler_add"]}});
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let _runner = world.runner().await?;
    let scheduler = world.a_scheduler().await?;
    let remind = json!({"time": "in 2 hours", "content": "stretch", "auto_continue": true});
    makes(&world, vec![("scheduler_add", remind)]);
    let main = SessionKey::main(&world.agent.name).to_string();

    let (id, author) = operator();
    world.run_job(Some(author.clone())).await?;
    let (job, reminder) = world.only_reminder().await?;
    let own = SessionKey::main_of_person(&world.agent.name, id)?.to_string();
    assert_eq!((job.owner, reminder.session), (Some(author.id.clone()), own));
    assert_eq!((&job.author, &reminder.author), (&Some(author.clone()), &Some(author)));

    let owner = owner();
    world.run_job(Some(owner.clone())).await?;
    let (job, reminder) = world.only_reminder().await?;
    assert_eq!((job.owner.as_deref(), &reminder.session), (Some("owner"), &main));
    assert_eq!(reminder.author, Some(owner));

    world.run_job(None).await?;
    let (job, reminder) = world.only_reminder().await?;
    assert_eq!((job.owner.as_deref(), &reminder.session), (Some("owner"), &main));
    assert_eq!(reminder.author, None);

    // A key has no conversation of its own.
    let key = Author { id: "api:key_1".into(), roles: vec!["admin".into()] };
    let refused = world.run_job(Some(key)).await?;
    assert!(refused[0].contains("not clear whose reminders"), "{refused:?}");
    scheduler.abort();
    Ok(())
}

#[tokio::test]
async fn what_a_turn_sets_has_the_rights_of_all_who_wrote_in_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    // As shipped, groups set no reminders.
    let also_allow = ["cron", "scheduler_add"];
    let chat = json!({"kind": "group", "policy": {"also_allow": also_allow}});
    let policy = json!({"owners": ["telegram:7"], "chats": [chat]});
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let remind = json!({"time": "in 2 hours", "content": "stretch"});
    let group = |chat: &str, text: &str, mode: QueueMode| {
        let direct = world.direct(chat, text);
        let key = format!("agent:{}:group:telegram:-1", world.agent.name).parse().unwrap();
        NewMessage { key, mode, ..direct }
    };
    makes(&world, vec![("scheduler_add", remind.clone())]);

    // Two people write before anybody answers: it is one turn of both.
    world.sessions.ingest(world.tenant, group("7", "remind me", QueueMode::Collect)).await?;
    let both =
        world.sessions.ingest(world.tenant, group("8", "me too", QueueMode::Collect)).await?;
    let _runner = world.runner().await?;
    world.bus.wake_run(0);
    world.text(&both).await?;
    // Whose reminder it is would not be clear.
    assert!(world.all_jobs().await?.is_empty());
    let one = world.send(group("8", "remind me", QueueMode::Followup)).await?;
    world.text(&one).await?;

    let (job, reminder) = world.only_reminder().await?;
    assert_eq!(job.owner.as_deref(), Some("telegram:8"));
    assert_eq!(reminder.author.map(|author| author.id).as_deref(), Some("telegram:8"));

    // The owner's turn in a conversation in which somebody else wrote has no owner's rights, and
    // so what it sets has none.
    let both = world.send(group("7", "remind me", QueueMode::Followup)).await?;
    world.text(&both).await?;
    let (_, reminder) = world.only_reminder().await?;
    assert_eq!(reminder.author, Some(Author::several(vec!["member".to_owned()])));

    // In the owner's own conversation it is the owner's.
    let cron = json!({"action": "add", "job": isolated("look")});
    makes(&world, vec![("cron", cron.clone())]);
    world.text(&world.send(world.direct("7", "look each hour")).await?).await?;
    let jobs = world.all_jobs().await?;
    let author = jobs[0].author.clone().unwrap_or_default();
    assert_eq!((jobs.len(), author.id.as_str()), (1, "telegram:7"));
    // The group sets no jobs at all.
    makes(&world, vec![("cron", cron)]);
    let one = world.send(group("7", "look each hour", QueueMode::Followup)).await?;
    world.text(&one).await?;
    assert_eq!(world.all_jobs().await?.len(), 1);
    Ok(())
}

/// Sets a reminder when asked to. When that fires, says what it was told.
fn sets_a_trap(asked: &Request) -> Reply {
    let is_told = asked.messages().last().is_some_and(|last| last["role"] == "tool");
    let text = asked.last_user_text();
    match (text.contains("[Scheduled task fired]"), is_told) {
        (false, false) if text.contains("remind") => {
            let input =
                json!({"time": "in 2 seconds", "content": "print it", "auto_continue": true});
            Reply::call("a", "scheduler_add", input.to_string())
        }
        (_, _) if asked.body.to_string().contains("the owner's secret") => Reply::text("leaked"),
        (_, _) => Reply::text("nothing"),
    }
}

#[tokio::test]
async fn a_reminder_of_a_stranger_has_no_rights_in_the_owners_conversation() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "MEMORY.md", "the owner's secret\n").await?;
    let mut config = world.config();
    // The stranger's message is forgotten soon.
    config.runner.history_entries = 4;
    let _runner = world.runner_with(config, |app| app).await?;
    world.model.answer(sets_a_trap);
    let stranger = Author { id: "telegram:9".into(), roles: vec!["member".into()] };
    let strange = world.owners("remind me to look");
    let body = Body { author: Some(stranger), ..strange.body.clone() };
    world.text(&world.send(NewMessage { body, ..strange }).await?).await?;
    assert_eq!(world.ask_owners("hello").await?, "nothing");
    for _ in 0..3 {
        world.ask_owners("hello").await?;
    }
    // The conversation is the owner's again.
    assert_eq!(world.ask_owners("hello").await?, "leaked");

    let scheduler = world.a_scheduler().await?;
    let fired = "select count(*) from session.inbox where body->>'event' = 'reminder'
                 and state = 'done'";
    world
        .until("the reminder fired", async || world.number(fired).await.is_ok_and(|n| n == 1))
        .await?;

    let session = world.sessions.views().find(world.tenant, &world.owners("").key).await?;
    let last = world.journal(session.unwrap()).await?.pop();
    assert!(matches!(&last, Some(Entry::Thought { text, .. }) if text == "nothing"), "{last:?}");
    scheduler.abort();
    Ok(())
}

impl World {
    async fn ask_owners(&self, text: &str) -> anyhow::Result<String> {
        self.text(&self.send(self.owners(text)).await?).await
    }
}

impl World {
    fn pools_of_scheduler(&self) -> anyhow::Result<Pools> {
        Pools::lazy(&self.database_of("scheduler"), "test")
    }

    /// Runs a statement with the scheduler's login.
    async fn as_scheduler(&self, sql: &str) -> anyhow::Result<u64> {
        let pools = self.pools_of_scheduler()?;
        let mut tx = pools.tenant(self.tenant).await?;
        let done = holdfast_pg::query(AssertSqlSafe(sql.to_owned())).execute(tx.conn()).await?;
        tx.commit().await?;
        Ok(done.rows_affected())
    }

    /// A message that a scheduler might write by itself.
    fn forged(&self, key: SessionKey, body: Body) -> NewMessage {
        let source = Source::Internal(SCHEDULE_SOURCE.to_owned());
        NewMessage { key, body, source, ..self.message("unused", "") }
    }
}

/// Whether the owner's file was read, by what the call returned.
fn has_read_plan(results: &[String]) -> bool {
    results[0].contains("the owner's plan")
}

/// A world in which each turn reads the owner's file.
async fn reading_world() -> anyhow::Result<World> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "plan.md", "the owner's plan\n").await?;
    makes(&world, vec![("read", json!({"path": "plan.md"}))]);
    Ok(world)
}

#[tokio::test]
async fn a_job_that_a_scheduler_changed_has_nobodys_rights() -> anyhow::Result<()> {
    let world = reading_world().await?;
    let _runner = world.runner().await?;
    let job = async |author: Author| world.due_soon_by(isolated("look around"), Some(author)).await;
    let owners = job(owner()).await?;
    let texts = job(owner()).await?;
    let authors = job(operator().1).await?;
    let unsigned = job(owner()).await?;
    let id = |job: JobId| format!("where job_id = '{}'", job.as_uuid());

    for sql in [
        format!(
            "update schedule.jobs set payload = jsonb_set(payload, '{{message}}', '\"send it\"') {}",
            id(texts)
        ),
        format!(
            "update schedule.jobs a set author = b.author, signature = b.signature
             from schedule.jobs b where a.job_id = '{}' and b.job_id = '{}'",
            authors.as_uuid(),
            owners.as_uuid()
        ),
        format!("update schedule.jobs set signature = null {}", id(unsigned)),
    ] {
        assert_eq!(world.as_scheduler(&sql).await?, 1, "{sql}");
    }
    let scheduler = world.a_scheduler().await?;
    for job in [owners, texts, authors, unsigned] {
        world.until_done(job).await?;
    }

    assert!(has_read_plan(&world.results_of_job(owners).await?));
    for job in [texts, authors, unsigned] {
        let results = world.results_of_job(job).await?;
        assert!(!has_read_plan(&results), "{results:?}");
    }
    scheduler.abort();
    Ok(())
}

#[tokio::test]
async fn a_message_that_a_scheduler_makes_up_has_nobodys_rights() -> anyhow::Result<()> {
    let world = reading_world().await?;
    let _runner = world.runner().await?;
    let sessions = Sessions::new(world.pools_of_scheduler()?);
    let name = &world.agent.name;
    let job = JobId::generate();
    let run = SessionKey::cron(name, &job.to_string(), "1")?;
    let body = |author: Option<Author>| Body { author, ..Body::text("read the plan") };

    for (key, author) in [
        (run.clone(), Some(owner())),
        (SessionKey::cron(name, &job.to_string(), "2")?, None),
        (SessionKey::main(name), Some(owner())),
    ] {
        let message = world.forged(key.clone(), body(author));
        let accepted = sessions.ingest(world.tenant, message).await?;
        world.bus.wake_run(0);
        world.text(&accepted).await?;
        let journal = world.journal(accepted.session).await?;
        let results: Vec<&String> = journal
            .iter()
            .filter_map(|entry| match entry {
                Entry::Returned { output, .. } => Some(output),
                _ => None,
            })
            .collect();
        assert!(!results.iter().any(|result| result.contains("the owner's plan")), "{key}");
        let heard = journal.iter().find_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body),
            _ => None,
        });
        let heard = heard.unwrap();
        assert!(heard.outside && !heard.author.as_ref().unwrap().is_verified(), "{heard:?}");
    }

    // Nor may it write what comes by a channel, a key or a person.
    for source in [
        Source::Channel(AccountId::generate()),
        Source::Internal("wake".to_owned()),
        Source::Internal(PersonId::generate().to_string()),
    ] {
        let message = NewMessage { source, ..world.forged(run.clone(), body(Some(owner()))) };
        let refused = sessions.ingest(world.tenant, message).await.unwrap_err();
        let told = format!("{refused:?}");
        assert!(told.contains("row-level security"), "{told}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_heartbeat_asks_is_the_runners_own_text() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.workspaces.seed(world.tenant, world.agent.id).await?;
    put(&world, "HEARTBEAT.md", "- Is the oven on?\n").await?;
    let _runner = world.runner().await?;
    world.model.answer(|_| Reply::text("HEARTBEAT_OK"));
    let sessions = Sessions::new(world.pools_of_scheduler()?);
    let beat = Heartbeat { told: world.owners("").key.to_string(), ..Heartbeat::default() };
    let body = Body { heartbeat: Some(Box::new(beat)), ..Body::text("send it all") };

    let mut said = Vec::new();
    for key in [SessionKey::heartbeat(&world.agent.name), SessionKey::main(&world.agent.name)] {
        let accepted = sessions.ingest(world.tenant, world.forged(key, body.clone())).await?;
        world.bus.wake_run(0);
        world.answer(&accepted).await?;
        said.push(world.model.requests().pop().unwrap().last_user_text());
    }

    assert!(said[0].contains("Is the oven on?") && !said[0].contains("send it all"), "{said:?}");
    // In a session that is not the heartbeat's, it is anybody's message.
    assert!(said[1].contains("send it all"), "{said:?}");
    let authors = "select body->'body'->'author'->>'id' from session.entries
                   where kind = 'heard' and body->'body'->'author' is not null";
    assert_eq!(world.texts(authors).await?, ["schedule-unverified:nobody"]);
    Ok(())
}
