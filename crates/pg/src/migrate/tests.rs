//! Tests of migrations: missing versions, backfills, lock timeouts, interrupted indexes, concurrent runs.

use holdfast_testkit::Database;
use sqlx::{
    ConnectOptions as _, SqlSafeStr as _,
    migrate::MigrationType,
    postgres::{PgConnectOptions, PgRow},
};

use super::*;

/// The last version before the large data of 0061 is filled in.
const BEFORE_LARGE_DATA: i64 = 60;

async fn admin(database: &Database) -> PgConnection {
    PgConnection::connect(&database.admin_url()).await.unwrap()
}

async fn run(connection: &mut PgConnection, sql: &'static str) -> Vec<PgRow> {
    sqlx::raw_sql(sql).fetch_all(connection).await.unwrap()
}

async fn number(connection: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}

fn migration(version: i64, sql: &'static str) -> Migration {
    let no_tx = sql.starts_with("-- no-transaction");
    let description = format!("test {version}").into();
    Migration::new(
        version,
        description,
        MigrationType::Simple,
        AssertSqlSafe(sql).into_sql_str(),
        no_tx,
    )
}

/// Connects as a role that owns the database and is no superuser.
async fn owner_of(database: &Database) -> PgConnection {
    const ROLE: &str = "
        do $$ begin
            create role hf_test_owner login createrole password 'owner';
        exception when duplicate_object or unique_violation then null; end $$;
        do $$ begin
            create role holdfast_app nologin;
        exception when duplicate_object or unique_violation then null; end $$;
        do $$ begin
            create role holdfast_system nologin;
        exception when duplicate_object or unique_violation then null; end $$;
        grant holdfast_app, holdfast_system to hf_test_owner with admin option;
        do $$ begin
            execute format('alter database %I owner to hf_test_owner', current_database());
        end $$";
    run(&mut admin(database).await, ROLE).await;
    let options: PgConnectOptions = database.admin_url().parse().unwrap();
    options.username("hf_test_owner").password("owner").connect().await.unwrap()
}

#[test]
fn a_migration_that_is_missing_among_applied_ones_is_noticed() {
    let mut applied: BTreeSet<i64> = MIGRATIONS.iter().map(|m| m.version).collect();
    assert_eq!(missing(&applied), None);
    applied.insert(i64::MAX);
    assert_eq!(missing(&applied), None, "one of a newer version");

    applied.remove(&8);

    assert_eq!(missing(&applied).as_deref(), Some("its schema lacks the migrations 8"));
}

#[tokio::test]
async fn rows_of_the_version_before_are_filled_in_although_the_owner_is_no_superuser() {
    const ROWS: &str = "
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
        select md5('tenant' || n % 3)::uuid, gen_random_uuid(), 'k' || n,
               (array['main', 'subagent', 'cron', 'heartbeat'])[1 + n % 4], gen_random_uuid()
        from generate_series(1, 12000) n;
        insert into session.session_lease (tenant_id, session_id)
        select tenant_id, session_id from session.sessions";
    const WRONG_PRIORITIES: &str = "
        select count(*) from session.session_lease l join session.sessions s using (session_id)
        where l.priority <> case s.kind when 'main' then 0 when 'subagent' then 1 else 2 end";
    const WRONG_COUNTS: &str = "
        select count(*) from (
            select tenant_id, count(*) as count from session.sessions group by 1) s
        full join (select tenant_id, sum(sessions) as count from session.tenant_flight group by 1) f
            using (tenant_id)
        where s.count is distinct from f.count";
    const UNFORCED: &str = "
        select count(*) from pg_class
        where relnamespace = 'session'::regnamespace and relkind = 'r' and not relforcerowsecurity";
    const INVALID: &str = "select count(*) from pg_index where not indisvalid";
    let database = Database::create().await.unwrap();
    let mut owner = owner_of(&database).await;
    let before = MIGRATIONS.iter().filter(|migration| migration.version <= BEFORE_LARGE_DATA);
    apply_missing(&mut owner, before).await.unwrap();
    run(&mut admin(&database).await, ROWS).await;

    apply_missing(&mut owner, MIGRATIONS.iter()).await.unwrap();

    let mut admin = admin(&database).await;
    assert_eq!(number(&mut admin, WRONG_PRIORITIES).await, 0);
    assert_eq!(number(&mut admin, WRONG_COUNTS).await, 0);
    assert_eq!(number(&mut admin, UNFORCED).await, 0);
    assert_eq!(number(&mut admin, INVALID).await, 0);
}

#[tokio::test]
async fn a_migration_that_waits_for_a_lock_holds_up_readers_for_seconds_only() {
    const WAITING: &str = "
        select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
            and query like 'alter table items%'";
    let database = Database::create().await.unwrap();
    let mut setup = admin(&database).await;
    run(&mut setup, "create table items (id int); insert into items values (1)").await;
    let mut holder = admin(&database).await;
    run(&mut holder, "begin; select from items").await;
    let alter = migration(1, "alter table items add column name text");
    let mut connection = admin(&database).await;
    let migrating =
        tokio::spawn(async move { apply_missing(&mut connection, [&alter].into_iter()).await });
    let mut watch = admin(&database).await;
    while number(&mut watch, WAITING).await == 0 {
        sleep(Duration::from_millis(20)).await;
    }
    // The holder keeps its lock: the read ends because the migration gives up waiting for its own.
    let read = number(&mut setup, "select count(*) from items");
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap();
    assert!(!migrating.is_finished(), "it is tried again");
    run(&mut holder, "commit").await;

    migrating.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_index_that_was_interrupted_is_built_again() {
    const TABLE: &str = "
        create table items (id int); insert into items values (1), (1);
        create table _sqlx_migrations (
            version bigint primary key, description text not null,
            installed_on timestamptz not null default now(), success boolean not null,
            checksum bytea not null, execution_time bigint not null)";
    const SQL: &str = "-- no-transaction\n\
        delete from items where ctid <> (select min(ctid) from items)\n\
        -- next statement\n\
        create unique index concurrently if not exists items_id on items (id)\n";
    const VALID: &str =
        "select count(*) from pg_index where indexrelid = 'items_id'::regclass and indisvalid";
    let database = Database::create().await.unwrap();
    let mut connection = admin(&database).await;
    run(&mut connection, TABLE).await;
    // Fails for the duplicates, and leaves an invalid index.
    sqlx::raw_sql("create unique index concurrently items_id on items (id)")
        .execute(&mut connection)
        .await
        .unwrap_err();

    let build = migration(1, SQL);
    apply_missing(&mut connection, [&build].into_iter()).await.unwrap();
    apply_missing(&mut connection, [&build].into_iter()).await.unwrap();

    assert_eq!(number(&mut connection, VALID).await, 1);
}

#[tokio::test]
async fn several_processes_may_migrate_at_once() {
    let database = Database::create().await.unwrap();
    let url = database.admin_url();

    let (a, b, c) = tokio::join!(migrate(&url), migrate(&url), migrate(&url));

    assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (newest(), newest(), newest()));
}

/// The last version in which the console made a user for each conversation.
const BEFORE_PEOPLE: i64 = 125;

#[tokio::test]
async fn conversations_keys_and_people_from_before_people_had_conversations_stay() {
    const ROWS: &str = "
        insert into control.tenants (tenant_id, name, data_key) values (md5('t')::uuid, 'acme', '');
        insert into control.people (tenant_id, person_id, issuer, subject, name, role)
        values (md5('t')::uuid, md5('p')::uuid, 'https://id.example', '7', 'Anna', 'owner');
        insert into control.keys (tenant_id, key_id, name, digest, scopes)
        select md5('t')::uuid, md5(name)::uuid, name, sha256(name::bytea), scopes from (values
            ('first', array['admin', 'chat', 'read', 'platform']), ('site', array['chat'])) k (name, scopes);
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
        select md5('t')::uuid, md5(key)::uuid, key, kind, md5('a')::uuid from (values
            ('agent:main:main', 'main'), ('agent:main:heartbeat', 'heartbeat'),
            ('agent:main:dm:telegram:42', 'dm'), ('agent:main:dm:discord:=telegram%3A42', 'dm'),
            ('agent:main:group:telegram:-7', 'group'), ('agent:main:topic:telegram:-7:9', 'topic'),
            ('agent:main:api:anna/trip', 'api'), ('agent:main:api:c-0198c0ff-eeee', 'api'),
            ('agent:main:cron:job:run', 'cron'), ('agent:main:subagent:x', 'subagent'),
            ('agent:main:work:x', 'work'), ('global', 'global')) s (key, kind);
        insert into session.session_lease (tenant_id, session_id)
        select tenant_id, session_id from session.sessions;
        insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
        select tenant_id, session_id, 1, 0, session_id, 'heard',
               jsonb_build_object('body', jsonb_build_object('text', key, 'author',
                   jsonb_build_object('id', 'person:per_' || md5('p'))))
        from session.sessions";
    const SESSIONS: &str = "
        select count(*) from session.sessions s join session.entries e using (tenant_id, session_id)
        join session.session_lease l using (tenant_id, session_id)
        where e.body #>> '{body,text}' = s.key and s.session_id = md5(s.key)::uuid
          and s.person_id is null";
    const OWNERS: &str = "
        select count(*) from control.keys where ('owner' = any(scopes)) = ('admin' = any(scopes))";
    const IDENTITIES: &str = "
        select count(*) from control.people p join control.person_identities i using (person_id)
        where i.kind = 'sign_in' and i.value = 'https://id.example 7' and p.merged_into is null";
    const OWN: &str = "
        insert into session.sessions (tenant_id, session_id, key, kind, agent_id)
        select md5('t')::uuid, gen_random_uuid(), key, kind, md5('a')::uuid from (values
            ('agent:main:api:=per_' || md5('p') || '/trip', 'api'),
            ('agent:main:api:=per_' || md5('p') || '@/anna/trip', 'api'),
            ('agent:main:dm:telegram:=person%3Aper_' || md5('p'), 'dm')) s (key, kind)";
    const OF_PERSON: &str =
        "select count(*) from session.sessions where person_id = md5('p')::uuid";
    let database = Database::create().await.unwrap();
    let mut owner = owner_of(&database).await;
    let before = MIGRATIONS.iter().filter(|migration| migration.version <= BEFORE_PEOPLE);
    apply_missing(&mut owner, before).await.unwrap();
    run(&mut admin(&database).await, ROWS).await;

    apply_missing(&mut owner, MIGRATIONS.iter()).await.unwrap();

    let mut admin = admin(&database).await;
    assert_eq!(number(&mut admin, SESSIONS).await, 12, "a conversation is lost");
    assert_eq!(number(&mut admin, OWNERS).await, 2, "who managed before owns now");
    assert_eq!(number(&mut admin, IDENTITIES).await, 1, "a person is not known by their sign-in");
    run(&mut admin, OWN).await;
    assert_eq!(number(&mut admin, OF_PERSON).await, 3, "conversations are not their person's");
}
