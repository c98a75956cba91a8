//! Redis may go away at any moment, and come back empty.

use std::time::Duration;

use holdfast_lock::{Error, Limit, SessionLock, TakeOutcome, Verdict};
use holdfast_testkit::{OwnBackends, backends::Server};
use holdfast_types::{Fault as _, Kind, RunnerId, SessionId, TenantId};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use crate::world::{locks, patient_locks};

const LIMIT: Limit = Limit { burst: 3, per: Duration::from_secs(600) };

#[tokio::test]
async fn without_redis_limits_hold_and_nobody_waits() {
    let locks = locks("redis://127.0.0.1:1", "");

    let began = Instant::now();
    let mut allowed = 0;
    for _ in 0..200 {
        allowed += usize::from(matches!(locks.allow("k", LIMIT, 1).await, Verdict::Allow { .. }));
    }

    assert_eq!(allowed, 3);
    // With half a second for each call it would take a hundred.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_redis_that_hangs_costs_half_a_second_and_then_nothing() {
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let locks = locks(&format!("redis://{}", silent.local_addr().unwrap()), "");

    let failure = async || locks.try_acquire("bot", Duration::from_secs(9)).await.unwrap_err();
    let began = Instant::now();
    let error = failure().await;
    let waited = began.elapsed();
    // A stall of the machine may outlast the rest after a failure; the next failure begins another.
    let mut is_spared = false;
    for _ in 0..20 {
        is_spared = is_spared || matches!(failure().await, Error::Resting);
    }

    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    assert!(is_spared, "each call asks");
}

#[tokio::test]
async fn while_redis_hangs_one_call_at_a_time_finds_out() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let locks = locks(&format!("redis://{}", silent.local_addr().unwrap()), "");
    locks.allow("k", LIMIT, 1).await;

    let until = Instant::now() + Duration::from_secs(3);
    let callers = (0..5).map(|n| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut waits = 0;
            while Instant::now() < until {
                let asked = Instant::now();
                locks.allow(&n.to_string(), LIMIT, 1).await;
                waits += u32::from(asked.elapsed() >= Duration::from_millis(400));
                sleep(Duration::from_millis(5)).await;
            }
            waits
        })
    });
    let mut waits = 0;
    for caller in callers.collect::<Vec<_>>() {
        waits += caller.await.unwrap();
    }

    // A call that asks waits for half a second: one at a time are six, and all at once thirty.
    assert!((1..=10).contains(&waits), "{waits} calls asked");
}

#[tokio::test]
async fn a_crash_is_healed_by_the_next_renewal() {
    let own = OwnBackends::start().await.unwrap();
    let locks = patient_locks(&own.urls().redis_url, "");
    let sessions = locks.sessions(RunnerId::generate());
    let lock =
        SessionLock { tenant: TenantId::generate(), session: SessionId::generate(), epoch: 5 };
    sessions.take(lock).await.unwrap();
    let lease = locks.try_acquire("bot", Duration::from_secs(120)).await.unwrap().unwrap();
    let short = locks.try_acquire("short", Duration::from_millis(900)).await.unwrap().unwrap();

    own.kill(Server::Redis).await.unwrap();
    assert_eq!(sessions.take(lock).await.unwrap_err().kind(), Kind::Unavailable);
    tokio::time::timeout(Duration::from_secs(60), short.lost()).await.unwrap();
    own.restart(Server::Redis).await.unwrap();

    let back = Instant::now();
    while sessions.take(lock).await.ok() != Some(TakeOutcome::Held) {
        assert!(back.elapsed() < Duration::from_secs(60), "redis is back and not found");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!lease.is_lost());
    let owner = crate::world::session_owner(&own.urls().redis_url, "", lock).await;
    assert_eq!(owner.map(|(epoch, _)| epoch), Some(5));
}
