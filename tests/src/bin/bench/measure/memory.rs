//! Resident memory: at rest, after work, for a live session and for an idle one.

use std::time::Duration;

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    Pace,
    client::{Client, Load, unique_session},
    mesh::{Mesh, Service},
    models::Model,
    report::{Line, Unit, float},
    usage::Resident,
};

/// How long a process is left alone before its memory is read.
const REST_TIME: Duration = Duration::from_secs(3);
const PARALLEL: usize = 8;
const LIVE: usize = 256;

pub async fn measure(mesh: &mut Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    mesh.relaunch().await?;
    sleep(REST_TIME).await;
    let mut lines = Vec::new();
    for (name, resident) in resident(mesh)? {
        let line = Line::new(format!("{name} at rest"), resident.all, Unit::Megabytes);
        let note = format!("{:.1} MB its own, the rest mapped from files", resident.own);
        lines.push(line.at_most(15.0).note(note));
    }

    let client = mesh.client(&mesh.tenant)?;
    let turns = pace.count(1000, 100);
    work(&client, turns, false).await?;
    sleep(REST_TIME).await;
    for (name, resident) in resident(mesh)? {
        let what = format!("{name} after {turns} turns");
        lines.push(
            Line::new(what, resident.all, Unit::Megabytes)
                .note(format!("{:.1} MB its own", resident.own)),
        );
    }

    let idle = idle_sessions(mesh, &client, pace).await?;
    let live = live_sessions(mesh, &client, pace).await?;
    lines.push(
        Line::new("per live session", live, Unit::Megabytes)
            .at_most(0.1)
            .note(format!("{LIVE} at once, 200 ms model, the peak of all processes together")),
    );
    lines.push(
        // The allocator's noise; a session that was kept would be many times that.
        Line::new("per idle session", idle, Unit::Megabytes)
            .at_most(0.001)
            .note("what more sessions leave behind, after as many before them"),
    );
    Ok(lines)
}

/// Does so many turns, in parallel; in the sessions of the callers, or each in a new one.
async fn work(client: &Client, turns: usize, new: bool) -> anyhow::Result<()> {
    let mut callers = JoinSet::new();
    for nth in 0..PARALLEL {
        let client = client.clone();
        callers.spawn(async move {
            let own = unique_session("memory");
            for _ in 0..turns.div_ceil(PARALLEL) {
                let session = if new { unique_session("idle") } else { own.clone() };
                client.turn(nth, Model::Instant, &session).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

/// What a session leaves behind that was spoken to once.
async fn idle_sessions(mesh: &Mesh, client: &Client, pace: Pace) -> anyhow::Result<f64> {
    let sessions = pace.count(2000, 200);
    // Once for the allocator to take what it keeps.
    work(client, sessions, true).await?;
    sleep(REST_TIME).await;
    let before = sum(mesh)?;
    work(client, sessions, true).await?;
    sleep(REST_TIME).await;
    Ok(((sum(mesh)? - before) / float(sessions)).max(0.0))
}

/// How much more is resident while many sessions are at work.
async fn live_sessions(mesh: &Mesh, client: &Client, pace: Pace) -> anyhow::Result<f64> {
    let before = sum(mesh)?;
    let load = Load {
        parallel: LIVE,
        model: Model::Slow,
        warm_up: pace.seconds(2, 1),
        time: pace.seconds(6, 2),
    };
    let running = load.run(client, async || Ok(()));
    tokio::pin!(running);
    let mut peak = before;
    while timeout(Duration::from_millis(50), &mut running).await.is_err() {
        peak = sum(mesh)?.max(peak);
    }
    Ok((peak - before) / float(LIVE))
}

fn resident(mesh: &Mesh) -> anyhow::Result<Vec<(&'static str, Resident)>> {
    let one = |service: Service| Ok((service.name(), Resident::of(mesh.pid(service)?)?));
    Service::ALL.into_iter().map(one).collect()
}

fn sum(mesh: &Mesh) -> anyhow::Result<f64> {
    Ok(resident(mesh)?.into_iter().map(|(_, resident)| resident.all).sum())
}
