//! Property: each slot up to now is decided once, by its policy, under any sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_schedule::store::{Firing, Origin, Outcome, Overlap, Slot};
use holdfast_types::JobId;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use crate::world::{World, ago, since};

#[derive(Debug, Clone)]
enum Step {
    /// Time passes for this many slots, then a scheduler claims.
    Pass(i64),
    /// A scheduler crashes while it holds a firing.
    Die,
    /// A sweep; the firings that it hands out are finished.
    Sweep(Outcome),
    /// A past slot is requested.
    CatchUp(i64),
}

const EVERY: i64 = 10;
const SLOTS: i64 = 60;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6_i64).prop_map(Step::Pass),
        2 => Just(Step::Die),
        3 => prop_oneof![Just(Outcome::Ok), Just(Outcome::Error)].prop_map(Step::Sweep),
        1 => (0..SLOTS).prop_map(Step::CatchUp),
    ]
}

fn policy() -> impl Strategy<Value = (&'static str, Overlap)> {
    (
        prop_oneof![Just("skip"), Just("once"), Just("all")],
        prop_oneof![Just(Overlap::Skip), Just(Overlap::Queue), Just(Overlap::Allow)],
    )
}

/// Results of a job's slots, by their number.
struct Decided {
    fired: BTreeSet<i64>,
    skipped: BTreeMap<i64, u32>,
}

async fn decided(world: &World, first: Timestamp) -> anyhow::Result<Decided> {
    let number = |at: i64| (at - first.as_second()) / EVERY;
    let pools = world.pools()?;
    let mut tx = pools.system().await?;
    let fired: Vec<i64> = holdfast_pg::query_scalar(
        "select extract(epoch from slot_at)::bigint from schedule.firings where origin = 'due'",
    )
    .fetch_all(tx.conn())
    .await?;
    let lines: Vec<(i64, i32)> = holdfast_pg::query_as(
        "select extract(epoch from slot_at)::bigint, slots from schedule.runs where slot is null",
    )
    .fetch_all(tx.conn())
    .await?;
    let mut skipped = BTreeMap::new();
    for (at, slots) in lines {
        for n in number(at)..number(at) + i64::from(slots) {
            *skipped.entry(n).or_default() += 1;
        }
    }
    Ok(Decided { fired: fired.into_iter().map(number).collect(), skipped })
}

async fn play(missed: &str, overlap: Overlap, steps: Vec<Step>) -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(since(EVERY * SLOTS + 5, json!({"every_s": EVERY, "missed": missed})));
    new.overlap = overlap;
    let job = ada.add(new).await?;
    let first = job.next_slot.ok_or_else(|| anyhow::anyhow!("it has no slot"))?;
    let at = |n: i64| first + SignedDuration::from_secs(n * EVERY);
    let (mut now, mut by_hand) = (-1, BTreeSet::new());
    let mut seen: Vec<(Firing, bool)> = Vec::new();

    for step in steps {
        match step {
            Step::Pass(slots) => {
                now = (now + slots).min(SLOTS - 1);
                world.clock.set(at(now));
                if next(&world, &ada, job.id).await? <= at(now) {
                    // Retry delays use the real clock.
                    world.admin("update schedule.jobs set due_at = slot_at").await?;
                    let firings = world.claim().await?;
                    seen.extend(firings.into_iter().map(|firing| (firing, false)));
                }
            }
            Step::Die => world.lapse().await?,
            Step::Sweep(outcome) => {
                let mut out = world.sweep().await?;
                out.extend(seen.iter().filter(|(_, ended)| !ended).map(|(firing, _)| *firing));
                for firing in out {
                    world.end(&firing, outcome).await?;
                    seen.retain(|(other, _)| other.id != firing.id);
                    seen.push((firing, true));
                }
            }
            Step::CatchUp(n) if n < now => {
                by_hand.insert(n);
                world.jobs.backfill(ada.id, job.id, &[at(n)]).await?;
            }
            Step::CatchUp(_) => {}
        }
    }

    let upto = next(&world, &ada, job.id).await?;
    let decided = decided(&world, first).await?;
    let all = (upto.as_second() - first.as_second()) / EVERY;
    for n in 0..all {
        let fired = u32::from(decided.fired.contains(&n));
        let skipped = decided.skipped.get(&n).copied().unwrap_or(0);
        if fired + skipped == 0 && by_hand.contains(&n) {
            continue;
        }
        anyhow::ensure!(fired + skipped == 1, "slot {n}: fired {fired}, skipped {skipped}");
        let may_skip = missed != "all" || overlap == Overlap::Skip;
        anyhow::ensure!(skipped == 0 || may_skip, "slot {n} was skipped");
    }
    anyhow::ensure!(decided.fired.iter().all(|n| *n < all), "a slot fired before its time");
    let mut ids: Vec<_> = seen.iter().map(|(firing, _)| firing.id).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    anyhow::ensure!(ids.len() == count, "a firing was handed out as new twice");
    anyhow::ensure!(seen.iter().all(|(firing, _)| {
        firing.origin != Origin::Due || matches!(firing.id.slot, Slot::At(_))
    }));
    Ok(())
}

async fn next(
    world: &World,
    tenant: &crate::world::Tenant<'_>,
    job: JobId,
) -> anyhow::Result<Timestamp> {
    let job = world.jobs.get(tenant.id, job).await?;
    job.next_slot.ok_or_else(|| anyhow::anyhow!("it has no slot, {}", ago(0)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn each_slot_is_recorded_once_or_skipped_as_its_policy_says(
        (missed, overlap) in policy(),
        steps in prop::collection::vec(step(), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let played = runtime.block_on(play(missed, overlap, steps));
        prop_assert!(played.is_ok(), "{}", played.unwrap_err());
    }
}
