//! One tenant's thousands of due firings do not delay another tenant's.

use std::time::Duration;

use holdfast_directory::Agent;
use holdfast_types::TenantId;
use scheduler::Scheduler;
use tokio::time::{Instant, sleep};

use crate::world::{LONG, World};

const CROWD: i64 = 6_000;

/// Small enough that the crowd is neither claimed nor delivered at once.
fn little() -> Scheduler {
    Scheduler { batch: 100, backlog: 500, deliver_slots: 2, ..Scheduler::default() }
}

/// Jobs that are due once, in `ms` milliseconds.
async fn due(
    world: &World,
    (tenant, agent): (TenantId, &Agent),
    count: i64,
    after: i64,
) -> anyhow::Result<()> {
    let (tenant, agent) = (tenant.as_uuid(), agent.id.as_uuid());
    let sql = format!(
        r#"insert into schedule.jobs
               (tenant_id, job_id, external_id, kind, agent_id, spec, payload, slot_at, due_at)
           select '{tenant}', gen_random_uuid(), n::text, 'at', '{agent}',
                  jsonb_build_object('schedule', jsonb_build_object(
                      'kind', 'at', 'at_ms', (extract(epoch from t) * 1000)::bigint)),
                  '{{"kind": "agentTurn", "message": "tick"}}', t, t
           from generate_series(1, {count}) n,
                (select date_trunc('milliseconds', clock_timestamp())
                        + {after} * interval '1 millisecond' as t) t"#
    );
    world.admin(&sql).await
}

/// Number of messages in a tenant's inboxes.
async fn told(world: &World, tenant: TenantId) -> anyhow::Result<i64> {
    let tenant = tenant.as_uuid();
    let sql = format!("select count(*)::text from session.inbox where tenant_id = '{tenant}'");
    Ok(world.text(&sql).await?.parse()?)
}

/// Number of the crowd's messages in inboxes at the moment when the neighbour's one is, after a
/// scheduler starts.
async fn told_before(world: &World, neighbour: TenantId) -> anyhow::Result<i64> {
    let _scheduler = world.scheduler_with(little()).await?;
    let begun = Instant::now();
    while told(world, neighbour).await? == 0 {
        anyhow::ensure!(begun.elapsed() < LONG, "it was not delivered");
        sleep(Duration::from_millis(10)).await;
    }
    told(world, world.tenant).await
}

#[tokio::test]
async fn what_is_due_to_another_later_is_delivered_before_the_many_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (neighbour, agent) = world.neighbour().await?;
    due(&world, (world.tenant, &world.agent), CROWD, -60_000).await?;
    due(&world, (neighbour, &agent), 1, 200).await?;

    let before = told_before(&world, neighbour).await?;

    assert!(before < CROWD / 2, "{before} of {CROWD} were before it");
    Ok(())
}

#[tokio::test]
async fn what_another_asks_for_is_delivered_before_the_many_that_were_handed_back()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let (neighbour, agent) = world.neighbour().await?;
    due(&world, (world.tenant, &world.agent), CROWD, -60_000).await?;
    due(&world, (neighbour, &agent), 1, -1_000).await?;
    // As after a replica died: decided, and without an owner.
    world
        .admin(
            "insert into schedule.firings
                 (tenant_id, job_id, slot, slot_at, origin, attempts, held, offer_at)
             select tenant_id, job_id, to_char(slot_at at time zone 'utc',
                        'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),
                    slot_at, 'due', 1, true, slot_at
             from schedule.jobs",
        )
        .await?;
    world.admin("update schedule.jobs set slot_at = null, due_at = null").await?;

    let before = told_before(&world, neighbour).await?;

    assert!(before < CROWD / 2, "{before} of {CROWD} were before it");
    Ok(())
}
