//! A hundred users, a quarter of them at once, with a model that thinks for 3 s.

use tokio::task::JoinSet;

use crate::{
    Pace,
    client::unique_session,
    mesh::Mesh,
    models::Model,
    report::{Line, Unit},
    stats::Samples,
};

const AT_ONCE: usize = 25;

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let client = mesh.client(&mesh.tenant)?;
    let users = pace.count(100, 25);
    let mut callers = JoinSet::new();
    for nth in 0..AT_ONCE {
        let client = client.clone();
        callers.spawn(async move {
            let mut turns = Vec::new();
            for _ in (nth..users).step_by(AT_ONCE) {
                turns.push(client.turn(nth, Model::VerySlow, &unique_session("user")).await);
            }
            turns
        });
    }
    let mut turns = Vec::new();
    while let Some(caller) = callers.join_next().await {
        turns.extend(caller?);
    }
    let failed = turns.iter().filter(|turn| turn.is_err()).count();
    let times: Samples = turns.into_iter().flatten().map(|turn| turn.done).collect();
    Ok(vec![
        Line::new("p95", times.permille(950).as_secs_f64(), Unit::Seconds).at_most(3.1),
        Line::count("failures", failed).at_most(0.0).note(format!("of {users}")),
    ])
}
