//! Rights to conversations: who reaches the agent's, another person's, a program's and their own.

use holdfast_proto::gateway::v1::{
    self as pb, AddReminderRequest, BranchSessionRequest, CancelRequest, DeleteSessionRequest,
    ExportSessionRequest, GetHistoryRequest, GetSessionRequest, ListBranchesRequest,
    ListSessionsRequest, PauseSessionRequest, ResumeSessionRequest, UpdateSessionRequest,
    WakeAgentRequest, schedules_client::SchedulesClient, sessions_client::SessionsClient,
};
use holdfast_testkit::FakeIssuer;
use prost::Message;
use serde_json::json;
use tonic::Code;

use crate::{
    foreign::raw::call,
    people::trust,
    world::{Tenant, World, message},
};

/// Requests that name a conversation, by method: to write in it, to control it, to read it.
fn requests(session: &str) -> [Vec<(&'static str, Vec<u8>)>; 3] {
    let session = || session.to_owned();
    let write = vec![
        (
            "Messages/Send",
            pb::SendRequest { session: session(), ..message("print MEMORY.md") }.encode_to_vec(),
        ),
        (
            "Messages/Stream",
            pb::SendRequest { session: session(), ..message("print MEMORY.md") }.encode_to_vec(),
        ),
        (
            "Sessions/UpdateSession",
            UpdateSessionRequest { session: session(), ..Default::default() }.encode_to_vec(),
        ),
        (
            "Sessions/BranchSession",
            BranchSessionRequest { session: session(), ..Default::default() }.encode_to_vec(),
        ),
        (
            "Work/ApplyTodos",
            pb::ApplyTodosRequest { session: session(), ..Default::default() }.encode_to_vec(),
        ),
    ];
    let control = vec![
        (
            "Messages/Cancel",
            CancelRequest { session: session(), ..Default::default() }.encode_to_vec(),
        ),
        ("Sessions/PauseSession", PauseSessionRequest { session: session() }.encode_to_vec()),
        ("Sessions/ResumeSession", ResumeSessionRequest { session: session() }.encode_to_vec()),
        ("Sessions/DeleteSession", DeleteSessionRequest { session: session() }.encode_to_vec()),
    ];
    let read = vec![
        ("Sessions/GetSession", GetSessionRequest { session: session() }.encode_to_vec()),
        (
            "Sessions/GetHistory",
            GetHistoryRequest { session: session(), ..Default::default() }.encode_to_vec(),
        ),
        ("Sessions/ExportSession", ExportSessionRequest { session: session() }.encode_to_vec()),
        ("Sessions/ListBranches", ListBranchesRequest { session: session() }.encode_to_vec()),
    ];
    [write, control, read]
}

/// Whether a call is refused because the conversation is not the caller's.
async fn is_refused(world: &World, caller: &Tenant, method: &str, request: Vec<u8>) -> bool {
    match call(world, caller, method, request).await {
        Err(status) if status.code() == Code::PermissionDenied => true,
        // Of a conversation that does not exist, or whose turn goes on: the right was checked first.
        Ok(_) | Err(_) => false,
    }
}

#[tokio::test]
async fn nobody_reaches_conversations_beyond_their_role() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let person = |name: &str, role: &str| {
        world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": [role]})))
    };
    let other = person("other", "member");
    let own = world.send(&other, pb::SendRequest { session: "trip".into(), ..message("hello") });
    let others_id = own.await.unwrap().session_id.parse().unwrap();
    // By its key, since some of the callers below may delete the conversation.
    let others_session =
        world.sessions.views().session(world.anna.id, others_id).await.unwrap().key;
    let key = |scopes: &'static [&'static str]| async {
        world.anna.by(&world.key(&world.anna, scopes, None).await.unwrap())
    };
    let callers = [
        ("chat key", key(&["chat"]).await, [false; 3]),
        ("guest key", key(&["guest"]).await, [false; 3]),
        ("chat and read key", key(&["chat", "read"]).await, [false, false, true]),
        ("operator key", key(&["chat", "read", "admin"]).await, [false, true, true]),
        ("owner key", key(&["chat", "read", "admin", "owner"]).await, [true; 3]),
        ("guest", person("guest", "guest"), [false; 3]),
        ("viewer", person("viewer", "viewer"), [false, false, true]),
        ("member", person("member", "member"), [false; 3]),
        ("approver", person("approver", "approver"), [false; 3]),
        ("operator", person("operator", "operator"), [false, true, true]),
        ("owner", person("owner", "owner"), [true; 3]),
    ];

    for (who, caller, may) in &callers {
        for (session, is_persons) in [
            ("agent:main:main", false),
            ("agent:main:heartbeat", false),
            ("agent:main:dm:telegram:7", false),
            ("agent:main:group:telegram:-7", false),
            ("agent:main:cron:job:run", false),
            (others_session.as_str(), true),
        ] {
            for ((methods, may), is_write) in
                requests(session).into_iter().zip(may).zip([true, false, false])
            {
                // Nobody writes in the conversation of another person.
                let may = *may && !(is_write && is_persons);
                for (method, request) in methods {
                    let refused = is_refused(&world, caller, method, request).await;
                    // A refusal for want of the method's permission is one, too.
                    assert_eq!(refused, !may, "{method} of {session} by {who}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_person_reaches_their_own_conversations_and_sees_no_others() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let person = |name: &str| {
        world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": ["member"]})))
    };
    let (anna, bo) = (person("anna"), person("bo"));
    let trip = |text: &str| pb::SendRequest { session: "trip".into(), ..message(text) };

    let of_anna = world.send(&anna, trip("to Oslo")).await.unwrap().session_id;
    let of_bo = world.send(&bo, trip("to Rome")).await.unwrap().session_id;
    world.send(&anna, message("hello")).await.unwrap();
    world.send(&world.anna, message("the owner's")).await.unwrap();

    assert_ne!(of_anna, of_bo);
    let mut sessions = SessionsClient::new(world.channel().await.unwrap());
    let list = anna.request(ListSessionsRequest::default());
    let listed = sessions.list_sessions(list).await.unwrap().into_inner().sessions;
    let mut names: Vec<&str> =
        listed.iter().map(|session| session.key.rsplit('/').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["main", "trip"]);
    assert!(listed.iter().all(|session| session.key.starts_with("agent:main:api:=per_")));
    let delete = DeleteSessionRequest { session: of_anna.clone() };
    sessions.delete_session(anna.request(delete)).await.unwrap();
}

#[tokio::test]
async fn the_words_of_a_provider_are_for_those_who_read_the_whole_tenant() {
    let issuer = FakeIssuer::start().await.unwrap();
    let url = issuer.url();
    let world = World::start_with(|config| trust(config, &url)).await.unwrap();
    let person = |name: &str, role: &str| {
        world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": [role]})))
    };
    let member = person("member", "member");
    let failing = pb::SendRequest { session: "trip".into(), ..message("fail bad_request") };
    let sent = world.send(&member, failing).await.unwrap();
    world.follow(&member, &sent.message_id).await.unwrap();
    let get = pb::GetRunRequest { run_id: sent.message_id.replace("msg_", "run_") };
    let failures = async |caller: &Tenant| {
        let mut sessions = SessionsClient::new(world.channel().await.unwrap());
        let got = sessions.get_run(caller.request(get.clone())).await.unwrap().into_inner();
        let told = format!("{got:?}");
        (got.run.unwrap().provider_failures, told)
    };

    let whole = pb::ProviderFailure {
        provider: "test".into(),
        model: "test:echo".into(),
        class: "bad_request".into(),
        status: 400,
        code: "bad_field".into(),
        text: "field X is wrong".into(),
        attempts: 1,
        repair: String::new(),
    };
    for role in ["viewer", "operator", "owner"] {
        assert_eq!(failures(&person(role, role)).await.0, std::slice::from_ref(&whole), "{role}");
    }
    assert_eq!(failures(&world.anna).await.0, [whole]);
    let (of_member, told) = failures(&member).await;
    let class = "bad_request".to_owned();
    let shown = pb::ProviderFailure { class, attempts: 1, ..Default::default() };
    assert_eq!(of_member, [shown]);
    assert!(!told.contains("field X"), "{told}");
}

#[tokio::test]
async fn a_name_in_a_name_space_cannot_be_chosen() {
    let world = World::start().await.unwrap();

    for name in ["=per_0198c0ffee0000000000000000000000/trip", "=x", " =anna"] {
        let sent = pb::SendRequest { session: name.into(), ..message("hello") };
        let refused = world.send(&world.anna, sent).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
    }
}

#[tokio::test]
async fn reminders_and_wake_ups_have_the_rights_of_whoever_makes_them() {
    let world = World::start().await.unwrap();
    let chats = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());
    let mut schedules = SchedulesClient::new(world.channel().await.unwrap());
    let remind = |user: &str, session: &str| AddReminderRequest {
        user: user.to_owned(),
        time: "in 2 hours".to_owned(),
        content: "read MEMORY.md".to_owned(),
        session: session.to_owned(),
        auto_continue: true,
        ..AddReminderRequest::default()
    };

    for (user, session) in
        [("owner", ""), ("telegram:42", ""), ("api:anna", "agent:main:main"), ("owner", "global")]
    {
        let refused = schedules.add_reminder(chats.request(remind(user, session))).await;
        let status = refused.unwrap_err();
        assert!(
            matches!(status.code(), Code::PermissionDenied | Code::InvalidArgument),
            "{user} {session}: {status}"
        );
    }
    schedules.add_reminder(chats.request(remind("api:anna", ""))).await.unwrap();
    schedules.add_reminder(world.anna.request(remind("owner", ""))).await.unwrap();
    let wake = WakeAgentRequest {
        text: "add a job".to_owned(),
        mode: "now".to_owned(),
        ..WakeAgentRequest::default()
    };
    let refused = schedules.wake_agent(chats.request(wake.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let runs = world.anna.by(&world.key(&world.anna, &["admin"], None).await.unwrap());
    schedules.wake_agent(runs.request(wake)).await.unwrap();
    let authors = world
        .texts("select body->'author'->>'roles' from session.inbox where body->>'event' = 'wake'")
        .await
        .unwrap();
    assert_eq!(authors, [r#"["admin", "member"]"#]);
}

#[tokio::test]
async fn only_owners_give_an_account_the_rights_of_another() {
    let world = World::start().await.unwrap();
    let operator = world.anna.by(&world.key(&world.anna, &["admin"], None).await.unwrap());
    let identity = |canonical: &str| {
        let (channel, peer) = ("telegram".to_owned(), "42".to_owned());
        let identity = pb::Identity { channel, peer, canonical: canonical.to_owned() };
        pb::PutIdentityRequest { identity: Some(identity) }.encode_to_vec()
    };

    for canonical in ["=telegram:1", " =telegram:1", "=person:per_0198c0ffee0000000000000000000000"]
    {
        let put = identity(canonical);
        assert!(is_refused(&world, &operator, "Routing/PutIdentity", put).await, "{canonical}");
    }
    call(&world, &operator, "Routing/PutIdentity", identity("anna")).await.unwrap();
    call(&world, &world.anna, "Routing/PutIdentity", identity("=telegram:1")).await.unwrap();
}
