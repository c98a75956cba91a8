//! A runner with nothing to do does next to nothing, and says that it is well.

use std::time::Duration;

use holdfast_testkit::{Reply, model::Gate};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::World;

pub async fn get(address: std::net::SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn an_idle_runner_writes_no_row_and_asks_no_model() -> anyhow::Result<()> {
    // One row for the whole installation is written once in half a lease: who does the upkeep.
    const WRITTEN: &str = "select (sum(n_tup_ins + n_tup_upd + n_tup_del))::bigint
                           from pg_stat_user_tables where relname <> 'duties'";
    let world = World::start().await?;
    let runner = world.runner_without_tenant_limits().await?;
    world.ask("s", "hello").await?;
    // A connection reports its statistics at the end of a transaction, but not twice within a
    // second: the rest is reported after ten idle seconds.
    let (mut before, mut still) = (world.number(WRITTEN).await?, 0);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = world.number(WRITTEN).await?;
        still = if std::mem::replace(&mut before, now) == now { still + 1 } else { 0 };
        if still == 6 {
            break;
        }
    }
    let asked = world.model.count();

    tokio::time::sleep(Duration::from_secs(4)).await;

    assert_eq!(world.number(WRITTEN).await?, before);
    assert_eq!(world.model.count(), asked);
    assert!(get(runner.address, "/healthz").await?.starts_with("HTTP/1.0 200"));
    assert!(get(runner.address, "/readyz").await?.starts_with("HTTP/1.0 200"));
    Ok(())
}

#[tokio::test]
async fn a_runner_that_stops_takes_no_more_work_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let held = Gate::default();
    world.model.queue([Reply::text("well").behind(&held)]);
    let mut config = world.config();
    config.runner.shutdown_grace = Duration::from_secs(60);
    let runner = world.runner_with(config, |app| app).await?;
    world.say("s", "hello").await?;
    world.until("it runs", async || world.model.count() == 1).await?;

    let address = runner.address;
    let stopping = tokio::spawn(runner.stop());
    world
        .until("it says so", async || {
            get(address, "/readyz").await.is_ok_and(|answer| answer.contains("draining"))
        })
        .await?;
    let late = world.say("t", "late").await?;
    held.open();
    stopping.await??;

    assert_eq!(world.sessions.views().answer(world.tenant, late.message).await?.outcome, None);
    Ok(())
}
