//! Faults that hit the mesh and its backends until a given moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use holdfast_testkit::backends::Server;
use holdfast_testkit::proxy::{LostAnswers, When, contains};
use holdfast_testkit::{Fault, OwnBackends};
use holdfast_tests::mesh::Mesh;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep};

use crate::storm::LEASE;

/// What happened to the backends.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    pub(crate) postgres: AtomicU64,
    pub(crate) nats: AtomicU64,
    pub(crate) redis: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

pub(crate) fn lose_answers(mesh: &Mesh) -> Vec<(&'static str, LostAnswers)> {
    let commits = |proxy: &holdfast_testkit::Proxy| {
        proxy.lose_answer(When::Chance(0.004), contains("COMMIT"))
    };
    for (faults, plain) in
        [(mesh.fakes.receiver.faults(), false), (mesh.fakes.telegram.faults(), true)]
    {
        faults.sometimes(0.03, Fault::CutAfter);
        faults.sometimes(0.01, Fault::CutBefore);
        faults.sometimes(0.01, Fault::Status(503));
        if plain {
            faults.sometimes(0.01, Fault::RateLimited { retry_after: Duration::from_secs(1) });
        }
    }
    vec![
        ("answers lost after COMMIT, gateways", commits(&mesh.proxies.gateway_database)),
        ("answers lost after COMMIT, runners", commits(&mesh.proxies.runner_database)),
        ("answers lost after COMMIT, bridges", commits(&mesh.proxies.bridge_database)),
        (
            "answers lost after PubAck",
            mesh.proxies.nats.lose_answer(When::Chance(0.02), contains(".evt.")),
        ),
    ]
}

pub(crate) async fn kill(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    let nodes = mesh.nodes();
    while Instant::now() < until {
        sleep(Duration::from_millis(rand::random_range(700..1300))).await;
        nodes[rand::random_range(0..nodes.len())].crash().await?;
    }
    Ok(())
}

pub(crate) async fn pause(mesh: &Mesh, until: Instant) -> anyhow::Result<()> {
    while Instant::now() < until {
        sleep(Duration::from_secs(4)).await;
        pause_one(mesh).await?;
    }
    Ok(())
}

pub(crate) async fn pause_one(mesh: &Mesh) -> anyhow::Result<()> {
    let runner = &mesh.runners[rand::random_range(0..mesh.runners.len())];
    // It may have died a moment ago.
    let _ = runner.pause(LEASE + Duration::from_millis(2500)).await;
    Ok(())
}

pub(crate) async fn crash_postgres(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(14), until, async || {
        backends.kill(Server::Postgres).await?;
        backends.restart(Server::Postgres).await?;
        weather.postgres.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn wipe_nats(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(19), until, async || {
        backends.kill(Server::Nats).await?;
        backends.wipe_nats().await?;
        sleep(Duration::from_secs(1)).await;
        backends.restart(Server::Nats).await?;
        weather.nats.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn crash_redis(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    every(Duration::from_secs(31), until, async || {
        backends.kill(Server::Redis).await?;
        sleep(Duration::from_secs(2)).await;
        backends.restart(Server::Redis).await?;
        weather.redis.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .await
}

pub(crate) async fn flush_redis(
    backends: &OwnBackends,
    weather: &Weather,
    until: Instant,
) -> anyhow::Result<()> {
    let url = &backends.urls().redis_url;
    let addr = url.strip_prefix("redis://").context("not a Redis URL")?.trim_end_matches('/');
    every(Duration::from_secs(1), until, async || {
        // It may be down just now.
        if let Ok(mut redis) = tokio::net::TcpStream::connect(addr).await
            && redis.write_all(b"FLUSHALL\r\n").await.is_ok()
        {
            weather.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
    .await
}

pub(crate) async fn every(
    pause: Duration,
    until: Instant,
    strike: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while Instant::now() + pause < until {
        sleep(pause).await;
        strike().await?;
    }
    Ok(())
}
