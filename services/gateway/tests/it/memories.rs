//! Memories as listed: every field, and every filter.

use anyhow::Context as _;
use holdfast_proto::{
    gateway::v1::{self as pb, memories_client::MemoriesClient},
    memory::v1 as kept,
};
use holdfast_workspace::{Base, ChangeAuthor, Edit, Workspaces};
use prost_types::Timestamp;

use crate::world::World;

const AT: Timestamp = Timestamp { seconds: 1_790_000_000, nanos: 5_000 };
const GOT: Timestamp = Timestamp { seconds: 1_780_000_000, nanos: 0 };
const UNTIL: Timestamp = Timestamp { seconds: 4_000_000_000, nanos: 0 };

/// Stores an item as a runner does; returns its id.
async fn keep(world: &World, who: &kept::Who, item: kept::NewItem) -> anyhow::Result<String> {
    let put = kept::PutItemsRequest {
        who: Some(who.clone()),
        items: vec![item],
        ..kept::PutItemsRequest::default()
    };
    let put = world.memory()?.put_items(world.anna.id, put).await?;
    Ok(put.items.into_iter().next().context("one thing, one id")?.id)
}

async fn kept_at(world: &World, id: &str) -> anyhow::Result<Option<Timestamp>> {
    let who = Some(kept::Who { everything: true, ..kept::Who::default() });
    let get = kept::GetItemRequest { who, id: id.to_owned(), ..kept::GetItemRequest::default() };
    let item = world.memory()?.get_item(world.anna.id, get).await?;
    anyhow::ensure!(item.created_at.is_some(), "it was kept at no time");
    Ok(item.created_at)
}

async fn list(
    world: &World,
    request: pb::ListMemoriesRequest,
) -> anyhow::Result<pb::ListMemoriesResponse> {
    let mut memories = MemoriesClient::new(world.channel().await?);
    Ok(memories.list_memories(world.anna.request(request)).await?.into_inner())
}

/// Texts of a list.
async fn texts(world: &World, request: pb::ListMemoriesRequest) -> anyhow::Result<Vec<String>> {
    Ok(list(world, request).await?.memories.into_iter().map(|memory| memory.text).collect())
}

fn from(kind: kept::SourceKind) -> Option<kept::Provenance> {
    Some(kept::Provenance {
        kind: kind.into(),
        name: "the kettle's maker".into(),
        locator: "page 3".into(),
        retrieved_at: Some(GOT),
        outside: false,
    })
}

fn source(kind: &str) -> Option<pb::MemorySource> {
    Some(pb::MemorySource {
        kind: kind.into(),
        name: "the kettle's maker".into(),
        locator: "page 3".into(),
        retrieved_at: Some(GOT),
    })
}

/// A fact of Anna's home.
fn home(town: &str) -> kept::NewItem {
    kept::NewItem {
        kind: kept::Kind::Fact.into(),
        content: town.into(),
        subject: "Anna".into(),
        predicate: "lives in".into(),
        session: "ses_b".into(),
        at: Some(AT),
        provenance: from(kept::SourceKind::User),
        ..kept::NewItem::default()
    }
}

#[tokio::test]
async fn a_list_of_memories_tells_every_field_of_each() -> anyhow::Result<()> {
    let world = World::start_with_memory().await?;
    let agent = world.directory.agents().default_agent(world.anna.id).await?;
    let anna =
        kept::Who { agent: agent.id.to_string(), user: "api:anna".into(), ..kept::Who::default() };
    let tea = kept::NewItem {
        kind: kept::Kind::Memory.into(),
        r#type: "preference".into(),
        content: "likes green tea".into(),
        session: "ses_a".into(),
        at: Some(AT),
        expires_at: Some(UNTIL),
        provenance: from(kept::SourceKind::Tool),
        ..kept::NewItem::default()
    };
    let tea = keep(&world, &anna, tea).await?;
    let before = keep(&world, &anna, home("Bergen")).await?;
    let now = keep(&world, &anna, home("Oslo")).await?;
    let happened = kept::NewItem {
        kind: kept::Kind::Event.into(),
        r#type: "moved".into(),
        content: r#"{"to":"Oslo"}"#.into(),
        at: Some(AT),
        provenance: from(kept::SourceKind::Web),
        ..kept::NewItem::default()
    };
    let happened = keep(&world, &kept::Who::default(), happened).await?;

    let all = list(&world, pb::ListMemoriesRequest { history: true, ..Default::default() }).await?;

    let of_anna = pb::Memory {
        agent: agent.name.to_string(),
        user: "api:anna".into(),
        active: true,
        at: Some(AT),
        ..Default::default()
    };
    let lives = pb::Memory {
        kind: "fact".into(),
        subject: "Anna".into(),
        predicate: "lives in".into(),
        session: "ses_b".into(),
        source: source("user"),
        ..of_anna.clone()
    };
    let expected = [
        pb::Memory {
            id: happened.clone(),
            kind: "event".into(),
            r#type: "moved".into(),
            text: r#"{"to":"Oslo"}"#.into(),
            active: true,
            at: Some(AT),
            created_at: kept_at(&world, &happened).await?,
            source: source("web"),
            ..Default::default()
        },
        pb::Memory {
            id: now.clone(),
            text: "Oslo".into(),
            created_at: kept_at(&world, &now).await?,
            ..lives.clone()
        },
        pb::Memory {
            id: before.clone(),
            text: "Bergen".into(),
            created_at: kept_at(&world, &before).await?,
            superseded_by: now.clone(),
            ..lives
        },
        pb::Memory {
            id: tea.clone(),
            kind: "memory".into(),
            r#type: "preference".into(),
            text: "likes green tea".into(),
            session: "ses_a".into(),
            created_at: kept_at(&world, &tea).await?,
            expires_at: Some(UNTIL),
            source: source("tool"),
            ..of_anna
        },
    ];
    assert_eq!(all.memories, expected);
    assert_eq!(all.next, "");
    Ok(())
}

#[tokio::test]
async fn a_list_of_memories_is_narrowed_by_each_of_its_fields() -> anyhow::Result<()> {
    let world = World::start_with_memory().await?;
    let agent = world.directory.agents().default_agent(world.anna.id).await?;
    let other = kept::Who { user: "api:ben".into(), ..kept::Who::default() };
    let anna = kept::Who { agent: agent.id.to_string(), user: "api:anna".into(), ..other.clone() };
    let told = |of_type: &str, session: &str, content: &str| kept::NewItem {
        kind: kept::Kind::Memory.into(),
        r#type: of_type.into(),
        content: content.into(),
        session: session.into(),
        provenance: from(kept::SourceKind::User),
        ..kept::NewItem::default()
    };
    keep(&world, &anna, told("preference", "ses_a", "likes green tea")).await?;
    keep(&world, &anna, told("commitment", "ses_b", "calls on Friday")).await?;
    keep(&world, &anna, home("Oslo")).await?;
    keep(&world, &other, told("preference", "ses_c", "likes coffee")).await?;
    let of = pb::ListMemoriesRequest::default;

    let newest = ["likes coffee", "Oslo", "calls on Friday", "likes green tea"];
    assert_eq!(texts(&world, of()).await?, newest);
    let by_agent = pb::ListMemoriesRequest { agent: agent.name.to_string(), ..of() };
    assert_eq!(texts(&world, by_agent).await?, newest[1..]);
    let by_user = pb::ListMemoriesRequest { user: "api:ben".into(), ..of() };
    assert_eq!(texts(&world, by_user).await?, newest[..1]);
    let by_kind = pb::ListMemoriesRequest { kinds: vec!["fact".into()], ..of() };
    assert_eq!(texts(&world, by_kind).await?, ["Oslo"]);
    let by_type = pb::ListMemoriesRequest { r#type: "commitment".into(), ..of() };
    assert_eq!(texts(&world, by_type).await?, ["calls on Friday"]);
    let by_session = pb::ListMemoriesRequest { session: "ses_a".into(), ..of() };
    assert_eq!(texts(&world, by_session).await?, ["likes green tea"]);
    let first = list(&world, pb::ListMemoriesRequest { limit: 3, ..of() }).await?;
    assert_eq!(first.memories.len(), 3);
    let after = pb::ListMemoriesRequest { limit: 3, after: first.next, ..of() };
    assert_eq!(texts(&world, after).await?, ["likes green tea"]);
    Ok(())
}

#[tokio::test]
async fn the_last_value_of_a_key_counts_until_null_or_its_time_ends_it() -> anyhow::Result<()> {
    let world = World::start_with_memory().await?;
    let mut memories = MemoriesClient::new(world.channel().await?);
    let key = |user: &str| pb::GetMemoryValueRequest {
        user: user.into(),
        key: "home/city".into(),
        ..Default::default()
    };
    let value = |json: &str| pb::SetMemoryValueRequest {
        user: "api:anna".into(),
        key: "home/city".into(),
        value: json.into(),
        importance: Some(0.5),
        tags: vec!["place".into()],
        expires_at: Some(UNTIL),
        ..Default::default()
    };

    memories.set_memory_value(world.anna.request(value(r#""Bergen""#))).await?;
    memories.set_memory_value(world.anna.request(value(r#""Oslo""#))).await?;
    let shared = pb::SetMemoryValueRequest { user: String::new(), ..value("1") };
    memories.set_memory_value(world.anna.request(shared)).await?;
    let annas = memories.get_memory_value(world.anna.request(key("api:anna"))).await?.into_inner();
    let bens = memories.get_memory_value(world.anna.request(key("api:ben"))).await?.into_inner();
    let prefix = pb::ListMemoriesRequest {
        key_prefix: "home/".into(),
        user: "api:anna".into(),
        ..Default::default()
    };
    let listed = texts(&world, prefix.clone()).await?;
    let wrong = memories.set_memory_value(world.anna.request(value("Oslo"))).await.unwrap_err();
    let past = pb::SetMemoryValueRequest { expires_at: Some(GOT), ..value("2") };
    memories.set_memory_value(world.anna.request(past)).await?;
    let expired = memories.get_memory_value(world.anna.request(key("api:anna"))).await?;
    memories.set_memory_value(world.anna.request(value("null"))).await?;
    let ended = texts(&world, prefix).await?;

    let found = annas.value.context("no value")?;
    assert_eq!((found.text.as_str(), found.kind.as_str()), (r#""Oslo""#, "value"));
    assert_eq!((found.importance, found.expires_at), (Some(0.5), Some(UNTIL)));
    assert_eq!(found.tags, ["place"]);
    assert_eq!(bens.value.context("no value")?.text, "1");
    assert_eq!(listed, [r#""Oslo""#]);
    assert!(wrong.message().contains("is no JSON"), "{wrong}");
    assert_eq!(expired.into_inner().value.context("no value")?.text, "1");
    assert!(ended.is_empty(), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_is_erased_has_no_files_left() -> anyhow::Result<()> {
    let world = World::start_with_memory().await?;
    let agent = world.directory.agents().default_agent(world.anna.id).await?.id;
    let workspaces = Workspaces::new(world.pools.clone());
    let by = ChangeAuthor::new("main", "a test");
    for (path, content) in [("people/api=v/a.md", "v's"), ("people/api=w/a.md", "w's")] {
        let (path, content) = (path.parse()?, content.into());
        let edit = Edit::Put { path, content, base: Base::Any };
        workspaces.commit(world.anna.id, agent, &by, vec![edit]).await?;
    }
    let erase = |user: &str| pb::EraseMemoriesRequest { user: user.into(), ..Default::default() };
    let mut memories = MemoriesClient::new(world.channel().await?);

    let erased = memories.erase_memories(world.anna.request(erase("api:v"))).await?.into_inner();
    let owner = memories.erase_memories(world.anna.request(erase("owner"))).await?.into_inner();

    assert!(erased.erased.iter().any(|one| (one.what.as_str(), one.rows) == ("files", 1)));
    assert!(owner.erased.iter().all(|one| one.what != "files"), "the agent's files stay");
    let left = workspaces.list(world.anna.id, agent, None, None).await?;
    let left: Vec<&str> = left.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(left, ["people/api=w/a.md"]);
    Ok(())
}
