//! Cost of one turn: CPU time of each process, and commits.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    Pace,
    client::{Client, Load, unique_session},
    database,
    mesh::Mesh,
    models::Model,
    report::{Line, Unit, float},
    spent::Spent,
};

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let mut lines = cpu(mesh, &client, pace).await?;
    lines.extend(commits(mesh, &client, pace).await?);
    Ok(lines)
}

async fn cpu(mesh: &Mesh, client: &Client, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let load = Load {
        parallel: 8,
        model: Model::Instant,
        warm_up: pace.seconds(3, 1),
        time: pace.seconds(15, 3),
    };
    let loaded = load.run(client, async || Spent::so_far(mesh)).await?;
    let spent = loaded.seen.1.since(&loaded.seen.0);
    let line = |what: String, used: Duration| {
        let millis = used.as_secs_f64() * 1000.0 / float(loaded.turns);
        Line::new(what, millis, Unit::Millis)
    };
    let mut lines = vec![
        line("CPU of gateway, runner and bridge".to_owned(), spent.own())
            .at_most(2.5)
            .note(format!("8 parallel, instant model, {} turns", loaded.turns)),
        line("CPU with Postgres, NATS and Redis".to_owned(), spent.all()).at_most(4.5),
    ];
    lines.extend(spent.each().map(|(name, used)| line(format!("  {name}"), used)));
    Ok(lines)
}

async fn commits(mesh: &Mesh, client: &Client, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let mut admin = mesh.admin().await?;
    let (turns, session) = (pace.count(500, 50), unique_session("commits"));
    sleep(database::STATS_DELAY).await;
    let before = database::transactions(&mut admin).await?;
    for _ in 0..turns {
        client.turn(0, Model::Instant, &session).await?;
    }
    let written = database::transactions(&mut admin).await?.writing - before.writing;
    sleep(database::STATS_DELAY).await;
    let all = database::transactions(&mut admin).await?.all - before.all;

    let line = |what: &str, count: i64| {
        anyhow::Ok(Line::new(what, float(count.try_into()?) / float(turns), Unit::PerTurn))
    };
    Ok(vec![
        line("commits that write", written)?.note(format!("one session, {turns} turns")),
        line("transactions in all", all)?.note("with those of polls and probes meanwhile"),
    ])
}
