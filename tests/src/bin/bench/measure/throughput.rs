//! Turns per second, with many sessions in parallel and all history kept.

use std::time::Duration;

use crate::{
    Pace,
    client::Load,
    mesh::Mesh,
    models::Model,
    report::{Line, Unit, float},
    spent::Spent,
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
        let loaded = load.run(&client, async || Spent::so_far(mesh)).await?;
        let spent = loaded.seen.1.since(&loaded.seen.0);
        let what = match model {
            Model::Slow => format!("{parallel} parallel, 200 ms model"),
            Model::Instant | Model::VerySlow | Model::Tool | Model::Rounds | Model::Behaviors => {
                format!("{parallel} parallel, instant model")
            }
        };
        let rate = Line::new(&what, loaded.rate(), Unit::PerSecond).note(format!(
            "p50 {:.0} ms; CPU {:.1} ms a turn, {:.1} ms with the backends",
            millis(loaded.latency.median()),
            millis(spent.own()) / float(loaded.turns),
            millis(spent.all()) / float(loaded.turns),
        ));
        lines.push(if least > 0.0 { rate.at_least(least) } else { rate });
        let p99 = Line::millis(format!("{what}, p99"), loaded.latency.permille(990));
        lines.push(match most {
            Some(most) => p99.at_most(most),
            None => p99,
        });
    }
    Ok(lines)
}

const fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
