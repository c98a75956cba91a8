//! Documents: only changed chunks are embedded again.

use holdfast_proto::memory::v1 as pb;

use crate::world::World;

fn sections(texts: &[&str]) -> String {
    texts.iter().enumerate().map(|(n, text)| format!("# Part {n}\n\n{text}\n\n")).collect()
}

#[tokio::test]
async fn only_the_chunks_that_changed_are_embedded_anew() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let first = sections(&["tea is green", "coffee is black", "milk is white"]);
    let second = sections(&["tea is green", "coffee is brown", "milk is white"]);
    let made = ann.index("memory/drinks.md", &first).await?;
    ann.embedded().await?;
    let before = vectors(&world, ann.tenant).await?;

    let again = ann.index("memory/drinks.md", &first).await?;
    let changed = ann.index("memory/drinks.md", &second).await?;
    ann.embedded().await?;
    let after = vectors(&world, ann.tenant).await?;

    assert_eq!((made.chunks, made.kept, made.unchanged), (3, 0, false));
    assert!(again.unchanged && again.document_id == made.document_id);
    assert_eq!((changed.chunks, changed.kept), (3, 2));
    assert_eq!(before.iter().filter(|unit| after.contains(unit)).count(), 2);
    assert_eq!(
        ann.search("which colour has coffee").await?.hits[0].text,
        "# Part 1\n\ncoffee is brown"
    );
    assert_eq!(ann.found("black").await?.iter().filter(|text| text.contains("black")).count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_list_tells_how_far_each_document_is() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.index("memory/a.md", &sections(&["one", "two"])).await?;
    ann.index("notes/b.md", "three").await?;
    ann.embedded().await?;
    let list = |prefix: &str| {
        let request = pb::ListDocumentsRequest {
            who: ann.me(),
            path_prefix: prefix.into(),
            ..pb::ListDocumentsRequest::default()
        };
        ann.memory.list_documents(ann.tenant, request)
    };

    let all = list("").await?.documents;
    let some = list("memory/").await?.documents;

    assert_eq!(all.len(), 2);
    let a = &some[0];
    assert_eq!((a.path.as_str(), a.chunks, a.pending), ("memory/a.md", 2, 0));
    assert!(a.provenance.is_some() && !a.hash.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_removed_document_is_found_no_more() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.index("memory/a.md", "the key is under the mat").await?;
    let remove = || {
        let request = pb::RemoveDocumentRequest { who: ann.me(), path: "memory/a.md".into() };
        ann.memory.remove_document(ann.tenant, request)
    };

    assert!(remove().await?.removed);
    assert!(!remove().await?.removed);
    assert!(ann.found("where is the key?").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_same_text_is_embedded_once_in_a_tenant() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    ann.tell("the same words").await?;
    ann.embedded().await?;

    ann.as_user("bo").tell("the same words").await?;
    ann.as_user("bo").embedded().await?;

    let mut tx = world.pools()?.tenant(ann.tenant).await?;
    let sql = "select count(*), count(distinct hash) from memory.vectors";
    let counts: (i64, i64) = holdfast_pg::query_as(sql).fetch_one(tx.conn()).await?;
    assert_eq!(counts, (2, 1));
    Ok(())
}

async fn vectors(
    world: &World,
    tenant: holdfast_types::TenantId,
) -> anyhow::Result<Vec<uuid::Uuid>> {
    let mut tx = world.pools()?.tenant(tenant).await?;
    Ok(holdfast_pg::query_scalar("select unit_id from memory.vectors").fetch_all(tx.conn()).await?)
}
