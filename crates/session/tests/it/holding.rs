//! A paused session queues its input; a session that a user paused is not resumed with its parent.

use holdfast_session::OverdueResult;
use holdfast_types::Wait;

use crate::world::World;

#[tokio::test]
async fn a_held_session_is_not_claimed_and_goes_on_when_it_is_resumed() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let ready = ada.say("s", "k1", "hello").await?;
    let resting = ada.say("t", "k2", "hello").await?;
    world.sessions.pause(ada.id, ready.session).await?;
    world.answer(&world.claim_one().await?, "hi").await?;
    world.sessions.pause(ada.id, resting.session).await?;
    assert_eq!(
        world
            .number("select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight")
            .await?,
        0
    );

    ada.say("t", "k3", "more").await?;
    assert!(world.claim().await?.is_empty());
    let resumed = world.sessions.resume(ada.id, ready.session).await?;
    assert!(resumed.wake);
    world.sessions.resume(ada.id, resting.session).await?;

    assert_eq!(world.claim().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_running_turn_is_told_to_stop_and_leaves_its_place_when_it_does() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;

    let held = world.sessions.pause(ada.id, sent.session).await?;
    let renewed = world.sessions.renew(world.runner, std::slice::from_ref(&claim)).await?;
    world.sessions.release(&claim).await?;

    assert_eq!(held.running.len(), 1);
    assert!(renewed.renewed[0].pause);
    assert!(world.claim().await?.is_empty());
    assert_eq!(
        world
            .number("select coalesce(sum(in_flight), 0)::bigint from session.tenant_flight")
            .await?,
        0
    );
    world.sessions.resume(ada.id, sent.session).await?;
    assert_eq!(world.claim().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn resuming_a_parent_leaves_a_child_alone_that_was_held_by_hand() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let parent = ada.say("parent", "k1", "hello").await?.session;
    let one = ada.say("one", "k2", "hello").await?.session;
    let two = ada.say("two", "k3", "hello").await?.session;
    world
        .admin(&format!(
            "update session.sessions set parent_id = '{}' where session_id in ('{}', '{}')",
            parent.as_uuid(),
            one.as_uuid(),
            two.as_uuid()
        ))
        .await?;

    world.sessions.pause(ada.id, two).await?;
    assert_eq!(world.sessions.pause(ada.id, parent).await?.sessions, 2);
    assert!(world.claim().await?.is_empty());
    assert_eq!(world.sessions.resume(ada.id, parent).await?.sessions, 2);

    assert_eq!(world.claim().await?.len(), 2);
    assert_eq!(world.sessions.views().session(ada.id, two).await?.paused.as_deref(), Some("user"));
    Ok(())
}

#[tokio::test]
async fn cancelling_tells_the_runner_how_far() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k1", "hello").await?;
    let claim = world.claim_one().await?;
    ada.say("s", "k2", "later").await?;

    let running = world.sessions.cancel(ada.id, sent.session).await?;

    assert_eq!(running.owner().map(|running| running.epoch), Some(claim.epoch));
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 1);
    Ok(())
}

#[tokio::test]
async fn what_takes_too_long_is_stopped_and_never_the_turn_of_another_message() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let ada = world.tenant();
    let session = ada.say("s", "k1", "hello").await?.session;
    let claim = world.claim_one().await?;
    ada.say("s", "k2", "a reminder").await?;

    let behind = world.sessions.end_overdue(ada.id, session, 2).await?;
    assert_eq!(behind, OverdueResult::Waits);
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 0);
    world.finish(&claim, vec![1], "hi", Wait::Anything).await?;
    assert_eq!(
        world.sessions.end_overdue(ada.id, session, 1).await?,
        OverdueResult::Waits,
        "it ended"
    );
    assert_eq!(
        world.sessions.end_overdue(ada.id, session, 2).await?,
        OverdueResult::Waits,
        "no runner"
    );
    let claim = world.claim_one().await?;

    let stopped = world.sessions.end_overdue(ada.id, session, 2).await?;
    assert!(matches!(stopped, OverdueResult::Stopped(running) if running.epoch == claim.epoch));
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 2);
    assert_eq!(world.sessions.end_overdue(ada.id, session, 3).await?, OverdueResult::Gone);
    Ok(())
}

#[tokio::test]
async fn a_word_that_another_message_s_turn_waits_for_is_still_waited_for() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let session = ada.say("s", "k1", "delete it").await?.session;
    let claim = world.claim_one().await?;
    ada.say("s", "k2", "a reminder").await?;
    world.finish(&claim, vec![], "may I?", Wait::for_approval(3_600_000)).await?;
    world.admin("update session.inbox set state = 'seen' where seq = 1").await?;

    assert_eq!(world.sessions.end_overdue(ada.id, session, 2).await?, OverdueResult::Waits);
    assert!(world.claim().await?.is_empty());
    let woken = world.sessions.end_overdue(ada.id, session, 1).await?;

    assert_eq!(woken, OverdueResult::Woken(true));
    let claim = world.claim_one().await?;
    assert_eq!(world.sessions.load(&claim, 10).await?.cancel_upto, 1);
    Ok(())
}
