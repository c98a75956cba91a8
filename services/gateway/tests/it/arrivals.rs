//! A message from a bridge is routed, accepted once, and answered to its origin.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_directory::{
    Actor, NewAgent, NewBinding, NewModelRoute, NewRule, TenantChanges, TenantState,
};
use holdfast_grpc::{CONTEXT_HEADER, CallTarget};
use holdfast_proto::gateway::v1::{
    AcceptRequest, AcceptResponse, GetHistoryRequest, MessageAttachment, SendRequest,
    ingest_client::IngestClient, sessions_client::SessionsClient,
};
use holdfast_types::{
    AccountId, AgentName, BlockSettings, ChannelOptions, Entry, ModelRoute, QueueMode,
    QueueSettings, RouteScope, TenantId,
};
use holdfast_workspace::Workspaces;
use tonic::{Code, Request, Status};

use crate::world::{MESH, World, done, message, signer};

const ACCEPT: CallTarget<'_> =
    CallTarget { audience: "gateway", method: "/holdfast.gateway.v1.Ingest/Accept" };

fn arrival(text: &str) -> AcceptRequest {
    AcceptRequest {
        account_id: "acc_01890a5d1b2c7def8123456789abcdef".into(),
        channel: "telegram".into(),
        account: "default".into(),
        idempotency_key: format!("update of {text}"),
        peer_kind: "direct".into(),
        peer_id: "42".into(),
        sender_id: "42".into(),
        sender_name: "Anna".into(),
        text: text.to_owned(),
        reply_chat: "42".into(),
        ..AcceptRequest::default()
    }
}

fn signed(tenant: TenantId, secret: &str, request: AcceptRequest) -> Request<AcceptRequest> {
    signed_at(tenant, secret, request, 0)
}

/// Signs with a clock that is so many seconds behind.
fn signed_at(
    tenant: TenantId,
    secret: &str,
    request: AcceptRequest,
    behind: u64,
) -> Request<AcceptRequest> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - behind;
    with_context(&signer(secret).unwrap().sign(tenant, "channel-bridge", ACCEPT, now), request)
}

fn with_context(context: &str, request: AcceptRequest) -> Request<AcceptRequest> {
    let mut request = Request::new(request);
    request.metadata_mut().insert(CONTEXT_HEADER, context.parse().unwrap());
    request
}

pub async fn accept(
    world: &World,
    tenant: TenantId,
    request: AcceptRequest,
) -> Result<AcceptResponse, Status> {
    let mut client = IngestClient::new(world.channel().await.unwrap());
    Ok(client.accept(signed(tenant, MESH, request)).await?.into_inner())
}

#[tokio::test]
async fn a_bridge_whose_clock_is_minutes_off_is_believed_up_to_the_set_tolerance() {
    let tolerance = std::time::Duration::from_secs(120);
    let strict = World::start_with(|config| config.mesh.clock_tolerance = tolerance).await.unwrap();
    let world = World::start().await.unwrap();
    let accept = async |world: &World| {
        let mut client = IngestClient::new(world.channel().await.unwrap());
        client.accept(signed_at(world.anna.id, MESH, arrival("hi"), 200)).await
    };

    accept(&world).await.unwrap();
    let refused = accept(&strict).await.unwrap_err();

    assert_eq!(refused.code(), Code::Unauthenticated);
    let told = refused.message();
    assert!(told.contains("s behind this one's, and `mesh.clock_tolerance` is 120 s"), "{told}");
}

#[tokio::test]
async fn a_context_is_accepted_once_from_the_bridge_for_this_call_and_no_other() {
    let world = World::start().await.unwrap();
    let mut client = IngestClient::new(world.channel().await.unwrap());
    let (mesh, anna) = (signer(MESH).unwrap(), world.anna.id);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let once = mesh.sign(anna, "channel-bridge", ACCEPT, now);
    let other_tenant = mesh.sign(anna, "channel-bridge", ACCEPT, now).replace(
        &anna.as_uuid().simple().to_string(),
        &world.ben.id.as_uuid().simple().to_string(),
    );
    let search = CallTarget { method: "/holdfast.memory.v1.Memory/Search", ..ACCEPT };

    client.accept(with_context(&once, arrival("first"))).await.unwrap();
    for (context, code) in [
        (once.clone(), Code::Unauthenticated),
        (other_tenant, Code::Unauthenticated),
        (mesh.sign(anna, "channel-bridge", search, now), Code::Unauthenticated),
        (
            mesh.sign(
                anna,
                "channel-bridge",
                CallTarget { audience: "memory-service", ..ACCEPT },
                now,
            ),
            Code::Unauthenticated,
        ),
        (mesh.sign(anna, "agent-runner", ACCEPT, now), Code::PermissionDenied),
    ] {
        let refused = client.accept(with_context(&context, arrival("again"))).await.unwrap_err();
        assert_eq!(refused.code(), code, "{context}: {refused}");
    }
}

#[tokio::test]
async fn an_arrival_is_accepted_once_in_its_peers_session() {
    let world = World::start().await.unwrap();

    let first = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    let again = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    let other = AcceptRequest { peer_id: "43".into(), sender_id: "43".into(), ..arrival("ho") };
    let other = accept(&world, world.anna.id, other).await.unwrap();

    assert_eq!(first.agent, "main");
    assert!(!first.duplicate && again.duplicate);
    assert_eq!(again.message_id, first.message_id);
    assert_ne!(other.session_id, first.session_id);
    let view = first.session_id.parse().unwrap();
    let view = world.sessions.views().session(world.anna.id, view).await.unwrap();
    assert_eq!(view.key, "agent:main:dm:telegram:42");
    let events = world.follow(&world.anna, &first.message_id).await.unwrap();
    assert_eq!(done(&events).text, "echo: hi");
}

#[tokio::test]
async fn a_message_to_several_agents_is_accepted_once_for_each_and_answered_by_each() {
    let world = World::start().await.unwrap();
    for name in ["coach", "critic"] {
        world.agent(&world.anna, name, QueueMode::Steer).await.unwrap();
    }
    let binding = NewBinding {
        channel: "telegram".into(),
        account: "*".into(),
        agent: "main".into(),
        also: vec!["coach".into(), "critic".into(), "coach".into()],
        ..NewBinding::default()
    };
    let routing = world.directory.routing();
    routing.create_binding(world.anna.id, Actor::Operator, binding).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;

    let first = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    let again = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    let link = accept(&world, world.anna.id, arrival("/link")).await.unwrap();

    assert_eq!((first.agent.as_str(), first.duplicate, again.duplicate), ("main", false, true));
    let inbox = "select s.key || ' ' || coalesce(i.body #>> '{options,signature}', '') || ' ' || (i.body ->> 'text')
                 from session.inbox i join session.sessions s using (tenant_id, session_id)
                 order by 1";
    let expected = [
        "agent:coach:dm:telegram:42 coach hi",
        "agent:critic:dm:telegram:42 critic hi",
        "agent:main:dm:telegram:42  /link",
        "agent:main:dm:telegram:42 main hi",
    ];
    assert_eq!(world.texts(inbox).await.unwrap(), expected);
    assert_eq!(link.agent, "main");
    let both = NewBinding {
        channel: "webhook".into(),
        agent: "main".into(),
        also: vec!["coach".into()],
        by_model: Some(NewModelRoute::default()),
        ..NewBinding::default()
    };
    let refused = routing.create_binding(world.anna.id, Actor::Operator, both).await;
    assert!(refused.unwrap_err().to_string().contains("`by_model` or `also`"));
}

#[tokio::test]
async fn an_agents_options_for_a_channel_are_those_of_its_messages() {
    let world = World::start().await.unwrap();
    let options = |cap| ChannelOptions {
        queue: QueueSettings {
            cap: Some(cap),
            mode: Some(QueueMode::Collect),
            ..Default::default()
        },
        blocks: Some(BlockSettings::default()),
        ..ChannelOptions::default()
    };
    let main = world.directory.agents().default_agent(world.anna.id).await.unwrap();
    let mut settings = main.settings;
    settings.channels =
        [("*".to_owned(), options(9)), ("telegram/default".to_owned(), options(3))].into();
    let new = NewAgent { name: main.name, is_default: true, settings, ..NewAgent::default() };
    world.directory.agents().update(world.anna.id, Actor::Operator, "main", new).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;

    accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    accept(&world, world.anna.id, AcceptRequest { account: "work".into(), ..arrival("ho") })
        .await
        .unwrap();
    world.send(&world.anna, message("by a program")).await.unwrap();

    let inbox = "select (body ->> 'text') || ' ' || mode || ' ' || (body #>> '{options,queue,cap}')
                 from session.inbox order by 1";
    let expected = ["by a program collect 9", "hi collect 3", "ho collect 9"];
    assert_eq!(world.texts(inbox).await.unwrap(), expected);
}

#[tokio::test]
async fn the_platforms_time_of_a_message_is_kept_and_shown_in_the_history() {
    let world = World::start().await.unwrap();
    let sent_at = Some(prost_types::Timestamp { seconds: 1_790_000_000, nanos: 5 });
    let late = AcceptRequest { sent_at, ..arrival("hi") };

    let accepted = accept(&world, world.anna.id, late).await.unwrap();
    world.follow(&world.anna, &accepted.message_id).await.unwrap();

    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    let get = GetHistoryRequest { session: accepted.session_id, ..GetHistoryRequest::default() };
    let history = sessions.get_history(world.anna.request(get)).await.unwrap().into_inner();
    let heard: serde_json::Value = serde_json::from_str(&history.entries[0].detail).unwrap();
    assert_eq!(heard["sent_at"], "2026-09-21T14:13:20Z");
}

#[tokio::test]
async fn the_same_arrival_at_two_tenants_is_two() {
    let world = World::start().await.unwrap();

    let annas = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    let bens = accept(&world, world.ben.id, arrival("hi")).await.unwrap();

    assert!(!bens.duplicate);
    assert_ne!(annas.session_id, bens.session_id);
    let refused = world.follow(&world.ben, &annas.message_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn a_silent_arrival_wakes_nobody_and_is_heard_with_the_next() {
    let world = World::start().await.unwrap();
    let group = |text: &str, silent: bool| AcceptRequest {
        peer_kind: "group".into(),
        peer_id: "-7".into(),
        silent,
        ..arrival(text)
    };

    let silent = accept(&world, world.anna.id, group("among us", true)).await.unwrap();
    let next = accept(&world, world.anna.id, group("history", false)).await.unwrap();

    assert_eq!((next.session_id, next.seq), (silent.session_id, 2));
    let events = world.follow(&world.anna, &next.message_id).await.unwrap();
    assert_eq!(done(&events).text, "user=among us; user=history");
}

#[tokio::test]
async fn a_suspended_tenants_channels_are_refused() {
    let world = World::start().await.unwrap();
    let changes = TenantChanges { state: Some(TenantState::Suspended), ..Default::default() };
    world.directory.tenants().update(world.anna.id, Actor::Operator, changes).await.unwrap();

    let refused = accept(&world, world.anna.id, arrival("hi")).await.unwrap_err();

    assert_eq!(refused.code(), Code::PermissionDenied, "{}", refused.message());
    accept(&world, world.ben.id, arrival("hi")).await.unwrap();
}

#[tokio::test]
async fn messages_of_a_tenants_channels_have_its_rate_and_take_no_part_of_its_calls() {
    let world = World::start().await.unwrap();
    let tenant = world.anna.id;
    let changes = TenantChanges { rate: Some(2), ..Default::default() };
    world.directory.tenants().update(tenant, Actor::Operator, changes).await.unwrap();

    accept(&world, tenant, arrival("one")).await.unwrap();
    let refused = accept(&world, tenant, arrival("two")).await.unwrap_err();

    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());
    assert!(holdfast_grpc::retry_after(&refused).is_some_and(|after| after.as_secs() <= 30));
    accept(&world, world.ben.id, arrival("two")).await.unwrap();
    world.send(&world.anna, message("three")).await.unwrap();
}

#[tokio::test]
async fn a_context_that_another_signed_is_not_believed() {
    let world = World::start().await.unwrap();
    let mut client = IngestClient::new(world.channel().await.unwrap());

    let forged = signed(world.anna.id, "another secret of 32 bytes here!", arrival("hi"));
    let refused = client.accept(forged).await.unwrap_err();

    assert_eq!(refused.code(), Code::Unauthenticated, "{}", refused.message());
}

#[tokio::test]
async fn what_routing_or_the_answer_needs_must_be_there() {
    let world = World::start().await.unwrap();
    for (wrong, told) in [
        (AcceptRequest { peer_id: String::new(), ..arrival("hi") }, "`peer_id`"),
        (AcceptRequest { idempotency_key: String::new(), ..arrival("hi") }, "`idempotency_key`"),
        (
            AcceptRequest { account_id: AccountId::generate().to_string() + "x", ..arrival("hi") },
            "acc_",
        ),
        (arrival(" "), "is empty"),
    ] {
        let refused = accept(&world, world.anna.id, wrong).await.unwrap_err();

        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(told), "{}", refused.message());
    }
}

#[tokio::test]
async fn a_file_that_came_along_is_the_agents_and_the_same_message_is_still_the_same() {
    let world = World::start().await.unwrap();
    let attachment = |kind: &str, content: Vec<u8>| MessageAttachment {
        kind: kind.into(),
        reference: "f".into(),
        name: "../cat".into(),
        content,
        ..MessageAttachment::default()
    };
    let png = b"\x89PNG\r\n\x1a\n a cat".to_vec();
    let photo = || AcceptRequest {
        // More than other callers may send.
        attachments: vec![
            attachment("photo", png.clone()),
            attachment("document", vec![7; 5 * 1024 * 1024]),
            attachment("document", vec![7; 10 * 1024 * 1024 + 1]),
            attachment("video", Vec::new()),
        ],
        ..arrival("look")
    };

    let first = accept(&world, world.anna.id, photo()).await.unwrap();
    let again = accept(&world, world.anna.id, photo()).await.unwrap();

    assert!(!first.duplicate && again.duplicate);
    done(&world.follow(&world.anna, &first.message_id).await.unwrap());
    let session = first.session_id.parse().unwrap();
    let journal = world.sessions.views().history(world.anna.id, session, 10, None).await.unwrap();
    let body = journal
        .into_iter()
        .find_map(|view| match view.entry {
            Entry::Heard { body, .. } => Some(body),
            _ => None,
        })
        .unwrap();
    let files: Vec<Option<(String, u64)>> = body
        .attachments
        .into_iter()
        .map(|attachment| attachment.file.map(|file| (file.media_type, file.size)))
        .collect();
    assert_eq!(
        files,
        [
            Some(("image/png".to_owned(), 14)),
            Some(("application/octet-stream".to_owned(), 5 * 1024 * 1024)),
            None,
            None
        ]
    );
}

/// Files that real programs wrote (crates/documents/testdata/README.md), by their names.
fn sample_files() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/documents/testdata");
    let content = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&content).unwrap();
    let read = |name: String| (name.clone(), std::fs::read(folder.join(&name)).unwrap());
    expected.into_iter().map(|(name, _)| read(name)).collect()
}

#[tokio::test]
async fn files_of_every_kind_are_kept_as_they_were_sent() {
    let world = World::start().await.unwrap();
    let workspaces = Workspaces::new(world.pools.clone());
    let all = sample_files();
    for (number, files) in all.chunks(30).enumerate() {
        let attachment = |(name, content): &(String, Vec<u8>)| MessageAttachment {
            kind: "document".into(),
            name: name.clone(),
            content: content.clone(),
            ..MessageAttachment::default()
        };
        let attachments = files.iter().map(attachment).collect();
        let request = AcceptRequest { attachments, ..arrival(&format!("look {number}")) };

        let accepted = accept(&world, world.anna.id, request).await.unwrap();

        done(&world.follow(&world.anna, &accepted.message_id).await.unwrap());
        let session = accepted.session_id.parse().unwrap();
        let journal = world.sessions.views().history(world.anna.id, session, 10, None);
        let bodies = journal.await.unwrap().into_iter().filter_map(|view| match view.entry {
            Entry::Heard { body, .. } if body.text == format!("look {number}") => Some(body),
            _ => None,
        });
        let attachments: Vec<_> = bodies.flat_map(|body| body.attachments).collect();
        assert_eq!(attachments.len(), files.len());
        for ((name, content), attachment) in files.iter().zip(attachments) {
            assert_eq!(attachment.name, *name);
            let Some(file) = attachment.file else {
                assert!(content.is_empty(), "{name}");
                continue;
            };
            let hash = file.hash.parse().unwrap();
            let kept = workspaces.content_by_hash(world.anna.id, &hash).await.unwrap();
            assert_eq!(kept.as_ref(), Some(content), "{name}");
        }
    }
    assert!(all.len() >= 30, "{}", all.len());
}

#[tokio::test]
async fn a_picture_is_kept_with_the_files_of_whoever_sent_it() {
    let world = World::start().await.unwrap();
    let policy = serde_json::json!({ "owners": ["telegram:7"] });
    let (anna, by) = (world.anna.id, Actor::Operator);
    world.directory.policies().put(anna, by, None, None, &policy).await.unwrap();
    let photo = |from: &str, kind: &str| AcceptRequest {
        attachments: vec![MessageAttachment {
            kind: "photo".into(),
            content: format!("\u{0}{from} {kind}").into_bytes(),
            ..MessageAttachment::default()
        }],
        peer_id: if kind == "group" { "-100".into() } else { from.into() },
        peer_kind: kind.into(),
        sender_id: from.into(),
        reply_chat: from.into(),
        ..arrival(&format!("look, {from}, {kind}"))
    };

    for (from, kind) in [("42", "direct"), ("7", "direct"), ("7", "group")] {
        accept(&world, anna, photo(from, kind)).await.unwrap();
    }
    let request = SendRequest {
        session: "bob".into(),
        attachments: vec![MessageAttachment {
            content: b"\0bob's".to_vec(),
            ..MessageAttachment::default()
        }],
        ..message("look")
    };
    world.send(&world.anna, request).await.unwrap();

    let agent = world.directory.agents().default_agent(anna).await.unwrap().id;
    let listed = Workspaces::new(world.pools.clone()).list(anna, agent, None, None).await.unwrap();
    let folders: Vec<String> = listed
        .iter()
        .filter_map(|file| file.path.folder())
        .map(|folder| folder.to_string())
        .collect();
    let people = ["api=bob", "group=telegram=-100", "telegram=42"];
    let people = people.map(|person| format!("people/{person}/media"));
    assert_eq!(folders, [&["media".to_owned()][..], &people].concat());
}

#[tokio::test]
async fn that_a_model_is_to_choose_is_stored_with_the_message_and_waits_for_nobody() {
    let world = World::start().await.unwrap();
    let coach =
        NewAgent { name: AgentName::new("coach"), description: "d".into(), ..Default::default() };
    let coach =
        world.directory.agents().create(world.anna.id, Actor::Operator, coach).await.unwrap();
    let route = NewModelRoute {
        among: vec!["coach".into()],
        each: RouteScope::Session,
        model: Some("demo:demo".into()),
    };
    let rule = NewRule { agent: "main".into(), by_model: Some(route), ..NewRule::default() };
    world
        .directory
        .routing()
        .put_rules(world.anna.id, Actor::Operator, vec![rule], None)
        .await
        .unwrap();

    let first = accept(&world, world.anna.id, arrival("hi")).await.unwrap();
    world
        .directory
        .routing()
        .put_rules(world.anna.id, Actor::Operator, Vec::new(), None)
        .await
        .unwrap();
    // Changed rules do not make it another message.
    let again = accept(&world, world.anna.id, arrival("hi")).await.unwrap();

    assert_eq!(first.agent, "main");
    assert!(again.duplicate && again.message_id == first.message_id);
    let session = first.session_id.parse().unwrap();
    let view = world.sessions.views().session(world.anna.id, session).await.unwrap();
    assert_eq!(view.key, "agent:main:dm:telegram:42");
    let events = world.follow(&world.anna, &first.message_id).await.unwrap();
    assert_eq!(done(&events).text, "echo: hi");
    let entries = world.sessions.views().history(world.anna.id, session, 9, None).await.unwrap();
    let heard = entries.into_iter().find_map(|view| match view.entry {
        Entry::Heard { body, .. } => body.route.map(|route| *route),
        _ => None,
    });
    let expected = ModelRoute {
        among: vec![coach.id],
        each: RouteScope::Session,
        model: Some("demo:demo".into()),
    };
    assert_eq!(heard, Some(expected));
}
