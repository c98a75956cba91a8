//! Marks are shared by all processes, and concurrent changes are not lost.

use std::time::Duration;

use holdfast_lock::{Amount, Mark};

use crate::world::World;

const TTL: Duration = Duration::from_secs(60);

fn mark(at: i64, text: &str) -> Mark {
    Mark { at, text: text.to_owned() }
}

#[tokio::test]
async fn a_change_that_has_not_seen_the_last_one_is_told_it() {
    let world = World::new().await;
    let others = world.elsewhere();
    let names = ["t:auth:openai:a".to_owned(), "t:auth:openai:b".to_owned()];

    let first = world.locks.put_mark(&names[0], 0, &mark(100, "{\"n\":1}"), TTL).await.unwrap();
    let blind = others.put_mark(&names[0], 0, &mark(101, "{}"), TTL).await.unwrap();
    let seen = others.put_mark(&names[0], 100, &mark(101, "{\"n\":2}"), TTL).await.unwrap();

    assert_eq!((first, blind, seen), (None, Some(mark(100, "{\"n\":1}")), None));
    let all = world.locks.marks(&names).await.unwrap();
    assert_eq!(all, [Some(mark(101, "{\"n\":2}")), None]);
}

#[tokio::test]
async fn what_others_hold_is_told_until_it_is_given_back_or_lapses() {
    let world = World::new().await;
    let others = world.elsewhere();
    let names = ["t:all".to_owned(), "t:agent".to_owned()];
    let amount = |tokens, micros| Amount { tokens, micros };

    let first = world.locks.reserve(&names, "a", amount(10, 2), TTL).await.unwrap();
    let again = world.locks.reserve(&names, "a", amount(20, 3), TTL).await.unwrap();
    let short = Duration::from_secs(12);
    let second = others.reserve(&names[..1], "b", amount(5, 1), short).await.unwrap();
    let third = others.reserve(&names, "c", amount(1, 0), TTL).await.unwrap();

    assert_eq!(first, [Amount::default(); 2]);
    assert_eq!(again, [Amount::default(); 2]);
    assert_eq!(second, [amount(20, 3)]);
    assert_eq!(third, [amount(25, 4), amount(20, 3)]);

    world.locks.unreserve(&names, "a").await.unwrap();
    tokio::time::sleep(short + Duration::from_millis(50)).await;
    let last = others.reserve(&names, "c", amount(1, 0), TTL).await.unwrap();
    assert_eq!(last, [Amount::default(); 2]);
}
