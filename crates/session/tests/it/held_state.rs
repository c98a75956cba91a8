//! A session whose state a runner holds is claimed by that runner while it lives.

use std::time::{Duration, Instant};

use holdfast_session::{Claim, Error, HeldItem, HeldKind, LossReason, PendingEvent};
use holdfast_types::RunnerId;

use crate::world::{Tenant, World};

fn command(id: &str) -> HeldItem {
    HeldItem { kind: HeldKind::Command, name: id.to_owned(), title: "npm run dev".to_owned() }
}

fn server() -> HeldItem {
    HeldItem { kind: HeldKind::McpServer, name: "memory".to_owned(), title: String::new() }
}

/// The world's runner has run a session and holds something for it; there is a new message.
async fn hold(world: &World, tenant: &Tenant<'_>, items: &[HeldItem]) -> anyhow::Result<Claim> {
    world.sessions.renew_runner(world.runner).await?;
    tenant.say("s", "first", "hello").await?;
    let claim = world.claim_one().await?;
    let whose = (claim.tenant, claim.session);
    world.sessions.record_held(whose, tenant.agent, world.runner, items).await?;
    world.answer(&claim, "hi").await?;
    tenant.say("s", "second", "hello again").await?;
    Ok(claim)
}

#[tokio::test]
async fn only_the_holder_claims_a_session_while_it_lives() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, bob) = (world.tenant(), world.tenant());
    let other = RunnerId::generate();
    let held = hold(&world, &ada, &[command("prc_1")]).await?;
    bob.say("s", "k", "hello").await?;

    let others = world.sessions.claim(other, 10).await?;
    let next = world.sessions.next_ready().await?;
    let own = world.claim().await?;

    assert_eq!(others.iter().map(|claim| claim.tenant).collect::<Vec<_>>(), [bob.id]);
    assert_eq!(next.held.into_iter().collect::<Vec<_>>(), [(world.runner, held.session)]);
    assert_eq!(own.iter().map(|claim| claim.session).collect::<Vec<_>>(), [held.session]);
    assert_eq!(world.sessions.load(&own[0], 10).await?.holder, Some(world.runner));
    Ok(())
}

#[tokio::test]
async fn others_claim_a_session_whose_holder_died_stopped_or_was_busy() -> anyhow::Result<()> {
    let world = World::start().await?;
    let other = RunnerId::generate();
    let expire = "update session.runners set live_until = clock_timestamp() - interval '1 second'";
    let items = [command("prc_1"), server()];
    for reason in [LossReason::Died, LossReason::Stopped, LossReason::Busy] {
        let ada = world.tenant();
        // Each has a runner of its own.
        world.admin("delete from session.runners").await?;
        hold(&world, &ada, &items).await?;
        let mut sessions = world.sessions.clone();
        match reason {
            LossReason::Died => drop(world.admin(expire).await?),
            LossReason::Stopped => world.sessions.stop_runner(world.runner).await?,
            LossReason::Busy => sessions = sessions.with_holder_wait(Duration::ZERO),
        }

        let claim = sessions.claim(other, 10).await?.pop().expect("it is left to others");
        let before = sessions.load(&claim, 10).await?;
        let lost = sessions.settle_lost(&claim, &before.key).await?;
        let loaded = sessions.load(&claim, 10).await?;

        assert_eq!(before.holder, Some(world.runner), "{reason:?}");
        assert_eq!(loaded.holder, None, "{reason:?}");
        // Other runners reach the commands of a runner that lives.
        let expected = if reason == LossReason::Busy { &items[1..] } else { &items[..] };
        let named: Vec<_> = lost.iter().map(|lost| lost.item.clone()).collect();
        assert_eq!(named, expected, "{reason:?}");
        assert!(lost.iter().all(|lost| lost.reason == reason), "{lost:?}");
        let [PendingEvent { event, .. }] = &loaded.events[..] else {
            panic!("one event: {:?}", loaded.events)
        };
        assert!(event.text.contains("MCP server `memory`"), "{}", event.text);
        assert!(event.text.contains(&reason.to_string()), "{}", event.text);
        assert_eq!(sessions.lost_state(ada.id, claim.session).await?.len(), lost.len());
        // The runner is told what to end, once it lives again.
        let own = sessions.renew_runner(world.runner).await?;
        let of_session = own.iter().filter(|(_, session, ..)| *session == claim.session);
        assert_eq!(of_session.count(), lost.len(), "{reason:?}");
        let again = sessions.settle_lost(&claim, &before.key).await?;
        assert!(again.is_empty(), "it is lost once");
        world.answer(&claim, "hi").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_session_without_state_any_more_is_anybodys() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let claim = hold(&world, &ada, &[command("prc_1"), server()]).await?;
    let whose = (claim.tenant, claim.session);

    world.sessions.record_held(whose, ada.agent, world.runner, &[server()]).await?;
    let left = world.number("select count(*) from session.held_state").await?;
    let none = world.sessions.claim(RunnerId::generate(), 10).await?;
    world.sessions.record_held(whose, ada.agent, world.runner, &[]).await?;
    let any = world.sessions.claim(RunnerId::generate(), 10).await?;

    assert_eq!((left, none.len(), any.len()), (1, 0, 1));
    assert_eq!(world.number("select count(*) from session.held_state").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_session_is_handed_to_the_runner_where_its_agents_server_runs() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let other = RunnerId::generate();
    let held = hold(&world, &ada, &[server()]).await?;
    ada.say("another", "k", "hello").await?;
    let claim = world.sessions.claim(other, 10).await?.pop().expect("the session without state");
    let names = ["memory".to_owned()];

    let own = world.sessions.server_holder(ada.id, ada.agent, &names, world.runner).await?;
    let found = world.sessions.server_holder(ada.id, ada.agent, &names, other).await?;
    let bob = world.tenant();
    let foreign = world.sessions.server_holder(bob.id, ada.agent, &names, other).await?;
    let handed = world.sessions.hand_over(&claim, world.runner).await?;
    world.sessions.release(&claim).await?;
    let fenced = world.sessions.hand_over(&claim, other).await;

    assert_eq!((own, found, foreign), (None, Some(world.runner), None));
    assert!(handed && matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    assert!(world.sessions.claim(other, 10).await?.is_empty());
    // A claim may leave out a session whose row is locked at the moment.
    let mut sessions = Vec::new();
    let begun = Instant::now();
    while sessions.len() < 2 && begun.elapsed() < Duration::from_secs(20) {
        sessions.extend(world.claim().await?.iter().map(|claim| claim.session));
    }
    sessions.sort_unstable();
    let mut expected = [claim.session, held.session];
    expected.sort_unstable();
    assert_eq!(sessions, expected);
    Ok(())
}

#[tokio::test]
async fn a_session_that_waited_in_its_tenants_queue_still_waits_for_its_holder()
-> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let held = hold(&world, &ada, &[server()]).await?;
    world
        .admin(
            "update session.session_lease
             set fair_key = null, ready_at = clock_timestamp() - interval '1 hour'
             where state = 'READY'",
        )
        .await?;
    world.admin("update session.tenant_flight set in_flight = 0").await?;

    world.sweep().await?;
    let others = world.sessions.claim(RunnerId::generate(), 10).await?;
    let own = world.claim().await?;

    assert!(others.is_empty(), "{others:?}");
    assert_eq!(own.iter().map(|claim| claim.session).collect::<Vec<_>>(), [held.session]);
    Ok(())
}

#[tokio::test]
async fn what_was_lost_is_forgotten_after_a_day() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    hold(&world, &ada, &[server()]).await?;
    world.sessions.stop_runner(world.runner).await?;
    let claim = world.sessions.claim(RunnerId::generate(), 1).await?.pop().expect("it is ready");
    let key = world.sessions.load(&claim, 1).await?.key;
    world.sessions.settle_lost(&claim, &key).await?;
    let rows = "select (select count(*) from session.held_state)
                     + (select count(*) from session.runners)";
    world.prune(&holdfast_session::Retention::default()).await?;
    let before = world.number(rows).await?;

    world.admin("update session.held_state set lost_at = lost_at - interval '25 hours'").await?;
    world.admin("update session.runners set live_until = live_until - interval '25 hours'").await?;
    world.prune(&holdfast_session::Retention::default()).await?;

    assert_eq!((before, world.number(rows).await?), (2, 0));
    Ok(())
}
