//! Tools see what their conversation may see, and send once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use holdfast_directory::{Actor, NewAccount};
use holdfast_session::{Acceptance, NewMessage};
use holdfast_testkit::{Reply, model::Gate};
use holdfast_tools::{Call, Tool, ToolError};
use holdfast_types::{Effect, Entry, SessionKey};
use serde_json::json;

use crate::world::{World, place, settings};

/// Tool results of a session.
async fn returned(world: &World, sent: &Acceptance) -> anyhow::Result<Vec<String>> {
    let journal = world.journal(sent.session).await?;
    Ok(journal
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Returned { output, .. } => Some(output),
            _ => None,
        })
        .collect())
}

fn from_owner(world: &World, text: &str) -> NewMessage {
    NewMessage { key: SessionKey::main(&world.agent.name), ..world.message("s", text) }
}

#[tokio::test]
async fn the_owner_sees_all_conversations_and_others_their_own() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.ask("other", "a secret").await?;
    let key = SessionKey::api(&world.agent.name, "other")?;
    let read = json!({ "session": key.as_str() }).to_string();
    world.model.answer(move |request| match request.tool_results().len() {
        0 => Reply::calls([
            ("a".to_owned(), "sessions_history".to_owned(), read.clone()),
            ("b".to_owned(), "sessions_list".to_owned(), "{}".to_owned()),
            ("c".to_owned(), "session_status".to_owned(), "{}".to_owned()),
            ("d".to_owned(), "agents_list".to_owned(), "{}".to_owned()),
        ]),
        _ => Reply::text("done"),
    });

    let owner = world.send(from_owner(&world, "look")).await?;
    world.text(&owner).await?;
    let stranger = world.say("s", "look").await?;
    world.text(&stranger).await?;

    let seen = returned(&world, &owner).await?;
    assert!(seen[0].contains("user: a secret"), "{seen:?}");
    assert_eq!(seen[1].lines().count(), 2, "{seen:?}");
    assert!(seen[2].contains("model: fake:one"), "{seen:?}");
    assert!(seen[3].contains("main"), "{seen:?}");
    let seen = returned(&world, &stranger).await?;
    assert!(seen[0].starts_with("there is no session"), "{seen:?}");
    assert_eq!(seen[1].lines().count(), 1, "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_message_that_was_sent_with_the_tool_is_the_answer() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;
    world.model.queue([Reply::call("a", "message", r#"{"text":"soon"}"#), Reply::text("sent it")]);

    let message = NewMessage { target: Some(place("7")), ..world.message("s", "hello") };
    let sent = world.send(message).await?;

    assert_eq!(world.text(&sent).await?, "sent it");
    assert_eq!(world.texts("select body from session.deliveries").await?, ["soon"]);
    Ok(())
}

#[tokio::test]
async fn only_the_owner_may_write_elsewhere() -> anyhow::Result<()> {
    let world = World::start().await?;
    let account = NewAccount {
        channel: "telegram".to_owned(),
        name: "bot".to_owned(),
        enabled: true,
        settings: json!({}),
        secrets: Some(json!({ "token": "1:a" })),
    };
    world.directory.accounts().create(world.tenant, Actor::Operator, account).await?;
    let _runner = world.runner().await?;
    world.model.answer(|request| match request.tool_results().len() {
        0 => Reply::call(
            "a",
            "message",
            r#"{"text":"hi","target":{"channel":"telegram","chat":"99"}}"#,
        ),
        _ => Reply::text("done"),
    });

    let stranger = world.say("s", "write to 99").await?;
    world.text(&stranger).await?;
    assert!(returned(&world, &stranger).await?[0].contains("to itself only"));
    assert_eq!(world.number("select count(*) from session.deliveries").await?, 0);

    let owner = world.send(from_owner(&world, "write to 99")).await?;
    world.text(&owner).await?;
    let sent = world.texts("select target->>'chat' from session.deliveries").await?;
    assert_eq!(sent, ["99"]);
    Ok(())
}

#[tokio::test]
async fn a_tool_that_the_agent_was_not_given_is_neither_offered_nor_made() -> anyhow::Result<()> {
    let world = World::start().await?;
    let only = settings(|settings| settings.tools = Some(vec!["agents_list".to_owned()]));
    world.change_agent(|agent| agent.settings = only).await?;
    world.model.queue([Reply::call("a", "session_status", "{}"), Reply::text("done")]);
    let _runner = world.runner().await?;

    let sent = world.say("s", "hello").await?;
    world.text(&sent).await?;

    assert_eq!(world.model.requests()[0].tool_names(), ["agents_list"]);
    assert!(returned(&world, &sent).await?[0].starts_with("this tool is not one of yours"));
    Ok(())
}

/// Counts its calls, and how many run at once.
#[derive(Clone)]
struct Counting<const ACTS: bool> {
    made: Arc<AtomicU32>,
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl<const ACTS: bool> Counting<ACTS> {
    fn new() -> Self {
        Self { made: Arc::default(), now: Arc::default(), most: Arc::default() }
    }

    async fn make(&self) -> Result<String, ToolError> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok("done".to_owned())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Tool for Counting<false> {
    const NAME: &'static str = "look";
    const EFFECT: Effect = Effect::Reads;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<String, ToolError> {
        self.make().await
    }
}

impl Tool for Counting<true> {
    const NAME: &'static str = "act";
    const EFFECT: Effect = Effect::Acts;
    type Input = Nothing;

    async fn call(&self, _: Call, _: Nothing) -> Result<String, ToolError> {
        self.make().await
    }
}

#[tokio::test]
async fn reads_run_together_and_what_acts_runs_alone_and_is_recorded_before() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let (looks, acts) = (Counting::<false>::new(), Counting::<true>::new());
    let tools = (looks.clone(), acts.clone());
    let _runner =
        world.runner_with(world.config(), |app| app.with_tool(tools.0).with_tool(tools.1)).await?;
    world.model.queue([
        Reply::calls([
            ("a", "look", "{}"),
            ("b", "look", "{}"),
            ("c", "act", "{}"),
            ("d", "act", "{}"),
        ]),
        Reply::text("done"),
    ]);

    let sent = world.say("s", "hello").await?;
    world.text(&sent).await?;

    let count = |count: &AtomicU32| count.load(Ordering::SeqCst);
    assert_eq!((count(&looks.made), count(&looks.most)), (2, 2));
    assert_eq!((count(&acts.made), count(&acts.most)), (2, 1));
    assert_eq!(
        world.kinds(sent.session).await?,
        [
            "heard", "thought", "returned", "returned", "called", "returned", "called", "returned",
            "thought"
        ]
    );
    Ok(())
}

#[tokio::test]
async fn what_was_stored_as_begun_is_done_before_a_pause_takes_effect() -> anyhow::Result<()> {
    let world = World::start().await?;
    let acts = Counting::<true>::new();
    let tool = acts.clone();
    let _runner = world.runner_with(world.config(), |app| app.with_tool(tool)).await?;
    let held = Gate::default();
    world.model.queue([Reply::call("a", "act", "{}").behind(&held), Reply::text("done")]);

    let sent = world.say("s", "hello").await?;
    world.until("it is asked", async || world.model.count() == 1).await?;
    // Seen by no renewal yet: the step that stores the call as begun is the first to be told.
    world.admin("update session.session_lease set paused = 'user'").await?;
    held.open();
    world
        .until("it was given back", async || {
            let held = "select count(*) from session.session_lease where state = 'RUNNING'";
            world.number(held).await.is_ok_and(|held| held == 0)
        })
        .await?;
    world.sessions.resume(world.tenant, sent.session).await?;
    world.text(&sent).await?;

    assert_eq!(acts.made.load(Ordering::SeqCst), 1);
    assert_eq!(returned(&world, &sent).await?, ["done"]);
    Ok(())
}

#[tokio::test]
async fn another_tenants_conversation_is_not_there() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (other, _) = world.directory.tenants().create(Actor::Operator, "other").await?;
    let theirs = world.sessions.ingest(other.id, from_owner(&world, "a secret")).await?;
    let _runner = world.runner().await?;
    let read = json!({ "session": theirs.session }).to_string();
    world.model.queue([Reply::call("a", "sessions_history", read), Reply::text("done")]);

    let sent = world.send(from_owner(&world, "look")).await?;
    world.text(&sent).await?;

    assert!(returned(&world, &sent).await?[0].starts_with("there is no session"));
    Ok(())
}

#[tokio::test]
async fn a_tool_that_was_looked_up_is_offered_from_then_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.queue([
        Reply::call("a", "tool_describe", r#"{"name":"session_status"}"#),
        Reply::text("found it"),
        Reply::text("still have it"),
    ]);
    let _runner = world.runner().await?;

    let first = world.say("s", "how do you stand?").await?;
    world.text(&first).await?;
    let second = world.say("s", "and now?").await?;
    world.text(&second).await?;

    let offered: Vec<bool> = world
        .model
        .requests()
        .iter()
        .map(|request| request.tool_names().contains(&"session_status"))
        .collect();
    assert_eq!(offered, [false, true, true]);
    Ok(())
}
