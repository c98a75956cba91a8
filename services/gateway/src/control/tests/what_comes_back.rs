//! Round trips: settings are returned as they were stored, without secrets.

use holdfast_proto::gateway::v1::{
    self as pb, agents_server::Agents as _, channels_server::Channels as _,
    operations_server::Operations as _, providers_server::Providers as _,
    routing_server::Routing as _, sessions_server::Sessions as _, tenants_server::Tenants as _,
};
use holdfast_types::SessionId;
use sqlx::{Connection as _, PgConnection};
use tonic::Code;

use super::{World, admin, code, platform};
use crate::control::{
    accounts::Channels, agents::Agents, operations, providers::Providers, routing::Routing,
    sessions, tenants::Tenants,
};

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
    let update = pb::UpdateAgentRequest { agent: Some(change), base_version: None };
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
        extra_body: Some(r#"{"top_k": 40}"#.into()),
        ..Default::default()
    };
    let put = pb::PutProviderRequest {
        provider: Some(provider),
        api_key: "sk-hush".into(),
        headers: [("x-team".to_owned(), "hush-team".to_owned())].into(),
        ..Default::default()
    };
    let account = pb::Account {
        channel: "webhook".into(),
        settings: r#"{"url": "https://x.example"}"#.into(),
        ..Default::default()
    };
    let create = pb::CreateAccountRequest {
        account: Some(account),
        secrets: r#"{"secret": "hush-0123456789abcdef"}"#.into(),
    };

    let put = providers.put_provider(admin(tenant, put)).await.unwrap().into_inner();
    let made = channels.create_account(admin(tenant, create)).await.unwrap().into_inner();
    let provider = providers.list_providers(admin(tenant, Default::default())).await.unwrap();
    let accounts = channels.list_accounts(admin(tenant, Default::default())).await.unwrap();

    let shown = format!("{put:?} {made:?} {provider:?} {accounts:?}");
    assert!(!shown.contains("hush"), "{shown}");
    let put = put.provider.unwrap();
    assert_eq!(put.header_names, ["x-team"]);
    assert_eq!(put.extra_body.as_deref(), Some(r#"{"top_k":40}"#));
    assert_eq!((put.has_key, put.default_model.as_str()), (true, "openai:gpt-5"));
    let made = made.account.unwrap();
    assert_eq!((made.name.as_str(), made.enabled), ("default", false));
    let id = made.id.parse().unwrap();
    let opened = world.state.directory.accounts().get(tenant, id).await.unwrap();
    assert_eq!(opened.secrets, serde_json::json!({"secret": "hush-0123456789abcdef"}));
}

#[tokio::test]
async fn an_account_is_listed_with_what_its_bridge_reported() {
    use holdfast_directory::{AccountState, AccountStatus};

    let world = World::new().await;
    let (ours, theirs) = (world.tenant("acme").await, world.tenant("other").await);
    let channels = Channels(world.state.clone());
    let account = pb::Account { channel: "telegram".into(), ..Default::default() };
    let secrets = r#"{"token": "1:a"}"#.into();
    let create = pb::CreateAccountRequest { account: Some(account), secrets };
    let made = channels.create_account(admin(ours, create)).await.unwrap().into_inner();
    let id = made.account.unwrap().id.parse().unwrap();
    let status = async || {
        let listed = channels.list_accounts(admin(ours, Default::default())).await.unwrap();
        listed.into_inner().accounts.remove(0).status
    };
    let accounts = world.state.directory.accounts();
    let report = |state, detail: &str| AccountStatus { state, detail: detail.to_owned() };

    assert_eq!(status().await, None);
    accounts.record_status(ours, id, &report(AccountState::Connecting, "")).await.unwrap();
    let long = "é".repeat(600);
    accounts.record_status(ours, id, &report(AccountState::Failing, &long)).await.unwrap();
    // Of another tenant's account nothing is recorded.
    accounts.record_status(theirs, id, &report(AccountState::Working, "")).await.unwrap();

    let shown = status().await.unwrap();
    assert_eq!((shown.state.as_str(), shown.detail.chars().count()), ("failing", 500));
    assert!(shown.since.is_some() && shown.checked_at.is_some());
    assert_eq!(accounts.statuses(theirs).await.unwrap(), []);
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
    let put = pb::PutRulesRequest { rules: vec![rule], ..Default::default() };
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
    // A binding stays when its agent is deleted, and shows the agent's id.
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

    // As a runner of a version before leaves it, which does not write the hour.
    let old = expected.remove(3);
    expected.push(old);
    let mut admin_connection = PgConnection::connect(&world.database.admin_url()).await.unwrap();
    let forget = "update session.sessions set used_hour = null where key like '%:b'";
    sqlx::query(forget).execute(&mut admin_connection).await.unwrap();

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
async fn a_session_is_named_and_pinned_and_nothing_else_of_it_changes() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let handler = sessions::Handler(world.state.clone());
    for user in ["ann", "bob"] {
        world.say(tenant, &format!("agent:main:api:{user}")).await;
    }
    let update = async |label: Option<&str>, pinned| {
        let label = label.map(str::to_owned);
        let session = "ann".into();
        let update = pb::UpdateSessionRequest { session, label, pinned, ..Default::default() };
        handler.update_session(admin(tenant, update)).await
    };
    let list = async |filter: pb::ListSessionsRequest| {
        let listed = handler.list_sessions(admin(tenant, filter)).await.unwrap().into_inner();
        listed.sessions.into_iter().map(|session| session.key).collect::<Vec<_>>()
    };

    let named = update(Some(" Ephemeral "), Some(true)).await.unwrap().into_inner();

    let named = named.session.unwrap();
    assert_eq!((named.label.as_str(), named.pinned), ("Ephemeral", true));
    let kept = update(None, None).await.unwrap().into_inner().session.unwrap();
    assert_eq!((&kept, kept.pinned), (&named, true));
    let all = list(pb::ListSessionsRequest::default()).await;
    assert_eq!(all, ["agent:main:api:bob", "agent:main:api:ann"]);
    let filters = [
        pb::ListSessionsRequest { search: "EPHEM".into(), ..Default::default() },
        pb::ListSessionsRequest { search: "api:ann".into(), ..Default::default() },
        pb::ListSessionsRequest { label: "Ephemeral".into(), ..Default::default() },
        pb::ListSessionsRequest { pinned: Some(true), ..Default::default() },
    ];
    for filter in filters {
        assert_eq!(list(filter).await, ["agent:main:api:ann"]);
    }
    let cleared = update(Some(""), Some(false)).await.unwrap().into_inner().session.unwrap();
    assert_eq!((cleared.label.as_str(), cleared.pinned), ("", false));
    assert_eq!(code(update(Some(&"x".repeat(201)), None).await), Code::InvalidArgument);
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
    let create = pb::CreateTenantRequest { name: "acme".into(), ..Default::default() };

    let made = tenants.create_tenant(platform(operator, create)).await.unwrap().into_inner();
    let tenant = made.tenant.unwrap();
    let change = |change: pb::Tenant| {
        let update = pb::UpdateTenantRequest { tenant: Some(change), ..Default::default() };
        tenants.update_tenant(platform(operator, update))
    };
    let named = || pb::Tenant { name: "acme".into(), ..Default::default() };
    let changed = change(pb::Tenant { weight: 3, cap: 9, rate: 60, ..named() }).await.unwrap();
    let changed = changed.into_inner().tenant.unwrap();
    let too_heavy = change(pb::Tenant { weight: 101, ..named() }).await;
    let unknown = change(pb::Tenant { state: "asleep".into(), ..named() }).await;
    let missing = change(pb::Tenant { name: "nobody".into(), ..Default::default() }).await;
    let command = pb::ProductCommand { command: "acme chat".into(), description: "talk".into() };
    let acme = pb::Product {
        name: "Acme".into(),
        docs_url: "https://acme.example".into(),
        commands: vec![command],
    };
    let label = |product| change(pb::Tenant { product: Some(product), ..named() });
    let labelled = label(acme.clone()).await.unwrap().into_inner().tenant.unwrap();
    let wrong = label(pb::Product { docs_url: "acme.example".into(), ..acme.clone() }).await;
    let suspended = change(pb::Tenant { state: "suspended".into(), ..named() }).await.unwrap();

    assert_eq!(changed.product, Some(pb::Product::default()));
    assert_eq!((labelled.product, labelled.rate), (Some(acme.clone()), 60));
    assert_eq!(code(wrong), Code::InvalidArgument);
    assert_eq!((tenant.state.as_str(), tenant.weight, tenant.cap), ("active", 1, 64));
    assert_eq!((changed.id, changed.weight, changed.cap, changed.rate), (tenant.id, 3, 9, 60));
    assert_eq!(code(too_heavy), Code::InvalidArgument);
    assert_eq!(code(unknown), Code::InvalidArgument);
    assert_eq!(code(missing), Code::NotFound);
    let suspended = suspended.into_inner().tenant.unwrap();
    assert_eq!((suspended.state.as_str(), suspended.weight), ("suspended", 3));
    assert_eq!(suspended.product, Some(acme));
    let refused = world.state.directory.keys().authenticate(&made.secret).await.unwrap_err();
    assert!(matches!(refused, holdfast_directory::Error::TenantSuspended));
    let listed = tenants.list_tenants(platform(operator, Default::default())).await.unwrap();
    let names: Vec<String> =
        listed.into_inner().tenants.into_iter().map(|tenant| tenant.name).collect();
    assert_eq!(names, ["acme", "operator"]);
}

#[tokio::test]
async fn a_tenant_has_its_own_retention_and_its_deletion_cannot_be_undone() {
    let world = World::new().await;
    let operator = world.tenant("operator").await;
    let tenants = Tenants(world.state.clone());
    let create = pb::CreateTenantRequest { name: "acme".into(), ..Default::default() };
    let made = tenants.create_tenant(platform(operator, create)).await.unwrap().into_inner();
    let change = |change: pb::Tenant| {
        let update = pb::UpdateTenantRequest { tenant: Some(change), ..Default::default() };
        tenants.update_tenant(platform(operator, update))
    };
    let named = || pb::Tenant { name: "acme".into(), ..Default::default() };
    let retention = pb::Retention { journals: 400, deliveries: 7, ..Default::default() };

    let kept = change(pb::Tenant { retention: Some(retention), ..named() }).await.unwrap();
    let other = change(pb::Tenant { rate: 60, ..named() }).await.unwrap().into_inner();
    let forever = pb::Retention { journals: 36_501, ..Default::default() };
    let too_long = change(pb::Tenant { retention: Some(forever), ..named() }).await;
    let delete = || pb::DeleteTenantRequest { name: "acme".into() };
    tenants.delete_tenant(platform(operator, delete())).await.unwrap();
    tenants.delete_tenant(platform(operator, delete())).await.unwrap();
    let revived = change(pb::Tenant { state: "active".into(), ..named() }).await;
    let missing = pb::DeleteTenantRequest { name: "nobody".into() };
    let missing = tenants.delete_tenant(platform(operator, missing)).await;

    assert_eq!(made.tenant.unwrap().retention, Some(pb::Retention::default()));
    assert_eq!(kept.into_inner().tenant.unwrap().retention, Some(retention));
    assert_eq!(other.tenant.unwrap().retention, Some(retention));
    assert_eq!(code(too_long), Code::InvalidArgument);
    assert_eq!(code(revived), Code::Aborted);
    assert_eq!(code(missing), Code::NotFound);
    let refused = world.state.directory.keys().authenticate(&made.secret).await.unwrap_err();
    assert!(matches!(refused, holdfast_directory::Error::TenantSuspended));
    let listed = tenants.list_tenants(platform(operator, Default::default())).await.unwrap();
    let states: Vec<String> =
        listed.into_inner().tenants.into_iter().map(|tenant| tenant.state).collect();
    assert_eq!(states, ["deleting", "active"]);
}
