//! Plans of tenants: their limits, what is used of them, and the events of a tenant's life.

use std::time::Duration;

use holdfast_directory::Actor;
use holdfast_proto::gateway::v1::{
    self as pb, plans_client::PlansClient, platform_keys_client::PlatformKeysClient,
    tenants_client::TenantsClient, usage_reports_client::UsageReportsClient,
};
use holdfast_types::{AgentId, TreePath};
use holdfast_workspace::{Base, ChangeAuthor, Edit, Workspaces};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::world::{Tenant, World, message};

/// A world, and a key of Ben's that has the scope `platform`.
async fn operated() -> (World, Tenant) {
    let world = World::start().await.unwrap();
    let key = world.key(&world.ben, &["platform"], None).await.unwrap();
    let operator = world.ben.by(&key);
    (world, operator)
}

/// Reason of a refusal, as programs read it.
fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

async fn put(
    world: &World,
    operator: &Tenant,
    name: &str,
    limits: pb::PlanLimits,
) -> Result<pb::Plan, Status> {
    let mut client = PlansClient::new(world.channel().await.unwrap());
    let plan = pb::Plan { name: name.into(), limits: Some(limits), ..Default::default() };
    let put = client.put_plan(operator.request(pb::PutPlanRequest { plan: Some(plan) })).await?;
    Ok(put.into_inner().plan.unwrap())
}

async fn update(
    world: &World,
    operator: &Tenant,
    request: pb::UpdateTenantRequest,
) -> Result<pb::Tenant, Status> {
    let mut client = TenantsClient::new(world.channel().await.unwrap());
    let changed = client.update_tenant(operator.request(request)).await?;
    Ok(changed.into_inner().tenant.unwrap())
}

fn anna(change: pb::Tenant) -> pb::UpdateTenantRequest {
    let tenant = pb::Tenant { name: "anna".into(), ..change };
    pb::UpdateTenantRequest { tenant: Some(tenant), ..Default::default() }
}

fn with_plan(name: &str) -> pb::UpdateTenantRequest {
    anna(pb::Tenant { plan: name.into(), ..Default::default() })
}

async fn usage(world: &World, who: &Tenant, tenant: &str) -> pb::GetTenantUsageResponse {
    let mut client = UsageReportsClient::new(world.channel().await.unwrap());
    let request = pb::GetTenantUsageRequest { tenant: tenant.into() };
    client.get_tenant_usage(who.request(request)).await.unwrap().into_inner()
}

fn limit(usage: &pb::GetTenantUsageResponse, name: &str) -> pb::LimitUsage {
    usage.limits.iter().find(|limit| limit.name == name).unwrap().clone()
}

async fn events(world: &World, who: &Tenant, all: bool) -> Vec<pb::TenantEvent> {
    let mut client = UsageReportsClient::new(world.channel().await.unwrap());
    let request = pb::ListTenantEventsRequest { all_tenants: all, ..Default::default() };
    client.list_tenant_events(who.request(request)).await.unwrap().into_inner().events
}

#[tokio::test]
async fn a_tenant_has_the_limits_of_its_plan_except_those_of_its_own() {
    let (world, operator) = operated().await;
    let limits = pb::PlanLimits {
        calls_per_minute: Some(700),
        parallel_runs: Some(3),
        sessions: Some(9),
        ..Default::default()
    };
    put(&world, &operator, "basic", limits).await.unwrap();
    let own = pb::Tenant { cap: 5, ..Default::default() };
    update(&world, &operator, anna(own)).await.unwrap();

    let given = update(&world, &operator, with_plan("basic")).await.unwrap();

    assert_eq!((given.plan.as_str(), given.rate, given.cap), ("basic", 700, 5));
    assert_eq!((given.max_sessions, given.own_limits), (9, vec!["parallel_runs".to_owned()]));

    // A plan that changes has its effect at once, and an own limit can be given back.
    let larger = pb::PlanLimits { calls_per_minute: Some(900), ..limits };
    put(&world, &operator, "basic", larger).await.unwrap();
    let follow = pb::UpdateTenantRequest {
        follow_plan: vec!["parallel_runs".into()],
        ..anna(pb::Tenant::default())
    };
    let follows = update(&world, &operator, follow).await.unwrap();
    assert_eq!((follows.rate, follows.cap, follows.own_limits), (900, 3, vec![]));

    // Without a plan it has the defaults again.
    let none = pb::UpdateTenantRequest { no_plan: true, ..anna(pb::Tenant::default()) };
    let free = update(&world, &operator, none).await.unwrap();
    assert_eq!((free.plan.as_str(), free.rate, free.cap), ("", 6000, 64));
    assert_eq!(free.max_sessions, 1_000_000);
}

#[tokio::test]
async fn a_plan_that_is_wrong_missing_or_in_use_is_refused_with_what_to_do() {
    let (world, operator) = operated().await;
    let nothing = pb::PlanLimits { sessions: Some(0), ..Default::default() };

    let zero = put(&world, &operator, "p", nothing).await.unwrap_err();
    let name = put(&world, &operator, "A plan", pb::PlanLimits::default()).await.unwrap_err();
    let missing = update(&world, &operator, with_plan("gold")).await.unwrap_err();
    let by_tenant = put(&world, &world.anna, "p", pb::PlanLimits::default()).await.unwrap_err();

    assert_eq!(zero.code(), Code::InvalidArgument);
    assert!(zero.message().contains("`sessions` is 1 to 1000000000"), "{}", zero.message());
    assert_eq!(name.code(), Code::InvalidArgument);
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, "there is no plan `gold`"));
    assert_eq!(by_tenant.code(), Code::PermissionDenied);

    put(&world, &operator, "used", pb::PlanLimits::default()).await.unwrap();
    update(&world, &operator, with_plan("used")).await.unwrap();
    let mut client = PlansClient::new(world.channel().await.unwrap());
    let delete = || operator.request(pb::DeletePlanRequest { name: "used".into() });
    let in_use = client.delete_plan(delete()).await.unwrap_err();
    assert!(in_use.message().contains("holdfast tenants set-plan"), "{}", in_use.message());
    let none = pb::UpdateTenantRequest { no_plan: true, ..anna(pb::Tenant::default()) };
    update(&world, &operator, none).await.unwrap();
    client.delete_plan(delete()).await.unwrap();
    assert_eq!(client.delete_plan(delete()).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_session_beyond_the_plan_is_refused_and_known_ones_go_on() {
    let (world, operator) = operated().await;
    let two = pb::PlanLimits { sessions: Some(2), ..Default::default() };
    put(&world, &operator, "two", two).await.unwrap();
    update(&world, &operator, with_plan("two")).await.unwrap();
    let to = |session: &str| pb::SendRequest { session: session.into(), ..message("hi") };
    world.send(&world.anna, to("a")).await.unwrap();
    world.send(&world.anna, to("b")).await.unwrap();

    let refused = world.send(&world.anna, to("c")).await.unwrap_err();

    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());
    let reason = reason(&refused);
    assert_eq!(reason.as_deref(), Some("SESSION_LIMIT_REACHED"));
    world.send(&world.anna, to("a")).await.unwrap();
    world.send(&world.ben, to("c")).await.unwrap();
    let used = limit(&usage(&world, &world.anna, "").await, "sessions");
    assert_eq!((used.used, used.limit, used.level.as_str()), (Some(2), Some(2), "exceeded"));
}

#[tokio::test]
async fn open_calls_beyond_the_plan_are_refused() {
    let (world, operator) = operated().await;
    let one = pb::PlanLimits { concurrent_calls: Some(1), ..Default::default() };
    put(&world, &operator, "one", one).await.unwrap();
    update(&world, &operator, with_plan("one")).await.unwrap();
    let held = world.send(&world.anna, message("hold")).await;
    let held = held.unwrap().message_id;
    // A key of which the gateway remembers nothing.
    let scopes = ["chat", "read", "owner"];
    let fresh = world.anna.by(&world.key(&world.anna, &scopes, None).await.unwrap());
    let mut client = world.messages().await.unwrap();
    let follow = pb::FollowRequest { message_id: held };
    let open = client.follow(fresh.request(follow)).await.unwrap();

    let refused = world.send(&fresh, message("hi")).await.unwrap_err();

    assert_eq!(refused.code(), Code::ResourceExhausted, "{}", refused.message());
    assert!(refused.message().contains("1 calls open"), "{}", refused.message());
    world.send(&world.ben, message("hi")).await.unwrap();
    drop(open);
    world.runner.release(1);
}

#[tokio::test]
async fn files_beyond_the_storage_of_the_plan_are_refused_and_deleting_makes_room() {
    let (world, operator) = operated().await;
    let small = pb::PlanLimits { storage_bytes: Some(1_000), ..Default::default() };
    put(&world, &operator, "small", small).await.unwrap();
    update(&world, &operator, with_plan("small")).await.unwrap();
    let files = Workspaces::new(world.pools.clone());
    let (agents, by) =
        ([AgentId::generate(), AgentId::generate()], ChangeAuthor::new("me", "test"));
    let path: TreePath = "a.txt".parse().unwrap();
    let write = async |agent: AgentId, bytes: usize| {
        let (path, content) = (path.clone(), vec![b'x'; bytes]);
        let edit = Edit::Put { path, content, base: Base::Any };
        files.commit(world.anna.id, agent, &by, vec![edit]).await
    };
    write(agents[0], 600).await.unwrap();

    let refused = write(agents[1], 500).await.unwrap_err();

    let status = Status::from(gateway::Error::from(refused));
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason(&status).as_deref(), Some("STORAGE_LIMIT_REACHED"));
    assert!(status.message().contains("1100 bytes") && status.message().contains("allows 1000"));
    write(agents[1], 300).await.unwrap();
    let used = limit(&usage(&world, &world.anna, "").await, "storage_bytes");
    assert_eq!((used.used, used.level.as_str()), (Some(900), "warning"));
    write(agents[0], 100).await.unwrap();
    write(agents[1], 800).await.unwrap();
}

#[tokio::test]
async fn usage_is_exported_by_day_agent_and_model_to_those_who_may_see_it() {
    let (world, operator) = operated().await;
    for text in ["one", "two"] {
        let sent = world.send(&world.anna, message(text)).await.unwrap();
        world.follow(&world.anna, &sent.message_id).await.unwrap();
    }
    let agent = world.directory.agents().list(world.anna.id).await.unwrap().remove(0);
    let counted = world.sessions.usage().count_command(world.anna.id, agent.id).await;
    counted.unwrap().unwrap();
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let export = async |who: &Tenant, tenant: &str, all_tenants: bool, from: &str| {
        let mut client = UsageReportsClient::new(world.channel().await.unwrap());
        let request = pb::ExportUsageRequest {
            tenant: tenant.into(),
            all_tenants,
            from: from.into(),
            to: today.to_string(),
        };
        let mut rows = client.export_usage(who.request(request)).await?.into_inner();
        let mut all = Vec::new();
        while let Some(row) = rows.message().await? {
            all.push(row);
        }
        Ok::<_, Status>(all)
    };
    let from = today.to_string();

    let own = export(&world.anna, "", false, &from).await.unwrap();

    let turns = own.iter().find(|row| row.runs > 0).unwrap();
    assert_eq!((turns.runs, turns.messages, turns.input_tokens), (2, 2, 10));
    assert_eq!((turns.cached_tokens, turns.output_tokens), (4, 6));
    assert_eq!((turns.tenant.as_str(), turns.agent.as_str()), ("anna", "main"));
    assert_eq!(turns.day, from);
    assert_eq!(own.iter().map(|row| row.commands).sum::<u64>(), 1);
    let foreign = export(&world.anna, "ben", false, &from).await.unwrap_err();
    assert_eq!(foreign.code(), Code::PermissionDenied);
    assert_eq!(export(&operator, "anna", false, &from).await.unwrap(), own);
    let all = export(&operator, "", true, &from).await.unwrap();
    assert_eq!(all, own, "ben has used nothing");
    for wrong in ["yesterday", "2020-01-01", &today.tomorrow().unwrap().to_string()] {
        let refused = export(&world.anna, "", false, wrong).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
    }
}

#[tokio::test]
async fn a_suspended_tenant_is_told_why_its_events_tell_of_it_and_it_goes_on_when_resumed() {
    let (world, operator) = operated().await;
    let state = |state: &str| anna(pb::Tenant { state: state.into(), ..Default::default() });
    update(&world, &operator, state("suspended")).await.unwrap();
    let key = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());

    let refused = world.send(&key, message("hi")).await.unwrap_err();

    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(reason(&refused).as_deref(), Some("TENANT_SUSPENDED"));
    // Nothing changes twice.
    update(&world, &operator, state("suspended")).await.unwrap();
    update(&world, &operator, state("active")).await.unwrap();
    let key = world.anna.by(&world.key(&world.anna, &["chat", "read"], None).await.unwrap());
    world.send(&key, message("hi")).await.unwrap();

    let told: Vec<String> = events(&world, &key, false).await.into_iter().map(|e| e.kind).collect();
    assert_eq!(told, ["tenant.created", "tenant.suspended", "tenant.activated"]);
    let everybodys = events(&world, &operator, true).await;
    assert!(everybodys.iter().any(|event| event.tenant == "ben"));
    let suspended = everybodys.iter().find(|event| event.kind == "tenant.suspended").unwrap();
    assert_eq!(suspended.tenant, "anna");
    assert!(suspended.detail.contains("\"actor\":\"key_"), "{}", suspended.detail);
}

#[tokio::test]
async fn a_change_of_settings_is_an_event_and_one_that_failed_is_none() {
    let (world, _) = operated().await;
    let admin = world.anna.by(&world.key(&world.anna, &["admin", "read"], None).await.unwrap());
    let mut client = pb::agents_client::AgentsClient::new(world.channel().await.unwrap());
    let agent = || pb::Agent { name: "coach".into(), ..Default::default() };
    let create = || admin.request(pb::CreateAgentRequest { agent: Some(agent()) });

    client.create_agent(create()).await.unwrap();
    client.create_agent(create()).await.unwrap_err();

    let told = events(&world, &admin, false).await;
    let changes: Vec<_> = told.iter().filter(|event| event.kind == "config.changed").collect();
    assert_eq!(changes.len(), 1, "{told:#?}");
    assert!(changes[0].detail.contains("\"action\":\"agent.create\""), "{}", changes[0].detail);
    assert!(changes[0].detail.contains("Agents/CreateAgent"), "{}", changes[0].detail);
}

#[tokio::test]
async fn a_rate_that_is_used_up_is_told_once() {
    let (world, operator) = operated().await;
    let rare = pb::PlanLimits { calls_per_minute: Some(2), ..Default::default() };
    put(&world, &operator, "rare", rare).await.unwrap();
    update(&world, &operator, with_plan("rare")).await.unwrap();
    let fresh = world.anna.by(&world.key(&world.anna, &["chat"], None).await.unwrap());
    world.send(&fresh, message("1")).await.unwrap();
    // While Redis is slow the gateway counts by itself: each change permits one call more.
    let mut refused = Vec::new();
    for _ in 0..6 {
        refused.extend(world.send(&fresh, message("2")).await.err());
    }
    assert!(refused.len() >= 3, "{refused:?}");
    assert!(refused.iter().all(|status| status.code() == Code::ResourceExhausted), "{refused:?}");

    let quota = async || {
        let told = events(&world, &operator, true).await;
        told.into_iter().filter(|event| event.kind == "quota.exceeded").collect::<Vec<_>>()
    };
    for _ in 0..200 {
        if !quota().await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = quota().await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].detail.contains("calls_per_minute"), "{}", told[0].detail);
}

#[tokio::test]
async fn a_deleted_tenant_is_told_of_when_it_is_gone() {
    let (world, operator) = operated().await;
    world.directory.tenants().delete(world.anna.id, Actor::Operator).await.unwrap();
    world.directory.tenants().delete(world.anna.id, Actor::Operator).await.unwrap();
    world.erase(world.anna.id).await.unwrap();

    let told = events(&world, &operator, true).await;

    let annas = told.iter().filter(|event| event.tenant == "anna");
    let kinds: Vec<&str> = annas.map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["tenant.created", "tenant.deletion_started", "tenant.deleted"]);
}

#[tokio::test]
async fn keys_of_the_platform_are_the_operators_alone_and_never_returned() {
    let (world, operator) = operated().await;
    let mut client = PlatformKeysClient::new(world.channel().await.unwrap());
    let new = |name: &str, base_url: Option<&str>| pb::PutPlatformKeyRequest {
        provider: "openai".into(),
        name: name.into(),
        api_key: "sk-s3cret".into(),
        base_url: base_url.map(str::to_owned),
        default_model: Some("gpt-6.1-terra".into()),
        ..Default::default()
    };

    let put = client.put_platform_key(operator.request(new("main", None))).await.unwrap();
    let elsewhere = Some("https://elsewhere.example/v1");
    let moved = client.put_platform_key(operator.request(new("second", elsewhere))).await;
    let private = Some("http://10.0.0.7/v1");
    let private = client.put_platform_key(operator.request(new("main", private))).await;
    let by_tenant = client.put_platform_key(world.anna.request(new("main", None))).await;
    let seen = client.list_platform_keys(world.anna.request(Default::default())).await;
    let listed = client.list_platform_keys(operator.request(Default::default())).await.unwrap();
    let plan = pb::Plan {
        name: "basic".into(),
        platform_providers: vec!["openai".into(), "openai".into()],
        ..Default::default()
    };
    let mut plans = PlansClient::new(world.channel().await.unwrap());
    let plan = operator.request(pb::PutPlanRequest { plan: Some(plan) });
    let plan = plans.put_plan(plan).await.unwrap().into_inner().plan.unwrap();
    let which = pb::DeletePlatformKeyRequest { provider: "openai".into(), name: "main".into() };
    let deleted = client.delete_platform_key(operator.request(which.clone())).await;
    let again = client.delete_platform_key(operator.request(which)).await;

    let provider = put.into_inner().provider.unwrap();
    assert_eq!(provider.default_model, "openai:gpt-6.1-terra");
    assert_eq!(provider.keys[0].name, "main");
    assert_eq!(moved.unwrap_err().code(), Code::InvalidArgument);
    assert!(private.unwrap_err().message().contains("`egress.allow`"));
    assert_eq!(by_tenant.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(seen.unwrap_err().code(), Code::PermissionDenied);
    let listed = listed.into_inner();
    assert_eq!(listed.providers, [provider]);
    assert!(!format!("{listed:?}").contains("s3cret"), "{listed:?}");
    assert_eq!(plan.platform_providers, ["openai"]);
    assert!(deleted.is_ok());
    assert_eq!(again.unwrap_err().code(), Code::NotFound);
}
