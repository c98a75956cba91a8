//! A runner is killed after every entry of the journal and at every request to the model, in turn:
//! the same todos, worklog, ledger and replies come of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_runner::Config;
use holdfast_session::Acceptance;
use holdfast_testkit::Reply;
use holdfast_types::SessionId;

use super::script::play;
use crate::world::{LONG, World};

/// What work leaves behind, without times and ids.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    todos: Vec<String>,
    operations: Vec<String>,
    worklog: Vec<String>,
    ledger: Vec<String>,
    replies: Vec<String>,
    files: Vec<Option<String>>,
    runs: i64,
}

async fn traces(world: &World, name: &str, session: SessionId) -> anyhow::Result<Traces> {
    let id = session.as_uuid();
    let list = |sql: &str| world_texts(world, sql.replace("$1", &format!("'{id}'")));
    Ok(Traces {
        todos: world.todos(session).await?,
        operations: list(
            "select ops::text || results::text from work.todo_ops where list_id = $1 order by seq",
        )
        .await?,
        worklog: list(
            "select type || ' ' || behavior || ' ' || step || ' ' || status || ' ' || commit_state \
             from work.worklog where list_id = $1 and commit_state <> 'ABORTED' order by seq",
        )
        .await?,
        ledger: list(
            "select kind || ' ' || name || ' ' || outcome || ' ' || count(*) from work.ledger \
             where session_id = $1 group by kind, name, outcome order by 1",
        )
        .await?,
        replies: world.told_in(session).await?,
        files: vec![
            world.file(&format!("people/api={name}/out.txt")).await?,
            world.file(&format!("people/api={name}/note.txt")).await?,
        ],
        runs: world
            .number(&format!("select count(*) from session.runs where session_id = '{id}'"))
            .await?,
    })
}

async fn world_texts(world: &World, sql: String) -> anyhow::Result<Vec<String>> {
    world.texts(&sql).await
}

async fn entries(world: &World, session: SessionId) -> anyhow::Result<i64> {
    let id = session.as_uuid();
    world.number(&format!("select count(*) from session.entries where session_id = '{id}'")).await
}

/// Settings with which another runner soon takes over.
fn impatient(world: &World) -> Config {
    let mut config = world.config();
    config.runner.lease = Duration::from_secs(1);
    config.runner.sweep = Duration::from_millis(100);
    config
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
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    world.model.answer(play);
    let whole = {
        let runner = world.runner_with(impatient(&world), |app| app).await?;
        let sent = begin(&world, "whole").await?;
        world.text(&sent).await?;
        let whole =
            (traces(&world, "whole", sent.session).await?, entries(&world, sent.session).await?);
        runner.stop().await?;
        whole
    };
    assert_eq!(whole.0.replies, ["On it.", "All is done."]);

    let mut count = first;
    while count < whole.1 {
        let name = format!("s{count}");
        let runner = world.runner_with(impatient(&world), |app| app).await?;
        let sent = begin(&world, &name).await?;
        let started = tokio::time::Instant::now();
        while entries(&world, sent.session).await? < count {
            anyhow::ensure!(started.elapsed() < LONG, "entry {count} is not written");
        }
        runner.kill();
        let other = world.runner_with(impatient(&world), |app| app).await?;
        world.text(&sent).await?;

        assert_eq!(traces(&world, &name, sent.session).await?, whole.0, "after entry {count}");
        other.kill();
        count += 2;
    }
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}

#[tokio::test]
async fn a_runner_killed_at_any_request_changes_nothing_of_what_comes_of_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    world.use_behaviors(|_| {}).await?;
    // The request with this number is not answered; 0 answers all.
    let (hangs, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (hanging, counting) = (Arc::clone(&hangs), Arc::clone(&asked));
    world.model.answer(move |request| {
        let number = counting.fetch_add(1, Ordering::SeqCst) + 1;
        match number == hanging.load(Ordering::SeqCst) {
            true => Reply::hang(Duration::from_secs(300)),
            false => play(request),
        }
    });
    let first = world.runner_with(impatient(&world), |app| app).await?;
    let sent = begin(&world, "whole").await?;
    world.text(&sent).await?;
    let whole = traces(&world, "whole", sent.session).await?;
    let requests = asked.load(Ordering::SeqCst);
    first.stop().await?;
    assert_eq!(requests, 11);

    for number in 1..=requests {
        let name = format!("s{number}");
        asked.store(0, Ordering::SeqCst);
        hangs.store(number, Ordering::SeqCst);
        let runner = world.runner_with(impatient(&world), |app| app).await?;
        let sent = begin(&world, &name).await?;
        world.until("the request is made", async || asked.load(Ordering::SeqCst) == number).await?;
        runner.kill();
        let other = world.runner_with(impatient(&world), |app| app).await?;
        world.text(&sent).await?;

        assert_eq!(traces(&world, &name, sent.session).await?, whole, "at request {number}");
        other.kill();
    }
    Ok(())
}
