//! From what a person asks for to what they are told in time: a runner, schedulers and a model, and
//! processes that end meanwhile.

use std::time::Duration;

use holdfast_directory::{Actor, NewAccount};
use holdfast_schedule::ScheduleLimits;
use holdfast_schedule::store::{JobKind, JobState, NewJob, Outcome, Reminder};
use holdfast_session::SendCapacity;
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{AgentId, Author, DeliveryClass, Entry, JobId, RunnerId};
use jiff::{SignedDuration, Timestamp};
use scheduler::{App, Config, Scheduler};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{Running, World};

impl World {
    /// A scheduler over the same backends, which ends where it stands when it is aborted.
    pub async fn a_scheduler(&self) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
        let runner = self.config();
        let config = Config {
            scheduler: Scheduler { listen: ([127, 0, 0, 1], 0).into(), ..Scheduler::default() },
            database: self.database_of("scheduler"),
            nats: runner.nats,
            ..Config::default()
        };
        Ok(tokio::spawn(App::connect(config).await?.run(CancellationToken::new())))
    }

    /// A runner whose reminders may follow each other quickly.
    async fn quick_runner(&self) -> anyhow::Result<Running> {
        let mut config = self.config();
        config.schedules.reminders_apart = Duration::from_secs(1);
        config.runner.lease = Duration::from_secs(3);
        self.runner_with(config, |app| app).await
    }

    async fn sent_texts(&self) -> anyhow::Result<Vec<String>> {
        self.texts("select body from session.deliveries order by created_at, out_seq").await
    }

    async fn until_sent(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let is_there = async || self.sent_texts().await.is_ok_and(|sent| sent.len() >= count);
        self.until("all of it is sent", is_there).await?;
        self.sent_texts().await
    }

    /// A job of the agent's that is due in a second.
    async fn due_soon(&self, what: Value) -> anyhow::Result<JobId> {
        self.due_soon_by(what, None).await
    }

    /// The same, made by this author.
    pub async fn due_soon_by(
        &self,
        mut what: Value,
        author: Option<Author>,
    ) -> anyhow::Result<JobId> {
        let at = Timestamp::now().checked_add(SignedDuration::from_secs(1))?;
        what["schedule"] = json!({"kind": "at", "at_ms": at.as_millisecond()});
        let what = holdfast_schedule::NewJob::from_json(what)?;
        let allowed = ScheduleLimits {
            min_interval: SignedDuration::ZERO,
            max_lateness: SignedDuration::from_secs(60),
        };
        let agent: AgentId = self.agent.id;
        let new = NewJob::cron(JobId::generate(), agent, None, what, Timestamp::now(), allowed)?;
        Ok(self.jobs()?.add(self.tenant, NewJob { author, ..new }).await?.into_job().id)
    }

    pub async fn until_done(&self, job: JobId) -> anyhow::Result<Outcome> {
        let jobs = self.jobs()?;
        let is_done = async || {
            // A message on a channel is done when it was sent.
            self.take_sent().await.is_ok()
                && jobs.get(self.tenant, job).await.is_ok_and(|job| job.state == JobState::Done)
        };
        self.until("the job is done", is_done).await?;
        let last = jobs.get(self.tenant, job).await?.last;
        last.map(|last| last.outcome).ok_or_else(|| anyhow::anyhow!("it never ran"))
    }
}

/// Sets a reminder when asked to, and the next one when the first fires.
fn coach(asked: &Request) -> Reply {
    let renews = |time: &str| {
        let input = json!({"time": time, "content": "stretch", "auto_continue": true});
        Reply::call("a", "scheduler_add", input.to_string())
    };
    let is_told = asked.messages().last().is_some_and(|last| last["role"] == "tool");
    let text = asked.last_user_text();
    match (text.contains("[Scheduled task fired]"), is_told) {
        (false, false) => renews("in 2 seconds"),
        (false, true) => Reply::text("I will"),
        // The model stops after the second time.
        (true, false) if asked.body.to_string().contains("time to stretch") => {
            Reply::text("stretch again")
        }
        (true, false) => renews("in 2 seconds"),
        (true, true) => Reply::text("time to stretch"),
    }
}

#[tokio::test]
async fn a_reminder_that_the_agent_renews_comes_in_time_and_once_whoever_dies_meanwhile()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(coach);
    let first = world.quick_runner().await?;
    let (one, other) = (world.a_scheduler().await?, world.a_scheduler().await?);

    let words = "remind me in two minutes to stretch, and then decide when to remind me next";
    world.text(&world.send(world.direct("42", words)).await?).await?;
    first.kill();
    one.abort();
    let _second = world.quick_runner().await?;
    let sent = world.until_sent(3).await?;
    let third = world.a_scheduler().await?;
    tokio::time::sleep(Duration::from_secs(3)).await;

    assert_eq!(sent, ["I will", "time to stretch", "stretch again"]);
    assert_eq!(world.sent_texts().await?.len(), 3);
    let chats = world.texts("select distinct target->>'chat' from session.deliveries").await?;
    assert_eq!(chats, ["42"]);
    let jobs = world.all_jobs().await?;
    let mut chain: Vec<u32> = jobs
        .iter()
        .map(|job| job.payload::<Reminder>().map(|reminder| reminder.renewals))
        .collect::<Result<_, _>>()?;
    chain.sort_unstable();
    assert_eq!(chain, [0, 1]);
    assert!(jobs.iter().all(|job| job.owner.as_deref() == Some("telegram:42")));
    other.abort();
    third.abort();
    Ok(())
}

#[tokio::test]
async fn a_single_reminder_is_pushed_once_and_asks_no_model() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.quick_runner().await?;
    let _schedulers = [world.a_scheduler().await?, world.a_scheduler().await?];
    world.model.queue([
        Reply::call("a", "scheduler_add", r#"{"time":"2秒后","content":"喝水"}"#),
        Reply::text("好的"),
    ]);
    world.text(&world.send(world.direct("42", "2秒后提醒我喝水")).await?).await?;
    let asked = world.model.count();

    let sent = world.until_sent(2).await?;

    assert_eq!(sent, ["好的", "⏰ 提醒: 喝水"]);
    let job = world.all_jobs().await?.remove(0).id;
    assert_eq!(world.until_done(job).await?, Outcome::Ok);
    assert_eq!((world.sent_texts().await?.len(), world.model.count()), (2, asked));
    Ok(())
}

#[tokio::test]
async fn a_text_that_is_said_again_and_again_asks_no_model_and_is_a_job_in_the_conversation()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let mut config = world.config();
    config.schedules.apart = Duration::from_secs(1);
    let _runner = world.runner_with(config, |app| app).await?;
    let _scheduler = world.a_scheduler().await?;
    let add = json!({"action": "add", "message": "Drink water.", "every_seconds": 2});
    world.model.queue([Reply::call("a", "cron", add.to_string()), Reply::text("I will")]);
    let wish = holdfast_session::NewMessage {
        target: Some(crate::world::place("7")),
        ..world.owners("tell me to drink, every two seconds")
    };
    let wish = world.send(wish).await?;
    world.text(&wish).await?;
    let asked = world.model.count();

    let sent = world.until_sent(3).await?;

    assert_eq!(sent[..3], ["I will", "Drink water.", "Drink water."]);
    assert_eq!(world.model.count(), asked, "no model is asked");
    let chats = world.texts("select distinct target->>'chat' from session.deliveries").await?;
    assert_eq!(chats, ["7"]);
    let job = world.all_jobs().await?.remove(0);
    assert_eq!((job.kind, job.owner.as_deref()), (JobKind::Every, None));
    assert_eq!(job.spec()?.missed, holdfast_schedule::Missed::Skip);
    let reminders = world.jobs()?.reminders(world.tenant, "owner").await?;
    assert!(reminders.is_empty(), "it counts as no reminder");
    let told = world.journal(wish.session).await?;
    let is_said =
        |entry: &Entry| matches!(entry, Entry::Thought { text, .. } if text == "Drink water.");
    assert!(told.iter().any(is_said), "the agent knows what it said: {told:?}");
    Ok(())
}

#[tokio::test]
async fn a_system_event_waits_for_the_next_prompt_and_one_that_wakes_does_not() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let _runner = world.quick_runner().await?;
    let _scheduler = world.a_scheduler().await?;
    world.model.answer(|_| Reply::text("noted"));
    let event = |text: &str| json!({"kind": "systemEvent", "text": text});
    let hello = holdfast_session::NewMessage {
        target: Some(crate::world::place("7")),
        ..world.owners("hello")
    };
    world.text(&world.send(hello).await?).await?;

    let waits = world.due_soon(json!({"name": "a", "payload": event("tea is ready")})).await?;
    let first = world.until_done(waits).await?;
    let asked = world.model.count();
    let wakes = json!({"name": "b", "payload": event("the house burns"), "wake_mode": "now"});
    let second = world.until_done(world.due_soon(wakes).await?).await?;

    assert_eq!((first, second), (Outcome::Ok, Outcome::Ok));
    assert_eq!((asked, world.model.count()), (1, 2));
    let prompt = world.model.requests().pop().unwrap().body.to_string();
    let (tea, house) = (prompt.find("[system event] tea is ready"), prompt.find("the house burns"));
    assert!(tea.is_some() && tea < house, "{prompt}");
    assert_eq!(world.sent_texts().await?, ["noted", "noted"]);
    Ok(())
}

#[tokio::test]
async fn an_isolated_turn_is_answered_where_its_job_says_and_told_to_the_main_conversation()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.quick_runner().await?;
    let _scheduler = world.a_scheduler().await?;
    world.model.answer(|_| Reply::text("all is well"));
    world.text(&world.send(world.direct("42", "hello")).await?).await?;
    let turn = |channel: &str| json!({"kind": "agentTurn", "message": "look", "channel": channel});
    let job = |channel: &str| {
        json!({"name": "look", "payload": turn(channel), "session_target": "isolated",
               "isolation": {}})
    };

    // Unknown users are not the owner and see nothing until the policy permits it.
    let strangers = world.until_done(world.due_soon(job("last")).await?).await?;
    let policy = json!({ "owners": ["telegram:42"] });
    world.directory.policies().put(world.tenant, Actor::Operator, None, None, &policy).await?;
    let last = world.until_done(world.due_soon(job("last")).await?).await?;
    let nowhere = world.due_soon(job("discord")).await?;
    let log =
        async || world.jobs()?.runs(world.tenant, nowhere, 5).await.map_err(anyhow::Error::from);
    world.until("it is refused", async || log().await.is_ok_and(|log| !log.is_empty())).await?;

    assert_eq!((strangers, last), (Outcome::Ok, Outcome::Ok));
    assert_eq!(log().await?[0].class.as_deref(), Some("no_account"));
    assert_eq!(world.sent_texts().await?, ["all is well", "all is well"]);
    assert_eq!(world.pending_events().await?, ["main Cron: all is well"]);
    Ok(())
}

#[tokio::test]
async fn an_isolated_turn_is_answered_in_the_chat_that_its_job_names() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.quick_runner().await?;
    let _scheduler = world.a_scheduler().await?;
    world.model.answer(|_| Reply::text("all is well"));
    let account = NewAccount {
        channel: "webhook".to_owned(),
        name: "ours".to_owned(),
        enabled: true,
        settings: json!({"url": "https://chat.example/in"}),
        secrets: Some(json!({"secret": "0123456789abcdef0123456789abcdef"})),
    };
    let account = world.directory.accounts().create(world.tenant, Actor::Operator, account).await?;
    let turn = json!({"kind": "agentTurn", "message": "look", "channel": "webhook", "to": "bert"});

    world.due_soon(json!({"name": "look", "payload": turn, "session_target": "isolated"})).await?;

    let bridge = RunnerId::generate();
    let class = DeliveryClass::Keyed { window: Duration::from_secs(86_400) };
    let sent = world
        .until_some("the answer is sent", async || {
            let capacity = SendCapacity::slots(10);
            let deliveries = world.sessions.deliveries();
            deliveries.claim("webhook", class, bridge, &capacity).await.ok()?.pop()
        })
        .await?;
    assert_eq!((sent.target.account, sent.target.chat.as_str()), (account.id, "bert"));
    assert_eq!(sent.text, "all is well");
    assert_eq!(world.sent_texts().await?, ["all is well"]);
    Ok(())
}
