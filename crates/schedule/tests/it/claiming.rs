//! Claims: each due slot is decided once, whatever runs concurrently or crashes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_pg::{Config, Pools};
use holdfast_schedule::store::{
    ClaimResult, DeliveryReport, Firing, JobState, Jobs, Outcome, Overlap, Planner,
};
use holdfast_types::TenantId;
use serde_json::json;

use crate::world::{World, ago, ended, since};

type Delivery = Arc<Mutex<HashMap<String, u32>>>;

/// Claims until nothing is due. Counts deliveries by key. Every seventh batch is dropped, as by a
/// scheduler that crashes.
async fn replica(world: &World, number: usize, arrived: Delivery) -> anyhow::Result<()> {
    for batch in number.. {
        let claimed = world.jobs.claim_due(500).await?;
        if claimed.jobs == 0 {
            return Ok(());
        }
        if batch % 7 == 0 {
            continue;
        }
        deliver(world, &claimed.firings, &arrived).await?;
    }
    Ok(())
}

async fn deliver(world: &World, firings: &[Firing], arrived: &Delivery) -> anyhow::Result<()> {
    for firing in firings {
        let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived.entry(firing.id.idem_key()).or_default() += 1;
    }
    let lease = Duration::from_secs(60);
    let delivered: Vec<DeliveryReport> = firings
        .iter()
        .map(|one| DeliveryReport {
            firing: one.id,
            run: None,
            lease,
            message: None,
            arrives: false,
        })
        .collect();
    assert_eq!(world.jobs.mark_delivered(&delivered).await?, firings.len() as u64);
    let ended: Vec<_> = firings.iter().map(|one| ended(one, Outcome::Ok)).collect();
    assert_eq!(world.jobs.finish(&ended).await?, firings.len() as u64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn three_replicas_fire_twenty_thousand_slots_once_each_though_some_die() -> anyhow::Result<()>
{
    let world = World::start().await?;
    for _ in 0..4 {
        world.many_due(TenantId::generate(), 5000).await?;
    }
    let arrived = Delivery::default();

    futures::future::try_join_all((1..=3).map(|n| replica(&world, n, Arc::clone(&arrived))))
        .await?;
    let before = arrived.lock().unwrap().len();
    world.lapse().await?;
    loop {
        let swept = world.jobs.sweep(1000).await?;
        if swept.firings.is_empty() {
            break;
        }
        deliver(&world, &swept.firings, &arrived).await?;
    }

    let arrived = arrived.lock().unwrap().clone();
    assert!(before < 20_000, "nobody died");
    assert_eq!(arrived.len(), 20_000);
    assert!(arrived.values().all(|times| *times == 1));
    assert_eq!(
        world.number("select count(*) from schedule.firings where state = 'done'").await?,
        20_000
    );
    assert_eq!(world.number("select count(*) from schedule.jobs where due_at <= now()").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_firing_whose_claimer_died_is_handed_out_again_under_the_same_key() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(5, json!({"every_s": 3600})).await?;

    let first = world.claim_one().await?;
    assert!(world.claim().await?.is_empty());
    assert!(world.sweep().await?.is_empty(), "it is not lost yet");
    world.lapse().await?;
    let again = world.sweep().await?;

    assert_eq!(again.len(), 1);
    assert_eq!(again[0].id.idem_key(), first.id.idem_key());
    assert_eq!((first.attempt, again[0].attempt), (1, 2));
    assert!(world.sweep().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_job_moves_on_to_its_next_slot_with_the_claim() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let job = ada.due(5, json!({"every_s": 3600})).await?;
    assert_eq!(world.jobs.next_due().await?, Some(Duration::ZERO));

    let firing = world.claim_one().await?;

    let then = ada.get(job.id).await?;
    assert_eq!(Some(firing.at), job.next_slot);
    assert_eq!(then.next_slot, Some(firing.at + jiff::SignedDuration::from_secs(3600)));
    assert_eq!(then.running.map(|running| running.slot), Some(firing.id.slot));
    let next = world.jobs.next_due().await?.unwrap_or_default();
    assert!(next > Duration::from_secs(20) && next <= Duration::from_secs(30), "{next:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_missed_is_skipped_made_up_for_once_or_caught_up_with() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut jobs = Vec::new();
    for missed in ["skip", "once", "all"] {
        let spec = since(35, json!({"every_s": 10, "missed": missed}));
        let mut new = ada.job(spec);
        new.overlap = Overlap::Allow;
        jobs.push(ada.add(new).await?);
    }

    let firings = world.claim().await?;

    let fired = |job: usize| firings.iter().filter(|one| one.id.job == jobs[job].id).count();
    assert_eq!((fired(0), fired(1), fired(2)), (0, 1, 4));
    for (job, slots) in [(0, Some(4)), (1, Some(3)), (2, None)] {
        let runs = world.jobs.runs(ada.id, jobs[job].id, 10).await?;
        let line = runs.first().map(|line| (line.slots, line.outcome, line.class.as_deref()));
        assert_eq!(line, slots.map(|slots| (Some(slots), Outcome::Skipped, Some("missed"))));
        let stretch = runs.first().map(|line| line.last.as_second() - line.at.as_second());
        assert_eq!(stretch, slots.map(|slots| i64::from(slots - 1) * 10));
    }
    Ok(())
}

#[tokio::test]
async fn a_slot_that_comes_while_one_runs_is_skipped_waits_or_runs_beside_it() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    for (overlap, beside, later) in
        [(Overlap::Skip, 0, 0), (Overlap::Queue, 0, 1), (Overlap::Allow, 1, 0)]
    {
        let mut new = ada.job(since(5, json!({"every_s": 3600})));
        new.overlap = overlap;
        let job = ada.add(new).await?;
        let first = world.claim_one().await?;
        let lease = Duration::from_secs(60);
        world
            .jobs
            .mark_delivered(&[DeliveryReport {
                firing: first.id,
                run: None,
                lease,
                message: None,
                arrives: false,
            }])
            .await?;
        let sql = "update schedule.jobs set slot_at = now(), due_at = now() where due_at > now()";
        world.admin(sql).await?;

        let second = world.claim().await?;
        assert_eq!(second.len(), beside, "{overlap:?}");
        assert!(world.sweep().await?.is_empty(), "{overlap:?}: nothing is handed out beside it");
        world.end(&first, Outcome::Ok).await?;
        let third = world.sweep().await?;

        assert_eq!(third.len(), later, "{overlap:?}");
        let skipped = world.jobs.runs(ada.id, job.id, 10).await?;
        let classes: Vec<_> = skipped.iter().filter_map(|line| line.class.as_deref()).collect();
        assert_eq!(classes, if overlap == Overlap::Skip { vec!["overlap"] } else { vec![] });
        world.jobs.remove(ada.id, job.id).await?;
    }
    Ok(())
}

#[tokio::test]
async fn no_more_than_a_hundred_slots_wait_for_the_one_that_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let mut new = ada.job(since(5, json!({"every_s": 3600})));
    new.overlap = Overlap::Queue;
    let job = ada.add(new).await?;
    world.claim_one().await?;
    let again = "update schedule.jobs set slot_at = now() - interval '1 s', due_at = now()";
    let slots: Vec<_> = (0..99).map(|n| ago(n + 10)).collect();
    world.jobs.backfill(ada.id, job.id, &slots).await?;

    for waiting in [100, 100] {
        world.admin(again).await?;
        assert!(world.claim().await?.is_empty());
        let sql = "select count(*) from schedule.firings where state = 'pending' and not held";
        assert_eq!(world.number(sql).await?, waiting);
    }

    let runs = world.jobs.runs(ada.id, job.id, 10).await?;
    let classes: Vec<_> = runs.iter().filter_map(|line| line.class.as_deref()).collect();
    assert_eq!(classes, ["overlap"]);
    Ok(())
}

#[tokio::test]
async fn slots_to_catch_up_with_run_one_after_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.due(25, json!({"every_s": 10, "missed": "all"})).await?;

    let mut seen = vec![world.claim_one().await?];
    while seen.len() < 3 {
        assert!(world.sweep().await?.is_empty(), "one at a time");
        world.end(&seen[seen.len() - 1], Outcome::Ok).await?;
        let next = world.sweep().await?;
        assert_eq!(next.len(), 1);
        seen.extend(next);
    }

    assert!(seen.is_sorted_by(|one, next| one.at < next.at));
    Ok(())
}

#[tokio::test]
async fn a_job_whose_schedule_can_no_longer_be_followed_stops_and_says_so() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let broken = ada.due(5, json!({"broken": true})).await?;
    let sound = ada.due(5, json!({"every_s": 3600})).await?;

    let firings = world.claim().await?;

    assert_eq!(firings.iter().map(|one| one.id.job).collect::<Vec<_>>(), [sound.id]);
    let broken = ada.get(broken.id).await?;
    assert_eq!((broken.state, broken.next_slot), (JobState::Broken, None));
    assert_eq!(broken.last.and_then(|last| last.class), Some("unplannable".to_owned()));
    assert!(world.claim().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn nothing_due_writes_no_row() -> anyhow::Result<()> {
    const WRITTEN: &str = "
        select sum(n_tup_upd + n_tup_del)::bigint
        from pg_stat_user_tables where schemaname = 'schedule'";
    let world = World::start().await?;
    let ada = world.tenant();
    ada.add(ada.job(json!({"every_s": 3600}))).await?;
    // One connection, which reports its own statistics.
    let one = Config { system_pool_size: 1, ..world.config() };
    let pools = Pools::lazy(&one, "test")?;
    let jobs = Jobs::new(pools.clone(), Arc::clone(&world.clock) as Arc<dyn Planner>);

    for _ in 0..5 {
        assert_eq!(jobs.claim_due(100).await?.jobs, 0);
        assert_eq!(jobs.sweep(100).await?, holdfast_schedule::store::SweepResult::default());
        jobs.next_due().await?;
    }
    let mut tx = pools.system().await?;
    holdfast_pg::query("update schedule.jobs set errors = errors").execute(tx.conn()).await?;
    holdfast_pg::query("select pg_stat_force_next_flush()").execute(tx.conn()).await?;
    tx.commit().await?;

    let mut written = 0;
    while written == 0 {
        written = world.number(WRITTEN).await?;
    }
    assert_eq!(written, 1, "the update, and nothing besides");
    Ok(())
}

#[tokio::test]
async fn a_job_of_a_kind_that_only_a_later_version_knows_is_left_to_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let strange = ada.due(60, json!({"every_s": 3600})).await?;
    let known = ada.due(5, json!({"every_s": 3600})).await?;
    world.admin("alter table schedule.jobs drop constraint jobs_kind_check").await?;
    let id = strange.id.as_uuid();
    world.admin(&format!("update schedule.jobs set kind = 'tide' where job_id = '{id}'")).await?;

    let firing = world.claim_one().await?;

    assert_eq!(firing.id.job, known.id);
    let due = "select count(*) from schedule.jobs where due_at <= now() and kind = 'tide'";
    assert_eq!(world.number(due).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_single_slot_that_is_given_up_is_done_unless_something_of_it_runs() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let alone = ada.due(5, json!({})).await?;
    let first = alone.next_slot.ok_or_else(|| anyhow::anyhow!("it has no slot"))?;
    world.jobs.backfill(ada.id, alone.id, &[first]).await?;
    let firing = world.sweep().await?[0];

    assert!(world.claim().await?.is_empty());
    assert_eq!(ada.get(alone.id).await?.state, JobState::Active, "its slot runs by hand");
    world.end(&firing, Outcome::Ok).await?;
    assert_eq!(ada.get(alone.id).await?.state, JobState::Done);

    let ended = ada.due(5, json!({})).await?;
    let first = ended.next_slot.ok_or_else(|| anyhow::anyhow!("it has no slot"))?;
    world.jobs.backfill(ada.id, ended.id, &[first]).await?;
    let firing = world.sweep().await?[0];
    world.end(&firing, Outcome::Ok).await?;
    assert!(world.claim().await?.is_empty());
    assert_eq!(ada.get(ended.id).await?.state, JobState::Done);
    Ok(())
}

#[tokio::test]
async fn by_turns_the_one_of_a_tenant_comes_before_the_many_of_another_that_were_due_first()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob) = (world.tenant(), world.tenant());
    world.many_due(ada.id, 300).await?;
    let job = bob.due(5, json!({"every_s": 3600})).await?;

    assert!(world.jobs.claim_due(10).await?.firings.iter().all(|one| one.id.tenant == ada.id));
    let claimed = world.jobs.claim_in_turn(10, &[]).await?;

    let of_bob = |one: &&Firing| one.id.job == job.id;
    assert_eq!((claimed.jobs, claimed.firings.iter().filter(of_bob).count()), (10, 1));
    let claimed = world.jobs.claim_in_turn(10, &[ada.id]).await?;
    assert_eq!(claimed, ClaimResult::default(), "nothing of hers was asked for");
    Ok(())
}

#[tokio::test]
async fn by_turns_nothing_that_another_claims_is_waited_for_or_claimed_twice() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    world.many_due(ada.id, 500).await?;

    let mut all = Vec::new();
    while all.len() < 500 {
        let (one, other, third) = tokio::try_join!(
            world.jobs.claim_in_turn(40, &[]),
            world.jobs.claim_due(40),
            world.jobs.claim_in_turn(40, &[]),
        )?;
        let found = one.jobs + other.jobs + third.jobs;
        anyhow::ensure!(found > 0, "only {} of 500 were claimed", all.len());
        all.extend([one.firings, other.firings, third.firings].concat());
    }

    let distinct: HashSet<_> = all.iter().map(|firing| firing.id).collect();
    assert_eq!((all.len(), distinct.len()), (500, 500));
    Ok(())
}

#[tokio::test]
async fn jobs_of_a_suspended_tenant_wait_and_go_on_with_one_slot_each() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob) = (world.tenant(), world.tenant());
    for (tenant, name) in [(ada, "ada"), (bob, "bob")] {
        let id = tenant.id.as_uuid();
        let sql = format!(
            "insert into control.tenants (tenant_id, name, data_key) values ('{id}', '{name}', '')"
        );
        world.admin(&sql).await?;
    }
    let state = async |state: &str| {
        world
            .admin(&format!("update control.tenants set state = '{state}' where name = 'ada'"))
            .await
    };
    let job = ada.due(100, json!({"every_s": 10})).await?;
    bob.due(100, json!({"every_s": 10})).await?;
    state("suspended").await?;

    let fired = world.claim().await?;

    assert_eq!(fired.iter().map(|one| one.id.tenant).collect::<Vec<_>>(), [bob.id]);
    assert!(world.jobs.next_due().await?.is_some_and(|due| due > Duration::ZERO), "it would spin");
    let in_turn = world.jobs.claim_in_turn(10, &[]).await?;
    assert_eq!(in_turn.jobs, 0);

    // Ten slots were missed; the job's policy makes up for one.
    state("active").await?;
    let fired = world.claim().await?;
    assert_eq!(
        fired.iter().map(|one| (one.id.tenant, one.id.job)).collect::<Vec<_>>(),
        [(ada.id, job.id)]
    );
    Ok(())
}
