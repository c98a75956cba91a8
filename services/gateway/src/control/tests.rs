//! What the handlers promise, over a real Postgres: who may, whose it is, and what comes back.

use std::time::Duration;

use holdfast_bus::Bus;
use holdfast_directory::{Actor, Directory, Seal};
use holdfast_grpc::{Caller, Scope, Scopes};
use holdfast_pg::Pools;
use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, channels_server::Channels as _, keys_server::Keys as _,
    operations_server::Operations as _, providers_server::Providers as _,
    routing_server::Routing as _, sessions_server::Sessions as _, tenants_server::Tenants as _,
};
use holdfast_session::{Accepted, NewMessage, Sessions};
use holdfast_testkit::Database;
use holdfast_types::{
    AccountId, AgentId, Body, DeliveryId, DmScope, GroupScope, KeyId, MessageId, QueueMode, RunId,
    SessionId, Source, TenantId,
};
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use super::{
    State, accounts::Channels, agents::Agents, keys::Keys, limit, parse_word, providers::Providers,
    routing::Routing, tenants::Tenants, timestamp, word, word_of,
};
use crate::{operations, sessions};

struct World {
    state: State,
    // Dropped with the world.
    _database: Database,
}

impl World {
    async fn new() -> Self {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await
        .unwrap();
        let config = holdfast_pg::Config { url: database.url().into(), ..Default::default() };
        let pools = Pools::lazy(&config, "test").unwrap();
        let seal = Seal::new(&"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into()).unwrap();
        let directory = Directory::new(pools.clone(), seal, "pepper".into());
        // Nobody is there: what is only told to others is dropped, and all else works.
        let nats = holdfast_bus::Config { url: "nats://127.0.0.1:1".into(), ..Default::default() };
        let bus = Bus::connect(&nats, "test").await.unwrap();
        let state = State { directory, sessions: Sessions::new(pools), bus };
        Self { state, _database: database }
    }

    async fn tenant(&self, name: &str) -> TenantId {
        self.state.directory.create_tenant(Actor::Operator, name).await.unwrap().0.id
    }

    async fn say(&self, tenant: TenantId, session: &str) -> Accepted {
        let agent = self.state.directory.default_agent(tenant).await.unwrap();
        let message = NewMessage {
            key: session.parse().unwrap(),
            agent: agent.id,
            label: None,
            source: Source::Internal("test".into()),
            idem_key: Uuid::now_v7().to_string(),
            body: Body::text("hello"),
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        };
        self.state.sessions.ingest(tenant, message).await.unwrap()
    }
}

fn request<T>(tenant: TenantId, scopes: Scopes, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let key = Some(KeyId::generate());
    request.extensions_mut().insert(Caller { tenant, key, scopes, name: "test".into() });
    request
}

/// All that a tenant's own keys can have.
fn admin<T>(tenant: TenantId, message: T) -> Request<T> {
    request(tenant, [Scope::Chat, Scope::Read, Scope::Admin].into_iter().collect(), message)
}

fn platform<T>(tenant: TenantId, message: T) -> Request<T> {
    request(tenant, Scopes::NONE.with(Scope::Platform), message)
}

fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn every_call_needs_its_own_scope_and_no_other_will_do() {
    let world = World::new().await;
    let state = || world.state.clone();
    let tenant = world.tenant("acme").await;
    macro_rules! needs {
        ($($scope:ident: $handler:expr => $($call:ident($message:ident)),+;)+) => {$($(
            let others = Scope::ALL.into_iter().filter(|scope| *scope != Scope::$scope).collect();
            let call = $handler.$call(request(tenant, others, pb::$message::default())).await;
            assert_eq!(code(call), Code::PermissionDenied, stringify!($call));
            let its_own = Scopes::NONE.with(Scope::$scope);
            let call = $handler.$call(request(tenant, its_own, pb::$message::default())).await;
            assert_ne!(code(call), Code::PermissionDenied, stringify!($call));
            let call = $handler.$call(Request::new(pb::$message::default())).await;
            assert_eq!(code(call), Code::Unauthenticated, stringify!($call));
        )+)+};
    }

    needs! {
        Read: Agents(state()) => list_agents(ListAgentsRequest), get_agent(GetAgentRequest);
        Admin: Agents(state()) => create_agent(CreateAgentRequest),
            update_agent(UpdateAgentRequest), delete_agent(DeleteAgentRequest);
        Admin: Providers(state()) => list_providers(ListProvidersRequest),
            put_provider(PutProviderRequest), delete_provider(DeleteProviderRequest);
        Admin: Keys(state()) => list_keys(ListKeysRequest), create_key(CreateKeyRequest),
            revoke_key(RevokeKeyRequest);
        Platform: Tenants(state()) => list_tenants(ListTenantsRequest),
            create_tenant(CreateTenantRequest), update_tenant(UpdateTenantRequest);
        Read: Channels(state()) => list_accounts(ListAccountsRequest);
        Admin: Channels(state()) => create_account(CreateAccountRequest),
            update_account(UpdateAccountRequest), delete_account(DeleteAccountRequest);
        Read: Routing(state()) => list_bindings(ListBindingsRequest),
            list_rules(ListRulesRequest), list_identities(ListIdentitiesRequest),
            explain(ExplainRequest);
        Admin: Routing(state()) => create_binding(CreateBindingRequest),
            delete_binding(DeleteBindingRequest), put_rules(PutRulesRequest),
            put_identity(PutIdentityRequest), delete_identity(DeleteIdentityRequest);
        Read: sessions::Handler(state()) => list_sessions(ListSessionsRequest),
            get_session(GetSessionRequest), get_history(GetHistoryRequest),
            list_runs(ListRunsRequest), get_run(GetRunRequest);
        Chat: sessions::Handler(state()) => pause_session(PauseSessionRequest),
            resume_session(ResumeSessionRequest), delete_session(DeleteSessionRequest);
        Read: operations::Handler(state()) => get_status(GetStatusRequest),
            list_dead_letters(ListDeadLettersRequest), get_dead_letter(GetDeadLetterRequest),
            list_deliveries(ListDeliveriesRequest);
        Admin: operations::Handler(state()) => requeue_dead_letter(RequeueDeadLetterRequest),
            resend_delivery(ResendDeliveryRequest);
    }
}

#[tokio::test]
async fn what_is_another_tenants_is_not_found() {
    let world = World::new().await;
    let state = || world.state.clone();
    let (ours, theirs) = (world.tenant("ours").await, world.tenant("theirs").await);
    let directory = &world.state.directory;
    let agent = directory.default_agent(theirs).await.unwrap().id.to_string();
    let key = directory.keys(theirs).await.unwrap()[0].id.to_string();
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
        ($($handler:expr => $call:ident($message:ident { $($field:ident: $value:expr),+ });)+) => {$(
            let message = pb::$message { $($field: $value),+ };
            let refused = $handler.$call(admin(ours, message.clone())).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{}: {refused}", stringify!($call));
        )+};
    }

    let stolen = pb::Agent { id: agent.clone(), name: "stolen".into(), ..Default::default() };
    missing! {
        Agents(state()) => get_agent(GetAgentRequest { agent: agent.clone() });
        Agents(state()) => update_agent(UpdateAgentRequest { agent: Some(stolen.clone()) });
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
            session: session.clone(), limit: 0, before_seq: 0 });
        sessions::Handler(state()) => pause_session(PauseSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => resume_session(ResumeSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => delete_session(DeleteSessionRequest {
            session: session.clone() });
        sessions::Handler(state()) => list_runs(ListRunsRequest {
            session: session.clone(), limit: 0 });
        sessions::Handler(state()) => list_sessions(ListSessionsRequest {
            agent: agent.clone(), kind: String::new(), limit: 0, page_token: String::new() });
        sessions::Handler(state()) => get_run(GetRunRequest {
            run_id: RunId::from(said.message).to_string() });
        operations::Handler(state()) => get_dead_letter(GetDeadLetterRequest {
            message_id: message.clone() });
        operations::Handler(state()) => requeue_dead_letter(RequeueDeadLetterRequest {
            message_id: message.clone() });
        operations::Handler(state()) => resend_delivery(ResendDeliveryRequest {
            id: DeliveryId::generate().to_string() });
    }

    // And nothing of it shows in our lists, nor was any of it changed.
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
    };
    let both = [Scope::Admin, Scope::Platform].into_iter().collect();
    let keys = Keys(world.state.clone());

    let refused = keys.create_key(admin(tenant, create())).await;
    let made = keys.create_key(request(tenant, both, create())).await.unwrap().into_inner();

    assert_eq!(code(refused), Code::PermissionDenied);
    let who = world.state.directory.authenticate(&made.secret).await.unwrap();
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

#[tokio::test]
async fn an_agent_is_made_read_changed_and_deleted() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let agents = Agents(world.state.clone());
    let new = pb::Agent {
        name: "Coach".into(),
        instructions: "Be strict.".into(),
        queue_mode: "followup".into(),
        tools: vec!["web_search".into()],
        ..Default::default()
    };

    let create = pb::CreateAgentRequest { agent: Some(new.clone()) };
    let made = agents.create_agent(admin(tenant, create.clone())).await.unwrap().into_inner();
    let again = agents.create_agent(admin(tenant, create)).await;
    let change = pb::Agent { name: "coach".into(), description: "Drills.".into(), ..new };
    let update = pb::UpdateAgentRequest { agent: Some(change) };
    let changed = agents.update_agent(admin(tenant, update)).await.unwrap().into_inner();
    let delete = pb::DeleteAgentRequest { agent: "coach".into() };
    let deleted = agents.delete_agent(admin(tenant, delete)).await;

    let made = made.agent.unwrap();
    assert_eq!((made.name.as_str(), made.queue_mode.as_str()), ("coach", "followup"));
    assert_eq!((made.dm_scope.as_str(), made.time_zone.as_str()), ("per-channel-peer", "UTC"));
    assert_eq!(code(again), Code::Aborted);
    let changed = changed.agent.unwrap();
    assert_eq!((changed.id, changed.description.as_str()), (made.id, "Drills."));
    assert_eq!(code(deleted), Code::Ok);
    let listed = agents.list_agents(admin(tenant, Default::default())).await.unwrap();
    let names: Vec<String> =
        listed.into_inner().agents.into_iter().map(|agent| agent.name).collect();
    assert_eq!(names, ["main"]);
}

#[tokio::test]
async fn secrets_go_in_and_do_not_come_out() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (providers, channels) = (Providers(world.state.clone()), Channels(world.state.clone()));
    let provider = pb::Provider {
        name: "openai".into(),
        kind: "openai".into(),
        default_model: "gpt-5".into(),
        ..Default::default()
    };
    let put = pb::PutProviderRequest { provider: Some(provider), api_key: "sk-hush".into() };
    let account = pb::Account {
        channel: "webhook".into(),
        settings: r#"{"url": "https://x.example"}"#.into(),
        ..Default::default()
    };
    let create = pb::CreateAccountRequest {
        account: Some(account),
        secrets: r#"{"secret": "hush"}"#.into(),
    };

    let put = providers.put_provider(admin(tenant, put)).await.unwrap().into_inner();
    let made = channels.create_account(admin(tenant, create)).await.unwrap().into_inner();
    let provider = providers.list_providers(admin(tenant, Default::default())).await.unwrap();
    let accounts = channels.list_accounts(admin(tenant, Default::default())).await.unwrap();

    let shown = format!("{put:?} {made:?} {provider:?} {accounts:?}");
    assert!(!shown.contains("hush"), "{shown}");
    let put = put.provider.unwrap();
    assert_eq!((put.has_key, put.default_model.as_str()), (true, "openai:gpt-5"));
    let made = made.account.unwrap();
    assert_eq!((made.name.as_str(), made.enabled), ("default", false));
    let id = made.id.parse().unwrap();
    let opened = world.state.directory.account(tenant, id).await.unwrap();
    assert_eq!(opened.secrets, serde_json::json!({"secret": "hush"}));
}

#[tokio::test]
async fn what_is_explained_is_what_bindings_and_rules_say() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let state = || world.state.clone();
    let routing = Routing(state());
    for name in ["coach", "clerk"] {
        let agent = pb::Agent { name: name.into(), ..Default::default() };
        let create = pb::CreateAgentRequest { agent: Some(agent) };
        Agents(state()).create_agent(admin(tenant, create)).await.unwrap();
    }
    let binding = pb::Binding {
        channel: "Telegram".into(),
        peer_kind: "direct".into(),
        peer_id: "7".into(),
        agent: "coach".into(),
        ..Default::default()
    };
    let create = pb::CreateBindingRequest { binding: Some(binding) };
    let made = routing.create_binding(admin(tenant, create)).await.unwrap().into_inner();
    let rule =
        pb::Rule { pattern: "(?i)invoice".into(), agent: "clerk".into(), ..Default::default() };
    let put = pb::PutRulesRequest { rules: vec![rule] };
    routing.put_rules(admin(tenant, put)).await.unwrap();
    let identity = pb::Identity { peer: "8".into(), canonical: "ann".into(), ..Default::default() };
    let put = pb::PutIdentityRequest { identity: Some(identity) };
    routing.put_identity(admin(tenant, put)).await.unwrap();
    let explain = async |peer: &str, text: &str| {
        let request = pb::ExplainRequest {
            channel: "telegram".into(),
            peer_kind: "direct".into(),
            peer_id: peer.into(),
            text: text.into(),
            ..Default::default()
        };
        let told = routing.explain(admin(tenant, request)).await.unwrap().into_inner();
        (told.agent, told.matched_by, told.session_key)
    };
    let told = |agent: &str, by: &str, key: &str| (agent.to_owned(), by.to_owned(), key.to_owned());

    assert_eq!(
        explain("7", "an invoice").await,
        told("coach", "binding.peer", "agent:coach:dm:telegram:7")
    );
    assert_eq!(
        explain("8", "Invoice!").await,
        told("clerk", "rule.1", "agent:clerk:dm:telegram:ann")
    );
    assert_eq!(explain("9", "hi").await, told("main", "default", "agent:main:dm:telegram:9"));
    // A binding outlives its agent, and says so.
    let delete = pb::DeleteAgentRequest { agent: "coach".into() };
    Agents(state()).delete_agent(admin(tenant, delete)).await.unwrap();
    assert_eq!(explain("7", "hi").await.0, "main");
    let listed = routing.list_bindings(admin(tenant, Default::default())).await.unwrap();
    assert!(listed.into_inner().bindings[0].agent.starts_with("agt_"));
    assert_eq!(made.binding.unwrap().agent, "coach");
}

#[tokio::test]
async fn pages_of_sessions_show_each_once_newest_first() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let handler = sessions::Handler(world.state.clone());
    let mut expected = Vec::<String>::new();
    for user in ["a", "b", "c", "d", "e"] {
        expected.insert(
            0,
            world.say(tenant, &format!("agent:main:api:{user}")).await.session.to_string(),
        );
    }

    let (mut seen, mut page_token) = (Vec::new(), String::new());
    for _ in 0..4 {
        let list = pb::ListSessionsRequest { limit: 2, page_token, ..Default::default() };
        let page = handler.list_sessions(admin(tenant, list)).await.unwrap().into_inner();
        assert!(page.sessions.len() <= 2);
        seen.extend(page.sessions.into_iter().map(|session| session.id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }

    assert_eq!(seen, expected);
    assert_eq!(page_token, "");
    let of_kind = |kind: &str| pb::ListSessionsRequest { kind: kind.into(), ..Default::default() };
    let groups = handler.list_sessions(admin(tenant, of_kind("group"))).await.unwrap();
    assert_eq!(groups.into_inner().sessions, []);
    let wrong = handler.list_sessions(admin(tenant, of_kind("chat"))).await;
    assert_eq!(code(wrong), Code::InvalidArgument);
}

#[tokio::test]
async fn a_session_is_found_by_id_key_or_name_and_can_be_held() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let handler = sessions::Handler(world.state.clone());
    let id: SessionId = world.say(tenant, "agent:main:api:ann").await.session;
    let get = async |session: &str| {
        let get = pb::GetSessionRequest { session: session.to_owned() };
        handler.get_session(admin(tenant, get)).await.unwrap().into_inner().session.unwrap()
    };

    for name in [id.to_string().as_str(), "agent:main:api:ann", "ann"] {
        let session = get(name).await;
        assert_eq!((session.id, session.agent.as_str()), (id.to_string(), "main"), "{name}");
    }
    let pause = pb::PauseSessionRequest { session: "ann".into() };
    let paused = handler.pause_session(admin(tenant, pause)).await.unwrap().into_inner();
    assert_eq!((paused.paused, get("ann").await.state.as_str()), (1, "PAUSE"));
    let resume = pb::ResumeSessionRequest { session: "ann".into() };
    let resumed = handler.resume_session(admin(tenant, resume)).await.unwrap().into_inner();
    assert_eq!((resumed.resumed, get("ann").await.state.as_str()), (1, "READY"));
    let delete = pb::DeleteSessionRequest { session: id.to_string() };
    handler.delete_session(admin(tenant, delete.clone())).await.unwrap();
    assert_eq!(code(handler.delete_session(admin(tenant, delete)).await), Code::NotFound);
}

#[tokio::test]
async fn a_status_counts_what_is_the_tenants_own() {
    let world = World::new().await;
    let (ours, theirs) = (world.tenant("ours").await, world.tenant("theirs").await);
    world.say(ours, "agent:main:main").await;
    for user in ["a", "b"] {
        world.say(theirs, &format!("agent:main:api:{user}")).await;
    }

    let status = operations::Handler(world.state.clone());
    let status = status.get_status(admin(ours, Default::default())).await.unwrap().into_inner();

    assert_eq!((status.tenant.as_str(), status.agents), ("ours", 1));
    assert_eq!((status.waiting_messages, status.dead_letters), (1, 0));
    assert_eq!(status.sessions.get("READY"), Some(&1));
    assert_eq!(status.version, env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn the_platform_makes_lists_and_changes_tenants() {
    let world = World::new().await;
    let operator = world.tenant("operator").await;
    let tenants = Tenants(world.state.clone());
    let create = pb::CreateTenantRequest { name: "acme".into() };

    let made = tenants.create_tenant(platform(operator, create)).await.unwrap().into_inner();
    let tenant = made.tenant.unwrap();
    let change = |change: pb::Tenant| {
        let update = pb::UpdateTenantRequest { tenant: Some(change) };
        tenants.update_tenant(platform(operator, update))
    };
    let named = || pb::Tenant { name: "acme".into(), ..Default::default() };
    let changed = change(pb::Tenant { weight: 3, cap: 9, rate: 60, ..named() }).await.unwrap();
    let changed = changed.into_inner().tenant.unwrap();
    let too_heavy = change(pb::Tenant { weight: 101, ..named() }).await;
    let unknown = change(pb::Tenant { state: "asleep".into(), ..named() }).await;
    let missing = change(pb::Tenant { name: "nobody".into(), ..Default::default() }).await;
    let suspended = change(pb::Tenant { state: "suspended".into(), ..named() }).await.unwrap();

    assert_eq!((tenant.state.as_str(), tenant.weight, tenant.cap), ("active", 1, 64));
    assert_eq!((changed.id, changed.weight, changed.cap, changed.rate), (tenant.id, 3, 9, 60));
    assert_eq!(code(too_heavy), Code::InvalidArgument);
    assert_eq!(code(unknown), Code::InvalidArgument);
    assert_eq!(code(missing), Code::NotFound);
    let suspended = suspended.into_inner().tenant.unwrap();
    assert_eq!((suspended.state.as_str(), suspended.weight), ("suspended", 3));
    let refused = world.state.directory.authenticate(&made.secret).await.unwrap_err();
    assert!(matches!(refused, holdfast_directory::Error::Suspended));
    let listed = tenants.list_tenants(platform(operator, Default::default())).await.unwrap();
    let names: Vec<String> =
        listed.into_inner().tenants.into_iter().map(|tenant| tenant.name).collect();
    assert_eq!(names, ["acme", "operator"]);
}

#[test]
fn a_word_stands_for_one_value_and_an_empty_one_for_the_default() {
    for scope in
        [DmScope::Main, DmScope::PerPeer, DmScope::PerChannelPeer, DmScope::PerAccountChannelPeer]
    {
        assert_eq!(parse_word::<DmScope>("x", &word_of(&scope), "").unwrap(), scope);
    }
    assert_eq!(word_of(&GroupScope::GroupUser), "group-user");
    assert_eq!(word::<QueueMode>("x", "", "").unwrap(), QueueMode::Steer);
    let wrong = word::<QueueMode>("queue_mode", "later", "steer or followup").unwrap_err();
    assert_eq!(wrong.to_string(), "`queue_mode` is `later`: write steer or followup");
}

#[test]
fn a_limit_has_a_usual_value_and_a_most() {
    assert_eq!(limit(0, 50, 200).unwrap(), 50);
    assert_eq!(limit(200, 50, 200).unwrap(), 200);
    assert!(limit(201, 50, 200).is_err());
}

#[test]
fn a_moment_is_written_in_seconds_and_nanoseconds() {
    let at: jiff::Timestamp = "2026-01-02T03:04:05.006Z".parse().unwrap();

    let written = timestamp(at);

    assert_eq!((written.seconds, written.nanos), (1_767_323_045, 6_000_000));
}
