//! Isolation between tenants, users and agents, and in groups.

use std::collections::BTreeSet;

use holdfast_grpc::MemoryCallError;
use holdfast_proto::memory::v1::{self as pb, forget_request::What};
use holdfast_types::{Kind, TenantId};

use crate::world::{Person, World, client_of, fact, from};

/// Response to a foreign caller: not found, or no hits.
fn nothing<T>(answer: Result<T, MemoryCallError>, is_empty: impl Fn(&T) -> bool, call: &str) {
    match answer {
        Ok(answer) => assert!(is_empty(&answer), "{call} answered"),
        Err(refused) => assert_eq!(refused.kind, Kind::NotFound, "{call}: {refused}"),
    }
}

/// One item, turn and document of each kind, of one user.
struct Things {
    item: String,
    article: String,
}

async fn things(ann: &Person) -> anyhow::Result<Things> {
    let item = ann.tell("the harbour key hangs behind the clock").await?;
    let value = pb::NewItem {
        kind: pb::Kind::Value.into(),
        subject: "harbour.key".into(),
        content: "\"behind the clock\"".into(),
        r#type: String::new(),
        ..fact("")
    };
    ann.put(vec![value]).await?;
    ann.say("s1", &[("Ann", "the harbour key hangs behind the clock")]).await?;
    ann.index("memory/keys.md", "The harbour key hangs behind the clock.").await?;
    let request = pb::IngestRequest {
        who: ann.me(),
        scope: pb::Scope::Tenant.into(),
        content: b"The harbour key hangs behind the clock.".to_vec(),
        provenance: from(),
        ..pb::IngestRequest::default()
    };
    let article = ann.memory.kb_ingest(ann.tenant, request).await?.id;
    ann.embedded().await?;
    Ok(Things { item, article })
}

/// Calls every method of both services for another owner's data.
async fn ask_everything(eve: &Person, things: &Things, articles: bool) {
    let (m, t, who) = (&eve.memory, eve.tenant, eve.me());
    let id = things.item.clone();
    let get = pb::GetItemRequest { who: who.clone(), id: id.clone(), key: String::new() };
    nothing(m.get_item(t, get).await, |_| false, "GetItem");
    let get = pb::GetItemRequest { who: who.clone(), id: String::new(), key: "harbour.key".into() };
    nothing(m.get_item(t, get).await, |_| false, "GetItem by key");
    let list = pb::ListItemsRequest { who: who.clone(), history: true, ..Default::default() };
    nothing(m.list_items(t, list).await, |a| a.items.is_empty(), "ListItems");
    let set = pb::SetItemActiveRequest { who: who.clone(), id: id.clone(), active: false };
    nothing(m.set_item_active(t, set).await, |_| false, "SetItemActive");
    let item = pb::NewItem { supersedes: id.clone(), ..fact("not there any more") };
    nothing(eve.put(vec![item]).await, |_| false, "PutItems that supersedes");
    let list = pb::ListDocumentsRequest { who: who.clone(), ..Default::default() };
    nothing(m.list_documents(t, list).await, |a| a.documents.is_empty(), "ListDocuments");
    let remove = pb::RemoveDocumentRequest { who: who.clone(), path: "memory/keys.md".into() };
    nothing(m.remove_document(t, remove).await, |a| !a.removed, "RemoveDocument");
    for what in [What::Item(id), What::Session("s1".into())] {
        let forget = pb::ForgetRequest { who: who.clone(), what: Some(what) };
        let none = |a: &pb::ForgetResponse| a.erased.iter().all(|count| count.rows == 0);
        nothing(m.forget(t, forget).await, none, "Forget");
    }
    // Users of the same tenant may have their own data erased through any agent.
    if articles || eve.who.user != "ann" {
        let forget = pb::ForgetRequest { who: who.clone(), what: Some(What::User("ann".into())) };
        let none = |a: &pb::ForgetResponse| a.erased.iter().all(|count| count.rows == 0);
        nothing(m.forget(t, forget).await, none, "Forget a user");
    }
    if !articles {
        return;
    }
    let id = things.article.clone();
    let get = pb::GetRequest { who: who.clone(), id: id.clone(), version: 0 };
    nothing(m.kb_get(t, get).await, |_| false, "Knowledge/Get");
    let list = pb::ListRequest { who: who.clone(), ..Default::default() };
    nothing(m.kb_list(t, list).await, |a| a.articles.is_empty(), "Knowledge/List");
    let versions = pb::VersionsRequest { who: who.clone(), id: id.clone() };
    nothing(m.kb_versions(t, versions).await, |_| false, "Knowledge/Versions");
    let boss = who.map(|who| pb::Who { maintainer: true, ..who });
    let update = pb::UpdateRequest {
        who: boss.clone(),
        id: id.clone(),
        title: "mine".into(),
        provenance: from(),
        ..Default::default()
    };
    nothing(m.kb_update(t, update).await, |_| false, "Knowledge/Update");
    let remove = pb::RemoveRequest { who: boss, id };
    nothing(m.kb_remove(t, remove).await, |a| !a.removed, "Knowledge/Remove");
}

/// Searches by every path: keywords, vectors, with and without filters.
async fn found_anywhere(eve: &Person) -> anyhow::Result<BTreeSet<String>> {
    let filters = [
        pb::Filter::default(),
        pb::Filter { session: "s1".into(), ..pb::Filter::default() },
        pb::Filter { path_prefix: "memory/".into(), ..pb::Filter::default() },
        pb::Filter { kinds: vec![pb::Kind::Turn.into()], ..pb::Filter::default() },
    ];
    let mut found = BTreeSet::new();
    for filter in filters {
        for query in ["where does the harbour key hang?", "clock", "zzz"] {
            let answer = eve.search_in(query, filter.clone()).await?;
            found.extend(answer.hits.into_iter().map(|hit| hit.text));
        }
    }
    Ok(found)
}

#[tokio::test]
async fn another_tenant_finds_nothing_by_any_call() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let things = things(&ann).await?;
    // Another tenant with the same agent, user and session, and with a unit of its own, so that it
    // is searched at all.
    let mut eve = Person { tenant: TenantId::generate(), ..ann.clone() };
    eve.tell("nothing of interest").await?;
    let own = eve.put(vec![fact("nothing of interest")]).await?;
    let forget = |id: String| pb::ForgetRequest { who: ann.me(), what: Some(What::Item(id)) };
    eve.memory.forget(eve.tenant, forget(own[0].clone())).await?;
    eve.embedded().await?;
    assert_eq!(found_anywhere(&eve).await?, BTreeSet::from(["nothing of interest".to_owned()]));
    let clear = pb::ForgetRequest { who: eve.me(), what: Some(What::User("ann".into())) };
    eve.memory.forget(eve.tenant, clear).await?;

    ask_everything(&eve, &things, true).await;
    eve = eve.as_admin();
    ask_everything(&eve, &things, true).await;

    assert!(found_anywhere(&eve).await?.is_empty());
    assert_eq!(found_anywhere(&ann).await?.len(), 3, "hers is all there");
    let status = eve.status().await?;
    assert!(status.rows.iter().all(|count| count.rows == 0), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn another_user_and_another_agent_find_what_is_everybodys_only() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let things = things(&ann).await?;
    let article = BTreeSet::from(["The harbour key hangs behind the clock.".to_owned()]);

    for other in [ann.as_user("bo"), ann.as_user(""), served.of(ann.tenant, "ann")] {
        ask_everything(&other, &things, false).await;
        let found = other.search("harbour key").await?;
        let kinds: BTreeSet<i32> = found.hits.iter().map(|hit| hit.kind).collect();
        assert_eq!(kinds, BTreeSet::from([pb::Kind::Knowledge.into()]));
        assert_eq!(found_anywhere(&other).await?, article);
    }
    Ok(())
}

#[tokio::test]
async fn a_group_hears_what_is_safe_there_and_never_the_memory_file() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let open = ann.as_user("");
    for (path, group_safe) in
        [("memory/MEMORY.md", true), ("memory/rules.md", true), ("memory/diary.md", false)]
    {
        let request = pb::IndexDocumentRequest {
            who: open.me(),
            path: path.into(),
            text: format!("swimming rules of {path}"),
            group_safe,
            provenance: from(),
            ..pb::IndexDocumentRequest::default()
        };
        open.memory.index_document(open.tenant, request).await?;
    }
    ann.tell("I am afraid of swimming").await?;
    ann.embedded().await?;

    let alone = ann.found("swimming").await?;
    let group = ann.in_group().found("swimming").await?;

    assert_eq!(alone.len(), 4);
    assert_eq!(group, ["swimming rules of memory/rules.md"]);
    Ok(())
}

#[tokio::test]
async fn row_level_security_holds_where_a_query_forgets_the_tenant() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let (ann, eve) = (served.somebody(), served.somebody());
    things(&ann).await?;
    let pools = world.pools()?;
    // Independent of what the unit's own columns say.
    let mut tx = pools.tenant(ann.tenant).await?;
    holdfast_pg::query(
        "update memory.units set words = words || memory.mark($1, agent_id, user_id)::tsvector",
    )
    .bind(eve.tenant.as_uuid())
    .execute(tx.conn())
    .await?;
    tx.commit().await?;
    let tables = ["spaces", "items", "documents", "versions", "units", "vectors", "authors"];

    for (tenant, sees) in [(ann.tenant, true), (eve.tenant, false)] {
        let mut tx = pools.tenant(tenant).await?;
        for table in tables {
            let sql = format!("select count(*) from memory.{table}");
            let rows: i64 =
                holdfast_pg::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(tx.conn()).await?;
            assert_eq!(rows > 0, sees, "{table}");
        }
        // The functions run as the owner, but read the transaction's tenant.
        let agent: holdfast_types::AgentId = ann.who.agent.parse()?;
        for words in [
            "select count(*) from memory.words('{clock}', array[$1, $2], array['', 'ann'],
             array[1,2,3,4,5,6,7]::smallint[], false, null, 100, '{}')",
            "select sum(n) from unnest(
             memory.held_by('{clock}', array[$1, $2], array['', 'ann'], '{}')) as n",
            // Query of a process of the previous version.
            "select count(*) from memory.words('{clock}'::tsquery[], '!zzz', array[$1, $2],
             array['', 'ann'], array[1,2,3,4,5,6,7]::smallint[], false, null, 100)",
        ] {
            let rows: i64 = holdfast_pg::query_scalar(words)
                .bind(uuid::Uuid::nil())
                .bind(agent.as_uuid())
                .fetch_one(tx.conn())
                .await?;
            assert_eq!(rows > 0, sees, "{words}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_system_role_reads_nothing_that_was_said() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    things(&served.somebody()).await?;
    let pools = world.pools()?;

    for sql in [
        "select content from memory.items",
        "select text from memory.units",
        "select embedding::text from memory.vectors",
        "select text from memory.versions",
        "select name from memory.authors",
    ] {
        let mut tx = pools.system().await?;
        let refused = holdfast_pg::query(sql).fetch_all(tx.conn()).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{sql}: {refused}");
    }
    Ok(())
}

#[tokio::test]
async fn nobody_is_let_in_without_the_meshs_word() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let stranger = client_of(&served.url, "another-secret-of-16")?;

    let refused =
        stranger.status(ann.tenant, pb::GetStatusRequest { who: ann.me() }).await.unwrap_err();

    assert_eq!(refused.kind, Kind::Unauthenticated);
    Ok(())
}
