//! Isolation between tenants, and the scope that only an operator's key may give.

use holdfast_grpc::Scope;
use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, channels_server::Channels as _, keys_server::Keys as _,
    operations_server::Operations as _, routing_server::Routing as _,
    sessions_server::Sessions as _,
};
use holdfast_types::{AccountId, AgentId, DeliveryId, MessageId, RunId};
use tonic::Code;

use super::{World, admin, code, request};
use crate::control::{
    accounts::Channels, agents::Agents, keys::Keys, operations, routing::Routing, sessions,
};

#[tokio::test]
async fn what_is_another_tenants_is_not_found() {
    let world = World::new().await;
    let state = || world.state.clone();
    let (ours, theirs) = (world.tenant("ours").await, world.tenant("theirs").await);
    let directory = &world.state.directory;
    let agent = directory.agents().default_agent(theirs).await.unwrap().id.to_string();
    let key = directory.keys().list(theirs).await.unwrap()[0].id.to_string();
    let account = pb::Account { channel: "telegram".into(), ..Default::default() };
    let secrets = r#"{"token": "1:a"}"#.to_owned();
    let create = pb::CreateAccountRequest { account: Some(account.clone()), secrets };
    let made = Channels(state()).create_account(admin(theirs, create)).await.unwrap();
    let account = made.into_inner().account.unwrap();
    let binding = pb::Binding { channel: "x".into(), agent: "main".into(), ..Default::default() };
    let create = pb::CreateBindingRequest { binding: Some(binding) };
    let made = Routing(state()).create_binding(admin(theirs, create)).await.unwrap();
    let binding = made.into_inner().binding.unwrap().id;
    let said = world.say(theirs, "agent:main:main").await;
    let (session, message) = (said.session.to_string(), said.message.to_string());
    macro_rules! missing {
        ($($handler:expr => $call:ident(
            $message:ident { $($field:ident: $value:expr),+ $(, ..$rest:expr)? }
        );)+) => {$(
            let message = pb::$message { $($field: $value),+ $(, ..$rest)? };
            let refused = $handler.$call(admin(ours, message.clone())).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{}: {refused}", stringify!($call));
        )+};
    }

    let stolen = pb::Agent { id: agent.clone(), name: "stolen".into(), ..Default::default() };
    missing! {
        Agents(state()) => get_agent(GetAgentRequest { agent: agent.clone() });
        Agents(state()) => update_agent(UpdateAgentRequest { agent: Some(stolen.clone()), base_version: None });
        Agents(state()) => delete_agent(DeleteAgentRequest { agent: agent.clone() });
        Keys(state()) => revoke_key(RevokeKeyRequest { id: key.clone() });
        Channels(state()) => update_account(UpdateAccountRequest {
            account: Some(account.clone()), secrets: String::new() });
        Channels(state()) => delete_account(DeleteAccountRequest { id: account.id.clone() });
        Routing(state()) => delete_binding(DeleteBindingRequest { id: binding.clone() });
        sessions::Handler(state()) => get_session(GetSessionRequest { session: session.clone() });
        sessions::Handler(state()) => get_session(GetSessionRequest {
            session: "agent:main:main".to_owned() });
        sessions::Handler(state()) => get_history(GetHistoryRequest {
            session: session.clone(), ..Default::default() });
        sessions::Handler(state()) => pause_session(PauseSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => resume_session(ResumeSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => delete_session(DeleteSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => list_runs(ListRunsRequest {
            session: session.clone(), ..Default::default() });
        sessions::Handler(state()) => list_sessions(ListSessionsRequest {
            agent: agent.clone(), ..Default::default() });
        sessions::Handler(state()) => get_run(GetRunRequest {
            run_id: RunId::from(said.message).to_string() });
        operations::Handler(state()) => get_dead_letter(GetDeadLetterRequest {
            message_id: message.clone() });
        operations::Handler(state()) => requeue_dead_letter(RequeueDeadLetterRequest {
            message_id: message.clone() });
        operations::Handler(state()) => resend_delivery(ResendDeliveryRequest {
            id: DeliveryId::generate().to_string() });
    }

    // Nothing of it appears in our lists, and nothing of it was changed.
    let listed = sessions::Handler(state()).list_sessions(admin(ours, Default::default())).await;
    assert_eq!(listed.unwrap().into_inner().sessions, []);
    let listed = Channels(state()).list_accounts(admin(ours, Default::default())).await;
    assert_eq!(listed.unwrap().into_inner().accounts, []);
    let get = pb::GetSessionRequest { session };
    let kept = sessions::Handler(state()).get_session(admin(theirs, get)).await;
    assert_eq!(kept.unwrap().into_inner().session.unwrap().state, "READY");
}

#[tokio::test]
async fn an_id_that_is_none_is_refused_with_what_to_write() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let state = || world.state.clone();

    let revoke = pb::RevokeKeyRequest { id: AccountId::generate().to_string() };
    let refused = Keys(state()).revoke_key(admin(tenant, revoke)).await.unwrap_err();
    let get = pb::GetSessionRequest { session: "ses_7".into() };
    let also = sessions::Handler(state()).get_session(admin(tenant, get)).await.unwrap_err();

    assert_eq!((refused.code(), also.code()), (Code::InvalidArgument, Code::InvalidArgument));
    assert!(refused.message().ends_with("write `key_` and a UUID"), "{refused}");
    for unknown in [MessageId::generate().to_string(), AgentId::generate().to_string()] {
        let get = pb::GetDeadLetterRequest { message_id: unknown.clone() };
        let refused = operations::Handler(state()).get_dead_letter(admin(tenant, get)).await;
        let expected =
            if unknown.starts_with("msg_") { Code::NotFound } else { Code::InvalidArgument };
        assert_eq!(code(refused), expected);
    }
}

#[tokio::test]
async fn only_a_key_of_the_platform_makes_another() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let create = || pb::CreateKeyRequest {
        name: "more".into(),
        scopes: vec!["chat".into(), "platform".into()],
        lifetime_seconds: 60,
        ..pb::CreateKeyRequest::default()
    };
    let both = [Scope::Admin, Scope::Platform].into_iter().collect();
    let keys = Keys(world.state.clone());

    let refused = keys.create_key(admin(tenant, create())).await;
    let made = keys.create_key(request(tenant, both, create())).await.unwrap().into_inner();

    assert_eq!(code(refused), Code::PermissionDenied);
    let who = world.state.directory.keys().authenticate(&made.secret).await.unwrap();
    assert_eq!(
        (who.tenant, who.scopes.as_slice()),
        (tenant, &["chat", "platform"].map(str::to_owned)[..])
    );
    let key = made.key.unwrap();
    assert_eq!(key.expires_at.unwrap().seconds - key.created_at.unwrap().seconds, 60);
    let listed = keys.list_keys(admin(tenant, Default::default())).await.unwrap().into_inner();
    assert_eq!(listed.keys.len(), 2);
    assert!(!format!("{listed:?}").contains(&made.secret[36..]));
}
