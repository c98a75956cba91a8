//! A name has at most one holder.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::world::World;

/// Long enough that a machine that stalls for ten seconds renews in time.
const TTL: Duration = Duration::from_secs(18);

#[tokio::test]
async fn a_name_has_one_holder_at_a_time() {
    let world = World::new().await;
    let others = world.elsewhere();
    let lease = world.locks.try_acquire("bot:1", TTL).await.unwrap().unwrap();

    assert!(others.try_acquire("bot:1", TTL).await.unwrap().is_none());
    assert!(others.try_acquire("bot:2", TTL).await.unwrap().is_some());

    lease.release().await.unwrap();
    assert!(others.try_acquire("bot:1", TTL).await.unwrap().is_some());
}

#[tokio::test]
async fn a_held_lease_outlives_its_ttl() {
    let world = World::new().await;
    let lease = world.locks.try_acquire("bot", TTL).await.unwrap().unwrap();

    sleep(TTL + TTL / 2).await;

    assert!(!lease.is_lost());
    assert!(world.elsewhere().try_acquire("bot", TTL).await.unwrap().is_none());
}

#[tokio::test]
async fn a_dropped_lease_lapses() {
    let world = World::new().await;
    drop(world.locks.try_acquire("bot", TTL).await.unwrap().unwrap());
    assert!(world.locks.try_acquire("bot", TTL).await.unwrap().is_none());

    sleep(TTL + TTL / 2).await;

    assert!(world.locks.try_acquire("bot", TTL).await.unwrap().is_some());
}

#[tokio::test]
async fn a_holder_learns_that_someone_else_has_it() {
    let world = World::new().await;
    let lease = world.locks.try_acquire("bot", TTL).await.unwrap().unwrap();
    let client = redis::Client::open(world.namespace.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let key = format!("{}lease:bot", world.namespace.prefix());

    let () = redis::cmd("set").arg(&key).arg("thief").query_async(&mut redis).await.unwrap();

    timeout(TTL * 5, lease.lost()).await.unwrap();
    lease.release().await.unwrap();
    let holder: String = redis::cmd("get").arg(&key).query_async(&mut redis).await.unwrap();
    assert_eq!(holder, "thief");
}
