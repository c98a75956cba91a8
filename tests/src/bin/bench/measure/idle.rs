//! Load of an idle mesh.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    Pace, database,
    mesh::Mesh,
    report::{Line, Unit, float},
    spent::Spent,
};

/// Until what was before is over, and every connection has told what it did.
const SETTLE_TIME: Duration = Duration::from_secs(15);

pub async fn measure(mesh: &Mesh, pace: Pace) -> anyhow::Result<Vec<Line>> {
    sleep(SETTLE_TIME).await;
    let mut admin = mesh.admin().await?;
    let (begun, before) = (Instant::now(), Spent::so_far(mesh)?);
    let rows = database::row_versions(&mut admin).await?;
    let calls = mesh.models.requests().await?;

    sleep(pace.seconds(60, 10)).await;

    let (time, spent) = (begun.elapsed(), Spent::so_far(mesh)?.since(&before));
    sleep(SETTLE_TIME).await;
    let written = database::row_versions(&mut admin).await? - rows;
    let called = mesh.models.requests().await? - calls;

    let line = |what: String, used: Duration| {
        let share = 100.0 * used.as_secs_f64() / time.as_secs_f64();
        Line::new(what, share, Unit::Percent)
    };
    let mut lines = vec![
        line("CPU of gateway, runner and bridge".to_owned(), spent.own())
            .at_most(1.0)
            .note(format!("of one core, in {:.0} s", time.as_secs_f64())),
    ];
    lines.extend(spent.each().map(|(name, used)| line(format!("  {name}"), used)));
    lines.push(
        Line::new("row versions written", float(written.try_into()?), Unit::Count).at_most(0.0),
    );
    lines.push(Line::new("model calls", float(called.try_into()?), Unit::Count).at_most(0.0));
    Ok(lines)
}
