//! The scheduler writes nothing while nothing is due (I11).

use std::time::Duration;

use holdfast_session::TurnOutcome;

use crate::world::{World, soon, turn};

#[tokio::test]
async fn schedulers_with_nothing_to_do_write_no_row() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _one = world.scheduler().await?;
    let _two = world.scheduler().await?;
    let job = world.add(world.new_job(soon(10)?, turn("x"))).await?;
    world.add(world.new_job(soon(3_600_000)?, turn("later"))).await?;
    let (claim, loaded) = world.claim().await?;
    world.answer(&claim, &loaded, TurnOutcome::Completed).await?;
    world.line(&job).await?;

    // The log line is written before the other effects of the end.
    let (mut before, mut still) = (versions(&world).await?, 0);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = versions(&world).await?;
        still = if std::mem::replace(&mut before, now.clone()) == now { still + 1 } else { 0 };
        if still == 3 {
            break;
        }
    }
    tokio::time::sleep(Duration::from_secs(4)).await;

    assert_eq!(versions(&world).await?, before);
    world.add(world.new_job(soon(3_600_000)?, turn("other"))).await?;
    assert_ne!(versions(&world).await?, before, "a job leaves no trace in this number");
    Ok(())
}

/// Changes with every version and every lock of any row.
async fn versions(world: &World) -> anyhow::Result<String> {
    let mut all = String::new();
    for table in [
        "schedule.jobs",
        "schedule.firings",
        "schedule.runs",
        "session.inbox",
        "session.sessions",
        "session.session_lease",
        "session.runs",
    ] {
        all += &world
            .text(&format!(
                "select coalesce(sum(hashtext(ctid::text || xmin::text || xmax::text)::bigint), 0)::text
                 from {table}"
            ))
            .await?;
        all.push(' ');
    }
    Ok(all)
}
