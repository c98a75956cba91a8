//! Waiting times of a quiet tenant alone, beside a tenant that does everything hostile at once, and alone
//! again.
//!
//! | module | contents |
//! |---|---|
//! | [`neighbour`] | both tenants: their plan, agents and channel accounts |
//! | [`quiet`] | the steady work of the quiet tenant, and how long each part of it takes |
//! | [`attack`] | the behaviours of the hostile tenant, all at once |
//! | [`behavior`] | what each of them needs: its target, and counts of what it gets |
//! | [`calls`] | behaviours with its key: messages, streams, files, commands, jobs |
//! | [`channels`] | behaviours at its channel accounts: webhooks and widget |
//! | [`strangers`] | behaviours without a key: connections, handshakes, guesses |

mod attack;
mod behavior;
mod calls;
mod channels;
mod neighbour;
mod quiet;
mod strangers;

use std::time::Duration;

use anyhow::Context as _;
use holdfast_directory::{NewPlan, PlanLimits};
use tokio::time::sleep;

pub use self::neighbour::PLAN;
use self::{
    attack::{Attack, BehaviorCount},
    behavior::Target,
    neighbour::Neighbour,
    quiet::{QuietTenant, WaitTimes},
};
use crate::{
    Pace,
    mesh::{Mesh, ServiceLimits},
    progress,
    report::{Line, Unit, float},
    stats::Samples,
};

/// A bridge reads new accounts, and services read new limits, within a few seconds.
const SETTLE_TIME: Duration = Duration::from_secs(8);
/// From the first hostile call until something is measured: floods have reached their limits by then.
const ATTACK_WARM_UP: Duration = Duration::from_secs(5);
/// Differences between times of a few milliseconds are noise: what waits no longer than this is in time.
const FLOOR: Duration = Duration::from_millis(20);
/// A tenant beside a hostile one may wait so many times as long as alone.
const MAX_RATIO: u32 = 2;

/// Name of the plan that both tenants have.
const PLAN_NAME: &str = "basic";

/// Measures with this plan for both tenants; without one they have the limits of new tenants.
pub async fn measure(
    mesh: &mut Mesh,
    pace: Pace,
    plan: Option<PlanLimits>,
) -> anyhow::Result<Vec<Line>> {
    mesh.relaunch_with(ServiceLimits::Default).await?;
    let lines = Box::pin(compare(mesh, pace.seconds(25, 6), plan)).await;
    mesh.relaunch_with(ServiceLimits::Raised).await?;
    lines
}

async fn compare(
    mesh: &Mesh,
    time: Duration,
    plan: Option<PlanLimits>,
) -> anyhow::Result<Vec<Line>> {
    if let Some(limits) = plan {
        let plan = NewPlan { name: PLAN_NAME.to_owned(), limits, ..NewPlan::default() };
        mesh.directory().plans().put(&plan).await?;
    }
    let plan_name = plan.map(|_| PLAN_NAME.to_owned());
    let quiet = QuietTenant::create(mesh, plan_name.clone()).await?;
    let hostile = Neighbour::create_hostile(mesh, plan_name).await?;
    sleep(SETTLE_TIME).await;

    quiet.work(mesh, time / 4).await.context("the quiet tenant, while it warms up")?;
    let alone = quiet.work(mesh, time).await.context("the quiet tenant alone")?;
    progress(&format!("  alone: {alone}"));

    let target = Target::new(mesh, &hostile, plan)?;
    let attack = Attack::start(target, mesh.admin().await?, &mesh.setup().left_out)?;
    sleep(ATTACK_WARM_UP).await;
    let beside = quiet.work(mesh, time).await.context("the quiet tenant beside the hostile one")?;
    progress(&format!("  beside: {beside}"));
    let counts = attack.stop().await?;
    let slow_sends = hostile.slow_sends();

    hostile.suspend(mesh).await?;
    sleep(SETTLE_TIME).await;
    let again = quiet.work(mesh, time).await.context("the quiet tenant alone again")?;
    progress(&format!("  alone again: {again}"));

    let mut lines = Vec::new();
    for (part, name) in WaitTimes::PARTS {
        lines.extend(compare_part(name, [part(&alone), part(&again)], part(&beside)));
    }
    lines.extend(counts.into_iter().map(count_line));
    lines.push(
        Line::new("sends to a slow platform", float(slow_sends), Unit::Count)
            .note("half of them answered after 10 s, half of them refused with 503"),
    );
    Ok(lines)
}

/// The median as it is, and the p95 with its bound.
fn compare_part(name: &str, alone: [&Samples; 2], beside: &Samples) -> [Line; 2] {
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let line = |permille| {
        let alone = alone.map(|samples| samples.permille(permille));
        let slower = alone[0].max(alone[1]);
        let time = beside.permille(permille);
        let ratio = time.as_secs_f64() / slower.max(Duration::from_micros(1)).as_secs_f64();
        let note = format!(
            "alone {:.1} ms, alone again {:.1} ms, ratio {ratio:.2}",
            millis(alone[0]),
            millis(alone[1])
        );
        (Line::millis(format!("{name}, p{}", permille / 10), time), note, slower)
    };
    let (median, note, _) = line(500);
    let median = median.note(note);
    let (tail, note, slower) = line(950);
    let bound = (slower * MAX_RATIO).max(FLOOR);
    let note = format!("{note}; {} times, up to {FLOOR:?} is in time", beside.count());
    [median, tail.at_most(millis(bound)).required().note(note)]
}

fn count_line(count: BehaviorCount) -> Line {
    let BehaviorCount { name, accepted, refused } = count;
    Line::new(name, float(accepted), Unit::Count).note(format!("accepted; {refused} refused"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn samples(millis: u64) -> Samples {
        std::iter::repeat_n(Duration::from_millis(millis), 20).collect()
    }

    #[test]
    fn more_than_twice_as_long_as_alone_fails_unless_it_is_short() {
        let failures = |alone: [u64; 2], beside| {
            let mut report = Report::default();
            let [first, second] = alone.map(samples);
            report.add("s", compare_part("turns", [&first, &second], &samples(beside)));
            report.failures().len()
        };

        assert_eq!(failures([30, 40], 80), 0);
        assert_eq!(failures([30, 40], 81), 1);
        assert_eq!(failures([2, 2], 20), 0);
        assert_eq!(failures([2, 2], 21), 1);
    }
}
