//! Time to the first token of an assistant that was idle for a while.

use std::time::Duration;

use tokio::time::sleep;

use crate::{
    Pace, client::unique_session, mesh::Mesh, models::Model, report::Line, stats::Samples,
};

const IDLE: Duration = Duration::from_secs(2);

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let session = unique_session("wake");
    client.turn(0, Model::Instant, &session).await?;
    let mut times = Vec::new();
    for _ in 0..pace.count(30, 5) {
        sleep(IDLE).await;
        times.push(client.turn(0, Model::Instant, &session).await?.first);
    }
    let times: Samples = times.into_iter().collect();
    Ok(vec![
        Line::millis("first token, p50", times.median()),
        Line::millis("first token, p95", times.permille(950))
            .at_most(20.0)
            .note(format!("{} messages, each after 2 s of silence", times.count())),
    ])
}
