//! What each service may do in the database with a login of its own.

use sqlx::AssertSqlSafe;

use crate::world::{BY, World, account, agent, provider};

const SERVICES: [&str; 5] =
    ["gateway", "agent-runner", "scheduler", "memory-service", "channel-bridge"];

/// Runs a statement in a transaction of the tenant and undoes it; returns the refusal.
async fn refusal(world: &World, service: &str, sql: &str) -> Option<String> {
    let (tenant, _) = world.directory.tenants().ensure("acme").await.unwrap();
    let pools = world.pools_of(service);
    let mut tx = pools.tenant(tenant.id).await.unwrap();
    let done = holdfast_pg::query(AssertSqlSafe(sql.to_owned())).execute(tx.conn()).await;
    drop(tx);
    pools.close().await;
    done.err().map(|error| error.to_string())
}

#[tokio::test]
async fn a_service_reaches_the_tables_that_it_uses_and_no_others() {
    const GATEWAY: &[&str] = &["gateway"];
    const RUNNER: &[&str] = &["gateway", "agent-runner"];
    const WITH_SESSIONS: &[&str] = &["gateway", "agent-runner", "scheduler"];
    const ALL_BUT_MEMORY: &[&str] = &["gateway", "agent-runner", "scheduler", "channel-bridge"];
    let world = World::new().await;

    for (sql, allowed) in [
        (
            "select data_key from control.tenants",
            &["gateway", "agent-runner", "channel-bridge"][..],
        ),
        ("select secrets from control.accounts", &["gateway", "agent-runner", "channel-bridge"]),
        ("select settings from control.accounts", ALL_BUT_MEMORY),
        ("select api_key from control.providers", RUNNER),
        ("select secret from control.auth_profiles", RUNNER),
        ("select secret from control.platform_keys", RUNNER),
        ("update control.platform_keys set name = name", &[]),
        ("select secret from control.connections", RUNNER),
        ("select secrets from control.mcp_servers", RUNNER),
        ("select value from control.skill_env", RUNNER),
        ("select digest from control.keys", GATEWAY),
        ("update control.keys set name = name", GATEWAY),
        ("select digest from control.console_sessions", GATEWAY),
        ("update control.people set name = name", GATEWAY),
        ("update control.policies set version = version", GATEWAY),
        ("update control.nodes set name = name", GATEWAY),
        ("select digest from control.nodes", RUNNER),
        ("select settings from control.agents", WITH_SESSIONS),
        ("update control.agents set name = name", GATEWAY),
        ("update control.accounts set name = name", GATEWAY),
        ("select body from session.inbox", WITH_SESSIONS),
        ("update session.inbox set body = body", RUNNER),
        (
            "update session.inbox set preview = preview",
            &["gateway", "agent-runner", "channel-bridge"],
        ),
        ("select body from session.entries", WITH_SESSIONS),
        ("select body from session.deliveries", ALL_BUT_MEMORY),
        ("delete from session.deliveries", RUNNER),
        ("select hash from workspace.files", WITH_SESSIONS),
        ("select hash from workspace.contents", ALL_BUT_MEMORY),
        ("update workspace.files set hash = hash", RUNNER),
        ("select payload from schedule.jobs", WITH_SESSIONS),
        ("select * from memory.items", &["memory-service"]),
        ("select * from memory.units", &["memory-service"]),
        ("update memory.items set active = true", &["memory-service"]),
        ("delete from memory.items", &["agent-runner", "memory-service"]),
    ] {
        for service in SERVICES {
            let refused = refusal(&world, service, sql).await;
            match allowed.contains(&service) {
                true => assert_eq!(refused, None, "{service}: {sql}"),
                false => assert!(
                    refused.as_deref().unwrap_or_default().contains("permission denied"),
                    "{service}: {sql}: {refused:?}"
                ),
            }
        }
    }
}

#[tokio::test]
async fn gateways_and_runners_alone_have_the_keys_of_requests() {
    let world = World::new().await;
    let keys = world.directory_of("gateway").request_keys().await.unwrap();

    assert_eq!(world.directory_of("agent-runner").request_keys().await.unwrap(), keys);
    for service in ["scheduler", "memory-service", "channel-bridge"] {
        let pools = world.pools_of(service);
        let mut tx = pools.system().await.unwrap();
        let read = holdfast_pg::query("select secret from control.request_key");
        let refused = read.execute(tx.conn()).await.unwrap_err().to_string();
        assert!(refused.contains("permission denied"), "{service}: {refused}");
        let refused = refusal(&world, service, "select secret from control.request_key").await;
        assert!(refused.unwrap_or_default().contains("permission denied"), "{service}");
    }
}

#[tokio::test]
async fn the_keys_of_requests_follow_from_the_key_encryption_key_and_one_secret() {
    let (world, other) = (World::new().await, World::new().await);
    let keys = world.directory.request_keys().await.unwrap();
    let rotating = world.rotating().request_keys().await.unwrap();
    let rotated = world.rotated().request_keys().await.unwrap();

    assert_eq!(keys.len(), 1);
    assert_eq!(rotating, [rotated[0], keys[0]]);
    assert_ne!(rotated, keys);
    let change = "update control.request_key set secret = sha256(secret)";
    sqlx::query(change).execute(&mut other.admin().await).await.unwrap();
    assert_ne!(other.directory.request_keys().await.unwrap(), keys);
}

#[tokio::test]
async fn the_keys_that_sign_jobs_are_not_those_of_requests() {
    let world = World::new().await;
    let keys = world.directory_of("gateway").job_keys().await.unwrap();

    assert_eq!(world.directory_of("agent-runner").job_keys().await.unwrap(), keys);
    assert_ne!(world.directory.request_keys().await.unwrap(), keys);
    assert!(world.directory_of("scheduler").job_keys().await.is_err());
}

#[tokio::test]
async fn a_scheduler_writes_no_message_of_a_person_and_no_event_of_the_mesh() {
    const MESSAGE: &str = "
        insert into session.inbox (tenant_id, session_id, seq, message_id, source, idem_key, hash,
                                   body, mode)
        values (control.tenant(), gen_random_uuid(), 1, gen_random_uuid(), 'SOURCE', 'k', '', '{}',
                'followup')";
    const SESSION: &str = "
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id, settings)
        values (control.tenant(), gen_random_uuid(), 'agent:main:main', 'main', gen_random_uuid(),
                'SETTINGS')";
    const EVENT: &str = "
        with event as (
            insert into session.system_events (tenant_id, key, idem_key, text, signed)
            values (control.tenant(), 'agent:main:main', 'k', 'do it', SIGNED) returning outside)
        select 1 / case when outside = OUTSIDE then 1 else 0 end from event";
    let world = World::new().await;
    let refusal = async |service: &str, sql: &str| refusal(&world, service, sql).await;

    for service in ["gateway", "agent-runner", "scheduler"] {
        let is_scheduler = service == "scheduler";
        for (sql, is_allowed) in [
            (MESSAGE.replace("SOURCE", "schedule"), true),
            (MESSAGE.replace("SOURCE", "heartbeat"), true),
            (MESSAGE.replace("SOURCE", "wake"), !is_scheduler),
            (MESSAGE.replace("SOURCE", "acc_1"), !is_scheduler),
            (SESSION.replace("SETTINGS", r#"{"model": "a:b", "thinking": "low"}"#), true),
            (SESSION.replace("SETTINGS", r#"{"elevated": "full"}"#), !is_scheduler),
            (EVENT.replace("SIGNED", "null").replace("OUTSIDE", &is_scheduler.to_string()), true),
            (EVENT.replace("SIGNED", "'{}'").replace("OUTSIDE", "false"), true),
            ("update session.system_events set gone_at = now()".to_owned(), true),
            ("update session.system_events set text = ''".to_owned(), !is_scheduler),
            ("select digest from schedule.jobs_to_sign".to_owned(), !is_scheduler),
        ] {
            let refused = refusal(service, &sql).await;
            match is_allowed {
                true => assert_eq!(refused, None, "{service}: {sql}"),
                false => assert!(
                    refused.as_deref().is_some_and(|refused| {
                        refused.contains("row-level security")
                            || refused.contains("permission denied")
                    }),
                    "{service}: {sql}: {refused:?}"
                ),
            }
        }
    }
    let pools = world.pools_of("scheduler");
    let mut tx = pools.system().await.unwrap();
    let read = holdfast_pg::query("select digest from schedule.jobs_to_sign");
    let refused = read.execute(tx.conn()).await.unwrap_err().to_string();
    assert!(refused.contains("permission denied"), "{refused}");
}

#[tokio::test]
async fn no_service_can_act_as_another_or_see_rows_without_a_tenant() {
    let world = World::new().await;
    world.tenant("acme").await;

    for service in SERVICES {
        for role in ["holdfast_app", "holdfast_system", "postgres"] {
            let refused = refusal(&world, service, &format!("set role {role}")).await;
            assert!(refused.unwrap_or_default().contains("permission denied"), "{service}: {role}");
        }
        let other =
            if service == "gateway" { "holdfast_runner_app" } else { "holdfast_gateway_app" };
        let refused = refusal(&world, service, &format!("set role {other}")).await;
        assert!(refused.unwrap_or_default().contains("permission denied"), "{service}: {other}");
    }
    let nobody = holdfast_types::TenantId::generate();
    let pools = world.pools_of("gateway");
    let mut tx = pools.tenant(nobody).await.unwrap();
    let seen: i64 = holdfast_pg::query_scalar("select count(*) from control.tenants")
        .fetch_one(tx.conn())
        .await
        .unwrap();
    assert_eq!(seen, 0);
}

#[tokio::test]
async fn the_system_role_of_a_service_sees_no_more_than_that_of_all_services() {
    const MORE: &str = "
        select r.rolname || ': ' || c.oid::regclass || ' ' || p.privilege
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        cross join (values ('select'), ('insert'), ('update'), ('delete')) p (privilege)
        join pg_roles r on r.rolname ~ '^holdfast_(gateway|runner|scheduler|memory|bridge)_(app|system)$'
        cross join lateral (select case when r.rolname like '%_app' then 'holdfast_app'
                                        else 'holdfast_system' end as base) b
        where c.relkind in ('r', 'p') and n.nspname in ('control', 'session', 'workspace', 'schedule', 'memory', 'work')
          and has_table_privilege(r.rolname, c.oid, p.privilege)
          and not has_table_privilege(b.base, c.oid, p.privilege)
        order by 1";
    const RUNNER_KEEPS: &str = "
        select c.oid::regclass::text
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
        where c.relkind in ('r', 'p')
          and not (has_table_privilege('holdfast_runner_app', c.oid, 'delete')
                   and has_column_privilege('holdfast_runner_app', c.oid, 'tenant_id', 'select'))
        order by 1";
    let world = World::new().await;
    let mut admin = world.admin().await;

    let more: Vec<String> = sqlx::query_scalar(MORE).fetch_all(&mut admin).await.unwrap();
    let kept: Vec<String> = sqlx::query_scalar(RUNNER_KEEPS).fetch_all(&mut admin).await.unwrap();

    assert_eq!(more, [""; 0]);
    assert_eq!(kept, [""; 0], "a deleted tenant's rows stay there");
}

#[tokio::test]
async fn gateways_set_up_and_runners_delete_a_tenant_with_logins_of_their_own() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let gateway = world.directory_of("gateway");

    gateway.agents().create(tenant.id, BY, agent("coach")).await.unwrap();
    gateway.providers().put(tenant.id, BY, provider("openai", Some("k"), None)).await.unwrap();
    let account = gateway.accounts().create(tenant.id, BY, account("bot", "1:x")).await.unwrap();
    world.directory_of("channel-bridge").accounts().get(tenant.id, account.id).await.unwrap();
    gateway.tenants().delete(tenant.id, BY).await.unwrap();
    let runner = world.directory_of("agent-runner");
    while runner.tenants().erase(tenant.id).await.unwrap() > 0 {}

    assert!(gateway.tenants().get("acme").await.is_err());
}
