//! A tenant's keys hold nothing of another tenant, whatever its names are.
//!
//! Callers put the tenant's id before each name, as these tests do.

use std::time::Duration;

use holdfast_lock::{Amount, Limit, Mark, RecentMessage, SessionLock, TakeOutcome, Verdict};
use holdfast_types::{RunnerId, SessionId, TenantId};

use crate::world::World;

const TTL: Duration = Duration::from_secs(60);

/// Names that would reach other keys, were keys patterns, lines, or parts of a script.
fn hostile_names(other: TenantId) -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        ":",
        "*",
        "?",
        "[a-z]",
        "x\r\nFLUSHALL\r\n",
        "x\0y",
        "{tag}",
        "' .. redis.call('FLUSHALL') .. '",
        "../x",
        "ünïcode",
        "rate:x",
        "lease:x",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push(format!("{other}:x"));
    names.push(format!(":{other}"));
    names.push(format!("x\nlease:{other}:x"));
    names.push("n".repeat(2_000));
    names
}

fn both(name: &str, ours: TenantId, theirs: TenantId) -> (String, String) {
    (format!("{ours}:{name}"), format!("{theirs}:{name}"))
}

#[tokio::test]
async fn what_one_tenant_holds_or_uses_up_is_free_for_the_other() {
    let world = World::new().await;
    let others = world.elsewhere();
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    let once = Limit { burst: 1, per: TTL };

    for name in hostile_names(theirs) {
        let (our_name, their_name) = both(&name, ours, theirs);
        let lease = world.locks.try_acquire(&our_name, TTL).await.unwrap();
        assert!(lease.is_some(), "{name:?} is held by another name");
        let free = others.try_acquire(&their_name, TTL).await.unwrap();
        assert!(free.is_some(), "{name:?} is held by the other tenant");

        assert!(matches!(world.locks.allow(&our_name, once, 1).await, Verdict::Allow { .. }));
        assert!(matches!(world.locks.allow(&our_name, once, 1).await, Verdict::Deny { .. }));
        assert!(matches!(others.allow(&their_name, once, 1).await, Verdict::Allow { .. }));
    }
}

#[tokio::test]
async fn what_one_tenant_stores_is_not_read_by_the_other() {
    let world = World::new().await;
    let others = world.elsewhere();
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    let mark = Mark { at: 7, text: "ours".to_owned() };
    let amount = Amount { tokens: 10, micros: 2 };
    let sent =
        RecentMessage { hash: "ours", sent_at_ms: 1_767_225_600_000, window: TTL, max_kept: 3 };

    for name in hostile_names(theirs) {
        let (our_name, their_name) = both(&name, ours, theirs);
        world.locks.put_mark(&our_name, 0, &mark, TTL).await.unwrap();
        world.locks.remember_message(&our_name, sent).await.unwrap();
        let names = [our_name.clone()];
        world.locks.reserve(&names, "a", amount, TTL).await.unwrap();

        let names = [their_name.clone()];
        assert_eq!(others.marks(&names).await.unwrap(), [None], "{name:?}");
        assert_eq!(others.recent_messages(&their_name, 0).await.unwrap(), [], "{name:?}");
        let held = others.reserve(&names, "b", amount, TTL).await.unwrap();
        assert!(held.iter().all(|held| held.tokens == 0), "{name:?}: {held:?}");
        // What was stored is still there, and so is every name's own.
        let names = [our_name];
        assert_eq!(others.marks(&names).await.unwrap(), [Some(mark.clone())], "{name:?}");
    }
}

#[tokio::test]
async fn the_same_session_id_of_two_tenants_is_two_locks() {
    let world = World::new().await;
    let session = SessionId::generate();
    let lock = |tenant, epoch| SessionLock { tenant, session, epoch };
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    let (one, other) = (RunnerId::generate(), RunnerId::generate());

    let held = world.locks.sessions(one).take(lock(ours, 9)).await.unwrap();
    let lower = world.locks.sessions(other).take(lock(theirs, 1)).await.unwrap();

    assert_eq!((held, lower), (TakeOutcome::Held, TakeOutcome::Held));
    assert_eq!(world.session_owner(lock(ours, 9)).await, Some((9, one)));
    assert_eq!(world.session_owner(lock(theirs, 1)).await, Some((1, other)));
}
