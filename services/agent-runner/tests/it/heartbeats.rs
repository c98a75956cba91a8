//! Heartbeats through the product: a scheduler, runners, a channel that takes what is sent.

use std::time::Duration;

use holdfast_bus::Subject;
use holdfast_directory::Agent;
use holdfast_schedule::heartbeat::{
    ActiveHours, HeartbeatConfig, HeartbeatTarget, HoursZone, Status,
};
use holdfast_schedule::store::{
    HeartbeatLine, Job, JobState, RunMode, RunRequestOutcome, heartbeat_job,
};
use holdfast_session::{NewMessage, SendCapacity, SendResult};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_types::{AgentId, DeliveryClass, Entry, RunnerId, SessionKey, Target};
use holdfast_workspace::{Base, ChangeAuthor, Edit};
use jiff::Timestamp;
use scheduler::Scheduler;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{Running, World, place};

/// A scheduler in this process.
struct Ticking {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

impl World {
    async fn scheduler(&self) -> anyhow::Result<Ticking> {
        self.scheduler_with(|_| {}).await
    }

    async fn scheduler_with(&self, change: impl FnOnce(&mut Scheduler)) -> anyhow::Result<Ticking> {
        self.scheduler_over(self.database_of("scheduler"), change).await
    }

    async fn scheduler_over(
        &self,
        database: holdfast_pg::Config,
        change: impl FnOnce(&mut Scheduler),
    ) -> anyhow::Result<Ticking> {
        let runner = self.config();
        let mut own = Scheduler { listen: ([127, 0, 0, 1], 0).into(), ..Scheduler::default() };
        change(&mut own);
        let config = scheduler::Config {
            scheduler: own,
            database,
            redis: runner.redis,
            nats: runner.nats,
            ..scheduler::Config::default()
        };
        let app = scheduler::App::connect(config).await?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(app.run(stop.clone()));
        Ok(Ticking { stop, task })
    }

    async fn heartbeat_file(&self, agent: AgentId, text: &str) -> anyhow::Result<()> {
        let (path, content) = ("HEARTBEAT.md".parse()?, text.as_bytes().to_vec());
        let edit = Edit::Put { path, content, base: Base::Any };
        let by = ChangeAuthor::new("ada", "wrote it");
        self.workspaces.commit(self.tenant, agent, &by, vec![edit]).await?;
        Ok(())
    }

    async fn set(&self, change: impl FnOnce(&mut HeartbeatConfig)) -> anyhow::Result<Agent> {
        self.change_agent(|agent| {
            // So that none is due by itself.
            agent.settings.heartbeat.every = "24h".to_owned();
            change(&mut agent.settings.heartbeat);
        })
        .await
    }

    /// Waits until no heartbeat is out.
    async fn all_ended(&self) -> anyhow::Result<()> {
        let out = "select count(*) from schedule.jobs where running_slot is not null";
        self.until("all have ended", async || self.number(out).await.is_ok_and(|n| n == 0)).await
    }

    async fn job(&self) -> anyhow::Result<Option<Job>> {
        Ok(self.jobs()?.heartbeat(self.tenant, self.agent.id).await?)
    }

    /// Waits until the agent's heart beats.
    async fn beats(&self) -> anyhow::Result<()> {
        let is_on =
            async || matches!(self.job().await, Ok(Some(job)) if job.state == JobState::Active);
        self.until("it beats", is_on).await
    }

    /// Makes the next slot of all hearts now.
    async fn tick(&self) -> anyhow::Result<u64> {
        self.all_ended().await?;
        self.admin(
            "update schedule.jobs set slot_at = now(), due_at = now()
             where kind = 'heartbeat' and due_at is not null",
        )
        .await
    }

    async fn lines(&self) -> anyhow::Result<Vec<HeartbeatLine>> {
        Ok(self.jobs()?.heartbeat_lines(self.tenant, self.agent.id, 100).await?)
    }

    /// Waits for the `n`th event, and answers with it.
    async fn line(&self, n: usize) -> anyhow::Result<HeartbeatLine> {
        let is_there = async || self.lines().await.is_ok_and(|lines| lines.len() >= n);
        self.until("it is told", is_there).await?;
        let mut lines = self.lines().await?;
        anyhow::ensure!(lines.len() == n, "more than {n}: {lines:?}");
        Ok(lines.swap_remove(0))
    }

    /// Status and reason of a heartbeat.
    async fn came(&self, n: usize) -> anyhow::Result<(Status, Option<String>)> {
        let line = self.line(n).await?;
        Ok((line.event.status, line.event.reason))
    }

    /// The owner writes on a channel.
    async fn owner_speaks(&self, chat: &str) -> anyhow::Result<()> {
        let said = self.send(NewMessage { target: Some(place(chat)), ..self.owners("hi") }).await?;
        self.text(&said).await?;
        self.take_sent().await?;
        Ok(())
    }

    /// Requests to the model since the owner's first message.
    fn beaten(&self) -> Vec<Value> {
        self.model.requests().iter().skip(1).map(|request| request.body.clone()).collect()
    }

    /// Takes what waits to be sent, as the platform does that got it.
    pub async fn take_sent(&self) -> anyhow::Result<Vec<(Target, String)>> {
        self.settle_sent(|platform_id| SendResult::Sent { platform_id }).await
    }

    async fn settle_sent(
        &self,
        how: impl Fn(String) -> SendResult,
    ) -> anyhow::Result<Vec<(Target, String)>> {
        let bridge = RunnerId::generate();
        let class = DeliveryClass::Keyed { window: std::time::Duration::from_secs(86_400) };
        let taken = self
            .sessions
            .deliveries()
            .claim("telegram", class, bridge, &SendCapacity::slots(10))
            .await?;
        let mut sent = Vec::new();
        for one in taken {
            self.sessions.deliveries().record_result(&one, bridge, how("7".to_owned())).await?;
            sent.push((one.target, one.text));
        }
        Ok(sent)
    }

    /// Waits until something is sent.
    async fn sent(&self) -> anyhow::Result<Vec<(Target, String)>> {
        let waits = async || {
            self.number("select count(*) from session.deliveries where state = 'pending'")
                .await
                .is_ok_and(|count| count > 0)
        };
        self.until("something is to be sent", waits).await?;
        self.take_sent().await
    }

    /// A world whose agent has something to look at, and whose owner has spoken on a channel.
    async fn beating(task: &str) -> anyhow::Result<(Self, Running, Ticking)> {
        let world = Self::start().await?;
        let runner = Box::pin(world.runner()).await?;
        world.owner_speaks("42").await?;
        let ticking = Box::pin(world.scheduler()).await?;
        world.set(|_| {}).await?;
        world.heartbeat_file(world.agent.id, task).await?;
        world.beats().await?;
        Ok((world, runner, ticking))
    }
}

fn messages(request: &Value) -> &[Value] {
    request["messages"].as_array().map_or(&[], Vec::as_slice)
}

fn user_texts(request: &Value) -> Vec<String> {
    let users = messages(request).iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"].to_string()).collect()
}

#[tokio::test]
async fn what_a_heartbeat_finds_is_sent_once_to_where_its_owner_last_spoke() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let mut told = world.bus.subscribe(&Subject::heartbeat(world.tenant, world.agent.id)).await?;
    world.bus.flush().await;
    world.model.queue([Reply::text("HEARTBEAT_OK The oven is on.".repeat(6))]);

    world.tick().await?;
    let sent = world.sent().await?;

    let news = "HEARTBEAT_OK The oven is on.".repeat(6);
    let news = news.trim_start_matches("HEARTBEAT_OK ").to_owned();
    assert_eq!(sent, [(place("42"), news.clone())]);
    let line = world.line(1).await?;
    assert_eq!((line.event.status, line.event.reason), (Status::Sent, None));
    assert_eq!(line.event.preview.unwrap(), news.chars().take(100).collect::<String>());
    assert_eq!(line.event.channel.as_deref(), Some("telegram"));
    assert_eq!(line.event.to.as_deref(), Some("42"));
    let heard = tokio::time::timeout(crate::world::LONG, told.next()).await?.unwrap();
    let heard: Value = serde_json::from_slice(&heard.payload)?;
    assert_eq!(heard["status"], "sent");
    assert_eq!(heard["preview"], Value::Null, "what was said is not on the bus");

    let asked = world.beaten();
    assert_eq!(asked.len(), 1);
    let [question] = &user_texts(&asked[0])[..] else { panic!("{asked:?}") };
    assert!(question.contains("## Heartbeat Check"), "{question}");
    assert!(question.contains("- Is the oven on?"), "{question}");
    Ok(())
}

#[tokio::test]
async fn what_was_sent_stands_in_the_conversation_that_it_was_sent_to() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.model.queue([Reply::text("The oven is on.")]);
    world.tick().await?;
    world.sent().await?;
    world.line(1).await?;

    let answer = NewMessage { target: Some(place("42")), ..world.owners("switch it off") };
    let answer = world.send(answer).await?;
    world.text(&answer).await?;

    let asked = world.beaten();
    let said: Vec<(&Value, String)> = messages(&asked[1])
        .iter()
        .map(|message| (&message["role"], message["content"].to_string()))
        .collect();
    let at = said.iter().position(|(_, text)| text.contains("The oven is on.")).unwrap();
    assert_eq!(said[at].0, "assistant");
    assert!(said[at + 1].1.contains("switch it off"), "{said:?}");
    assert!(!said.iter().any(|(_, text)| text.contains("Heartbeat Check")), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn a_heartbeat_has_no_past_and_says_nothing_twice_in_a_day() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.model.queue([
        Reply::text("The oven is on."),
        Reply::text(" The oven is on.\n"),
        Reply::text("HEARTBEAT_OK"),
        Reply::text("NO_REPLY"),
        Reply::text("The oven is off."),
    ]);

    world.tick().await?;
    assert_eq!(world.sent().await?.len(), 1);
    assert_eq!(world.came(1).await?.0, Status::Sent);
    for (n, status, reason) in [
        (2, Status::Skipped, Some("duplicate")),
        (3, Status::OkToken, None),
        (4, Status::OkEmpty, Some("empty-reply")),
    ] {
        world.tick().await?;
        assert_eq!(world.came(n).await?, (status, reason.map(str::to_owned)));
        assert_eq!(world.take_sent().await?, []);
    }
    world.tick().await?;
    assert_eq!(world.sent().await?[0].1, "The oven is off.");
    world.line(5).await?;

    let asked = world.beaten();
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|request| user_texts(request).len() == 1));
    assert!(asked.iter().all(|request| !request.to_string().contains("The oven is")));
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn what_did_not_arrive_is_told_and_may_be_said_again() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.model.queue([Reply::text("The oven is on."), Reply::text("The oven is on.")]);

    world.tick().await?;
    let pending = async || {
        let refused = |_| SendResult::Rejected { reason: "blocked by the user".to_owned() };
        world.settle_sent(refused).await.is_ok_and(|sent| sent.len() == 1)
    };
    world.until("it is refused", pending).await?;
    let failed = (Status::Failed, Some("blocked by the user".to_owned()));
    assert_eq!(world.came(1).await?, failed);

    world.tick().await?;
    assert_eq!(world.sent().await?.len(), 1);
    assert_eq!(world.came(2).await?.0, Status::Sent);
    Ok(())
}

#[tokio::test]
async fn a_model_that_fails_is_told_to_whoever_looks_and_to_nobody_else() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.model.answer(|_| Reply::status(401));

    world.tick().await?;
    let line = world.line(1).await?;

    assert_eq!(line.event.status, Status::Failed);
    assert!(line.event.reason.unwrap().contains("refused the key"));
    assert_eq!(world.take_sent().await?, []);
    // An error delays the next one.
    world.all_ended().await?;
    let job = world.job().await?.unwrap();
    assert_eq!(job.errors, 1);
    Ok(())
}

#[tokio::test]
async fn each_step_before_the_model_says_why_nothing_is_asked() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let (jobs, id) = (world.jobs()?, heartbeat_job(world.agent.id));
    let run = async || {
        world.all_ended().await?;
        let request = uuid::Uuid::now_v7();
        let ran = jobs.run_now(world.tenant, id, request, RunMode::Force).await?;
        anyhow::ensure!(matches!(ran, RunRequestOutcome::Fired(_)), "{ran:?}");
        world.bus.wake_schedule();
        anyhow::Ok(())
    };
    let now = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let hour = |hours: i64| (now.hour() as i64 + hours).rem_euclid(24);
    let (start, end) = (format!("{:02}:00", hour(2)), format!("{:02}:00", hour(23)));
    let quiet = ActiveHours { start, end, timezone: Default::default() };

    world.set(|heart| heart.enabled = false).await?;
    run().await?;
    assert_eq!(world.came(1).await?, (Status::Skipped, Some("disabled".to_owned())));

    world.set(|heart| heart.active_hours = Some(quiet)).await?;
    run().await?;
    assert_eq!(world.came(2).await?, (Status::Skipped, Some("quiet-hours".to_owned())));

    world.set(|_| {}).await?;
    world.admin("delete from workspace.files where path = 'HEARTBEAT.md'").await?;
    run().await?;
    assert_eq!(world.came(3).await?, (Status::Skipped, Some("no-heartbeat-file".to_owned())));

    world.heartbeat_file(world.agent.id, "# Tasks\n\n- [ ]\n<!-- none -->\n").await?;
    run().await?;
    assert_eq!(world.came(4).await?, (Status::OkEmpty, Some("empty-heartbeat-file".to_owned())));

    assert_eq!(world.beaten().len(), 0);
    Ok(())
}

#[tokio::test]
async fn while_its_owner_is_answered_a_heart_waits_and_then_leaves_a_beat_out() -> anyhow::Result<()>
{
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.model.queue([Reply::hang(Duration::from_secs(300))]);
    world.send(world.owners("think long")).await?;
    world.until("it thinks", async || world.beaten().len() == 1).await?;

    world.tick().await?;
    let waits = "select count(*) from schedule.firings
                 where state = 'pending' and not held and offer_at > now() + interval '30 s'";
    world.until("it waits", async || world.number(waits).await.is_ok_and(|n| n == 1)).await?;
    assert_eq!(world.lines().await?, []);

    world.admin("update schedule.firings set offer_at = now() where state = 'pending'").await?;
    let busy = (Status::Skipped, Some("requests-in-flight".to_owned()));
    assert_eq!(world.came(1).await?, busy);
    assert_eq!(world.beaten().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_heart_begins_to_beat_with_its_file_and_ends_with_it() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let is = |state: JobState| {
        let world = &world;
        async move || matches!(world.job().await, Ok(Some(job)) if job.state == state)
    };

    world.heartbeat_file(world.agent.id, "# nothing\n").await?;
    world.until("it rests", is(JobState::Paused)).await?;
    assert_eq!(world.job().await?.unwrap().next_due, None);

    world.heartbeat_file(world.agent.id, "- Is the door shut?\n").await?;
    world.until("it beats again", is(JobState::Active)).await?;

    world.set(|heart| heart.enabled = false).await?;
    world.until("it is off", is(JobState::Paused)).await?;

    world.set(|heart| heart.every = "1h".to_owned()).await?;
    world.until("it is on", is(JobState::Active)).await?;
    let spec = world.job().await?.unwrap().spec;
    assert_eq!(spec["schedule"]["every_ms"], json!(3_600_000));
    let marks = "select count(*) from schedule.heartbeat_marks";
    world.until("nothing is left", async || world.number(marks).await.is_ok_and(|n| n == 0)).await
}

/// Number of rows of all tables for which a condition holds. Statistics of tables come too late to be
/// compared.
async fn rows_where(world: &World, condition: &str) -> anyhow::Result<i64> {
    let tables = "select format('%I.%I', schemaname, relname) from pg_stat_user_tables
                  where relname <> 'duties'";
    let counts: Vec<String> = world
        .texts(tables)
        .await?
        .iter()
        .map(|table| format!("(select count(*) from {table} where {condition})"))
        .collect();
    world.number(&format!("select {}", counts.join(" + "))).await
}

#[tokio::test]
async fn an_hour_of_a_thousand_agents_with_nothing_to_look_at_asks_no_model_and_writes_no_row()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner_without_tenant_limits().await?;
    let (_one, _two) = (world.scheduler().await?, world.scheduler().await?);
    // As `create_agent` writes them; their own limit is 500 a tenant.
    world
        .admin(&format!(
            "insert into control.agents (tenant_id, agent_id, name, settings)
             select '{}', gen_random_uuid(), 'agent-' || n, '{{}}' from generate_series(1, 1000) n",
            world.tenant.as_uuid()
        ))
        .await?;
    let empty = include_str!("../../../../crates/workspace/templates/HEARTBEAT.md");
    for agent in world.directory.agents().list(world.tenant).await? {
        world.heartbeat_file(agent.id, empty).await?;
    }
    let marks = "select count(*) from schedule.heartbeat_marks";
    let seen = async || world.number(marks).await.is_ok_and(|count| count == 0);
    world.until("all were looked at", seen).await?;
    let transaction = "select pg_current_xact_id()::text::bigint";
    // What the new files began besides ends before the hour begins.
    let is_quiet = async || {
        let since = world.number(transaction).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        anyhow::Ok(rows_where(&world, &format!("xmin::text::bigint >= {since}")).await? == 0)
    };
    while !is_quiet().await? {}
    let since = world.number(transaction).await?;
    let before = rows_where(&world, "true").await?;

    // Twelve beats at five minutes each, were there any that is due.
    let mut due = 0;
    for _ in 0..12 {
        due += world.tick().await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    tokio::time::sleep(Duration::from_secs(12)).await;

    assert_eq!(due, 0, "nothing is due");
    let is_new = format!("xmin::text::bigint >= {since}");
    assert_eq!(rows_where(&world, &is_new).await?, 0, "rows were written");
    assert_eq!(rows_where(&world, "true").await?, before, "rows were deleted");
    assert_eq!(world.model.count(), 0);
    Ok(())
}

#[tokio::test]
async fn the_heartbeats_of_an_agent_that_sleeps_come_less_and_less_often() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world.set(|heartbeat| heartbeat.every = "1h".to_owned()).await?;
    let hourly = async || {
        world
            .job()
            .await
            .is_ok_and(|job| job.is_some_and(|job| job.spec.to_string().contains("3600000")))
    };
    world.until("it beats every hour", hourly).await?;
    world.model.answer(|_| Reply::text("HEARTBEAT_OK"));
    // Minutes until the next beat. With `delayed_to` it waits until they are at least so many: the
    // delay follows the end in a transaction of its own.
    let beat = async |n: usize, delayed_to: Option<i64>| {
        world.tick().await?;
        world.line(n).await?;
        world.all_ended().await?;
        let minutes = "select (extract(epoch from due_at - clock_timestamp()) / 60)::bigint
                       from schedule.jobs where kind = 'heartbeat'";
        match delayed_to {
            Some(least) => {
                let is_so_late =
                    async || world.number(minutes).await.is_ok_and(|found| found >= least);
                world.until("the next beat is delayed", is_so_late).await?;
            }
            // Time in which it would be delayed.
            None => tokio::time::sleep(Duration::from_millis(500)).await,
        }
        world.number(minutes).await
    };
    assert!(beat(1, None).await? <= 60, "nobody sleeps who was needed today");

    let day_ago = "update session.sessions set updated_at = now() - interval '24 hours'
                   where kind <> 'heartbeat'";
    world.admin(day_ago).await?;
    for (n, wanted) in [(2, 120), (3, 240), (4, 240)] {
        let found = beat(n, Some(wanted - 2)).await?;
        assert!(found <= wanted, "beat {n}: {found} minutes");
    }

    world.owner_speaks("42").await?;
    assert!(beat(5, None).await? <= 60, "the owner has woken it");
    Ok(())
}

#[tokio::test]
async fn two_schedulers_ask_and_send_once() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let _second = world.scheduler().await?;

    for n in 1..=5 {
        world.model.queue([Reply::text(format!("The oven is at {n} degrees."))]);
        world.tick().await?;
        assert_eq!(world.sent().await?.len(), 1);
        world.line(n).await?;
        assert_eq!(world.take_sent().await?, []);
    }

    assert_eq!(world.beaten().len(), 5);
    let told = "select count(*) from session.inbox where source = 'heartbeat'";
    assert_eq!(world.number(told).await?, 5);
    Ok(())
}

#[tokio::test]
async fn no_more_hearts_beat_at_once_than_may() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let _ticking = world.scheduler_with(|own| own.heartbeats = 2).await?;
    world.model.answer(|_| Reply::hang(Duration::from_secs(300)));
    for n in 0..5 {
        let name = holdfast_types::AgentName::new(&format!("other-{n}"));
        let new = holdfast_directory::NewAgent { name, ..Default::default() };
        let made =
            world.directory.agents().create(world.tenant, holdfast_directory::Actor::Operator, new);
        world.heartbeat_file(made.await?.id, "- Is the oven on?\n").await?;
    }
    let on = "select count(*) from schedule.jobs where due_at is not null";
    world.until("all beat", async || world.number(on).await.is_ok_and(|n| n == 5)).await?;

    world.tick().await?;
    world.until("two are asked", async || world.model.count() == 2).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    assert_eq!(world.model.count(), 2);
    let waits = "select count(*) from schedule.firings where state = 'pending'";
    assert_eq!(world.number(waits).await?, 3);
    Ok(())
}

#[tokio::test]
async fn the_model_the_place_and_the_question_are_as_they_are_set() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    world
        .set(|heart| {
            heart.model = Some("fake:other".to_owned());
            heart.prompt = Some("Look: {content}".to_owned());
            heart.target = HeartbeatTarget::Main;
            heart.ack_max_chars = 0;
        })
        .await?;
    world.model.queue([Reply::text("HEARTBEAT_OK all")]);
    world.beats().await?;

    world.tick().await?;
    let sent = world.sent().await?;

    assert_eq!(sent, [(place("42"), "all".to_owned())]);
    let asked = world.beaten();
    assert_eq!(asked[0]["model"], "other");
    let [question] = &user_texts(&asked[0])[..] else { panic!("{asked:?}") };
    assert!(question.contains("Look: <file name="), "{question}");
    Ok(())
}

#[tokio::test]
async fn the_reasoning_is_sent_before_the_answer_only_if_the_settings_include_it()
-> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let reply = |news: &str| Reply::text(format!("<think>It is warm.</think>{news}"));
    world.model.queue([reply("The oven is on."), reply("The oven is still on.")]);

    world.tick().await?;
    let without = world.sent().await?;
    world.set(|heart| heart.include_reasoning = true).await?;
    world.beats().await?;
    world.tick().await?;
    let with = world.sent().await?;

    assert_eq!(without, [(place("42"), "The oven is on.".to_owned())]);
    let text = "Reasoning:\nIt is warm.\n\nThe oven is still on.".to_owned();
    assert_eq!(with, [(place("42"), text)]);
    Ok(())
}

#[tokio::test]
async fn where_nobody_spoke_on_a_channel_what_was_found_stands_in_the_main_session()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let _ticking = world.scheduler().await?;
    world.heartbeat_file(world.agent.id, "- Is the oven on?\n").await?;
    world.beats().await?;
    world.model.queue([Reply::text("The oven is on.")]);

    world.tick().await?;
    let line = world.line(1).await?;

    assert_eq!(line.event.status, Status::Sent);
    assert_eq!(line.event.channel.as_deref(), Some("session"));
    let said = world.send(world.owners("hello")).await?;
    world.text(&said).await?;
    let journal = world.journal(said.session).await?;
    assert!(journal.iter().any(|entry| matches!(entry, Entry::Heard { body, .. }
        if body.text == "The oven is on." && body.role.as_deref() == Some("assistant"))));
    assert_eq!(line.event.to.as_deref(), Some(SessionKey::main(&world.agent.name).as_str()));
    Ok(())
}

#[tokio::test]
async fn what_a_heartbeat_sent_is_the_agents_own_text_however_long_nobody_writes()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    let _ticking = world.scheduler().await?;
    world.heartbeat_file(world.agent.id, "- Is the oven on?\n").await?;
    world.beats().await?;
    world.model.queue([Reply::text("The oven is on.")]);
    world.tick().await?;
    world.line(1).await?;

    // Heartbeats of many days.
    let later = world
        .admin(
            "insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
             select e.tenant_id, e.session_id, e.seq + n * 1000, e.epoch, gen_random_uuid(), e.kind,
                    jsonb_set(e.body, '{text}', '\"All is well.\"')
             from session.entries e join session.sessions s using (tenant_id, session_id)
             cross join generate_series(1, 300) n
             where s.key = 'agent:main:heartbeat' and e.kind = 'thought'",
        )
        .await?;
    let said = world.send(world.owners("hello")).await?;
    world.text(&said).await?;

    assert_eq!(later, 300);
    let journal = world.journal(said.session).await?;
    let news = journal.iter().find_map(|entry| match entry {
        Entry::Heard { body, .. } if body.text == "The oven is on." => Some(body),
        _ => None,
    });
    assert!(!news.unwrap().outside, "{news:?}");
    Ok(())
}

#[tokio::test]
async fn one_that_was_asked_by_a_scheduler_that_died_is_not_asked_again() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let died = Gate::default();
    world.model.queue([Reply::text("The oven is on.").behind(&died)]);
    world.tick().await?;
    let delivered = "select count(*) from schedule.firings where state = 'delivered'";
    let is_out = async || world.number(delivered).await.is_ok_and(|count| count == 1);
    world.until("it is asked", is_out).await?;

    // As a scheduler leaves it that dies between the two.
    world
        .admin(
            "update schedule.firings
             set state = 'pending', held = true, offer_at = now(), until = null, delivered_at = null
             where state = 'delivered'",
        )
        .await?;
    died.open();

    assert_eq!(world.sent().await?.len(), 1);
    assert_eq!(world.came(1).await?.0, Status::Sent);
    world.all_ended().await?;
    let asked = "select count(*) from session.inbox where source = 'schedule'";
    assert_eq!((world.number(asked).await?, world.beaten().len()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn hours_are_those_of_whoever_is_told_if_they_said_where_they_are() -> anyhow::Result<()> {
    let (world, _runner, _ticking) = World::beating("- Is the oven on?\n").await?;
    let (jobs, id) = (world.jobs()?, heartbeat_job(world.agent.id));
    let run = async || {
        world.all_ended().await?;
        jobs.run_now(world.tenant, id, uuid::Uuid::now_v7(), RunMode::Force).await?;
        world.bus.wake_schedule();
        anyhow::Ok(())
    };
    let now = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let hour = |hours: i64| format!("{:02}:00", (now.hour() as i64 + hours).rem_euclid(24));
    // Now is within them on the agent's clock, and nine hours later it is not.
    let hours =
        |zone: HoursZone| Some(ActiveHours { start: hour(-2), end: hour(3), timezone: zone });
    world.send(world.owners("/timezone Asia/Tokyo")).await?;
    let is_set = "select count(*) from session.zones where zone = 'Asia/Tokyo'";
    world.until("it is set", async || world.number(is_set).await.is_ok_and(|n| n == 1)).await?;

    world.set(|heart| heart.active_hours = hours(HoursZone::User)).await?;
    run().await?;
    let user = world.came(1).await?;
    world.set(|heart| heart.active_hours = hours(HoursZone::Local)).await?;
    world.model.queue([Reply::text("HEARTBEAT_OK")]);
    run().await?;
    let local = world.came(2).await?;

    assert_eq!(user, (Status::Skipped, Some("quiet-hours".to_owned())));
    assert_eq!(local, (Status::OkToken, None));
    Ok(())
}

#[tokio::test]
async fn a_stranger_who_alone_writes_to_an_agent_is_not_taken_for_its_owner() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.text(&world.send(world.direct("42", "hi")).await?).await?;
    world.take_sent().await?;
    let _ticking = world.scheduler().await?;
    world.set(|_| {}).await?;
    world.heartbeat_file(world.agent.id, "- Is the oven on?\n").await?;
    world.beats().await?;
    world.model.queue([Reply::text("The oven is on."), Reply::text("The oven is off.")]);

    world.tick().await?;
    let line = world.line(1).await?;
    let to_stranger = world.take_sent().await?;
    let policy = json!({ "owners": ["telegram:42"] });
    let by = holdfast_directory::Actor::Operator;
    world.directory.policies().put(world.tenant, by, None, None, &policy).await?;
    world.tick().await?;
    let to_owner = world.sent().await?;

    assert_eq!(line.event.channel.as_deref(), Some("session"));
    assert_eq!(to_stranger, []);
    assert_eq!(to_owner, [(place("42"), "The oven is off.".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn how_long_a_heartbeat_takes_is_the_databases_to_say() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.owner_speaks("42").await?;
    // For the scheduler the database is two hours behind its own clock.
    world.admin("create schema behind").await?;
    world.admin("grant usage on schema behind to public").await?;
    for name in ["clock_timestamp", "now"] {
        let made = format!(
            "create function behind.{name}() returns timestamptz language sql volatile
             as $$ select pg_catalog.{name}() - interval '2 hours' $$"
        );
        world.admin(&made).await?;
    }
    let mut database = world.database_of("scheduler");
    let url = database.url.expose_secret();
    let and = if url.contains('?') { '&' } else { '?' };
    let behind = "options=-c%20search_path%3Dbehind%2Cpg_catalog%2Cpublic";
    database.url = format!("{url}{and}{behind}").into();
    let _ticking = world.scheduler_over(database, |_| {}).await?;
    world.set(|_| {}).await?;
    world.heartbeat_file(world.agent.id, "- Is the oven on?\n").await?;
    world.beats().await?;
    world.model.latency(Duration::from_secs(3));
    world.model.queue([Reply::text("The oven is on.")]);

    world
        .admin(
            "update schedule.jobs
             set slot_at = now() - interval '2 hours', due_at = now() - interval '2 hours'",
        )
        .await?;
    let sent = world.sent().await?;
    let line = world.line(1).await?;

    assert_eq!(sent.len(), 1);
    assert_eq!((line.event.status, line.event.reason), (Status::Sent, None));
    assert!(line.event.duration_ms < 3_600_000, "{} ms", line.event.duration_ms);
    Ok(())
}
