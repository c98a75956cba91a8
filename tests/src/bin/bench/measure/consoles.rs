//! Open consoles of several tenants: what they cost the gateway while the tenants' agents work.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use futures::{StreamExt as _, stream};
use holdfast_tests::{console::ConsoleSession, websocket::Socket};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Pace,
    client::{at_rate, unique_session},
    mesh::{Mesh, Service, Tenant},
    models::Model,
    report::{Line, Unit, float},
    stats::Samples,
    usage::{self, Resident},
};

/// The gateway permits 200 readers of a tenant's log of events, and each console is one.
const CONSOLES_PER_TENANT: usize = 100;
/// Consoles that are opened at once.
const OPENING: usize = 32;
/// How long the mesh is left alone before the gateway's memory is read.
const REST_TIME: Duration = Duration::from_secs(5);
const TURNS_PER_SECOND: u32 = 5;
/// Conversations in which the turns are.
const CONVERSATIONS: usize = 50;

pub async fn measure(mesh: &mut Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    mesh.relaunch().await?;
    let (count, time) = (pace.count(500, 50), pace.seconds(60, 10));
    let gateway = mesh.pid(Service::Gateway)?;
    let mut tenants = Vec::new();
    for nth in 0..count.div_ceil(CONSOLES_PER_TENANT) {
        tenants.push(mesh.tenant(&unique_session(&format!("consoles-{nth}"))).await?);
    }
    // Once for what is loaded with the first console and the first turns.
    drop(open(mesh, &tenants, 10).await?);
    work(mesh, &tenants, gateway, time / 4).await?;
    let alone = work(mesh, &tenants, gateway, time).await?;
    sleep(REST_TIME).await;
    let before = Resident::of(gateway)?.own;

    let begun = Instant::now();
    let mut consoles = JoinSet::new();
    for mut socket in open(mesh, &tenants, count).await? {
        consoles.spawn(async move { socket.idle().await });
    }
    let opening = begun.elapsed();
    sleep(REST_TIME).await;
    let idle = Resident::of(gateway)?.own;
    let watched = work(mesh, &tenants, gateway, time).await?;
    ensure!(consoles.try_join_next().is_none(), "the gateway ended a console's connection");
    let busy = Resident::of(gateway)?.own;

    let with = format!("{count} consoles");
    let memory = |what: String, memory| Line::new(what, memory, Unit::Megabytes);
    let cpu = |what: String, work: &Work| Line::new(what, work.cpu_percent(), Unit::Percent);
    let turn = |what: &str, work: &Work| {
        Line::millis(format!("turn, {what}, p50"), work.turns.permille(500))
    };
    let per_second = format!("{TURNS_PER_SECOND} turns a second");
    Ok(vec![
        memory("gateway's memory, no console".to_owned(), before)
            .note("its own, without the kernel's"),
        memory(format!("gateway's memory, {with} at rest"), idle),
        memory(format!("gateway's memory, {with} after {per_second}"), busy),
        Line::new(
            "memory of one console",
            (idle - before) * 1024.0 / float(count),
            Unit::Kilobytes,
        ),
        cpu(format!("gateway's CPU, {per_second}, no console"), &alone).note("of one processor"),
        cpu(format!("gateway's CPU, {per_second}, {with}"), &watched),
        turn("no console", &alone),
        turn(&with, &watched),
        Line::new("consoles opened", float(count) / opening.as_secs_f64(), Unit::PerSecond)
            .note("sign-in, four calls, WebSocket with two subscriptions"),
    ])
}

/// What turns at a steady rate took.
struct Work {
    turns: Samples,
    cpu: Duration,
    time: Duration,
}

impl Work {
    fn cpu_percent(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.time.as_secs_f64()
    }
}

/// Has turns of the tenants in turn at a steady rate for so long.
async fn work(
    mesh: &Mesh,
    tenants: &[Tenant],
    gateway: u32,
    time: Duration,
) -> anyhow::Result<Work> {
    let clients = tenants.iter().map(|tenant| Ok(Arc::new(mesh.client(tenant)?)));
    let clients: Vec<_> = clients.collect::<anyhow::Result<_>>()?;
    let name = Arc::<str>::from(unique_session("watched"));
    let (begun, used) = (Instant::now(), usage::cpu(gateway)?);
    let turns = at_rate(TURNS_PER_SECOND, time, |nth| {
        let (client, name) = (Arc::clone(&clients[nth % clients.len()]), Arc::clone(&name));
        async move {
            let session = format!("{name}-{}", nth % CONVERSATIONS);
            Ok(client.turn(nth, Model::Instant, &session).await?.done)
        }
    });
    let turns = turns.await?.into_iter().collect();
    let cpu = usage::cpu(gateway)? - used;
    Ok(Work { turns, cpu, time: begun.elapsed() })
}

/// Opens consoles: each is a sign-in of its own.
async fn open(mesh: &Mesh, tenants: &[Tenant], count: usize) -> anyhow::Result<Vec<Socket>> {
    let (http, at) = (reqwest::Client::new(), mesh.http());
    let opening = stream::iter(0..count).map(|nth| {
        let (http, key) = (http.clone(), tenants[nth % tenants.len()].key.clone());
        async move {
            let session = ConsoleSession::begin(&http, at, &key, nth).await?;
            session.load_page(&http).await?;
            session.open_socket(nth).await
        }
    });
    let opened: Vec<_> = opening.buffer_unordered(OPENING).collect().await;
    opened.into_iter().collect()
}
