//! Erasure after a deletion elsewhere, even if this service was down meanwhile.

use std::time::Duration;

use anyhow::bail;
use holdfast_proto::memory::v1::{self as pb, forget_request::What};
use holdfast_types::TenantId;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::types::Json;
use tokio::time::{Instant, sleep};

use crate::world::{Person, World, fact, from};

/// Inserts the row that a deleting service inserts.
pub async fn deleted(
    world: &World,
    tenant: TenantId,
    what: &str,
    subject: &str,
) -> anyhow::Result<()> {
    let mut tx = world.pools()?.tenant(tenant).await?;
    let sql = "select memory.forget_later($1, $2)";
    holdfast_pg::query(sql).bind(what).bind(subject).execute(tx.conn()).await?;
    Ok(tx.commit().await?)
}

/// Waits for the given number of passes. Returns the erased and the remaining rows.
async fn looked(
    world: &World,
    tenant: TenantId,
    passes: i32,
) -> anyhow::Result<(Value, Value, bool)> {
    const SQL: &str = "
        select passes, erased, left_over, due_at is null from memory.erasures where tenant_id = $1";
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut tx = world.pools()?.tenant(tenant).await?;
        let row: (i32, Json<Value>, Json<Value>, bool) =
            holdfast_pg::query_as(SQL).bind(tenant.as_uuid()).fetch_one(tx.conn()).await?;
        tx.finish_reading();
        if row.0 >= passes {
            return Ok((row.1.0, row.2.0, row.3));
        }
        if Instant::now() > until {
            bail!("it was looked for {} times", row.0);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn tell_in(person: &Person, session: &str, text: &str) -> anyhow::Result<()> {
    let item = pb::NewItem { session: session.to_owned(), ..fact(text) };
    person.put(vec![item]).await?;
    Ok(())
}

fn is_nothing(left: &Value) -> bool {
    left.as_object()
        .is_some_and(|left| !left.is_empty() && left.values().all(|rows| rows.as_i64() == Some(0)))
}

#[tokio::test]
async fn a_deleted_session_is_forgotten_even_if_the_service_was_away() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let (ann, eve) = (served.somebody(), served.somebody());
    for (person, session) in [(&ann, "ses_1"), (&ann, "ses_2"), (&eve, "ses_1")] {
        tell_in(person, session, &format!("the cat of {session} sleeps")).await?;
        person.say(session, &[("Ann", "the cat came home")]).await?;
    }
    ann.embedded().await?;
    served.stop().await?;

    deleted(&world, ann.tenant, "session", "ses_1").await?;
    // A repeated request changes nothing.
    deleted(&world, ann.tenant, "session", "ses_1").await?;
    let served = world.serve().await?;
    let (erased, left, _) = looked(&world, ann.tenant, 1).await?;

    assert_eq!((&erased["items"], &erased["units"]), (&1.into(), &2.into()));
    assert!(is_nothing(&left), "{left}");
    let (ann, eve) = (
        Person { memory: served.memory.clone(), ..ann },
        Person { memory: served.memory.clone(), ..eve },
    );
    let asked = pb::ListErasuresRequest {
        who: ann.as_admin().me(),
        subject: "ses_1".into(),
        ..pb::ListErasuresRequest::default()
    };
    let told = ann.memory.erasures(ann.tenant, asked.clone()).await?.erasures;
    assert_eq!((told.len(), told[0].what.as_str(), told[0].done), (1, "session", false));
    assert!(told[0].left.iter().all(|count| count.rows == 0) && told[0].erased_at.is_some());
    assert!(eve.memory.erasures(eve.tenant, asked).await?.erasures.is_empty());
    let own = pb::ListErasuresRequest { who: ann.me(), ..pb::ListErasuresRequest::default() };
    assert!(ann.memory.erasures(ann.tenant, own).await?.erasures.is_empty());
    let mut found = ann.found("cat").await?;
    found.sort();
    assert_eq!(found, ["the cat came home", "the cat of ses_2 sleeps"]);
    assert_eq!(eve.found("cat").await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn what_is_kept_late_of_a_deleted_session_goes_too() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    tell_in(&ann, "ses_1", "the cat sleeps").await?;
    deleted(&world, ann.tenant, "session", "ses_1").await?;
    let (.., is_done) = looked(&world, ann.tenant, 1).await?;
    assert!(!is_done);

    tell_in(&ann, "ses_1", "the cat wakes").await?;
    assert!(ann.found("cat").await?.is_empty());
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "update memory.erasures set due_at = now()";
    holdfast_pg::query(sql).execute(tx.conn()).await?;
    tx.commit().await?;
    let (erased, left, is_done) = looked(&world, ann.tenant, 2).await?;

    assert!(is_done && is_nothing(&left), "{left}");
    assert_eq!(erased["items"], 2);
    assert!(ann.found("cat").await?.is_empty());
    Ok(())
}

async fn due_now(world: &World, tenant: TenantId) -> anyhow::Result<()> {
    let mut tx = world.pools()?.tenant(tenant).await?;
    let sql = "update memory.erasures set due_at = now()";
    holdfast_pg::query(sql).execute(tx.conn()).await?;
    Ok(tx.commit().await?)
}

#[tokio::test]
async fn what_is_kept_late_of_a_person_who_was_erased_goes_and_what_is_said_since_stays()
-> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let bo = ann.as_user("bo");
    let before = prost_types::Timestamp { seconds: Timestamp::now().as_second(), nanos: 0 };
    ann.tell("the cat sleeps").await?;
    let what = Some(What::User("ann".into()));
    let forget = pb::ForgetRequest { who: ann.as_admin().me(), what };
    ann.memory.forget(ann.tenant, forget.clone()).await?;
    let (erased, _, is_done) = looked(&world, ann.tenant, 1).await?;
    assert!(!is_done && erased["items"] == 1, "{erased}");

    // Memory extraction was running meanwhile.
    for person in [&ann, &bo] {
        person.put(vec![pb::NewItem { at: Some(before), ..fact("the cat was fat") }]).await?;
    }
    ann.tell("the cat wakes").await?;
    due_now(&world, ann.tenant).await?;
    let (erased, left, is_done) = looked(&world, ann.tenant, 2).await?;

    assert!(is_done && is_nothing(&left), "{left}");
    assert_eq!(erased["items"], 2);
    assert_eq!(ann.found("cat").await?, ["the cat wakes"]);
    assert_eq!(bo.found("cat").await?, ["the cat was fat"]);
    // A repeated request starts again.
    ann.memory.forget(ann.tenant, forget).await?;
    let (.., is_done) = looked(&world, ann.tenant, 1).await?;
    assert!(!is_done);
    assert!(ann.found("cat").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_session_that_was_erased_and_then_deleted_is_forgotten_whole() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    tell_in(&ann, "ses_1", "the cat sleeps").await?;
    let what = Some(What::Session("ses_1".into()));
    let forget = pb::ForgetRequest { who: ann.as_admin().me(), what };
    ann.memory.forget(ann.tenant, forget).await?;
    due_now(&world, ann.tenant).await?;
    looked(&world, ann.tenant, 2).await?;

    tell_in(&ann, "ses_1", "the cat wakes").await?;
    deleted(&world, ann.tenant, "session", "ses_1").await?;
    until_forgotten(&ann).await
}

async fn until_forgotten(person: &Person) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !person.found("cat").await?.is_empty() {
        if Instant::now() > until {
            bail!("it is still there");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_agent_takes_along_all_that_was_its_own() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let other = served.of(ann.tenant, "ann");
    for person in [&ann, &other] {
        person.tell("the cat sleeps").await?;
        person.index("memory/cats.md", "Cats sleep.").await?;
        person.say("ses_1", &[("Ann", "where is the cat?")]).await?;
        let request = pb::IngestRequest {
            who: person.me(),
            scope: pb::Scope::Workspace.into(),
            content: b"A cat sleeps sixteen hours.".to_vec(),
            provenance: from(),
            ..pb::IngestRequest::default()
        };
        person.memory.kb_ingest(person.tenant, request).await?;
    }
    let shared = pb::IngestRequest {
        who: ann.me(),
        scope: pb::Scope::Tenant.into(),
        content: b"Every cat has a name.".to_vec(),
        provenance: from(),
        ..pb::IngestRequest::default()
    };
    ann.memory.kb_ingest(ann.tenant, shared).await?;
    ann.embedded().await?;

    deleted(&world, ann.tenant, "agent", &ann.who.agent).await?;
    let (erased, left, _) = looked(&world, ann.tenant, 1).await?;

    assert!(is_nothing(&left), "{left}");
    assert_eq!((&erased["items"], &erased["documents"]), (&1.into(), &2.into()));
    assert_eq!((&erased["units"], &erased["authors"]), (&4.into(), &1.into()));
    assert_eq!(ann.found("cat").await?, ["Every cat has a name."]);
    assert_eq!(other.found("cat").await?.len(), 5);
    Ok(())
}
