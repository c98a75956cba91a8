//! A session has one runner at a time, and each tenant its fair share.

use std::collections::HashSet;

use holdfast_session::{Claim, SUSPECT_ATTEMPTS, StepWrite};
use holdfast_types::{RunId, RunnerId};

use crate::world::{World, thought};

#[tokio::test]
async fn a_session_is_claimed_by_one_of_many_runners() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..40 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let runners = (0..8).map(|_| world.sessions.claim(RunnerId::generate(), 10));
    let claims: Vec<_> =
        futures::future::try_join_all(runners).await?.into_iter().flatten().collect();
    let rest = world.claim().await?;

    let sessions: HashSet<_> = claims.iter().chain(&rest).map(|claim| claim.session).collect();
    assert_eq!(sessions.len(), claims.len() + rest.len());
    assert_eq!(sessions.len(), 40);
    Ok(())
}

#[tokio::test]
async fn a_quiet_tenant_is_next_however_many_the_noisy_one_has_waiting() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (noisy, quiet) = (world.tenant(), world.tenant());
    for n in 0..60 {
        noisy.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    quiet.say("s", "k", "hello").await?;

    let first_two = world.sessions.claim(world.runner, 2).await?;

    assert!(first_two.iter().any(|claim| claim.tenant == quiet.id));
    Ok(())
}

#[tokio::test]
async fn a_tenant_over_its_cap_waits_in_its_own_queue_and_moves_up_as_others_end()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    world.sessions.queues().set_share(ada.id, None, Some(2)).await?;
    for n in 0..5 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let mut served = Vec::new();
    while let Some(claim) = world.claim().await?.into_iter().next() {
        assert!(
            world
                .number("select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight")
                .await?
                <= 2
        );
        world.answer(&claim, "hi").await?;
        served.push(claim.session);
    }

    // The second session of each claimed pair is still running.
    assert!(!served.is_empty());
    assert_eq!(world.number("select count(*) from session.session_lease where state = 'READY' and fair_key is null").await?, 0);
    Ok(())
}

#[tokio::test]
async fn twice_the_weight_is_twice_the_share() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (heavy, light) = (world.tenant(), world.tenant());
    world.sessions.queues().set_share(heavy.id, Some(2), None).await?;
    world.sessions.queues().set_share(light.id, Some(1), None).await?;
    for n in 0..30 {
        heavy.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
        light.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }

    let claims = world.sessions.claim(world.runner, 30).await?;

    let heavy = claims.iter().filter(|claim| claim.tenant == heavy.id).count();
    assert!((19..=21).contains(&heavy), "{heavy} of 30");
    Ok(())
}

#[tokio::test]
async fn renewing_returns_what_is_still_held_and_nothing_else() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    ada.say("t", "k2", "hello").await?;
    let held = world.claim().await?;
    world.answer(&held[0], "hi").await?;

    let renewed = world.sessions.renew(world.runner, &held).await?;
    let stranger = world.sessions.renew(RunnerId::generate(), &held).await?;

    assert_eq!(renewed.iter().map(|one| one.session).collect::<Vec<_>>(), [held[1].session]);
    assert!(stranger.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_released_session_goes_on_elsewhere_at_once_without_a_charge() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;

    world.sessions.release(&claim).await?;
    let next = world.claim_one().await?;

    assert_eq!((next.attempts, next.epoch > claim.epoch), (1, true));
    assert!(world.answer(&claim, "too late").await.unwrap_err().is_fenced());
    Ok(())
}

#[tokio::test]
async fn of_two_sessions_in_one_workspace_only_one_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    ada.say("t", "k2", "hello").await?;
    world.admin("update session.session_lease set workspace = 'w'").await?;

    let first = world.claim().await?;
    let none = world.claim().await?;
    world.answer(&first[0], "done").await?;
    let second = world.claim().await?;

    assert_eq!((first.len(), none.len(), second.len()), (1, 0, 1));
    assert_ne!(first[0].session, second[0].session);
    Ok(())
}

#[tokio::test]
async fn a_runner_has_one_session_at_a_time_that_lost_two_before() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..5 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    // Three sessions, and the first in the order is among them.
    suspect(&world, 3).await?;

    let first = world.claim().await?;
    let none = world.claim().await?;
    let other = world.sessions.claim(RunnerId::generate(), 100).await?;
    let lost = |claims: &[Claim]| claims.iter().filter(|c| c.attempts > SUSPECT_ATTEMPTS).count();
    assert_eq!((first.len(), lost(&first), none.len()), (3, 1, 0));
    assert_eq!((other.len(), lost(&other)), (1, 1));

    // After progress the session is not a suspect any more.
    let thought = StepWrite {
        run: Some(RunId::generate()),
        entries: vec![thought("hm")],
        ..StepWrite::default()
    };
    let claim = first.iter().find(|claim| claim.attempts > SUSPECT_ATTEMPTS).unwrap();
    world.sessions.append(claim, thought).await?;
    let last = world.claim().await?;
    assert_eq!((last.len(), lost(&last)), (1, 1));
    Ok(())
}

#[tokio::test]
async fn those_behind_suspects_do_not_wait_for_them() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    for n in 0..4 {
        ada.say(&format!("s{n}"), &format!("k{n}"), "hello").await?;
    }
    suspect(&world, 3).await?;

    let suspect = world.claim_one().await?;
    let behind = world.claim_one().await?;

    assert_eq!((suspect.attempts, behind.attempts), (SUSPECT_ATTEMPTS + 1, 1));
    Ok(())
}

/// Makes the first ready sessions suspects, as if they had lost that many runners.
async fn suspect(world: &World, count: u32) -> anyhow::Result<()> {
    world
        .admin(&format!(
            "update session.session_lease set attempts = {SUSPECT_ATTEMPTS} where session_id in (
                 select session_id from session.session_lease order by fair_key limit {count})"
        ))
        .await?;
    Ok(())
}
