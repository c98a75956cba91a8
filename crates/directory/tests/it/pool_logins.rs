//! The login of a pool of runners reaches the tenants of its pool and no others.

use holdfast_pg::Pools;
use holdfast_types::TenantId;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::world::{BY, World};

/// Three tenants, each with a session and an account: in the pools `red` and `blue`, and without one.
struct Tenants {
    red: TenantId,
    blue: TenantId,
    none: TenantId,
}

async fn tenants(world: &World) -> Tenants {
    let red = tenant(world, "red-tenant", Some("red")).await;
    let blue = tenant(world, "blue-tenant", Some("blue")).await;
    let none = tenant(world, "other-tenant", None).await;
    Tenants { red, blue, none }
}

async fn tenant(world: &World, name: &str, pool: Option<&str>) -> TenantId {
    const SESSION: &str = "
        with session as (
            insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
            values ($1, gen_random_uuid(), 'agent:main:main', 'main', gen_random_uuid())
            returning tenant_id, session_id)
        insert into session.session_lease (tenant_id, session_id)
        select tenant_id, session_id from session";
    const POOL: &str = "insert into session.tenant_queue (tenant_id, pool) values ($1, $2)";
    let (tenant, _) = world.tenant(name).await;
    world.account(tenant.id, "bot", &format!("1:{name}")).await;
    let mut admin = world.admin().await;
    sqlx::query(SESSION).bind(tenant.id.as_uuid()).execute(&mut admin).await.unwrap();
    if pool.is_some() {
        let assign = sqlx::query(POOL).bind(tenant.id.as_uuid()).bind(pool);
        assign.execute(&mut admin).await.unwrap();
    }
    tenant.id
}

/// Executes a statement for a tenant. Returns the number of rows, or the refusal.
async fn execute(pools: &Pools, tenant: TenantId, sql: &str) -> Result<u64, String> {
    let mut tx = pools.tenant(tenant).await.unwrap();
    let done = holdfast_pg::query(AssertSqlSafe(sql.to_owned())).execute(tx.conn()).await;
    tx.rollback().await.unwrap();
    done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
}

/// Tables with rows of tenants that a role may read.
async fn readable_tables(world: &World, role: &str) -> Vec<String> {
    const SQL: &str = "
        select c.oid::regclass::text
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
        where c.relkind in ('r', 'p') and has_column_privilege($1, c.oid, a.attnum, 'select')
        order by 1";
    sqlx::query_scalar(SQL).bind(role).fetch_all(&mut world.admin().await).await.unwrap()
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_hides_those_of_other_pools() {
    const SQL: &str = "
        select c.oid::regclass || ' for ' || role
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
            and a.attname in ('tenant_id', 'tenant') and a.atttypid = 'uuid'::regtype
        cross join unnest(array['holdfast_pool_app', 'holdfast_pool_system']) role
        where c.relkind in ('r', 'p') and not exists (
            select from pg_policy p
            where p.polrelid = c.oid and not p.polpermissive and p.polcmd = '*'
              and p.polroles = array[role::regrole::oid])
        order by 1";
    let world = World::new().await;
    let mut admin = world.admin().await;

    let open: Vec<String> = sqlx::query_scalar(SQL).fetch_all(&mut admin).await.unwrap();

    assert_eq!(open, [""; 0]);
    sqlx::query("create table control.extra (tenant_id uuid)").execute(&mut admin).await.unwrap();
    let open: Vec<String> = sqlx::query_scalar(SQL).fetch_all(&mut admin).await.unwrap();
    assert_eq!(open.len(), 2, "the check does not see a table without policies");
}

#[tokio::test]
async fn rows_of_other_pools_are_not_read_in_the_name_of_any_tenant() {
    let world = World::new().await;
    let tenants = tenants(&world).await;
    let tables = readable_tables(&world, "holdfast_pool_app").await;
    assert!(tables.len() > 90, "{tables:?}");

    for (pool, own) in [("red", tenants.red), ("", tenants.none)] {
        let pools = world.pools_of_runner_pool(pool).await;
        for tenant in [tenants.red, tenants.blue, tenants.none] {
            let mut tx = pools.tenant(tenant).await.unwrap();
            let mut seen = Vec::new();
            for table in &tables {
                let sql = format!("select '{table}' from {table} limit 1");
                let found: Option<String> = holdfast_pg::query_scalar(AssertSqlSafe(sql))
                    .fetch_optional(tx.conn())
                    .await
                    .unwrap();
                seen.extend(found);
            }
            tx.rollback().await.unwrap();
            let is_seen = |table: &str| seen.iter().any(|seen| seen == table);
            if tenant == own {
                let expected = ["control.tenants", "control.accounts", "session.sessions"];
                assert!(expected.iter().all(|table| is_seen(table)), "`{pool}`: {seen:?}");
            } else {
                assert_eq!(seen, [""; 0], "the login of `{pool}` reads another pool");
            }
        }
        pools.close().await;
    }
}

#[tokio::test]
async fn the_system_role_of_a_pool_sees_its_tenants_only() {
    let world = World::new().await;
    let tenants = tenants(&world).await;
    let tables = readable_tables(&world, "holdfast_pool_system").await;

    for (pool, own) in [("red", tenants.red), ("", tenants.none), ("green", TenantId::generate())] {
        let pools = world.pools_of_runner_pool(pool).await;
        let mut tx = pools.system().await.unwrap();
        let mut seen = Vec::new();
        for table in &tables {
            let sql = format!("select distinct tenant_id from {table}");
            let found: Vec<Uuid> =
                holdfast_pg::query_scalar(AssertSqlSafe(sql)).fetch_all(tx.conn()).await.unwrap();
            assert!(found.iter().all(|tenant| *tenant == own.as_uuid()), "`{pool}`: {table}");
            seen.extend(found);
        }
        assert_eq!(seen.len() > 2, pool != "green", "`{pool}`: {seen:?}");
        let lease = holdfast_pg::query("update session.session_lease set attempts = attempts");
        let changed = lease.execute(tx.conn()).await.unwrap().rows_affected();
        assert_eq!(changed, u64::from(pool != "green"), "`{pool}`");
        tx.finish_reading();
        pools.close().await;
    }
}

#[tokio::test]
async fn rows_of_other_pools_are_not_written() {
    const RUN: &str = "
        insert into session.runs (tenant_id, run_id, session_id, agent_id, epoch, outcome, started_at)
        values (control.tenant(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1,
                'completed', now())";
    const CLAIM_TENANT: &str = "
        insert into session.tenant_queue (tenant_id, pool) values (control.tenant(), 'red')
        on conflict (tenant_id) do update set pool = excluded.pool";
    const GIVE_AWAY: &str = "update session.tenant_queue set pool = 'blue'";
    const FORGET: &str = "select memory.forget_later('user', 'anna')";
    let world = World::new().await;
    let tenants = tenants(&world).await;
    let pools = world.pools_of_runner_pool("red").await;

    for (sql, rows) in [
        ("update session.sessions set updated_at = updated_at", 1),
        ("update session.tenant_queue set weight = 2", 1),
        ("delete from control.accounts", 1),
        (RUN, 1),
        (FORGET, 1),
    ] {
        assert_eq!(execute(&pools, tenants.red, sql).await, Ok(rows), "{sql}");
    }
    for tenant in [tenants.blue, tenants.none] {
        for sql in
            ["update session.sessions set updated_at = updated_at", "delete from control.accounts"]
        {
            assert_eq!(execute(&pools, tenant, sql).await, Ok(0), "{sql}");
        }
        for sql in [RUN, CLAIM_TENANT] {
            let refused = execute(&pools, tenant, sql).await.unwrap_err();
            assert!(refused.contains("row-level security policy"), "{sql}: {refused}");
        }
        let refused = execute(&pools, tenant, FORGET).await.unwrap_err();
        assert!(refused.contains("not of the pool of this login"), "{refused}");
    }
    let refused = execute(&pools, tenants.red, GIVE_AWAY).await.unwrap_err();
    assert!(refused.contains("row-level security policy"), "{refused}");
    // A login without a pool is not bound.
    let runner = world.pools_of("agent-runner");
    assert_eq!(execute(&runner, tenants.blue, FORGET).await, Ok(1));
}

#[tokio::test]
async fn the_login_of_a_pool_takes_no_other_role() {
    let world = World::new().await;
    let tenants = tenants(&world).await;
    let pools = world.pools_of_runner_pool("red").await;

    for role in [
        "holdfast_runner_app",
        "holdfast_runner_system",
        "holdfast_tenant_rows",
        "holdfast_all_rows",
        "holdfast_app",
        "holdfast_system",
        "holdfast_gateway_app",
        "\"holdfast_runner_pool_blue\"",
    ] {
        let refused = execute(&pools, tenants.red, &format!("set role {role}")).await.unwrap_err();
        assert!(
            refused.contains("permission denied") || refused.contains("does not exist"),
            "{role}: {refused}"
        );
    }
    let runner = world.pools_of("agent-runner");
    let refused = execute(&runner, tenants.red, "set role holdfast_pool_app").await.unwrap_err();
    assert!(refused.contains("permission denied"), "{refused}");
}

#[tokio::test]
async fn a_runner_with_the_login_of_a_pool_deletes_tenants_of_the_pool() {
    const LEFT: &str = "select count(*) from session.tenant_queue where tenant_id = $1";
    let world = World::new().await;
    let tenants = tenants(&world).await;
    for tenant in [tenants.red, tenants.blue] {
        world.directory.tenants().delete(tenant, BY).await.unwrap();
    }
    let red = world.directory_of_runner_pool("red").await;

    assert_eq!(red.tenants().deleting().await.unwrap(), [tenants.red]);
    while red.tenants().erase(tenants.red).await.unwrap() > 0 {}

    assert!(world.directory.tenants().get("red-tenant").await.is_err());
    world.directory.tenants().get("blue-tenant").await.unwrap();
    let left: i64 = sqlx::query_scalar(LEFT)
        .bind(tenants.red.as_uuid())
        .fetch_one(&mut world.admin().await)
        .await
        .unwrap();
    assert_eq!(left, 0);
}
