//! The knowledge base: scopes, versions, who may change what, and what is masked.

use holdfast_grpc::MemoryCallError;
use holdfast_proto::memory::v1 as pb;
use holdfast_types::Kind;

use crate::world::{Person, World, from};

async fn ingest(
    person: &Person,
    scope: pb::Scope,
    content: &str,
    media_type: &str,
) -> Result<pb::Article, MemoryCallError> {
    let request = pb::IngestRequest {
        who: person.me(),
        scope: scope.into(),
        content: content.as_bytes().to_vec(),
        media_type: media_type.into(),
        tags: vec!["howto".into()],
        provenance: from(),
        author: "Ann".into(),
        confidence: Some(0.9),
        ..pb::IngestRequest::default()
    };
    person.memory.kb_ingest(person.tenant, request).await
}

async fn update(
    person: &Person,
    id: &str,
    content: &str,
    version: u32,
) -> Result<pb::Article, MemoryCallError> {
    let request = pb::UpdateRequest {
        who: person.me(),
        id: id.into(),
        content: content.as_bytes().to_vec(),
        provenance: from(),
        version,
        ..pb::UpdateRequest::default()
    };
    person.memory.kb_update(person.tenant, request).await
}

fn maintainer(person: &Person) -> Person {
    Person { who: pb::Who { maintainer: true, ..person.who.clone() }, ..person.clone() }
}

#[tokio::test]
async fn an_article_is_found_with_its_source_by_everybody_of_the_tenant() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let page = "<html><title>Kettles</title><script>x</script><h2>Descaling</h2>\
                <p>Use vinegar twice a year.</html>";
    let made = ingest(&ann, pb::Scope::Tenant, page, "text/html").await?;
    ann.embedded().await?;
    let bo = served.of(ann.tenant, "bo");

    let filter = pb::Filter { kinds: vec![pb::Kind::Knowledge.into()], ..pb::Filter::default() };
    let found = bo.search_in("how do I descale the kettle?", filter).await?;

    assert_eq!((made.title.as_str(), made.version), ("Kettles", 1));
    let hit = &found.hits[0];
    assert_eq!((&hit.id, hit.path.as_str()), (&made.id, "Kettles"));
    assert!(hit.text.contains("vinegar") && !hit.text.contains("script"), "{}", hit.text);
    assert_eq!(hit.provenance.as_ref().map(|from| from.name.as_str()), Some("ann"));
    assert_eq!(hit.tags, ["howto"]);
    Ok(())
}

#[tokio::test]
async fn only_a_maintainer_changes_what_the_tenant_knows() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let made = ingest(&ann, pb::Scope::Tenant, "Boil water. Add tea.", "").await?;

    let refused = update(&ann, &made.id, "Add tea first.", 0).await.unwrap_err();
    let remove = pb::RemoveRequest { who: ann.me(), id: made.id.clone() };
    let not_removed = ann.memory.kb_remove(ann.tenant, remove).await.unwrap_err();
    let changed = update(&maintainer(&ann), &made.id, "Add tea first.", 1).await?;
    let stale = update(&maintainer(&ann), &made.id, "Never.", 1).await.unwrap_err();

    assert_eq!((refused.kind, not_removed.kind), (Kind::Forbidden, Kind::Forbidden));
    assert_eq!((changed.version, changed.text.as_str()), (2, "Add tea first."));
    assert_eq!(changed.title, made.title);
    assert_eq!(stale.kind, Kind::Conflict);
    Ok(())
}

#[tokio::test]
async fn a_workspace_is_its_agents_own() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let made = ingest(&ann, pb::Scope::Workspace, "The build takes nine minutes.", "").await?;
    let other = served.of(ann.tenant, "ann");

    let changed = update(&ann, &made.id, "The build takes two minutes.", 0).await?;
    let foreign = update(&other, &made.id, "x", 0).await.unwrap_err();

    assert_eq!(changed.version, 2);
    assert_eq!(foreign.kind, Kind::NotFound);
    assert!(other.found("build minutes").await?.is_empty());
    assert_eq!(ann.found("build minutes").await?, ["The build takes two minutes."]);
    Ok(())
}

#[tokio::test]
async fn every_version_is_kept_until_the_article_goes() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = maintainer(&served.somebody());
    let made = ingest(&ann, pb::Scope::Tenant, "# Tea\n\nGreen.", "text/markdown").await?;
    update(&ann, &made.id, "# Tea\n\nBlack.", 0).await?;
    let get = |version| {
        let request = pb::GetRequest { who: ann.me(), id: made.id.clone(), version };
        ann.memory.kb_get(ann.tenant, request)
    };
    let versions = pb::VersionsRequest { who: ann.me(), id: made.id.clone() };

    let kept = ann.memory.kb_versions(ann.tenant, versions).await?.versions;
    assert_eq!(kept.iter().map(|one| one.version).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(get(1).await?.text, "# Tea\n\nGreen.");
    assert_eq!(get(0).await?.text, "# Tea\n\nBlack.");
    assert_eq!(get(3).await.unwrap_err().kind, Kind::NotFound);
    let remove = pb::RemoveRequest { who: ann.me(), id: made.id.clone() };
    assert!(ann.memory.kb_remove(ann.tenant, remove).await?.removed);
    assert_eq!(get(1).await.unwrap_err().kind, Kind::NotFound);
    assert!(ann.found("tea").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_part_that_a_change_leaves_as_it_is_still_says_where_it_is_from() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let tea = "# Tea\n\nBoil the water first.\n";
    let coffee = "# Coffee\n\nGrind the beans.\n";
    let made = ingest(&ann, pb::Scope::Workspace, &format!("{tea}\n{coffee}"), "").await?;
    let provenance = Some(pb::Provenance {
        kind: pb::SourceKind::Web.into(),
        name: "example.com".into(),
        ..pb::Provenance::default()
    });
    let change = pb::UpdateRequest {
        who: ann.me(),
        id: made.id,
        content: format!("{tea}\n{coffee}Never twice.\n").into_bytes(),
        provenance,
        ..pb::UpdateRequest::default()
    };
    ann.memory.kb_update(ann.tenant, change).await?;

    let from = async |question: &str| -> anyhow::Result<String> {
        let hit = ann.search(question).await?.hits.swap_remove(0);
        Ok(hit.provenance.unwrap_or_default().name)
    };
    assert_eq!(from("how do I boil water?").await?, "ann");
    assert_eq!(from("do I grind beans twice?").await?, "example.com");
    Ok(())
}

#[tokio::test]
async fn what_is_private_is_masked_before_it_is_kept() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut config = world.config.clone();
    config.memory.mask = vec!["secret".into(), "email".into()];
    config.memory.refuse = vec!["card".into()];
    let served = world.serve_with(config).await?;
    let ann = served.somebody();

    let made = ingest(&ann, pb::Scope::Tenant, "Write to ann@example.com about tea.", "").await?;
    let refused =
        ingest(&ann, pb::Scope::Tenant, "Pay by 4111 1111 1111 1111.", "").await.unwrap_err();

    assert_eq!(made.text, "Write to [email] about tea.");
    assert_eq!((made.masked[0].what.as_str(), made.masked[0].rows), ("email", 1));
    assert_eq!(ann.found("tea").await?, ["Write to [email] about tea."]);
    assert_eq!(refused.kind, Kind::Invalid);
    Ok(())
}

#[tokio::test]
async fn an_article_without_a_source_or_of_an_unreadable_kind_is_refused() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let request = pb::IngestRequest {
        who: ann.me(),
        scope: pb::Scope::Tenant.into(),
        content: b"x".to_vec(),
        ..pb::IngestRequest::default()
    };

    let sourceless = ann.memory.kb_ingest(ann.tenant, request).await.unwrap_err();
    let image = ingest(&ann, pb::Scope::Tenant, "x", "image/png").await.unwrap_err();

    assert!(sourceless.message.contains("provenance"), "{sourceless}");
    assert!(image.message.contains("is an image: have its text recognised"), "{image}");
    Ok(())
}
