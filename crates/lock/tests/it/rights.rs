//! Each service logs in to Redis as a user that may do what the service does, and nothing else.

use std::time::Duration;

use holdfast_lock::{Amount, Limit, Locks, Mark, RecentMessage, SessionLock, TakeOutcome};
use holdfast_testkit::{generated::check_stolen_parts, redis::Namespace};
use holdfast_types::{RunnerId, SessionId, TenantId};

use crate::world::{World, patient_locks};

const TTL: Duration = Duration::from_secs(60);

fn locks_of(world: &World, service: &str) -> Locks {
    patient_locks(world.namespace.service_url(service), world.namespace.prefix())
}

fn message() -> RecentMessage<'static> {
    RecentMessage { hash: "h", sent_at_ms: 5, window: TTL, max_kept: 3 }
}

#[tokio::test]
async fn a_gateway_may_count_calls_and_read_the_state_of_the_server() {
    let world = World::new().await;
    let gateway = locks_of(&world, "gateway");

    let limit = Limit { burst: 4, per: TTL };
    gateway.allow("calls", limit, 1).await;
    let (version, _) = gateway.server_status().await.unwrap();

    // Without the right the process would have counted by itself.
    let key = format!("{}rate:calls", world.namespace.prefix());
    assert!(exists(&world.namespace, &key).await);
    assert!(!version.is_empty());
}

#[tokio::test]
async fn a_runner_may_lock_sessions_mark_keys_and_reserve_budgets() {
    let world = World::new().await;
    let runner = locks_of(&world, "agent-runner");
    let (tenant, session) = (TenantId::generate(), SessionId::generate());
    let lock = SessionLock { tenant, session, epoch: 1 };
    let sessions = runner.sessions(RunnerId::generate());
    let names = ["t:all".to_owned()];
    let mark = Mark { at: 1, text: "{}".to_owned() };

    assert_eq!(sessions.take(lock).await.unwrap(), TakeOutcome::Held);
    assert_eq!(sessions.renew_many(&[lock]).await.unwrap(), []);
    sessions.release(lock).await.unwrap();
    runner.try_acquire("summary", TTL).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(runner.put_mark("key", 0, &mark, TTL).await.unwrap(), None);
    assert_eq!(runner.marks(&["key".to_owned()]).await.unwrap(), [Some(mark)]);
    let amount = Amount { tokens: 1, micros: 1 };
    assert_eq!(runner.reserve(&names, "a", amount, TTL).await.unwrap(), [Amount::default()]);
    runner.unreserve(&names, "a").await.unwrap();
    assert_eq!(runner.recent_messages("beat", 0).await.unwrap(), []);
}

#[tokio::test]
async fn a_scheduler_may_remember_messages_and_a_bridge_may_hold_leases() {
    let world = World::new().await;

    locks_of(&world, "scheduler").remember_message("beat", message()).await.unwrap();
    let lease = locks_of(&world, "channel-bridge").try_acquire("bot", TTL).await.unwrap();

    lease.unwrap().release().await.unwrap();
    let sent = world.locks.recent_messages("beat", 0).await.unwrap();
    assert_eq!(sent, [(5, "h".to_owned())]);
}

#[tokio::test]
async fn a_service_touches_no_key_of_another() {
    let world = World::new().await;
    let name = "other";

    // A new connection for each: after a failure a process does not ask Redis for a while.
    assert!(locks_of(&world, "gateway").try_acquire(name, TTL).await.is_err());
    assert!(locks_of(&world, "gateway").recent_messages(name, 0).await.is_err());
    assert!(locks_of(&world, "scheduler").recent_messages(name, 0).await.is_err());
    assert!(locks_of(&world, "scheduler").try_acquire(name, TTL).await.is_err());
    assert!(locks_of(&world, "scheduler").server_status().await.is_err());
    assert!(locks_of(&world, "channel-bridge").remember_message(name, message()).await.is_err());
    assert!(locks_of(&world, "channel-bridge").marks(&[name.to_owned()]).await.is_err());
    assert!(locks_of(&world, "agent-runner").remember_message(name, message()).await.is_err());
    assert!(locks_of(&world, "agent-runner").server_status().await.is_err());
}

#[tokio::test]
async fn no_service_administers_the_server() {
    let world = World::new().await;
    for service in ["gateway", "agent-runner", "scheduler", "channel-bridge"] {
        let client = redis::Client::open(world.namespace.service_url(service)).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        for command in
            [&["FLUSHALL"][..], &["KEYS", "*"], &["ACL", "LIST"], &["CONFIG", "GET", "*"]]
        {
            let mut cmd = redis::cmd(command[0]);
            let refused = cmd.arg(&command[1..]).query_async::<redis::Value>(&mut redis).await;
            assert_eq!(refused.unwrap_err().code(), Some("NOPERM"), "{service}: {command:?}");
        }
    }
}

/// A row of the table in `docs/stolen-parts.md`: its name, how keys begin, commands that read them, and
/// commands that change them, besides [`ANY_CHANGE`].
type KeyRow =
    (&'static str, &'static str, &'static [&'static str], &'static [&'static [&'static str]]);

const KEYS: [KeyRow; 6] = [
    ("`rate:*`, counts of calls and attempts", "rate", &["GET"], &[]),
    ("`lock:*`, runners of sessions", "lock", &["GET"], &[]),
    ("`lease:*`, leases of work and of channel accounts", "lease", &["GET"], &[]),
    ("`mark:*`, rests of model keys", "mark", &["GET"], &[]),
    (
        "`reserved:*`, reserved parts of budgets",
        "reserved",
        &["HGETALL"],
        &[&["HSET", "a", "1"], &["HDEL", "a"]],
    ),
    (
        "`lately:*`, hashes of messages of heartbeats",
        "lately",
        &["ZRANGEBYSCORE", "0", "1"],
        &[&["ZADD", "1", "a"], &["ZREMRANGEBYSCORE", "0", "1"]],
    ),
];

/// Commands that change a key of any type.
const ANY_CHANGE: [&[&str]; 3] = [&["SET", "1"], &["DEL"], &["PEXPIRE", "60000"]];

/// Whether a login may give one of these commands for a key.
async fn may(url: &str, key: &str, commands: &[&[&str]]) -> bool {
    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    for command in commands {
        let mut cmd = redis::cmd(command[0]);
        let done = cmd.arg(key).arg(&command[1..]).query_async::<redis::Value>(&mut redis).await;
        match done {
            Ok(_) => return true,
            Err(error) => assert_eq!(error.code(), Some("NOPERM"), "{command:?}: {error}"),
        }
    }
    false
}

#[tokio::test]
async fn the_page_says_which_keys_each_login_reads_and_changes() {
    const LOGINS: [&str; 4] = ["gateway", "agent-runner", "scheduler", "channel-bridge"];
    let namespace = Namespace::create().await.unwrap();
    let mut rows: Vec<Vec<String>> = Vec::new();

    for (name, word, reading, changing) in KEYS {
        let mut row = vec![name.to_owned()];
        for service in LOGINS {
            let url = namespace.service_url(service);
            // Each has a key of its own, so that no command finds a key of another type.
            let key = format!("{}{word}:{service}", namespace.prefix());
            let reads = may(url, &key, &[reading]).await;
            let changing = [changing, &ANY_CHANGE].concat();
            let cell = match (reads, may(url, &key, &changing).await) {
                (true, true) => "reads, changes",
                (true, false) => "reads",
                (false, true) => "changes",
                (false, false) => "—",
            };
            row.push(cell.to_owned());
        }
        rows.push(row);
    }

    let head: Vec<&str> = ["keys"].into_iter().chain(LOGINS).collect();
    check_stolen_parts("redis", &head, &rows).unwrap();
}

async fn exists(namespace: &Namespace, key: &str) -> bool {
    let client = redis::Client::open(namespace.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("EXISTS").arg(key).query_async(&mut redis).await.unwrap()
}
