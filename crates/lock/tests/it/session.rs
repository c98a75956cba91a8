//! The highest epoch wins the session.

use holdfast_lock::{SessionLock, TakeOutcome};
use holdfast_types::{RunnerId, SessionId, TenantId};

use crate::world::World;

fn claim(epoch: i64) -> SessionLock {
    SessionLock { tenant: TenantId::generate(), session: SessionId::generate(), epoch }
}

#[tokio::test]
async fn a_newer_claim_takes_the_lock_and_the_older_learns_of_it() {
    let world = World::new().await;
    let (old, new) = (RunnerId::generate(), RunnerId::generate());
    let (olds, news) = (world.locks.sessions(old), world.elsewhere().sessions(new));
    let (first, other) = (claim(3), claim(9));
    assert_eq!(olds.take(first).await.unwrap(), TakeOutcome::Held);
    assert_eq!(olds.take(other).await.unwrap(), TakeOutcome::Held);

    let second = SessionLock { epoch: 4, ..first };
    assert_eq!(news.take(second).await.unwrap(), TakeOutcome::Held);

    assert_eq!(olds.renew_many(&[first, other]).await.unwrap(), [(first, 4)]);
    assert_eq!(olds.take(first).await.unwrap(), TakeOutcome::Newer(4));
    assert_eq!(news.renew_many(&[second]).await.unwrap(), []);
    let owner = world.session_owner(first).await;
    assert_eq!(owner, Some((4, new)));
}

#[tokio::test]
async fn one_epoch_has_one_runner() {
    let world = World::new().await;
    let lock = claim(7);
    let (one, two) = (RunnerId::generate(), RunnerId::generate());

    assert_eq!(world.locks.sessions(one).take(lock).await.unwrap(), TakeOutcome::Held);
    assert_eq!(world.locks.sessions(two).take(lock).await.unwrap(), TakeOutcome::Newer(7));
    assert_eq!(world.locks.sessions(one).take(lock).await.unwrap(), TakeOutcome::Held);
}

#[tokio::test]
async fn another_tenant_has_a_lock_of_its_own_even_for_the_same_id() {
    let world = World::new().await;
    let (ours, runner) = (claim(7), RunnerId::generate());
    world.locks.sessions(runner).take(ours).await.unwrap();
    let theirs = SessionLock { tenant: TenantId::generate(), epoch: 1, ..ours };

    let taken = world.locks.sessions(RunnerId::generate()).take(theirs).await.unwrap();

    assert_eq!(taken, TakeOutcome::Held);
    let owner = world.session_owner(ours).await;
    assert_eq!(owner, Some((7, runner)));
}

#[tokio::test]
async fn only_its_holder_gives_a_lock_back() {
    let world = World::new().await;
    let (old, new) = (RunnerId::generate(), RunnerId::generate());
    let first = claim(1);
    let second = SessionLock { epoch: 2, ..first };
    world.locks.sessions(old).take(first).await.unwrap();
    world.locks.sessions(new).take(second).await.unwrap();

    world.locks.sessions(old).release(first).await.unwrap();
    let owner = world.session_owner(first).await;
    assert_eq!(owner, Some((2, new)));

    world.locks.sessions(new).release(second).await.unwrap();
    let owner = world.session_owner(first).await;
    assert_eq!(owner, None);
}

#[tokio::test]
async fn a_thousand_locks_are_renewed_in_one_call() {
    let world = World::new().await;
    let sessions = world.locks.sessions(RunnerId::generate());
    let claims: Vec<SessionLock> = (0..1000).map(claim).collect();

    assert_eq!(sessions.renew_many(&claims).await.unwrap(), []);

    let last = claims[999];
    let owner = world.session_owner(last).await;
    assert_eq!(owner.map(|(epoch, _)| epoch), Some(999));
}
