//! Subscriptions to events: at least once, in order for each session, none of another tenant.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use holdfast_proto::gateway::v1::{
    self as pb, EventStart, SubscribeRequest, SubscribeResponse, events_client::EventsClient,
};
use serde_json::Value;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use holdfast_directory::TENANT_EVENT_KINDS;
use holdfast_session::EVENT_SCHEMAS;

use crate::world::{PATIENCE, Tenant, World, message};

/// Moves committed events to the log, as the runner with the duty of upkeep does.
pub async fn log_events(world: &World) -> Vec<holdfast_types::TenantId> {
    let mut writer = world.sessions.event_log().writer().await.unwrap().expect("one writer");
    let (_, events) = writer.take(1_000).await.unwrap();
    writer.commit(events).await.unwrap()
}

async fn subscribe(
    world: &World,
    of: &Tenant,
    request: SubscribeRequest,
) -> Result<Streaming<SubscribeResponse>, Status> {
    let mut client = EventsClient::new(world.channel().await.unwrap());
    Ok(client.subscribe(of.request(request)).await?.into_inner())
}

pub fn earliest(filter: pb::EventFilter) -> SubscribeRequest {
    SubscribeRequest {
        start: EventStart::Earliest.into(),
        filter: Some(filter),
        end_at_newest: true,
        ..SubscribeRequest::default()
    }
}

pub async fn read(
    world: &World,
    of: &Tenant,
    request: SubscribeRequest,
) -> Result<Vec<pb::Event>, Status> {
    let stream = subscribe(world, of, request).await?;
    let items: Vec<_> = timeout(PATIENCE, stream.collect()).await.expect("the stream ends");
    items.into_iter().filter_map(|item| item.map(|item| item.event).transpose()).collect()
}

/// The next event of a stream, after any keep-alives.
async fn next(stream: &mut Streaming<SubscribeResponse>) -> pb::Event {
    loop {
        let item = timeout(PATIENCE, stream.next()).await.expect("an event comes");
        if let Some(event) = item.expect("the stream goes on").unwrap().event {
            return event;
        }
    }
}

fn kinds(events: &[pb::Event]) -> Vec<&str> {
    events.iter().map(|event| event.r#type.as_str()).collect()
}

async fn answered(world: &World, of: &Tenant, text: &str) -> pb::SendResponse {
    let sent = world.send(of, message(text)).await.unwrap();
    world.follow(of, &sent.message_id).await.unwrap();
    sent
}

#[tokio::test]
async fn a_tenants_events_are_streamed_in_order_and_none_of_another() {
    let world = World::start().await.unwrap();
    let ours = answered(&world, &world.anna, "hello").await;
    let theirs = answered(&world, &world.ben, "hello").await;
    log_events(&world).await;

    for (tenant, sent) in [(&world.anna, &ours), (&world.ben, &theirs)] {
        let events = read(&world, tenant, earliest(pb::EventFilter::default())).await.unwrap();

        assert_eq!(
            kinds(&events),
            ["message.accepted", "run.started", "run.ended", "usage.recorded", "message.answered"]
        );
        assert!(events.iter().all(|event| event.session_id == sent.session_id));
        assert!(events.iter().all(|event| event.text.is_none() && event.schema_version == 1));
        let data: Value = serde_json::from_str(&events[4].data).unwrap();
        assert_eq!(data["message"], sent.message_id);
    }
}

#[tokio::test]
async fn a_subscriber_goes_on_behind_its_cursor() {
    let world = World::start().await.unwrap();
    answered(&world, &world.anna, "first").await;
    log_events(&world).await;
    let begin = SubscribeRequest { start: EventStart::Earliest.into(), ..Default::default() };
    let mut stream = subscribe(&world, &world.anna, begin).await.unwrap();
    let mut ids = vec![next(&mut stream).await.id, next(&mut stream).await.id];
    drop(stream);
    answered(&world, &world.anna, "second").await;
    log_events(&world).await;

    let cursor = ids[1].clone();
    let again = SubscribeRequest { cursor, end_at_newest: true, ..Default::default() };
    let rest = read(&world, &world.anna, again).await.unwrap();
    ids.extend(rest.into_iter().map(|event| event.id));

    let all = read(&world, &world.anna, earliest(pb::EventFilter::default())).await.unwrap();
    assert_eq!(ids, all.iter().map(|event| event.id.clone()).collect::<Vec<_>>());
    assert_eq!(ids.len(), 10);
}

#[tokio::test]
async fn each_subscription_of_a_tenant_gets_each_event() {
    let world = World::start().await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(subscribe(&world, &world.anna, SubscribeRequest::default()).await.unwrap());
    }
    let mut theirs = subscribe(&world, &world.ben, SubscribeRequest::default()).await.unwrap();

    for _ in 0..3 {
        answered(&world, &world.anna, "hello").await;
        answered(&world, &world.ben, "hello").await;
        log_events(&world).await;
    }

    let all = read(&world, &world.anna, earliest(pb::EventFilter::default())).await.unwrap();
    assert_eq!(all.len(), 15);
    for stream in &mut streams {
        for event in &all {
            assert_eq!(next(stream).await, *event);
        }
    }
    let of_ben = read(&world, &world.ben, earliest(pb::EventFilter::default())).await.unwrap();
    for event in of_ben {
        assert_eq!(next(&mut theirs).await, event);
    }
}

#[tokio::test]
async fn an_idle_subscriber_is_told_without_a_hint() {
    let world = World::start().await.unwrap();
    let mut stream = subscribe(&world, &world.anna, SubscribeRequest::default()).await.unwrap();
    world.send(&world.anna, message("hello")).await.unwrap();

    let tenants = log_events(&world).await;
    let begun = Instant::now();
    assert_eq!(next(&mut stream).await.r#type, "message.accepted");
    // Sooner than the next keep-alive.
    assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
    assert_eq!(tenants, [world.anna.id]);
}

#[tokio::test]
async fn hints_for_others_do_not_keep_events_without_a_hint_back() {
    let world = World::start().await.unwrap();
    let bus = world.bus().await.unwrap();
    let mut stream = subscribe(&world, &world.anna, SubscribeRequest::default()).await.unwrap();
    let hints = async {
        loop {
            bus.wake_events(&[world.ben.id]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    world.send(&world.anna, message("hello")).await.unwrap();
    log_events(&world).await;

    let told = tokio::select! {
        event = next(&mut stream) => event,
        () = hints => unreachable!(),
    };

    assert_eq!(told.r#type, "message.accepted");
}

#[tokio::test]
async fn a_cursor_that_the_log_does_not_reach_is_refused_clearly() {
    let world = World::start().await.unwrap();
    answered(&world, &world.anna, "hello").await;
    log_events(&world).await;
    let after = async |cursor: &str| {
        let request = SubscribeRequest { cursor: cursor.to_owned(), ..Default::default() };
        subscribe(&world, &world.anna, request).await.map(drop)
    };
    after("evc1_0").await.unwrap();
    let mut system = world.pools.system().await.unwrap();
    holdfast_pg::query("update session.event_positions set deleted = 2")
        .execute(system.conn())
        .await
        .unwrap();
    system.commit().await.unwrap();

    let old = after("evc1_1").await.unwrap_err();
    let unknown = after("evc1_ffff").await.unwrap_err();
    let bad = after("4711").await.unwrap_err();

    assert_eq!((old.code(), unknown.code()), (Code::OutOfRange, Code::OutOfRange));
    assert!(old.message().contains("EARLIEST"), "{old}");
    assert_eq!(bad.code(), Code::InvalidArgument);
    after("evc1_2").await.unwrap();
}

#[tokio::test]
async fn a_filter_sends_what_it_names_and_nothing_else() {
    let world = World::start().await.unwrap();
    let send = async |session: &str| {
        let request = pb::SendRequest { session: session.to_owned(), ..message("tool please") };
        let sent = world.send(&world.anna, request).await.unwrap();
        world.follow(&world.anna, &sent.message_id).await.unwrap();
        sent.session_id
    };
    let (first, second) = (send("one").await, send("two").await);
    log_events(&world).await;
    let read = async |filter| read(&world, &world.anna, earliest(filter)).await.unwrap();

    let runs = read(pb::EventFilter { types: vec!["run.".into()], ..Default::default() }).await;
    assert_eq!(kinds(&runs), ["run.started", "run.ended", "run.started", "run.ended"]);
    let types = vec!["message.accepted".to_owned(), "usage.".to_owned()];
    let session = second.clone();
    let of_one = read(pb::EventFilter { types, session, ..Default::default() }).await;
    assert_eq!(kinds(&of_one), ["message.accepted", "usage.recorded"]);
    assert!(of_one.iter().all(|event| event.session_id == second && first != second));
    let agent = read(pb::EventFilter { agent: "main".into(), ..Default::default() }).await;
    assert_eq!(agent.len(), 10);
    let channel = read(pb::EventFilter { channel: "telegram".into(), ..Default::default() }).await;
    assert!(channel.is_empty());
}

#[tokio::test]
async fn texts_are_sent_to_those_who_may_read_conversations() {
    let world = World::start().await.unwrap();
    answered(&world, &world.anna, "the word is plum").await;
    log_events(&world).await;
    let key = async |scopes: &[&str]| world.key(&world.anna, scopes, None).await.unwrap();
    let (events, reader) = (key(&["events"]).await, key(&["read"]).await);
    let (events, reader) = (world.anna.by(&events), world.anna.by(&reader));
    let plain = earliest(pb::EventFilter::default());
    let with_content = SubscribeRequest { include_content: true, ..plain.clone() };

    let refused = read(&world, &events, with_content.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let told = read(&world, &events, plain).await.unwrap();
    assert!(!format!("{told:?}").contains("plum"));

    let texts: Vec<Option<String>> = read(&world, &reader, with_content)
        .await
        .unwrap()
        .into_iter()
        .map(|event| event.text)
        .collect();
    assert_eq!(texts[0].as_deref(), Some("the word is plum"));
    assert_eq!(texts[4].as_deref(), Some("echo: the word is plum"));
    assert!(texts[1..4].iter().all(Option::is_none));
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_slows_no_turn() {
    let world = World::start().await.unwrap();
    let begin = SubscribeRequest { start: EventStart::Earliest.into(), ..Default::default() };
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(subscribe(&world, &world.anna, begin.clone()).await.unwrap());
    }
    for n in 0..5 {
        answered(&world, &world.anna, &format!("hello {n}")).await;
        log_events(&world).await;
    }

    // Each of them has missed nothing.
    for mut stream in slow {
        for _ in 0..25 {
            next(&mut stream).await;
        }
    }
}

/// The document is what integrators write their programs by.
#[test]
fn each_type_of_events_is_documented_with_its_version_and_fields() {
    const DOCUMENT: &str = include_str!("../../../../docs/events.md");
    let rows: Vec<Vec<&str>> = DOCUMENT
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains(" | 1 | "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let find = |kind: &str| {
        let name = format!("`{kind}`");
        rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{kind} is not there"))
    };

    for schema in EVENT_SCHEMAS {
        let fields: Vec<String> = schema
            .fields
            .iter()
            .map(|field| {
                let optional = if field.is_optional { "?" } else { "" };
                format!("`{}` {}{optional}", field.name, field.kind)
            })
            .collect();
        let row = find(schema.kind);
        assert_eq!((row[1], row[2]), (&*schema.version.to_string(), &*fields.join(", ")));
    }
    for kind in TENANT_EVENT_KINDS {
        find(kind);
    }
    assert_eq!(rows.len(), EVENT_SCHEMAS.len() + TENANT_EVENT_KINDS.len(), "a type is gone");
}
