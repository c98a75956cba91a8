//! No tenant sees or changes the data of another, even if all names are the same.

use holdfast_directory::{
    Agent, Binding, Error, Identity, ListedAccount, NewBinding, NewRule, OpenAccount, TenantChanges,
};
use holdfast_types::{Peer, PeerKind, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::AssertSqlSafe;

use crate::world::{BY, World, account, agent, key, provider};

/// Creates one tenant's data; the names are the same for each tenant, the contents contain `mark`.
struct Tenant {
    id: TenantId,
    mark: &'static str,
    coach: Agent,
    account: OpenAccount,
    binding: Binding,
}

async fn tenant(world: &World, name: &str, mark: &'static str) -> Tenant {
    let directory = &world.directory;
    let (made, _) = world.tenant(name).await;
    let id = made.id;
    let mut new = agent("coach");
    new.instructions = mark.into();
    let coach = directory.agents().create(id, BY, new).await.unwrap();
    directory.providers().put(id, BY, provider("openai", Some(mark), Some(mark))).await.unwrap();
    let made =
        directory.accounts().create(id, BY, account("bot", &format!("1:{mark}"))).await.unwrap();
    let account = directory.accounts().get(id, made.id).await.unwrap();
    let new = NewBinding {
        channel: "telegram".into(),
        peer: Some(Peer { kind: PeerKind::Direct, id: "7".into() }),
        agent: "coach".into(),
        ..NewBinding::default()
    };
    let binding = directory.routing().create_binding(id, BY, new).await.unwrap();
    let rule = NewRule { pattern: Some(mark.into()), agent: "coach".into(), ..NewRule::default() };
    directory.routing().put_rules(id, BY, vec![rule], None).await.unwrap();
    let identity =
        Identity { channel: "telegram".into(), peer: "7".into(), canonical: mark.into() };
    directory.routing().put_identity(id, BY, identity).await.unwrap();
    Tenant { id, mark, coach, account, binding }
}

/// Checks that all a tenant can read is its own.
async fn sees_its_own(world: &World, tenant: &Tenant) {
    let directory = &world.again();
    let (id, mark) = (tenant.id, tenant.mark);

    assert_eq!(directory.tenants().get(&id.to_string()).await.unwrap().id, id);
    assert_eq!(directory.keys().list(id).await.unwrap().len(), 1);
    let names: Vec<String> = directory
        .agents()
        .list(id)
        .await
        .unwrap()
        .iter()
        .map(|agent| agent.name.to_string())
        .collect();
    assert_eq!(names, ["main", "coach"]);
    assert_eq!(directory.agents().get(id, "coach").await.unwrap(), tenant.coach);
    assert_eq!(directory.agents().by_id(id, tenant.coach.id).await.unwrap(), tenant.coach);
    assert_eq!(directory.agents().default_agent(id).await.unwrap().name.as_str(), "main");
    let providers = directory.providers().list(id).await.unwrap();
    assert_eq!(providers.len(), 1);
    assert_eq!(providers[0].default_model, Some(format!("openai:{mark}")));
    let model = directory.models().of_agent(id, &tenant.coach).await.unwrap();
    assert_eq!(model.model.id(), mark);
    assert_eq!(model.api_key.unwrap().expose_secret(), mark);
    let accounts = directory.accounts().list(id, None).await.unwrap();
    assert_eq!(accounts, std::slice::from_ref(&tenant.account.account));
    assert_eq!(directory.accounts().list(id, Some("telegram")).await.unwrap(), accounts);
    assert_eq!(directory.accounts().list(id, Some("webhook")).await.unwrap(), []);
    let opened = directory.accounts().get(id, tenant.account.account.id).await.unwrap();
    assert_eq!(opened.secrets, json!({"token": format!("1:{mark}")}));
    let owner = directory.accounts().tenant_of(tenant.account.account.id).await.unwrap();
    assert_eq!(owner, Some(id));
    assert_eq!(
        directory.routing().bindings(id).await.unwrap(),
        std::slice::from_ref(&tenant.binding)
    );
    let rules = directory.routing().rules(id).await.unwrap();
    assert_eq!(rules.len(), 1);
    assert!(rules[0].pattern.as_ref().unwrap().matches(mark));
    assert_eq!(directory.routing().identities(id).await.unwrap().len(), 1);
    assert_eq!(directory.routing().identities(id).await.unwrap()[0].canonical, mark);
    let routing = directory.routing().get(id).await.unwrap();
    assert_eq!(routing.agents().len(), 2);
    assert_eq!(routing.bindings(), std::slice::from_ref(&tenant.binding));
    assert_eq!(routing.rules().len(), 1);
    assert_eq!(routing.canonical("telegram", "default", "7"), Some(mark));
    assert_eq!(routing.agent("coach").unwrap().id, tenant.coach.id);
}

fn missing<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
}

#[tokio::test]
async fn two_tenants_with_the_same_names_see_and_change_only_their_own() {
    let world = World::new().await;
    let ours = tenant(&world, "ours", "our-mark").await;
    let theirs = tenant(&world, "theirs", "their-mark").await;
    let directory = &world.directory;
    sees_its_own(&world, &ours).await;
    sees_its_own(&world, &theirs).await;

    // Other tenants' items cannot be found by id.
    let (us, their_agent) = (ours.id, theirs.coach.id.to_string());
    let their_account = theirs.account.account.id;
    let their_key = directory.keys().list(theirs.id).await.unwrap()[0].id;
    missing(directory.agents().get(us, &their_agent).await);
    missing(directory.agents().by_id(us, theirs.coach.id).await);
    missing(directory.accounts().get(us, their_account).await);
    missing(directory.agents().update(us, BY, &their_agent, agent("stolen")).await);
    missing(directory.agents().delete(us, BY, &their_agent).await);
    missing(directory.keys().revoke(us, BY, their_key).await);
    missing(directory.accounts().update(us, BY, their_account, account("bot", "1:x")).await);
    missing(directory.accounts().delete(us, BY, their_account).await);
    missing(directory.routing().delete_binding(us, BY, theirs.binding.id).await);
    let bound =
        NewBinding { channel: "x".into(), agent: their_agent.clone(), ..NewBinding::default() };
    missing(directory.routing().create_binding(us, BY, bound).await);
    let ruled = NewRule { agent: their_agent, ..NewRule::default() };
    missing(directory.routing().put_rules(us, BY, vec![ruled], None).await);

    // Changes and deletions by a shared name affect only the caller's tenant.
    let changes = TenantChanges { rate: Some(1), ..TenantChanges::default() };
    directory.tenants().update(us, BY, changes).await.unwrap();
    directory.keys().create(us, BY, key(&["chat"])).await.unwrap();
    let mut new = agent("coach");
    new.is_default = true;
    directory.agents().update(us, BY, "coach", new).await.unwrap();
    directory.agents().delete(us, BY, "main").await.unwrap();
    directory.providers().put(us, BY, provider("other", None, Some("other"))).await.unwrap();
    directory.providers().delete(us, BY, "openai").await.unwrap();
    directory.routing().put_rules(us, BY, Vec::new(), None).await.unwrap();
    directory.routing().delete_identity(us, BY, "telegram", "7").await.unwrap();
    directory.routing().delete_binding(us, BY, ours.binding.id).await.unwrap();
    directory.accounts().delete(us, BY, ours.account.account.id).await.unwrap();
    sees_its_own(&world, &theirs).await;

    // The list of all accounts names the right tenant for each.
    let all = directory.accounts().all(&["telegram"]).await.unwrap();
    let (tenant, id, channel) = (theirs.id, their_account, "telegram".to_owned());
    assert_eq!(all, [ListedAccount { tenant, id, version: 1, channel }]);
}

#[tokio::test]
async fn a_query_that_forgets_the_tenant_still_sees_only_one() {
    let world = World::new().await;
    let ours = tenant(&world, "ours", "our-mark").await;
    let theirs = tenant(&world, "theirs", "their-mark").await;

    for table in [
        "tenants",
        "keys",
        "agents",
        "providers",
        "accounts",
        "bindings",
        "rules",
        "identities",
        "audit",
    ] {
        let sql = format!("select distinct tenant_id from control.{table}");
        for tenant in [&ours, &theirs] {
            let mut tx = world.pools.tenant(tenant.id).await.unwrap();
            let seen: Vec<uuid::Uuid> = holdfast_pg::query_scalar(AssertSqlSafe(sql.clone()))
                .fetch_all(tx.conn())
                .await
                .unwrap();
            assert_eq!(seen, [tenant.id.as_uuid()], "{table}");
        }
    }
}

#[tokio::test]
async fn nothing_secret_is_granted_to_who_sees_all_tenants() {
    let world = World::new().await;
    tenant(&world, "ours", "our-mark").await;

    for sql in [
        "select data_key from control.tenants",
        "select digest from control.keys",
        "select instructions from control.agents",
        "select api_key from control.providers",
        "select secrets from control.accounts",
        "select settings from control.accounts",
        "update control.tenants set state = 'suspended'",
    ] {
        let mut tx = world.pools.system().await.unwrap();
        let refused = holdfast_pg::query(AssertSqlSafe(sql)).execute(tx.conn()).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_forces_row_level_security() {
    const SQL: &str = "
        select n.nspname || '.' || c.relname
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
          and not (c.relrowsecurity and c.relforcerowsecurity
                   and exists (select from pg_policy p where p.polrelid = c.oid))
        order by 1";
    let world = World::new().await;

    let open: Vec<String> =
        sqlx::query_scalar(SQL).fetch_all(&mut world.admin().await).await.unwrap();

    // The names of the tools are the same for all tenants; the other is the list of migrations.
    assert_eq!(open, ["control.tools", "public._sqlx_migrations"]);
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_is_emptied_when_a_tenant_is_deleted() {
    const KEPT: &str = "
        select n.nspname || '.' || c.relname
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
        where c.relkind in ('r', 'p')
          and not (has_table_privilege('holdfast_app', c.oid, 'delete')
                   and has_column_privilege('holdfast_app', c.oid, 'tenant_id', 'select'))
        order by 1";
    let world = World::new().await;

    let kept: Vec<String> =
        sqlx::query_scalar(KEPT).fetch_all(&mut world.admin().await).await.unwrap();

    assert_eq!(kept, Vec::<String>::new());
}

#[tokio::test]
async fn the_audit_of_a_tenant_that_is_not_deleted_stays() {
    let world = World::new().await;
    let (tenant, _) = world.tenant("acme").await;
    let delete = async || {
        let mut tx = world.pools.tenant(tenant.id).await.unwrap();
        let done = holdfast_pg::query("delete from control.audit where tenant_id = $1")
            .bind(tenant.id.as_uuid())
            .execute(tx.conn())
            .await
            .unwrap();
        tx.rollback().await.unwrap();
        done.rows_affected()
    };

    assert_eq!(delete().await, 0);
    assert_eq!(world.directory.tenants().erase(tenant.id).await.unwrap(), 0);
    world.directory.tenants().get("acme").await.unwrap();

    world.directory.tenants().delete(tenant.id, BY).await.unwrap();
    assert!(delete().await > 0);
}

#[tokio::test]
async fn services_reach_rows_only_through_a_policy_that_names_their_tenant() {
    // Policies for `holdfast_app` or for everybody decide what services may do. Each compares the
    // row's tenant with the transaction's and does nothing else, for reads and for writes. Rows of
    // no tenant, such as plans, are read only. Restrictive policies only take rights away.
    const SQL: &str = "
        select n.nspname || '.' || c.relname || ': ' || p.polname
        from pg_policy p
        join pg_class c on c.oid = p.polrelid join pg_namespace n on n.oid = c.relnamespace
        cross join lateral (select pg_get_expr(polqual, polrelid) as reads,
                                   pg_get_expr(polwithcheck, polrelid) as writes,
                                   (select attname from pg_attribute a
                                    where a.attrelid = polrelid
                                      and attname in ('tenant_id', 'tenant')) as column) e
        where p.polpermissive
          and (0 = any(p.polroles) or 'holdfast_app'::regrole = any(p.polroles))
          and case when e.column is null then p.polcmd <> 'r' else
              coalesce(e.reads, e.writes) <> format('(%I = control.tenant())', e.column)
              or coalesce(e.writes, e.reads) <> format('(%I = control.tenant())', e.column) end
        order by 1";
    const TABLES: &str = "
        select count(distinct polrelid) from pg_policy
        where 0 = any(polroles) or 'holdfast_app'::regrole = any(polroles)";
    let world = World::new().await;

    let open: Vec<String> =
        sqlx::query_scalar(SQL).fetch_all(&mut world.admin().await).await.unwrap();
    let tables: i64 = sqlx::query_scalar(TABLES).fetch_one(&mut world.admin().await).await.unwrap();

    assert_eq!(open, [""; 0]);
    assert!(tables > 30, "only {tables} tables have a policy");
}
