//! Accepted messages that are lost when the processes that handle them are killed.

use std::time::Duration;

use anyhow::ensure;
use holdfast_types::MessageId;
use sqlx::PgConnection;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    Pace,
    client::unique_session,
    mesh::{Mesh, Service},
    models::Model,
    report::{Line, Unit},
};

const SESSIONS: usize = 20;
/// A lease of 30 s, and the turns themselves.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(120);

pub async fn measure(mesh: &mut Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let messages = pace.count(200, 40);
    let name = unique_session("crash");
    let mut callers = JoinSet::new();
    for nth in 0..SESSIONS {
        let (client, session) = (client.clone(), format!("{name}-{nth}"));
        callers.spawn(async move {
            let mut accepted = Vec::new();
            for _ in (nth..messages).step_by(SESSIONS) {
                accepted.push(client.send(nth, Model::Slow, &session).await?);
            }
            anyhow::Ok(accepted)
        });
    }
    let mut accepted = Vec::new();
    while let Some(caller) = callers.join_next().await {
        for message in caller?? {
            accepted.push(message.parse::<MessageId>()?.as_uuid());
        }
    }

    let mut admin = mesh.admin().await?;
    let begun = Instant::now();
    mesh.kill(Service::Runner).await?;
    mesh.kill(Service::Gateway).await?;
    let before = done(&mut admin, &accepted).await?;
    mesh.launch(Service::Gateway).await?;
    mesh.launch(Service::Runner).await?;
    let mut after = before;
    while after < accepted.len() && begun.elapsed() < RECOVERY_TIMEOUT {
        sleep(Duration::from_millis(50)).await;
        after = done(&mut admin, &accepted).await?;
    }
    let took = begun.elapsed();
    ensure!(before < accepted.len(), "all was answered before the kill: nothing was tested");

    let waiting = accepted.len() - before;
    Ok(vec![
        Line::count("messages accepted", accepted.len()),
        Line::count("answered before the kill", before),
        Line::count("lost", accepted.len() - after)
            .at_most(0.0)
            .note(format!("of {waiting} that were waiting or running")),
        Line::new("until all were answered", took.as_secs_f64(), Unit::Seconds)
            .note("a lease of 30 s among it"),
    ])
}

async fn done(admin: &mut PgConnection, messages: &[Uuid]) -> anyhow::Result<usize> {
    const SQL: &str = "
        select count(*) from session.inbox
        where message_id = any($1) and state = 'done' and outcome = 'completed'";
    let count: i64 = sqlx::query_scalar(SQL).bind(messages).fetch_one(admin).await?;
    Ok(count.try_into()?)
}
