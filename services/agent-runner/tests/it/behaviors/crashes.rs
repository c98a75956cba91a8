//! A message opens a session for work, in which it is planned, done, checked and repaired, with hit
//! points. A runner is killed after every entry of the journals and at every request to the model,
//! in turn: the same todos, worklog, ledger, charges and replies come of it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_runner::Config;
use holdfast_directory::BehaviorSettings;
use holdfast_session::Acceptance;
use holdfast_testkit::{Reply, model::Request};
use holdfast_types::{HitPointSettings, SessionId};
use serde_json::json;

use super::script::{behavior_of, input, play, result};
use crate::{
    economy,
    world::{LONG, World},
};

/// What work leaves behind, without times and ids.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    todos: Vec<String>,
    operations: Vec<String>,
    worklog: Vec<String>,
    ledger: Vec<String>,
    replies: Vec<String>,
    files: BTreeSet<String>,
    runs: i64,
}

/// Hit points without a recovery that a test could notice, and without rounding of bytes.
fn hit_points() -> HitPointSettings {
    HitPointSettings {
        max: 100_000_000,
        recovery_milli: 1,
        per_io_milli: 0,
        ..HitPointSettings::default()
    }
}

/// Opens a session for work, which plays the built-in behaviours.
fn open_and_play(asked: &Request) -> Reply {
    match behavior_of(asked) {
        "route" => result(&json!({
            "next_behavior": "PLAN", "reply": "On it.", "memory_queries": [],
            "new_session": {"title": "The text", "description": "Write the text and the note."},
        })),
        _ => play(asked),
    }
}

async fn start() -> anyhow::Result<World> {
    let world = World::start().await?;
    world
        .change_agent(|agent| {
            agent.settings.behaviors = Some(BehaviorSettings::default());
            agent.settings.hit_points = Some(hit_points());
        })
        .await?;
    Ok(world)
}

/// Condition for rows of the session that got the message, and of the one that was opened for it.
fn of_both(session: SessionId) -> String {
    format!(
        "session_id in (select session_id from session.sessions where session_id = '{}' \
                        or key like 'agent:main:work:{session}-%')",
        session.as_uuid()
    )
}

async fn traces(world: &World, session: SessionId) -> anyhow::Result<Traces> {
    let both = of_both(session);
    let lists = both.replacen("session_id", "list_id", 1);
    let list = async |sql: &str| world.texts(&sql.replace("$1", &lists).replace("$2", &both)).await;
    let mut files = BTreeSet::new();
    for file in world.workspaces.list(world.tenant, world.agent.id, None, None).await? {
        if file.path.as_str().ends_with("out.txt") || file.path.as_str().ends_with("note.txt") {
            files.extend(world.file(file.path.as_str()).await?);
        }
    }
    Ok(Traces {
        todos: list(
            "select number || ' ' || kind || ' ' || status from work.todos where $1 order by number",
        )
        .await?,
        operations: list(
            "select ops::text || results::text from work.todo_ops where $1 order by list_id, seq",
        )
        .await?,
        worklog: list(
            "select type || ' ' || behavior || ' ' || step || ' ' || status || ' ' || commit_state \
             from work.worklog where $1 and commit_state <> 'ABORTED' order by list_id, seq",
        )
        .await?,
        ledger: list(
            "select kind || ' ' || name || ' ' || outcome || ' ' || count(*) from work.ledger \
             where $2 and kind <> 'hit_points' group by kind, name, outcome order by 1",
        )
        .await?,
        // The two sessions write side by side, so their deliveries are in no certain order.
        replies: list("select body from session.deliveries where $2 order by body").await?,
        files,
        runs: world.number(&format!("select count(*) from session.runs where {both}")).await?,
    })
}

/// All that the journals of the work say is charged, once.
async fn check_charge(world: &World, session: SessionId) -> anyhow::Result<()> {
    let both = of_both(session);
    let ids = format!("select session_id::text from session.sessions where {both}");
    let mut journal = Vec::new();
    for id in world.texts(&ids).await? {
        journal.extend(world.journal(id.parse::<uuid::Uuid>()?.into()).await?);
    }
    let charged = world
        .number(&format!(
            "select coalesce(sum(amount), 0)::bigint from work.ledger
             where kind = 'hit_points' and {both}"
        ))
        .await?;
    assert_eq!(charged.unsigned_abs(), economy::cost(&hit_points(), &journal));
    Ok(())
}

/// Waits until the work has ended in the session that was opened for it.
async fn end_of_work(world: &World, sent: &Acceptance) -> anyhow::Result<()> {
    let both = of_both(sent.session);
    let told = format!("select body from session.deliveries where {both}");
    let busy = format!(
        "select count(*) from session.session_lease where {both} and state in ('READY', 'RUNNING')"
    );
    world
        .until("the work has ended", async || {
            world.texts(&told).await.is_ok_and(|told| told.iter().any(|t| t == "All is done."))
                && world.number(&busy).await.is_ok_and(|busy| busy == 0)
        })
        .await
}

async fn entries(world: &World, session: SessionId) -> anyhow::Result<i64> {
    let both = of_both(session);
    world.number(&format!("select count(*) from session.entries where {both}")).await
}

/// Settings with which another runner soon takes over.
fn impatient(world: &World) -> Config {
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(100);
    config
}

/// Number of requests whose step was told that the work was interrupted.
fn goes_on_count(world: &World) -> usize {
    let text = "look at the files before you trust the worklog";
    world.model.requests().iter().filter(|asked| input(asked).contains(text)).count()
}

async fn begin(world: &World, name: &str) -> anyhow::Result<Acceptance> {
    world.send(world.on_channel(name, "write the text and the note")).await
}

#[tokio::test]
async fn a_runner_killed_after_any_odd_entry_changes_nothing_of_what_comes_of_it()
-> anyhow::Result<()> {
    kill_after_entries(1).await
}

#[tokio::test]
async fn a_runner_killed_after_any_even_entry_changes_nothing_of_what_comes_of_it()
-> anyhow::Result<()> {
    kill_after_entries(2).await
}

/// Kills a runner after every second entry of the journal.
async fn kill_after_entries(first: i64) -> anyhow::Result<()> {
    let world = start().await?;
    world.model.answer(open_and_play);
    let whole = {
        let runner = world.runner().await?;
        let sent = begin(&world, "whole").await?;
        end_of_work(&world, &sent).await?;
        check_charge(&world, sent.session).await?;
        let whole = (traces(&world, sent.session).await?, entries(&world, sent.session).await?);
        runner.stop().await?;
        whole
    };
    assert_eq!(whole.0.replies, ["All is done.", "On it."]);
    assert_eq!(whole.0.todos, ["1 task DONE", "2 task DONE", "3 bench DONE"]);

    let mut count = first;
    while count < whole.1 {
        let name = format!("s{count}");
        let runner = world.runner_with(impatient(&world), |app| app).await?;
        let sent = begin(&world, &name).await?;
        let started = tokio::time::Instant::now();
        while entries(&world, sent.session).await? < count {
            anyhow::ensure!(started.elapsed() < LONG, "entry {count} is not written");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        runner.kill();
        let other = world.runner_with(impatient(&world), |app| app).await?;
        end_of_work(&world, &sent).await?;

        assert_eq!(traces(&world, sent.session).await?, whole.0, "after entry {count}");
        check_charge(&world, sent.session).await?;
        other.kill();
        count += 2;
    }
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_runner_killed_at_any_request_changes_nothing_of_what_comes_of_it() -> anyhow::Result<()>
{
    let world = start().await?;
    // The request with this number is not answered; 0 answers all.
    let (hangs, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (hanging, counting) = (Arc::clone(&hangs), Arc::clone(&asked));
    world.model.answer(move |request| {
        let number = counting.fetch_add(1, Ordering::SeqCst) + 1;
        match number == hanging.load(Ordering::SeqCst) {
            true => Reply::hang(Duration::from_secs(300)),
            false => open_and_play(request),
        }
    });
    let first = world.runner().await?;
    let sent = begin(&world, "whole").await?;
    end_of_work(&world, &sent).await?;
    let whole = traces(&world, sent.session).await?;
    let requests = asked.load(Ordering::SeqCst);
    first.stop().await?;
    assert_eq!(requests, 11);

    for number in 1..=requests {
        let name = format!("s{number}");
        asked.store(0, Ordering::SeqCst);
        hangs.store(number, Ordering::SeqCst);
        let before = goes_on_count(&world);
        let runner = world.runner_with(impatient(&world), |app| app).await?;
        let sent = begin(&world, &name).await?;
        world.until("the request is made", async || asked.load(Ordering::SeqCst) == number).await?;
        runner.kill();
        let other = world.runner_with(impatient(&world), |app| app).await?;
        end_of_work(&world, &sent).await?;

        assert_eq!(traces(&world, sent.session).await?, whole, "at request {number}");
        check_charge(&world, sent.session).await?;
        // Before the first answer of the work nothing was begun.
        assert_eq!(goes_on_count(&world) > before, number > 2, "at request {number}");
        other.kill();
    }
    Ok(())
}
