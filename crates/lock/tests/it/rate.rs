//! Limits hold, shared by all processes through Redis.

use std::time::Duration;

use holdfast_lock::{Limit, Verdict};
use tokio::time::sleep;

use crate::world::World;

#[tokio::test]
async fn a_burst_is_shared_by_all_processes_and_comes_back() {
    let world = World::new().await;
    let others = world.elsewhere();
    // One comes back every fifteen seconds, so none during the calls.
    let limit = Limit { burst: 4, per: Duration::from_secs(60) };

    assert_eq!(world.locks.allow("k", limit, 1).await, Verdict::Allow { remaining: 3 });
    assert!(matches!(others.allow("k", limit, 3).await, Verdict::Allow { remaining: 0 }));
    let Verdict::Deny { retry_after } = world.locks.allow("k", limit, 1).await else {
        panic!("the fifth of four was allowed");
    };
    assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(15));
    assert!(matches!(world.locks.allow("other", limit, 4).await, Verdict::Allow { .. }));

    sleep(retry_after + Duration::from_millis(5)).await;
    assert!(matches!(others.allow("k", limit, 1).await, Verdict::Allow { .. }));
}

#[tokio::test]
async fn what_exceeds_the_burst_is_never_allowed() {
    let world = World::new().await;
    let limit = Limit { burst: 4, per: Duration::from_secs(2) };

    let verdict = world.locks.allow("k", limit, 5).await;

    assert_eq!(verdict, Verdict::Deny { retry_after: limit.per });
    let none = Limit { burst: 0, ..limit };
    assert_eq!(world.locks.allow("k", none, 0).await, Verdict::Deny { retry_after: limit.per });
}

#[tokio::test]
async fn racing_callers_get_no_more_than_the_burst() {
    let world = World::new().await;
    let limit = Limit { burst: 20, per: Duration::from_secs(600) };

    let asked = (0..100).map(|_| {
        let locks = world.locks.clone();
        tokio::spawn(async move { locks.allow("k", limit, 1).await })
    });
    let mut allowed = 0;
    for asked in asked.collect::<Vec<_>>() {
        allowed += usize::from(matches!(asked.await.unwrap(), Verdict::Allow { .. }));
    }

    assert_eq!(allowed, 20);
}
