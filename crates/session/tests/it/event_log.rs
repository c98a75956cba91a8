//! The log of events: nothing is missed or reordered, each tenant reads its own.

use std::time::Duration;

use holdfast_session::{
    Completion, EVENT_SCHEMAS, EventText, LoggedEvent, NewDelivery, Retention, SendCapacity,
    SendResult,
};
use holdfast_types::{DeliveryClass, DeliveryId, DeliveryState, RunnerId, TenantId};
use sqlx::AssertSqlSafe;

use crate::world::{World, completion, thought};

/// Reads a log page by page, as a subscriber does.
async fn read(world: &World, tenant: TenantId, after: i64) -> anyhow::Result<Vec<LoggedEvent>> {
    let (mut events, mut after) = (Vec::new(), after);
    loop {
        let page = world.sessions.event_log().page(tenant, after).await?;
        let Some(last) = page.events.last() else { return Ok(events) };
        after = last.position;
        events.extend(page.events);
    }
}

fn kinds(events: &[LoggedEvent]) -> Vec<&str> {
    events.iter().map(|logged| logged.event.kind.as_str()).collect()
}

#[tokio::test]
async fn a_turn_is_told_from_its_message_to_its_answer_with_ids_alone() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k", "the secret of the house").await?;
    let claim = world.claim_one().await?;
    let run = sent.message.as_uuid().into();
    let end = Completion {
        entries: vec![thought("an answer that nobody else may read")],
        done: vec![sent.seq],
        reply: Some(0),
        tools: vec![("c1".to_owned(), "web_search".to_owned())],
        ..completion(run)
    };
    world.sessions.complete(&claim, end).await?;
    world.log_events().await?;

    let events = read(&world, ada.id, 0).await?;

    assert_eq!(
        kinds(&events),
        [
            "message.accepted",
            "run.started",
            "tool.called",
            "run.ended",
            "usage.recorded",
            "message.answered"
        ]
    );
    let positions: Vec<i64> = events.iter().map(|event| event.position).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5, 6]);
    for LoggedEvent { event, .. } in &events {
        assert_eq!(event.session, Some(sent.session));
        assert_eq!(event.agent, Some(ada.agent));
        let schema = EVENT_SCHEMAS.iter().find(|schema| schema.kind == event.kind).unwrap();
        assert_eq!(event.schema_version, schema.version);
        for field in schema.fields.iter().filter(|field| !field.is_optional) {
            assert!(event.data.get(field.name).is_some(), "{event:?} lacks {}", field.name);
        }
        let text = serde_json::to_string(event)?;
        assert!(!text.contains("secret") && !text.contains("nobody"), "{text}");
    }
    assert_eq!(events[0].event.data["message"], sent.message.to_string());
    assert_eq!(events[2].event.data["tool"], "web_search");
    assert_eq!(events[3].event.data["outcome"], "completed");
    assert_eq!(events[4].event.data["input_tokens"], 3);
    assert_eq!(events[5].event.data["message"], sent.message.to_string());
    Ok(())
}

#[tokio::test]
async fn linking_accounts_is_told_without_whose_they_are() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k", "/link ABCD").await?;
    let settings = world.sessions.settings();
    settings
        .join_people(ada.id, Some(sent.session), &["discord:7".to_owned()], "telegram:42")
        .await?;
    settings.record_unlinking(ada.id, sent.session).await?;
    world.log_events().await?;

    let events = read(&world, ada.id, 0).await?;

    assert_eq!(kinds(&events), ["message.accepted", "accounts.linked", "accounts.unlinked"]);
    for LoggedEvent { event, .. } in &events[1..] {
        assert_eq!((event.session, event.agent), (Some(sent.session), Some(ada.agent)));
        assert_eq!((event.schema_version, &event.data), (1, &serde_json::json!({})));
        assert!(EVENT_SCHEMAS.iter().any(|schema| schema.kind == event.kind));
    }
    Ok(())
}

#[tokio::test]
async fn an_event_that_is_committed_late_comes_after_those_that_were_read() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let insert = |session: u8| {
        AssertSqlSafe(format!(
            "insert into session.events (tenant_id, family, session_id, name, payload)
             values ('{}', 'jobs', '00000000-0000-0000-0000-00000000000{session}', 'job.fired',
                     '{{\"job\": \"job_00000000000000000000000000000001\", \"slot\": \"{session}\"}}')",
            ada.id.as_uuid()
        ))
    };
    // The first row gets the smaller id, and is committed last.
    let mut slow = world.begin().await?;
    sqlx::query(insert(1)).execute(&mut slow).await?;
    let mut quick = world.begin().await?;
    sqlx::query(insert(2)).execute(&mut quick).await?;
    sqlx::query("commit").execute(&mut quick).await?;

    assert_eq!(world.log_events().await?, 1);
    let first = read(&world, ada.id, 0).await?;
    sqlx::query("commit").execute(&mut slow).await?;
    assert_eq!(world.log_events().await?, 1);
    let rest = read(&world, ada.id, first[0].position).await?;

    assert_eq!((first.len(), &first[0].event.data["slot"]), (1, &"2".into()));
    assert_eq!((rest.len(), &rest[0].event.data["slot"]), (1, &"1".into()));
    Ok(())
}

#[tokio::test]
async fn a_tenant_reads_no_event_of_another() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (ada, eve) = (world.tenant(), world.tenant());
    let ours = ada.say("s", "k", "hello").await?;
    let theirs = eve.say("s", "k", "hello").await?;
    world.log_events().await?;

    for (tenant, session) in [(ada.id, ours.session), (eve.id, theirs.session)] {
        let events = read(&world, tenant, 0).await?;
        assert_eq!(kinds(&events), ["message.accepted"]);
        assert_eq!((events[0].position, events[0].event.session), (1, Some(session)));
    }
    let texts = [EventText::Message(theirs.message), EventText::Message(ours.message)];
    assert_eq!(
        world.sessions.event_log().texts(ada.id, &texts).await?,
        [None, Some("hello".to_owned())]
    );
    Ok(())
}

#[tokio::test]
async fn one_process_writes_the_log_at_a_time() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k", "hello").await?;

    let mut first = world.sessions.event_log().writer().await?.expect("nobody else writes");
    let (rows, events) = first.take(10).await?;
    assert!(world.sessions.event_log().writer().await?.is_none());
    first.commit(events).await?;

    assert_eq!((rows, read(&world, ada.id, 0).await?.len()), (1, 1));
    assert!(world.sessions.event_log().writer().await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_writer_that_is_lost_loses_nothing() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k", "hello").await?;

    let mut lost = world.sessions.event_log().writer().await?.expect("nobody else writes");
    assert_eq!(lost.take(10).await?.1.len(), 1);
    drop(lost);
    // The rollback is sent in the background.
    while world.log_events().await? == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    assert_eq!(read(&world, ada.id, 0).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn events_that_the_version_before_has_relayed_are_logged() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    let pools = world.pools()?;
    let mut relay = pools.system_connection().await?;
    let deleted = holdfast_pg::query("delete from session.events").execute(relay.conn()).await?;
    relay.done();
    assert_eq!(deleted.rows_affected(), 1);
    ada.say("s", "k2", "hello again").await?;

    assert_eq!(world.log_events().await?, 2);

    let events = read(&world, ada.id, 0).await?;
    let seqs: Vec<_> = events.iter().map(|logged| &logged.event.data["seq"]).collect();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(world.number("select count(*) from session.relayed_events").await?, 0);
    Ok(())
}

#[tokio::test]
async fn messages_of_a_turn_by_the_version_before_are_answered_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let sent = ada.say("s", "k", "hello").await?;
    world.answer(&world.claim_one().await?, "hi").await?;
    world
        .admin("update session.events set payload = payload - 'messages' where family = 'runs'")
        .await?;

    world.log_events().await?;

    let events = read(&world, ada.id, 0).await?;
    let answered = events.iter().find(|logged| logged.event.kind == "message.answered").unwrap();
    assert_eq!(answered.event.data["message"], sent.message.to_string());
    Ok(())
}

#[tokio::test]
async fn old_events_are_deleted_and_the_log_knows_up_to_where() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    world.log_events().await?;
    world.admin("update session.event_log set created_at = '2020-01-01'").await?;
    ada.say("s", "k2", "hello").await?;
    world.log_events().await?;

    world.prune(&Retention::default()).await?;

    let bounds = world.sessions.event_log().bounds(ada.id).await?;
    assert_eq!((bounds.deleted, bounds.newest), (1, 2));
    assert_eq!(read(&world, ada.id, 0).await?, []);
    assert_eq!(read(&world, ada.id, 1).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_delivery_is_told_when_its_fate_is_known() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    let owner = RunnerId::generate();
    for (key, result, state) in [
        ("a", SendResult::Sent { platform_id: "1".to_owned() }, DeliveryState::Sent),
        ("b", SendResult::Rejected { reason: "no".to_owned() }, DeliveryState::Dead),
        ("c", SendResult::Unknown { reason: "lost".to_owned() }, DeliveryState::Unknown),
    ] {
        let sent = ada.say(key, key, "hello").await?;
        let claim = world.claim_one().await?;
        let run = sent.message.as_uuid().into();
        let end = Completion {
            done: vec![sent.seq],
            deliveries: vec![NewDelivery {
                target: ada.target(),
                text: "hi".to_owned(),
                act: None,
                id: DeliveryId::generate(),
                delay: Duration::ZERO,
            }],
            ..completion(run)
        };
        world.sessions.complete(&claim, end).await?;
        let capacity = SendCapacity::slots(1);
        let class = DeliveryClass::Keyed { window: Duration::from_secs(86_400) };
        let deliveries = world.sessions.deliveries();
        let claimed = deliveries.claim("webhook", class, owner, &capacity).await?;
        deliveries.record_result(&claimed[0], owner, result).await?;
        world.log_events().await?;

        let events = read(&world, ada.id, 0).await?;
        let last = &events.last().unwrap().event;
        assert_eq!(last.kind, format!("delivery.{}", state.as_str()));
        assert_eq!(last.data["delivery"], claimed[0].id.to_string());
        assert_eq!(last.channel.as_deref(), Some("webhook"));
    }
    Ok(())
}

#[tokio::test]
async fn what_nats_has_not_stored_is_published_later() -> anyhow::Result<()> {
    let world = World::start().await?;
    let ada = world.tenant();
    ada.say("s", "k1", "hello").await?;
    world.log_events().await?;
    let log = world.sessions.event_log();

    let first = log.unpublished(10).await?;
    assert_eq!((first.len(), first[0].tenant), (1, ada.id));
    assert_eq!(log.unpublished(10).await?, first);
    log.mark_published(&[(ada.id, first[0].events[0].position)]).await?;

    assert_eq!(log.unpublished(10).await?, []);
    Ok(())
}
