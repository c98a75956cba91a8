//! Items are stored, found and replaced, and always have a provenance.

use holdfast_proto::memory::v1 as pb;
use holdfast_types::Kind;

use crate::world::{World, fact, from};

fn value(key: &str, json: &str) -> pb::NewItem {
    pb::NewItem {
        kind: pb::Kind::Value.into(),
        subject: key.into(),
        content: json.into(),
        provenance: from(),
        ..pb::NewItem::default()
    }
}

fn triple(subject: &str, predicate: &str, object: &str) -> pb::NewItem {
    pb::NewItem {
        kind: pb::Kind::Fact.into(),
        subject: subject.into(),
        predicate: predicate.into(),
        content: object.into(),
        provenance: from(),
        ..pb::NewItem::default()
    }
}

#[tokio::test]
async fn what_was_told_is_found_by_its_words_at_once_and_by_its_meaning_soon() -> anyhow::Result<()>
{
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    ann.tell("my sister lives in Lisbon").await?;
    ann.tell("I drink my coffee without sugar").await?;

    let at_once = ann.search("where does my sister live?").await?;
    let status = ann.embedded().await?;
    let soon = ann.search("where does my sister live?").await?;

    assert_eq!(at_once.hits[0].text, "my sister lives in Lisbon");
    assert_eq!((status.model.as_str(), status.dimension), ("hashed-v1-384", 384));
    let why = soon.hits[0].why.unwrap_or_default();
    assert!(why.cosine > 0.3 && why.words > 0.0, "{why:?}");
    let sum = (why.words + why.meaning + why.author + why.substance) * why.decay;
    assert!((sum - soon.hits[0].score).abs() < 1e-5);
    assert_eq!(soon.how, "exact");
    Ok(())
}

#[tokio::test]
async fn nothing_is_kept_without_saying_where_it_comes_from() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();

    let refused = ann.put(vec![pb::NewItem { provenance: None, ..fact("x") }]).await.unwrap_err();

    assert_eq!(refused.kind, Kind::Invalid);
    assert!(refused.message.contains("provenance"), "{refused}");
    assert_eq!(ann.status().await?.rows[0].rows, 0);
    Ok(())
}

#[tokio::test]
async fn a_newer_fact_takes_the_place_of_the_older_and_history_is_kept() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let old = ann.put(vec![triple("Ann", "lives in", "Lisbon")]).await?;
    let new = ann.put(vec![triple("Ann", "lives in", "Porto")]).await?;
    ann.embedded().await?;

    let list = |history| pb::ListItemsRequest {
        who: ann.me(),
        kinds: vec![pb::Kind::Fact.into()],
        history,
        ..pb::ListItemsRequest::default()
    };
    let now = ann.memory.list_items(ann.tenant, list(false)).await?.items;
    let ever = ann.memory.list_items(ann.tenant, list(true)).await?.items;

    assert_eq!(now.iter().map(|item| &item.content).collect::<Vec<_>>(), ["Porto"]);
    assert_eq!(ever.len(), 2);
    assert_eq!((&ever[1].id, &ever[1].superseded_by), (&old[0], &new[0]));
    assert!(ever[1].superseded_at.is_some() && ever[0].superseded_at.is_none());
    assert_eq!(ann.found("where does Ann live?").await?, ["Ann lives in Porto"]);
    Ok(())
}

#[tokio::test]
async fn the_last_value_of_a_key_counts_and_null_ends_it() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let get = |key: &str| {
        let request =
            pb::GetItemRequest { who: ann.me(), key: key.into(), ..pb::GetItemRequest::default() };
        ann.memory.get_item(ann.tenant, request)
    };
    ann.put(vec![value("ui.theme", r#""dark""#), value("ui.theme", r#"{"name":"light"}"#)]).await?;

    assert_eq!(get("ui.theme").await?.content, r#"{"name":"light"}"#);
    ann.put(vec![value("ui.theme", "null")]).await?;
    assert_eq!(get("ui.theme").await.unwrap_err().kind, Kind::NotFound);
    let refused = ann.put(vec![value("ui.theme", "{oops")]).await.unwrap_err();
    assert!(refused.message.contains("no JSON"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_memory_that_says_the_same_is_not_kept_twice() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let put = |person: &crate::world::Person, text: &str| {
        let request = pb::PutItemsRequest {
            who: person.me(),
            items: vec![fact(text)],
            unless_like: 0.92,
            ..pb::PutItemsRequest::default()
        };
        let (memory, tenant) = (person.memory.clone(), person.tenant);
        async move { memory.put_items(tenant, request).await }
    };

    let first = put(&ann, "Ann likes green tea").await?.items;
    let again = put(&ann, "ann likes GREEN tea!").await?.items;
    let other = put(&ann, "Ann likes black coffee").await?.items;
    let of_bo = put(&ann.as_user("bo"), "Ann likes green tea").await?.items;

    assert_eq!((again[0].duplicate, &again[0].id), (true, &first[0].id));
    assert!(!other[0].duplicate && !of_bo[0].duplicate);
    Ok(())
}

#[tokio::test]
async fn a_correction_is_kept_however_alike_it_is() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let put = |item: pb::NewItem| {
        let request = pb::PutItemsRequest {
            who: ann.me(),
            items: vec![item],
            // A threshold this low makes every text that shares a word a duplicate.
            unless_like: 0.1,
            ..pb::PutItemsRequest::default()
        };
        ann.memory.put_items(ann.tenant, request)
    };
    let first = put(fact("the dentist is on Tuesday at 14:00")).await?.items;

    // Not declared as a correction, but the numbers differ.
    let moved = put(fact("the dentist is on Tuesday at 15:00")).await?.items;
    let again = put(fact("at 15:00 on Tuesday is the dentist")).await?.items;
    assert!(!moved[0].duplicate);
    assert_eq!((again[0].duplicate, &again[0].id), (true, &moved[0].id));

    let other = fact("the dentist is on Friday at 15:00");
    let named = pb::NewItem { supersedes: moved[0].id.clone(), ..other };
    let put_by = put(named.clone()).await?.items;
    assert!(!put_by[0].duplicate);
    let mut found = ann.found("when is the dentist?").await?;
    found.sort();
    assert_eq!(
        found,
        ["the dentist is on Friday at 15:00", "the dentist is on Tuesday at 14:00"],
        "the one of 14:00 is {}",
        first[0].id
    );

    let late = put(named).await.unwrap_err();
    assert_eq!(late.kind, Kind::Conflict);
    let told = format!("`{}` was replaced by `{}`", moved[0].id, put_by[0].id);
    assert!(late.message.contains(&told), "{late}");
    Ok(())
}

#[tokio::test]
async fn what_replaces_one_fact_by_its_id_replaces_the_one_of_its_key_too() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let old = ann.put(vec![triple("Ann", "lived in", "Lisbon")]).await?;
    let current = ann.put(vec![triple("Ann", "lives in", "Porto")]).await?;
    let replacing = |id: &str| {
        let new = triple("Ann", "lives in", "Faro");
        ann.put(vec![pb::NewItem { supersedes: id.to_owned(), ..new }])
    };

    let new = replacing(&old[0]).await?;

    let list = pb::ListItemsRequest { who: ann.me(), ..pb::ListItemsRequest::default() };
    let now = ann.memory.list_items(ann.tenant, list).await?.items;
    assert_eq!(now.iter().map(|item| &item.content).collect::<Vec<_>>(), ["Faro"]);
    // The second attempt is told the current item.
    let late = replacing(&current[0]).await.unwrap_err();
    assert!(late.kind == Kind::Conflict && late.message.contains(&new[0]), "{late}");
    Ok(())
}

#[tokio::test]
async fn a_list_of_one_persons_or_one_agents_is_whole_and_goes_on_after_its_last()
-> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    // The same user with another agent of the tenant, and another user of the first agent.
    let elsewhere = served.of(ann.tenant, "ann");
    let bo = ann.as_user("bo");
    for n in 0..3 {
        for person in [&ann, &elsewhere, &bo] {
            person.tell(&format!("number {n}")).await?;
        }
    }
    let list = async |request: pb::ListItemsRequest| {
        let request = pb::ListItemsRequest { who: ann.as_admin().me(), ..request };
        ann.memory.list_items(ann.tenant, request).await
    };
    let of_agent = Some(ann.who.agent.clone());
    let of_ann = pb::ListItemsRequest { of_user: Some("ann".into()), ..Default::default() };

    let all_of_ann = list(of_ann.clone()).await?.items;
    assert_eq!(all_of_ann.iter().filter(|item| item.user == "ann").count(), 6);
    assert_eq!(all_of_ann.len(), 6);
    let of_the_agent =
        list(pb::ListItemsRequest { of_agent: of_agent.clone(), ..Default::default() })
            .await?
            .items;
    assert_eq!(of_the_agent.len(), 6);
    let both = pb::ListItemsRequest { of_agent, limit: 2, ..of_ann };
    let page = list(both.clone()).await?;
    assert_eq!((page.items.len(), page.next.is_empty()), (2, false));
    let after = page.items[1].id.clone();
    let rest = list(pb::ListItemsRequest { after, ..both.clone() }).await?;
    let same = list(pb::ListItemsRequest { after: page.next, ..both }).await?;
    assert_eq!(rest, same);
    assert_eq!(rest.items.iter().map(|item| &item.content).collect::<Vec<_>>(), ["number 0"]);
    assert_eq!(rest.next, "");
    let nobodys = pb::ListItemsRequest { of_user: Some(String::new()), ..Default::default() };
    assert!(list(nobodys).await?.items.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_same_request_again_changes_nothing() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let request = pb::PutItemsRequest {
        who: ann.me(),
        items: vec![fact("one"), fact("two")],
        request_id: "r1".into(),
        ..pb::PutItemsRequest::default()
    };

    let first = ann.memory.put_items(ann.tenant, request.clone()).await?.items;
    let again = ann.memory.put_items(ann.tenant, request).await?.items;

    let ids = |items: &[pb::PutItem]| items.iter().map(|item| item.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&again));
    assert!(again.iter().all(|item| item.duplicate));
    assert_eq!(ann.status().await?.rows[0].rows, 2);
    Ok(())
}

#[tokio::test]
async fn what_was_put_aside_or_is_over_is_kept_and_not_found() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let id = ann.tell("the meeting is on Monday").await?;
    let past = prost_types::Timestamp { seconds: 1_600_000_000, nanos: 0 };
    ann.put(vec![pb::NewItem { expires_at: Some(past), ..fact("the meeting is cancelled") }])
        .await?;
    let set = |active| {
        let request = pb::SetItemActiveRequest { who: ann.me(), id: id.clone(), active };
        ann.memory.set_item_active(ann.tenant, request)
    };

    assert_eq!(ann.found("meeting").await?, ["the meeting is on Monday"]);
    assert!(!set(false).await?.active);
    assert_eq!(ann.found("meeting").await?, Vec::<String>::new());
    assert!(set(true).await?.active);
    assert_eq!(ann.found("meeting").await?, ["the meeting is on Monday"]);
    Ok(())
}

#[tokio::test]
async fn bad_input_is_refused_with_the_field_to_mend() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let odd = pb::NewItem { r#type: "mood".into(), ..fact("x") };
    let nul = fact("a\0b");
    let long = fact(&"x".repeat(17_000));
    let sure = pb::NewItem { confidence: Some(1.5), ..fact("x") };

    for (item, told) in [(odd, "`type`"), (nul, "NUL"), (long, "16384"), (sure, "`confidence`")] {
        let refused = ann.put(vec![item]).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid);
        assert!(refused.message.contains(told), "{refused}");
    }
    assert!(ann.search("").await.is_err());
    Ok(())
}

#[tokio::test]
async fn what_is_over_is_taken_out_by_itself() -> anyhow::Result<()> {
    let (world, served) = World::start().await?;
    let ann = served.somebody();
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    let soon =
        prost_types::Timestamp { seconds: soon.as_second(), nanos: soon.subsec_nanosecond() };
    ann.put(vec![pb::NewItem { expires_at: Some(soon), ..fact("the offer stands") }]).await?;
    ann.tell("another offer").await?;

    let pools = world.pools()?;
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let mut tx = pools.tenant(ann.tenant).await?;
        let sql = "select (select count(*) from memory.units),
                          (select count(*) from memory.items where active)";
        let counts: (i64, i64) = holdfast_pg::query_as(sql).fetch_one(tx.conn()).await?;
        if counts == (1, 1) {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{counts:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }

    assert_eq!(ann.found("offer").await?, ["another offer"]);
    Ok(())
}
