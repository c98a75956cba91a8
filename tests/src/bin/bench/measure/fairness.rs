//! Waiting time of a quiet tenant's message until a runner begins with it, while a noisy tenant has
//! 1,000 sessions in the queue.

use std::time::Duration;

use anyhow::ensure;
use sqlx::PgConnection;
use tokio::task::JoinSet;

use crate::{
    Pace,
    client::{Client, unique_session},
    mesh::{Mesh, Service, Tenant},
    models::Model,
    report::Line,
    stats::Samples,
};

/// Callers that fill the queue.
const CALLERS: usize = 16;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (model, what) in [(Model::Slow, "200 ms model"), (Model::Instant, "instant model")] {
        let noisy = mesh.tenant(&unique_session("noisy")).await?;
        let quiet = mesh.tenant(&unique_session("quiet")).await?;
        let sessions = pace.count(1000, 200);
        let each = pace.count(6, 3);
        let waits = behind(mesh, &noisy, &quiet, model, (sessions, each)).await?;
        lines.push(Line::millis(format!("wait, {what}, p50"), waits.median()));
        lines.push(
            Line::millis(format!("wait, {what}, p95"), waits.permille(950))
                .at_most(50.0)
                .note(format!("{} messages behind {sessions} sessions", waits.count())),
        );
    }
    Ok(lines)
}

async fn behind(
    mesh: &Mesh,
    noisy: &Tenant,
    quiet: &Tenant,
    model: Model,
    (sessions, each): (usize, usize),
) -> anyhow::Result<Samples> {
    // Held still, so that all of it waits when it is let go.
    let runner = mesh.process(Service::Runner)?;
    runner.pause()?;
    let filled = fill(&mesh.client(noisy)?, model, sessions, each).await;
    runner.resume()?;
    filled?;

    let client = mesh.client(quiet)?;
    let session = unique_session("quiet");
    let mut admin = mesh.admin().await?;
    let mut asked = 0;
    while asked < 200 && waiting(&mut admin, noisy).await? > 0 {
        client.turn(0, Model::Instant, &session).await?;
        asked += 1;
    }
    ensure!(asked > 20, "the noisy tenant was served after {asked} messages of the quiet one");
    let waits = waits(&mut admin, quiet).await?;
    drain(&mut admin, noisy).await?;
    Ok(waits)
}

async fn fill(client: &Client, model: Model, sessions: usize, each: usize) -> anyhow::Result<()> {
    let name = unique_session("noise");
    let mut callers = JoinSet::new();
    for nth in 0..CALLERS {
        let (client, name) = (client.clone(), name.clone());
        callers.spawn(async move {
            for session in (nth..sessions).step_by(CALLERS) {
                for _ in 0..each {
                    client.send(nth, model, &format!("{name}-{session}")).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

/// From acceptance until a runner began with it.
async fn waits(admin: &mut PgConnection, tenant: &Tenant) -> anyhow::Result<Samples> {
    const SQL: &str = "
        select (extract(epoch from r.started_at - i.accepted_at) * 1000000)::bigint
        from session.inbox i join session.runs r on r.tenant_id = i.tenant_id and r.run_id = i.run_id
        where i.tenant_id = $1";
    let micros: Vec<i64> =
        sqlx::query_scalar(SQL).bind(tenant.id.as_uuid()).fetch_all(admin).await?;
    let times = micros.into_iter().map(|micros| u64::try_from(micros).unwrap_or(0));
    Ok(times.map(Duration::from_micros).collect())
}

async fn waiting(admin: &mut PgConnection, tenant: &Tenant) -> anyhow::Result<i64> {
    const SQL: &str = "
        select count(*) from session.session_lease
        where tenant_id = $1 and state = 'READY' and fair_key is null";
    Ok(sqlx::query_scalar(SQL).bind(tenant.id.as_uuid()).fetch_one(admin).await?)
}

/// Waits until nothing is left, so that the next thing is measured alone.
async fn drain(admin: &mut PgConnection, tenant: &Tenant) -> anyhow::Result<()> {
    const SQL: &str = "
        select count(*) from session.session_lease where tenant_id = $1 and state <> 'WAIT'";
    for _ in 0..1200 {
        let left: i64 =
            sqlx::query_scalar(SQL).bind(tenant.id.as_uuid()).fetch_one(&mut *admin).await?;
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the noisy tenant's sessions do not come to rest")
}
