//! The mesh behind PgBouncer in transaction mode: each transaction may get another connection to
//! the database, and what one sets must not reach the next.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use holdfast_pg::{Config, Pools, pending, query, query_as, query_scalar};
use holdfast_testkit::{Backends, Database, Pooler};
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::script::MessageKind;
use holdfast_tests::turnstile;
use holdfast_types::{QueueMode, TenantId};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};
use tokio::time::sleep;

use crate::RUNNER;
use crate::faults::finish;
use crate::report::Report;
use crate::storm::blow;
use crate::weather::Servers;

/// Fewer than the pools of any one of the processes could open.
const SERVER_CONNECTIONS: u32 = 4;

/// Connections of a storm, in which many are held by processes that are stopped.
const STORM_CONNECTIONS: u32 = 30;

/// As large installations are: the storm's guarantees hold behind PgBouncer, with three NATS servers
/// and Redis Sentinel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "two minutes more, beside the other storm: `make chaos`"]
async fn a_storm_loses_nothing_over_a_pooler_a_nats_cluster_and_redis_sentinel()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let (servers, replicas) = Servers::replicated().await?;
    let plan = MeshConfig {
        replicas: Some(replicas),
        pooler: Some(STORM_CONNECTIONS),
        ..MeshConfig::with_failing_database(RUNNER)
    };
    Box::pin(blow("storm over replicas", &servers, plan)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_a_killed_runner_loses_nothing_and_tenants_stay_apart() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        runners: 2,
        schedulers: 1,
        memories: 1,
        tenants: vec![QueueMode::Steer, QueueMode::Followup],
        pooler: Some(SERVER_CONNECTIONS),
        ..MeshConfig::with_failing_database(RUNNER)
    };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    mesh.fakes.model.latency(Duration::from_millis(100));
    let load = Senders::on(&mesh)?;
    let mut conversations = Vec::new();
    for tenant in 0..2 {
        let doors = [TestChannel::Grpc, TestChannel::Webhook, TestChannel::Telegram];
        for (number, door) in doors.into_iter().enumerate() {
            conversations.push(Conversation { tenant, number, door });
        }
    }

    let talk = try_join_all(conversations.iter().map(async |conversation| {
        for word in [MessageKind::Say, MessageKind::Act, MessageKind::Note, MessageKind::Status] {
            load.say(conversation, word, 2).await?;
            sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    }));
    let kill = async {
        for number in [0, 1, 0] {
            sleep(Duration::from_millis(400)).await;
            mesh.runners[number].kill().await?;
            mesh.runners[number].start().await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(talk, kill)?;

    finish(&mesh, &load).await?;
    let servers = mesh
        .number(
            "select count(*) from pg_stat_activity
             where datname = current_database() and usename = 'holdfast'
               and pid <> pg_backend_pid() and application_name <> 'holdfast-test'",
        )
        .await?;
    let mut report = Report::of("behind PgBouncer");
    report.line("messages", load.said().len());
    report.line("connections to the server", servers);
    report.show()?;
    ensure!((1..=i64::from(SERVER_CONNECTIONS)).contains(&servers), "{servers} connections");
    ensure!(load.said().len() == 24, "not all was said");
    nothing_is_left(mesh.pooled_url().context("no pooler")?).await
}

/// Looks at all connections to the server at once: none may have a role, a tenant or a timeout of a
/// transaction before.
async fn nothing_is_left(url: &str) -> anyhow::Result<()> {
    const SQL: &str = "
        select current_user::text as role, current_setting('holdfast.tenant_id', true) as tenant,
               current_setting('statement_timeout') as timeout,
               (select count(*) from pg_prepared_statements) as prepared";
    let options: PgConnectOptions = url.parse()?;
    let options = options.extra_float_digits(None);
    let mut clients = Vec::new();
    for _ in 0..SERVER_CONNECTIONS {
        let mut client = options.connect().await?;
        sqlx::raw_sql("begin").execute(&mut client).await?;
        clients.push(client);
    }
    for mut client in clients {
        let row = sqlx::raw_sql(SQL).fetch_one(&mut client).await?;
        let role: String = row.try_get_unchecked("role")?;
        let tenant: Option<String> = row.try_get_unchecked("tenant")?;
        let timeout: String = row.try_get_unchecked("timeout")?;
        let prepared: String = row.try_get_unchecked("prepared")?;
        ensure!(role == "holdfast", "the role `{role}` is left");
        ensure!(tenant.is_none_or(|id| id.is_empty()), "a tenant is left");
        ensure!(timeout == "0", "the timeout `{timeout}` is left");
        ensure!(prepared == "0", "{prepared} prepared statements are left");
    }
    Ok(())
}

#[tokio::test]
async fn transactions_of_tenants_share_a_connection_and_no_setting() -> anyhow::Result<()> {
    const SQL: &str = "
        select current_user::text, coalesce(current_setting('holdfast.tenant_id', true), ''),
               current_setting('statement_timeout'), current_setting('enable_seqscan'), pg_backend_pid()
        where $1";
    type Settings = (String, String, String, String, i32);
    let database = Database::create_on(Backends::get().await?).await?;
    holdfast_pg::migrate(&database.admin_url()).await?;
    let pooler = Pooler::start(&database.url(), 1, "").await?;
    let pools = pools(&pooler, true)?;
    let mut servers = Vec::new();

    for _ in 0..3 {
        let tenants = [TenantId::generate(), TenantId::generate()];
        for tenant in tenants {
            let mut tx = pools.tenant(tenant).await?;
            let read: Settings = query_as(SQL).bind(true).fetch_one(tx.conn()).await?;
            tx.commit().await?;
            let expected = tenant.as_uuid().to_string();
            ensure!((read.0.as_str(), &read.1) == ("holdfast_app", &expected), "{read:?}");
            ensure!((read.2.as_str(), read.3.as_str()) == ("20s", "off"), "{read:?}");
            servers.push(read.4);
        }
        // Each statement is its own transaction here, and an error in one ends with it.
        let mut once = pools.system_connection().await?;
        let failed = query("select 1 / $1::int4").bind(0).execute(once.conn()).await;
        ensure!(failed.is_err(), "a division by zero succeeded");
        let read: Settings = query_as(SQL).bind(true).fetch_one(once.conn()).await?;
        ensure!((read.0.as_str(), read.1.as_str()) == ("holdfast_system", ""), "{read:?}");
        once.done();
        servers.push(read.4);
        let mut renewal = pools.renewal_connection().await?;
        let read: Settings = query_as(SQL).bind(true).fetch_one(renewal.conn()).await?;
        ensure!(read.2 == "3s", "renewals have another timeout: {read:?}");
        renewal.done();
    }

    servers.dedup();
    ensure!(servers.len() == 1, "more than one connection was used: {servers:?}");
    let mut once = pools.system_connection().await?;
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'
                and datname = current_database() and pid <> pg_backend_pid() and $1";
    let open: i64 = query_scalar(open).bind(true).fetch_one(once.conn()).await?;
    once.done();
    ensure!(open == 0, "{open} transactions are open");
    Ok(())
}

#[tokio::test]
async fn a_pooler_that_was_not_configured_is_named() -> anyhow::Result<()> {
    let database = Database::create_on(Backends::get().await?).await?;
    holdfast_pg::migrate(&database.admin_url()).await?;
    let ignore = "ignore_startup_parameters = extra_float_digits, options";
    let dropping = Pooler::start(&database.url(), 2, ignore).await?;
    let refusing =
        Pooler::start(&database.url(), 2, "ignore_startup_parameters = extra_float_digits").await?;

    let problem = pending(&pools(&dropping, false)?).await?.unwrap_or_default();
    ensure!(problem.contains("set `database.transaction_pooling`"), "it says: {problem}");
    let refused = pending(&pools(&refusing, false)?).await.unwrap_err().to_string();
    ensure!(refused.contains("startup parameter"), "it says: {refused}");
    ensure!(pending(&pools(&refusing, true)?).await?.is_none(), "it is not ready");
    Ok(())
}

fn pools(pooler: &Pooler, transaction_pooling: bool) -> anyhow::Result<Pools> {
    let url = pooler.url().into();
    Pools::lazy(&Config { url, transaction_pooling, ..Config::default() }, "test")
}
