//! A tenant's subjects carry nothing of another tenant, whatever its names are.

use std::time::Duration;

use bytes::Bytes;
use holdfast_bus::{Delta, DeltaBody, Subject};
use holdfast_types::{NodeId, RunId, SessionId, TenantId};
use tokio::time::timeout;
use uuid::Uuid;

use crate::world::{World, ensure_streams, publish, soon};

/// How long a listener waits for what must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// Names that would reach other subjects, were they taken as they are. `*` and `>` are wildcards,
/// the third is another tenant's subject.
fn hostile_names(other: TenantId, session: SessionId) -> Vec<String> {
    let (other, session) = (other.as_uuid().simple(), session.as_uuid().simple());
    let mut names: Vec<String> = [
        "",
        "*",
        ">",
        "runs.>",
        "*.*",
        "runs.",
        ".runs",
        "..",
        "runs runs",
        "runs\r\nPUB evt 0\r\n",
        "runs\0",
        "RUNS",
        "rüns",
        "$SYS.>",
        "_INBOX.>",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push(format!("runs.{session}\r\nPUB evt.{other}.runs.{session} 1\r\nx\r\n"));
    names.push(format!("../evt.{other}.runs.{session}"));
    names.push("n".repeat(300));
    names
}

fn delta(text: &str) -> Delta {
    let body = DeltaBody::Text { text: text.to_owned() };
    Delta { run: RunId::generate(), epoch: 1, step: 0, n: 0, body }
}

#[tokio::test]
async fn no_name_of_an_event_reaches_another_tenant() {
    let world = World::new().await;
    ensure_streams(&world.bus).await;
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    // Even the sessions' ids are the same.
    let session = SessionId::generate();
    let mut heard = world.bus.subscribe(&Subject::event(theirs, "runs", session)).await.unwrap();
    world.bus.flush().await;

    for (number, name) in hostile_names(theirs, session).into_iter().enumerate() {
        let subject = Subject::event(ours, &name, session);
        let tokens: Vec<&str> = subject.as_str().split('.').collect();
        assert_eq!(tokens.len(), 4, "{subject}");
        assert_eq!(tokens[1], ours.as_uuid().simple().to_string(), "{subject}");
        let id = format!("e{number}");
        publish(&world.bus, &subject, &id, "ours").await;
    }
    let own = Subject::event(theirs, "runs", session);
    publish(&world.bus, &own, "own", "theirs").await;

    assert_eq!(soon(heard.next()).await.unwrap().payload, "theirs");
    assert!(timeout(SILENCE, heard.next()).await.is_err());
}

#[tokio::test]
async fn a_listener_hears_its_own_tenant_only_though_all_ids_are_the_same() {
    let world = World::new().await;
    let (ours, theirs) = (TenantId::generate(), TenantId::generate());
    let (session, node) = (SessionId::generate(), NodeId::from(Uuid::now_v7()));
    let mut deltas = world.bus.subscribe_deltas(theirs, session).await.unwrap();
    let mut questions = world.bus.node_questions(theirs, node).await.unwrap();
    let mut jobs = world.bus.questions(&Subject::jobs(theirs, session)).await.unwrap();
    world.bus.flush().await;

    world.bus.publish_delta(ours, session, &delta("ours"));
    for subject in [Subject::jobs(ours, session), Subject::node(ours, node)] {
        world.bus.publish(&subject, Bytes::from(r#"{"command": "id"}"#));
    }
    world.bus.flush().await;

    assert!(timeout(SILENCE, deltas.next()).await.is_err());
    assert!(timeout(SILENCE, questions.next::<serde_json::Value>()).await.is_err());
    assert!(timeout(SILENCE, jobs.next::<serde_json::Value>()).await.is_err());
    world.bus.publish_delta(theirs, session, &delta("theirs"));
    assert_eq!(soon(deltas.next()).await.unwrap().body, delta("theirs").body);
}
