//! An agent gives tasks to subagents and is told how they ended, also after crashes.

use std::time::Duration;

use holdfast_session::{SubagentOutcome, TurnOutcome};
use holdfast_testkit::{
    Reply,
    model::{Gate, Request},
};
use holdfast_types::{Entry, Note, SessionId};

use crate::world::{World, place};

const SPAWN: &str = r#"{"task":"count the stars","label":"stars"}"#;

/// Asks for a subagent when told to, and speaks of its end; as the subagent, counts.
fn script(spawn: &'static str) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |asked| match asked.last_user_text().as_str() {
        text if text.contains("count the stars") => Reply::text("about seven"),
        text if text.contains("just completed") => Reply::text("there are about seven stars"),
        text if text.contains("just ") => Reply::text("it did not work out"),
        _ if asked.tool_results().is_empty() => Reply::call("a", "sessions_spawn", spawn),
        _ => Reply::text("I asked somebody"),
    }
}

async fn ended(world: &World, session: SessionId) -> anyhow::Result<SubagentOutcome> {
    world
        .until("the subagent's end is announced", async || {
            let announced = "select count(*) from session.subagents where announced_at is not null";
            world.number(announced).await.is_ok_and(|n| n == 1)
        })
        .await?;
    let children = world.sessions.subagents().children(world.tenant, session).await?;
    children[0].outcome.ok_or_else(|| anyhow::anyhow!("{children:?}"))
}

async fn last_answer(world: &World, session: SessionId, expected: &str) -> anyhow::Result<()> {
    world
        .until("the session that asked speaks of it", async || {
            let journal = world.journal(session).await.unwrap_or_default();
            matches!(journal.last(), Some(Entry::Thought { text, .. }) if text == expected)
        })
        .await
}

#[tokio::test]
async fn a_task_is_done_beside_and_its_end_told_where_it_was_asked_for() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (counted, scripted) = (Gate::default(), script(SPAWN));
    let gate = counted.clone();
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "count the stars" => scripted(asked).behind(&gate),
        _ => scripted(asked),
    });
    let _runner = world.runner().await?;
    let mut said = world.message("s", "please count");
    said.target = Some(place("42"));

    let sent = world.send(said).await?;
    let first = world.text(&sent).await?;
    // An end that is told before the turn has answered is heard by that turn.
    counted.open();
    let outcome = ended(&world, sent.session).await?;
    last_answer(&world, sent.session, "there are about seven stars").await?;

    assert_eq!(first, "I asked somebody");
    assert_eq!(outcome, SubagentOutcome::Ok);
    let texts = world.texts("select body from session.deliveries order by out_seq").await?;
    assert_eq!(texts, ["I asked somebody", "there are about seven stars"]);
    let requests = world.model.requests();
    let child = requests.iter().find(|r| r.last_user_text() == "count the stars").unwrap();
    let told = child.body.to_string();
    assert!(told.contains("# Subagent Context"), "{told}");
    assert!(told.contains("You are NOT the main agent"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_task_that_uses_up_what_it_may_is_said_to_have_failed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let spawn = r#"{"task":"count the stars","label":"stars","max_steps":1}"#;
    let scripted = script(spawn);
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "count the stars" => Reply::call("b", "session_status", "{}"),
        _ => scripted(asked),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;

    assert_eq!(ended(&world, sent.session).await?, SubagentOutcome::Error);
    last_answer(&world, sent.session, "it did not work out").await?;
    let child = world.sessions.subagents().children(world.tenant, sent.session).await?.remove(0);
    assert_eq!(child.error, "budget exceeded: steps");
    Ok(())
}

#[tokio::test]
async fn a_task_that_outlives_its_time_is_ended_and_said_to_have_timed_out() -> anyhow::Result<()> {
    let world = World::start().await?;
    let scripted = script(r#"{"task":"count the stars","label":"stars","run_timeout_seconds":1}"#);
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "count the stars" => Reply::hang(Duration::from_secs(30)),
        _ => scripted(asked),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;

    let outcome = ended(&world, sent.session).await?;
    assert!(matches!(outcome, SubagentOutcome::Timeout | SubagentOutcome::Error), "{outcome:?}");
    let after = "select (extract(epoch from announced_at - deadline_at) * 1000)::bigint
                 from session.subagents";
    let after = world.number(after).await?;
    assert!((0..25_000).contains(&after), "announced {after} ms after its limit");
    last_answer(&world, sent.session, "it did not work out").await?;
    let running = "select count(*) from session.session_lease where state = 'RUNNING'";
    world
        .until("nothing runs any more", async || {
            world.number(running).await.is_ok_and(|running| running == 0)
        })
        .await
}

#[tokio::test]
async fn a_subagent_that_was_for_once_is_named_after_its_task_and_leaves_no_session()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let spawn = r#"{"task":"count the stars that are seen from the north pole in one night",
                    "cleanup":"delete"}"#;
    world.model.answer(script(spawn));
    let _runner = world.runner().await?;

    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;
    last_answer(&world, sent.session, "about seven").await?;

    let label = "count the stars that are seen from the north pole ...";
    assert_eq!(world.texts("select label from session.subagents").await?, [label]);
    let told = "select body->>'text' from session.inbox where body->>'event' = 'subagent'";
    let told = world.texts(told).await?;
    assert!(told[0].contains(label), "{told:?}");
    assert!(told[0].contains("[Stats: duration="), "{told:?}");
    let limit = "select round(extract(epoch from deadline_at - started_at))::bigint
                 from session.subagents";
    assert_eq!(world.number(limit).await?, 3600);
    let gone = async || {
        let left = "select count(*) from session.sessions where kind = 'subagent'";
        world.number(left).await.is_ok_and(|left| left == 0)
    };
    world.until("its session is deleted", gone).await
}

#[tokio::test]
async fn a_runner_that_dies_with_a_task_loses_neither_the_task_nor_its_end() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(SPAWN));
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    let first = world.runner_with(config.clone(), |app| app).await?;
    world.model.latency(Duration::from_millis(400));

    let sent = world.say("s", "please count").await?;
    world
        .until("the task was given", async || {
            world.number("select count(*) from session.subagents").await.is_ok_and(|n| n == 1)
        })
        .await?;
    first.kill();
    let _second = world.runner_with(config, |app| app).await?;

    assert_eq!(world.answer(&sent).await?.outcome, Some(TurnOutcome::Completed));
    assert_eq!(ended(&world, sent.session).await?, SubagentOutcome::Ok);
    last_answer(&world, sent.session, "there are about seven stars").await?;
    assert_eq!(world.number("select count(*) from session.subagents").await?, 1);
    let told = "select count(*) from session.inbox where body->>'event' = 'subagent'";
    assert_eq!(world.number(told).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_subagent_whose_task_is_deleted_does_nothing_more_and_says_why() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (counted, scripted) = (Gate::default(), script(SPAWN));
    let gate = counted.clone();
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "count the stars" => scripted(asked).behind(&gate),
        _ => scripted(asked),
    });
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(2);
    let first = world.runner_with(config.clone(), |app| app).await?;
    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;
    let asked = || {
        let requests = world.model.requests();
        requests.iter().filter(|one| one.last_user_text() == "count the stars").count()
    };
    world.until("the subagent is at work", async || asked() == 1).await?;
    first.kill();

    let child = world.sessions.subagents().children(world.tenant, sent.session).await?.remove(0);
    world.admin("delete from session.subagents").await?;
    counted.open();
    let _second = world.runner_with(config, |app| app).await?;
    let ended = "select reason from session.inbox where state = 'done' and outcome = 'failed'";
    world
        .until("the subagent's turn ends", async || {
            world.texts(ended).await.is_ok_and(|reasons| reasons == ["no_task"])
        })
        .await?;

    assert_eq!(asked(), 1, "nothing bounds it, so the model is not asked again");
    let last = world.journal(child.session).await?.pop();
    let Some(Entry::Noted { note: Note::Failed, text, .. }) = last else {
        anyhow::bail!("{last:?}")
    };
    assert!(text.contains("this subagent's task is deleted"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_end_that_cannot_be_announced_holds_up_no_other() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(SPAWN));
    let broken = world.say("broken", "hello").await?;
    // More than are read at once; none can be announced, because their requester has no valid key.
    let sql = format!(
        "with requester as (
             update session.sessions set key = '?' where session_id = '{}' returning tenant_id)
         insert into session.subagents
             (tenant_id, session_id, parent_id, label, task, cleanup, deadline_at, outcome)
         select tenant_id, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{}',
                'x', 'x', 'keep', now(), 'ok'
         from requester, generate_series(1, 70) as n",
        broken.session.as_uuid(),
        broken.session.as_uuid(),
    );
    assert_eq!(world.admin(&sql).await?, 70);
    world.admin("update session.session_lease set paused = 'user'").await?;
    let _runner = world.runner().await?;

    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;

    last_answer(&world, sent.session, "there are about seven stars").await
}

#[tokio::test]
async fn turns_end_although_each_pool_has_one_connection() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(script(SPAWN));
    let mut config = world.config();
    config.database.pool_size = 1;
    config.database.system_pool_size = 1;
    // A transaction that waits for a second connection would wait for longer than this test.
    config.database.acquire_timeout = Duration::from_secs(600);
    config.database.statement_timeout = Duration::from_secs(600);
    let _runner = world.runner_with(config, |app| app).await?;

    let mut sent = Vec::new();
    for n in 0..6 {
        sent.push(world.say(&format!("s{n}"), "please count").await?);
    }

    for one in &sent {
        last_answer(&world, one.session, "there are about seven stars").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_subagent_makes_none_and_nobody_is_asked_who_may_not_be() -> anyhow::Result<()> {
    let world = World::start().await?;
    let other = holdfast_directory::NewAgent {
        name: holdfast_types::AgentName::new("other"),
        ..holdfast_directory::NewAgent::default()
    };
    let actor = holdfast_directory::Actor::Operator;
    world.directory.agents().create(world.tenant, actor, other).await?;
    let scripted = script(SPAWN);
    world.model.answer(move |asked| match asked.last_user_text().as_str() {
        "count the stars" if asked.tool_results().is_empty() => {
            Reply::call("b", "sessions_spawn", SPAWN)
        }
        "ask the other" if asked.tool_results().is_empty() => {
            Reply::call("c", "sessions_spawn", r#"{"task":"x","agent_id":"other"}"#)
        }
        "ask the other" => Reply::text(asked.tool_results()[0].1.clone()),
        _ => scripted(asked),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "please count").await?;
    world.text(&sent).await?;
    ended(&world, sent.session).await?;
    assert_eq!(world.number("select count(*) from session.subagents").await?, 1);

    let refused = world.ask("t", "ask the other").await?;
    assert!(refused.contains("may not give tasks to `other`"), "{refused}");
    Ok(())
}
