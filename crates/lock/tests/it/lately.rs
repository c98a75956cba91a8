//! Recently sent texts are known to all processes for their period.

use std::time::Duration;

use holdfast_lock::RecentMessage;

use crate::world::World;

const DAY: i64 = 86_400_000;

fn said(hash: &str, at: i64) -> RecentMessage<'_> {
    RecentMessage { hash, sent_at_ms: at, window: Duration::from_secs(86_400), max_kept: 3 }
}

#[tokio::test]
async fn the_newest_are_remembered_once_each_and_the_old_are_not() {
    let world = World::new().await;
    let others = world.elsewhere();
    let now = 1_767_225_600_000;

    for (hash, at) in [("a", now), ("b", now + 1), ("a", now + 2), ("c", now + 3), ("d", now + 4)] {
        world.locks.remember_message("t:heartbeat", said(hash, at)).await.unwrap();
    }

    let all = [(now + 2, "a".to_owned()), (now + 3, "c".to_owned()), (now + 4, "d".to_owned())];
    assert_eq!(others.recent_messages("t:heartbeat", 0).await.unwrap(), all);
    assert_eq!(others.recent_messages("t:heartbeat", now + 2).await.unwrap(), all[1..]);
    assert_eq!(others.recent_messages("t:other", 0).await.unwrap(), []);

    world.locks.remember_message("t:heartbeat", said("e", now + 3 + DAY)).await.unwrap();
    let left = [(now + 4, "d".to_owned()), (now + 3 + DAY, "e".to_owned())];
    assert_eq!(others.recent_messages("t:heartbeat", 0).await.unwrap(), left);
}
