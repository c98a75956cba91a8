//! How many turns end in a second, with many sessions in parallel and all history kept.

use crate::{
    Pace,
    client::Load,
    mesh::Mesh,
    models::Model,
    report::{Line, Unit},
};

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    let levels = [
        (Model::Instant, 8, 220.0, None),
        (Model::Instant, 64, 300.0, None),
        (Model::Instant, 256, 0.0, None),
        (Model::Slow, 32, 145.0, Some(250.0)),
        (Model::Slow, 256, 350.0, None),
    ];
    let client = mesh.client(&mesh.tenant)?;
    let mut lines = Vec::new();
    for (model, parallel, least, most) in levels {
        let load = Load { parallel, model, warm_up: pace.seconds(3, 1), time: pace.seconds(12, 3) };
        let loaded = load.run(&client, async || Ok(())).await?;
        let what = match model {
            Model::Slow => format!("{parallel} parallel, 200 ms model"),
            Model::Instant | Model::VerySlow | Model::Tool => {
                format!("{parallel} parallel, instant model")
            }
        };
        let rate = Line::new(&what, loaded.rate(), Unit::PerSecond)
            .note(format!("p50 {:.0} ms", loaded.latency.median().as_secs_f64() * 1000.0));
        lines.push(if least > 0.0 { rate.at_least(least) } else { rate });
        let p99 = Line::millis(format!("{what}, p99"), loaded.latency.permille(990));
        lines.push(match most {
            Some(most) => p99.at_most(most),
            None => p99,
        });
    }
    Ok(lines)
}
