//! Articles are erased with the conversation and the user that they came from; what a maintainer
//! wrote for the tenant stays, without names.

use std::time::Duration;

use anyhow::bail;
use holdfast_proto::memory::v1::{self as pb, forget_request::What};
use holdfast_types::{Kind, TenantId};
use tokio::time::{Instant, sleep};

use crate::{
    erasing::deleted,
    forgetting::somebody_waits,
    world::{Person, World, from},
};

/// Provenance as an agent writes it.
fn told(by: &str) -> Option<pb::Provenance> {
    Some(pb::Provenance {
        kind: pb::SourceKind::Agent.into(),
        name: "coach".into(),
        locator: by.to_owned(),
        ..pb::Provenance::default()
    })
}

/// Adds an article in a session and returns its id.
async fn add(
    person: &Person,
    scope: pb::Scope,
    session: &str,
    text: &str,
) -> anyhow::Result<String> {
    let request = pb::IngestRequest {
        who: person.me(),
        scope: scope.into(),
        content: text.as_bytes().to_vec(),
        provenance: told(&format!("{} in {session}", person.who.user)),
        session: session.to_owned(),
        ..pb::IngestRequest::default()
    };
    Ok(person.memory.kb_ingest(person.tenant, request).await?.id)
}

/// Changes an article's text.
async fn change(person: &Person, id: &str, session: &str, text: &str) -> anyhow::Result<u32> {
    let request = pb::UpdateRequest {
        who: person.me(),
        id: id.to_owned(),
        content: text.as_bytes().to_vec(),
        provenance: told(&format!("{} in {session}", person.who.user)),
        session: session.to_owned(),
        ..pb::UpdateRequest::default()
    };
    Ok(person.memory.kb_update(person.tenant, request).await?.version)
}

/// Changes an article's title only.
async fn rename(person: &Person, id: &str, session: &str, title: &str) -> anyhow::Result<u32> {
    let request = pb::UpdateRequest {
        who: person.me(),
        id: id.to_owned(),
        title: title.to_owned(),
        provenance: told(&format!("{} in {session}", person.who.user)),
        session: session.to_owned(),
        ..pb::UpdateRequest::default()
    };
    Ok(person.memory.kb_update(person.tenant, request).await?.version)
}

async fn read(
    person: &Person,
    id: &str,
    version: u32,
) -> Result<pb::Article, holdfast_grpc::MemoryCallError> {
    let request = pb::GetRequest { who: person.me(), id: id.to_owned(), version };
    person.memory.kb_get(person.tenant, request).await
}

/// Returns whether nothing of the article is left.
async fn is_gone(person: &Person, id: &str) -> anyhow::Result<bool> {
    match read(person, id, 0).await {
        Ok(_) => Ok(false),
        Err(refused) if refused.kind == Kind::NotFound => Ok(true),
        Err(refused) => Err(refused.into()),
    }
}

async fn forget(person: &Person, what: What) -> anyhow::Result<pb::ForgetResponse> {
    let request = pb::ForgetRequest { who: person.me(), what: Some(what) };
    Ok(person.memory.forget(person.tenant, request).await?)
}

fn of_session(session: &str) -> What {
    What::Session(session.to_owned())
}

fn maintainer(person: &Person) -> Person {
    Person { who: pb::Who { maintainer: true, ..person.who.clone() }, ..person.clone() }
}

fn erased(proof: &pb::ForgetResponse, what: &str) -> Option<u64> {
    let of: Vec<u64> =
        proof.erased.iter().filter(|count| count.what == what).map(|count| count.rows).collect();
    // Each table is reported once.
    (of.len() == 1).then(|| of[0])
}

fn nothing_is_left(proof: &pb::ForgetResponse) {
    assert!(
        !proof.left.is_empty() && proof.left.iter().all(|count| count.rows == 0),
        "{:?}",
        proof.left
    );
}

/// Counts a tenant's rows of a table that match a condition.
async fn rows(world: &World, tenant: TenantId, of: &str) -> anyhow::Result<i64> {
    let mut tx = world.pools()?.tenant(tenant).await?;
    let sql = format!("select count(*) from memory.{of}");
    let rows = holdfast_pg::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await?;
    tx.finish_reading();
    Ok(rows)
}

#[tokio::test]
async fn an_agents_articles_go_with_the_session_that_brought_them() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let (ann, eve) = (served.somebody(), served.somebody());
    let bo = served.of(ann.tenant, "bo");
    let scope = pb::Scope::Workspace;
    let brought = add(&ann, scope, "ses_1", "# Cats\n\nThe cat sleeps at noon.").await?;
    change(&ann, &brought, "ses_1", "# Cats\n\nThe cat sleeps at one.").await?;
    let other_session = add(&ann, scope, "ses_2", "The cat wakes at six.").await?;
    let other_agent = add(&bo, scope, "ses_3", "The cat of Bo is red.").await?;
    let other_tenant = add(&eve, scope, "ses_1", "The cat of Eve is blue.").await?;
    ann.embedded().await?;
    eve.embedded().await?;

    let proof = forget(&ann.as_admin(), of_session("ses_1")).await?;

    nothing_is_left(&proof);
    assert_eq!(erased(&proof, "documents"), Some(1));
    assert_eq!((erased(&proof, "versions"), erased(&proof, "sources")), (Some(2), Some(0)));
    assert_eq!((erased(&proof, "units"), erased(&proof, "vectors")), (Some(1), Some(1)));
    assert!(is_gone(&ann, &brought).await?);
    assert_eq!(ann.found("when does the cat sleep?").await?, ["The cat wakes at six."]);
    assert_eq!(rows(&world, ann.tenant, "versions where text like '%sleeps%'").await?, 0);
    assert!(!is_gone(&ann, &other_session).await?);
    assert!(!is_gone(&bo, &other_agent).await?);
    assert!(!is_gone(&eve, &other_tenant).await?);
    assert_eq!(eve.found("cat").await?, ["The cat of Eve is blue."]);
    Ok(())
}

#[tokio::test]
async fn a_person_takes_along_what_their_conversations_brought() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let (ann, eve) = (served.somebody(), served.somebody());
    let bo = ann.as_user("bo");
    let scope = pb::Scope::Workspace;
    let mut of_ann = Vec::new();
    for session in ["ses_1", "ses_2"] {
        of_ann.push(add(&ann, scope, session, &format!("Ann said it in {session}.")).await?);
    }
    of_ann.push(add(&ann, pb::Scope::Tenant, "ses_1", "Ann said it to all.").await?);
    let of_bo = add(&bo, scope, "ses_3", "Bo said it.").await?;
    let of_eve = add(&eve.as_user("ann"), scope, "ses_1", "Another Ann said it.").await?;
    // With an API key there is neither a user nor a session.
    let written = add(&ann.as_user(""), scope, "", "It was written down.").await?;
    ann.index("memory/MEMORY.md", "Ann said it for herself.").await?;
    ann.embedded().await?;

    let proof = forget(&ann, What::User("ann".into())).await?;

    nothing_is_left(&proof);
    // The note is a document too.
    assert_eq!((erased(&proof, "documents"), erased(&proof, "versions")), (Some(4), Some(3)));
    assert_eq!((erased(&proof, "units"), erased(&proof, "vectors")), (Some(4), Some(4)));
    for id in &of_ann {
        assert!(is_gone(&ann, id).await?, "{id}");
    }
    for (person, id) in [(&bo, &of_bo), (&bo, &written), (&eve, &of_eve)] {
        assert!(!is_gone(person, id).await?, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn of_ones_own_a_session_takes_only_what_is_ones_own() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let (bo, other) = (ann.as_user("bo"), served.of(ann.tenant, "ann"));
    let of_bo = add(&bo, pb::Scope::Workspace, "ses_1", "Bo said it.").await?;
    let of_other = add(&other, pb::Scope::Workspace, "ses_1", "Another agent heard it.").await?;
    let own = add(&ann, pb::Scope::Workspace, "ses_1", "Ann said it.").await?;

    let proof = forget(&ann, of_session("ses_1")).await?;

    nothing_is_left(&proof);
    assert_eq!(erased(&proof, "versions"), Some(1));
    assert!(is_gone(&ann, &own).await?);
    assert!(!is_gone(&bo, &of_bo).await? && !is_gone(&other, &of_other).await?);
    Ok(())
}

#[tokio::test]
async fn without_its_newest_version_an_article_says_what_it_said_before() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let tea = "# Tea\n\nBoil the water first.\n";
    let id = add(&ann, pb::Scope::Workspace, "ses_1", tea).await?;
    let revised = format!("{tea}\n# Coffee\n\nGrind the beans for Ann.\n");
    assert_eq!(change(&ann, &id, "ses_2", &revised).await?, 2);
    ann.embedded().await?;

    let proof = forget(&ann.as_admin(), of_session("ses_2")).await?;

    nothing_is_left(&proof);
    assert_eq!((erased(&proof, "documents"), erased(&proof, "versions")), (Some(0), Some(1)));
    // The chunk of the earlier version stays, with its vector.
    assert_eq!((erased(&proof, "units"), erased(&proof, "vectors")), (Some(1), Some(1)));
    let now = read(&ann, &id, 0).await?;
    assert_eq!((now.version, now.text.as_str(), now.pending), (1, tea, 0));
    assert_eq!(now.provenance.unwrap_or_default().locator, "ann in ses_1");
    assert_eq!(read(&ann, &id, 2).await.unwrap_err().kind, Kind::NotFound);
    assert_eq!(ann.found("how are beans ground?").await?, ["# Tea\n\nBoil the water first."]);

    // Version numbers are never used again.
    assert_eq!(change(&ann, &id, "ses_3", "# Tea\n\nNever boil it.").await?, 3);
    let kept = pb::VersionsRequest { who: ann.me(), id };
    let kept = ann.memory.kb_versions(ann.tenant, kept).await?.versions;
    assert_eq!(kept.iter().map(|one| one.version).collect::<Vec<_>>(), [3, 1]);
    Ok(())
}

#[tokio::test]
async fn without_an_older_version_an_article_says_what_it_says_as_from_the_newer_one()
-> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let tea = "# Tea\n\nBoil the water first.\n";
    let id = add(&ann, pb::Scope::Workspace, "ses_1", tea).await?;
    let revised = format!("{tea}\n# Coffee\n\nGrind the beans.\n");
    change(&ann, &id, "ses_2", &revised).await?;

    let proof = forget(&ann.as_admin(), of_session("ses_1")).await?;

    nothing_is_left(&proof);
    assert_eq!(erased(&proof, "versions"), Some(1));
    let now = read(&ann, &id, 0).await?;
    assert_eq!((now.version, now.text.as_str()), (2, revised.as_str()));
    assert_eq!(read(&ann, &id, 1).await.unwrap_err().kind, Kind::NotFound);
    let hit = ann.search("how do I boil water?").await?.hits.swap_remove(0);
    assert!(hit.text.contains("Boil"), "{}", hit.text);
    assert_eq!(hit.provenance.unwrap_or_default().locator, "ann in ses_2");
    for table in ["units", "versions", "documents"] {
        let of = format!("{table} where provenance->>'locator' like '%ses_1%'");
        assert_eq!(rows(&world, ann.tenant, &of).await?, 0, "{table}");
    }
    Ok(())
}

#[tokio::test]
async fn another_title_does_not_keep_a_text_that_is_forgotten() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let scope = pb::Scope::Workspace;
    let brought = add(&ann, scope, "ses_1", "# Cats\n\nThe cat sleeps.").await?;
    rename(&ann, &brought, "ses_2", "About cats").await?;
    let renamed = add(&ann, scope, "ses_3", "# Dogs\n\nThe dog sleeps.").await?;
    rename(&ann, &renamed, "ses_1", "About dogs").await?;

    let proof = forget(&ann.as_admin(), of_session("ses_1")).await?;

    nothing_is_left(&proof);
    assert!(is_gone(&ann, &brought).await?);
    let dogs = read(&ann, &renamed, 0).await?;
    assert_eq!((dogs.version, dogs.title.as_str()), (1, "Dogs"));
    assert_eq!(ann.search("who sleeps?").await?.hits[0].path, "Dogs");
    Ok(())
}

#[tokio::test]
async fn what_is_for_all_stays_if_somebody_who_may_let_it_in_and_names_nobody() -> anyhow::Result<()>
{
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let boss = maintainer(&ann);
    let unasked = add(&ann, pb::Scope::Tenant, "ses_1", "Cats sleep at noon.").await?;
    let written = add(&boss, pb::Scope::Tenant, "ses_1", "Cats sleep at night.").await?;
    let changed = add(&ann, pb::Scope::Tenant, "ses_1", "Dogs sleep.").await?;
    change(&boss, &changed, "ses_2", "Dogs sleep at night.").await?;
    let proposed = add(&boss.as_user("bo"), pb::Scope::Tenant, "ses_3", "Birds sleep.").await?;
    let proposal = propose(&ann, &proposed, "ses_1", "Birds sleep at night.").await?;
    let decide = pb::DecideRequest {
        who: boss.as_admin().me(),
        id: proposal,
        verdict: pb::Verdict::Accepted.into(),
        by: "the boss".into(),
        reason: String::new(),
    };
    ann.memory.kb_decide(ann.tenant, decide).await?;
    ann.embedded().await?;

    let proof = forget(&ann.as_admin(), of_session("ses_1")).await?;

    nothing_is_left(&proof);
    // Two versions were not approved and go; two approved ones stay without provenance.
    assert_eq!((erased(&proof, "versions"), erased(&proof, "sources")), (Some(2), Some(2)));
    assert_eq!((erased(&proof, "documents"), erased(&proof, "items")), (Some(1), Some(2)));
    assert!(is_gone(&ann, &unasked).await?);
    for (id, text) in [
        (&written, "Cats sleep at night."),
        (&changed, "Dogs sleep at night."),
        (&proposed, "Birds sleep at night."),
    ] {
        assert_eq!(read(&ann, id, 0).await?.text, text);
        assert!(ann.found(text).await?.contains(&text.to_owned()), "{text}");
    }
    let accepted = read(&ann, &proposed, 0).await?;
    let from = accepted.provenance.unwrap_or_default();
    assert_eq!((from.name.as_str(), from.locator.as_str()), ("coach", ""));
    assert_eq!(accepted.accepted_by, "the boss");
    assert_eq!(read(&ann, &changed, 1).await.unwrap_err().kind, Kind::NotFound);
    for table in ["units", "versions", "documents", "sources"] {
        let of = format!("{table} t where to_jsonb(t)::text like '%ses_1%'");
        assert_eq!(rows(&world, ann.tenant, &of).await?, 0, "{table}");
    }
    // Provenance from elsewhere stays.
    assert_eq!(rows(&world, ann.tenant, "sources where session = 'ses_2'").await?, 1);

    let proof = forget(&ann, What::User("ann".into())).await?;

    nothing_is_left(&proof);
    assert_eq!((erased(&proof, "versions"), erased(&proof, "sources")), (Some(0), Some(1)));
    assert_eq!(rows(&world, ann.tenant, "sources where user_id = 'ann'").await?, 0);
    assert_eq!(rows(&world, ann.tenant, "sources where user_id = 'bo'").await?, 1);
    Ok(())
}

/// Stores a proposal as an agent does for a user who may not make the change.
async fn propose(
    person: &Person,
    article: &str,
    session: &str,
    text: &str,
) -> anyhow::Result<String> {
    let change = serde_json::json!({ "article": article, "version": 1, "text": text });
    let item = pb::NewItem {
        kind: pb::Kind::Event.into(),
        r#type: "kb_proposal".into(),
        content: change.to_string(),
        session: session.to_owned(),
        provenance: told(&format!("{} in {session}", person.who.user)),
        ..pb::NewItem::default()
    };
    person.put(vec![item]).await?.pop().ok_or_else(|| anyhow::anyhow!("one thing, one id"))
}

/// Makes the second pass due now, and waits for it.
async fn looked_again(world: &World, tenant: TenantId) -> anyhow::Result<()> {
    let mut tx = world.pools()?.tenant(tenant).await?;
    let sql = "update memory.erasures set due_at = now()";
    holdfast_pg::query(sql).execute(tx.conn()).await?;
    tx.commit().await?;
    let until = Instant::now() + Duration::from_secs(60);
    while rows(world, tenant, "erasures where due_at is not null").await? > 0 {
        if Instant::now() > until {
            bail!("nobody looked");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_takes_its_articles_along_by_itself() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let first = add(&ann, pb::Scope::Workspace, "ses_1", "The cat sleeps.").await?;
    deleted(&world, ann.tenant, "session", "ses_1").await?;
    let until = Instant::now() + Duration::from_secs(60);
    while rows(&world, ann.tenant, "erasures where passes = 1").await? == 0 {
        if Instant::now() > until {
            bail!("nobody looked");
        }
        sleep(Duration::from_millis(50)).await;
    }
    // A turn was running.
    let late = add(&ann, pb::Scope::Workspace, "ses_1", "The cat wakes.").await?;
    looked_again(&world, ann.tenant).await?;

    assert!(is_gone(&ann, &first).await? && is_gone(&ann, &late).await?);
    let asked = pb::ListErasuresRequest { who: ann.as_admin().me(), ..Default::default() };
    let told = ann.memory.erasures(ann.tenant, asked).await?.erasures.swap_remove(0);
    let versions = told.erased.iter().find(|count| count.what == "versions");
    assert_eq!(versions.map(|count| count.rows), Some(2));
    assert!(told.left.iter().all(|count| count.rows == 0), "{:?}", told.left);
    Ok(())
}

#[tokio::test]
async fn what_was_under_way_when_people_had_it_erased_goes_and_what_comes_since_stays()
-> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    forget(&ann.as_admin(), of_session("ses_1")).await?;
    forget(&ann.as_admin(), What::User("ann".into())).await?;
    let late = add(&ann, pb::Scope::Workspace, "ses_1", "The cat sleeps.").await?;
    let of_ann = add(&ann, pb::Scope::Workspace, "ses_2", "The dog sleeps.").await?;
    let of_bo = add(&ann.as_user("bo"), pb::Scope::Workspace, "ses_2", "Birds sleep.").await?;
    // The versions were written before the request and stored after the first pass.
    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let earlier = "update memory.versions set created_at = created_at - interval '1 hour'";
    holdfast_pg::query(earlier).execute(tx.conn()).await?;
    tx.commit().await?;
    let since = add(&ann, pb::Scope::Workspace, "ses_1", "The cat wakes.").await?;

    looked_again(&world, ann.tenant).await?;

    assert!(is_gone(&ann, &late).await? && is_gone(&ann, &of_ann).await?);
    assert!(!is_gone(&ann, &of_bo).await? && !is_gone(&ann, &since).await?);
    Ok(())
}

#[tokio::test]
async fn a_version_that_is_made_while_its_session_is_erased_goes_too() -> anyhow::Result<()> {
    const AGAIN: [&str; 4] = [
        "select from memory.documents for update",
        "insert into memory.versions
         select (jsonb_populate_record(v, '{\"version\": 2}')).* from memory.versions v",
        "insert into memory.sources
         select (jsonb_populate_record(s, '{\"version\": 2}')).* from memory.sources s",
        "update memory.documents set version = 2",
    ];
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let id = add(&ann, pb::Scope::Workspace, "ses_1", "The cat sleeps.").await?;
    // Another replica is changing the article.
    let mut other = world.pools()?.tenant(ann.tenant).await?;
    for sql in AGAIN {
        holdfast_pg::query(sql).execute(other.conn()).await?;
    }
    let admin = ann.as_admin();
    let erasing = tokio::spawn(async move { forget(&admin, of_session("ses_1")).await });
    somebody_waits(&world, &mut other).await?;
    other.commit().await?;
    let proof = erasing.await??;

    nothing_is_left(&proof);
    assert_eq!(erased(&proof, "versions"), Some(2));
    assert!(is_gone(&ann, &id).await?);
    assert_eq!(rows(&world, ann.tenant, "versions").await?, 0);
    Ok(())
}

#[tokio::test]
async fn where_words_come_from_is_seen_by_their_tenant_alone() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let (ann, eve) = (served.somebody(), served.somebody());
    add(&ann, pb::Scope::Workspace, "ses_1", "The cat sleeps.").await?;

    assert_eq!(rows(&world, ann.tenant, "sources").await?, 1);
    assert_eq!(rows(&world, eve.tenant, "sources").await?, 0);
    let mut tx = world.pools()?.system().await?;
    let sql = "select session from memory.sources";
    let refused = holdfast_pg::query(sql).fetch_all(tx.conn()).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn what_names_a_session_that_cannot_be_one_is_refused() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let request = pb::IngestRequest {
        who: ann.me(),
        scope: pb::Scope::Workspace.into(),
        content: b"x".to_vec(),
        provenance: from(),
        session: "s".repeat(257),
        ..pb::IngestRequest::default()
    };

    let refused = ann.memory.kb_ingest(ann.tenant, request).await.unwrap_err();

    assert!(refused.message.contains("`session` has 257 bytes"), "{refused}");
    Ok(())
}
