//! WebSocket connections: memory and CPU time of idle ones, turns over active ones, a slow reader.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::{StreamExt as _, stream};
use holdfast_tests::websocket::{Socket, Wants};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Pace,
    client::unique_session,
    mesh::{Mesh, Service},
    models::Model,
    report::{Line, Unit, float},
    stats::Samples,
    usage::{self, Resident},
};

/// Handshakes at once.
const OPENING: usize = 32;
/// How long connections are left alone before the gateway's memory is read.
const REST_TIME: Duration = Duration::from_secs(5);
/// Time from one message of an active connection to its next.
const TURN_INTERVAL: Duration = Duration::from_secs(10);

pub async fn measure(mesh: &mut Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    mesh.relaunch().await?;
    let (idle, active) = (pace.count(10_000, 500), pace.count(500, 50));
    let gateway = mesh.pid(Service::Gateway)?;
    // Once for what is loaded with the first connections.
    drop(open(mesh, 50, Wants::Own).await?);
    sleep(REST_TIME).await;
    let before = Resident::of(gateway)?.own;
    let begun = Instant::now();
    let mut sleepers = JoinSet::new();
    for mut socket in open(mesh, idle, Wants::Own).await? {
        sleepers.spawn(async move { socket.idle().await });
    }
    let opening = begun.elapsed();
    sleep(REST_TIME).await;
    let memory = (Resident::of(gateway)?.own - before) * 1024.0 / float(idle);

    let watched = pace.seconds(60, 5);
    let used = usage::cpu(gateway)?;
    sleep(watched).await;
    let used = usage::cpu(gateway)? - used;
    ensure!(sleepers.try_join_next().is_none(), "the gateway ended an idle connection");

    let sockets = open(mesh, active, Wants::Own).await?;
    let time = pace.seconds(60, 10);
    let (sockets, alone) = turns(sockets, time).await?;
    // Reads nothing after its handshake, and wants everything.
    let slow = open(mesh, 1, Wants::All).await?;
    let (_, beside) = turns(sockets, time).await?;
    drop(slow);

    let rate = float(active) / TURN_INTERVAL.as_secs_f64();
    let turn = |who: &str, samples: &Samples, permille: usize| {
        let what = format!("turn, {active} active connections{who}, p{}", permille / 10);
        Line::millis(what, samples.permille(permille))
    };
    Ok(vec![
        Line::new(format!("memory of one of {idle} idle connections"), memory, Unit::Kilobytes)
            .at_most(20.0)
            .note("the gateway's own memory, without the kernel's"),
        Line::new(
            format!("CPU of {idle} idle connections"),
            100.0 * used.as_secs_f64() / watched.as_secs_f64(),
            Unit::Percent,
        )
        .note("of one processor"),
        Line::new("handshakes", float(idle) / opening.as_secs_f64(), Unit::PerSecond),
        turn("", &alone, 500)
            .note(format!("{rate:.0} turns a second, a model that answers at once")),
        turn("", &alone, 990),
        turn(" beside a slow reader", &beside, 500),
        turn(" beside a slow reader", &beside, 990),
    ])
}

async fn open(mesh: &Mesh, count: usize, wants: Wants) -> anyhow::Result<Vec<Socket>> {
    let (at, key) = (mesh.http(), mesh.tenant.key.clone());
    let opening = stream::iter(0..count).map(|nth| {
        let key = key.clone();
        async move { Socket::open(at, &key, nth, wants).await }
    });
    let opened: Vec<_> = opening.buffer_unordered(OPENING).collect().await;
    opened.into_iter().collect()
}

/// Has each connection send a message in its own session every few seconds.
async fn turns(sockets: Vec<Socket>, time: Duration) -> anyhow::Result<(Vec<Socket>, Samples)> {
    let (agent, name) = (Model::Instant.name(), Arc::<str>::from(unique_session("active")));
    let count = u32::try_from(sockets.len())?;
    let mut callers = JoinSet::new();
    for (nth, mut socket) in (0_u32..).zip(sockets) {
        let name = Arc::clone(&name);
        callers.spawn(async move {
            let session = format!("agent:{agent}:{name}-{nth}");
            sleep(TURN_INTERVAL * nth / count).await;
            let (begun, mut taken) = (Instant::now(), Vec::new());
            while begun.elapsed() < time {
                let due = Instant::now() + TURN_INTERVAL;
                taken.push(socket.turn(&session, "Which train should I take?").await?);
                tokio::time::sleep_until(due).await;
            }
            anyhow::Ok((socket, taken))
        });
    }
    let (mut sockets, mut taken) = (Vec::new(), Vec::new());
    while let Some(caller) = callers.join_next().await {
        let (socket, times) = caller??;
        sockets.push(socket);
        taken.extend(times);
    }
    Ok((sockets, taken.into_iter().collect()))
}
