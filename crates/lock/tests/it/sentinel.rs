//! Redis Sentinel names the server, also after another has taken its place.

use std::time::Duration;

use holdfast_lock::{Config, Locks};
use holdfast_testkit::RedisGroup;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(60);

fn locks(group: &RedisGroup) -> Locks {
    let config = Config {
        url: RedisGroup::LOGIN_URL.into(),
        sentinels: group.sentinels().into(),
        sentinel_group: RedisGroup::NAME.to_owned(),
        prefix: "t_".to_owned(),
        ..Config::default()
    };
    Locks::connect_lazy(&config).unwrap()
}

#[tokio::test]
async fn the_server_that_sentinels_name_is_used_and_the_next_one_after_it_is_lost() {
    let mut group = RedisGroup::start().await.unwrap();
    let locks = locks(&group);
    let held = locks.try_acquire("before", Duration::from_secs(60)).await.unwrap();
    assert!(held.is_some());

    // One Sentinel is lost too: the others name the server.
    group.kill_sentinel(0).await.unwrap();
    group.kill(0).await.unwrap();

    let began = Instant::now();
    let lease = loop {
        if let Ok(lease) = locks.try_acquire("after", Duration::from_secs(60)).await {
            break lease;
        }
        assert!(began.elapsed() < LIMIT, "no call succeeds after the failover");
        sleep(Duration::from_millis(100)).await;
    };
    assert!(lease.is_some());
    let second = redis::Client::open(group.url(1)).unwrap();
    let mut second = second.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("t_*after*").query_async(&mut second).await.unwrap();
    assert_eq!(keys.len(), 1, "the lease is not at the second server");
}

#[tokio::test]
async fn without_sentinels_nobody_waits() {
    let config = Config {
        sentinels: "redis://127.0.0.1:1, redis://127.0.0.1:2".into(),
        ..Config::default()
    };
    let locks = Locks::connect_lazy(&config).unwrap();

    let began = Instant::now();
    for _ in 0..200 {
        assert!(locks.try_acquire("bot", Duration::from_secs(9)).await.is_err());
    }
    // With half a second for each call it would take a hundred.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
