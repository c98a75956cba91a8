//! Two versions over one database: what the version before left is gone on with, and what a version
//! after this one writes stops nothing.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::approvals_client::ApprovalsClient;
use holdfast_proto::gateway::v1::files_client::FilesClient;
use holdfast_proto::gateway::v1::memories_client::MemoriesClient;
use holdfast_proto::gateway::v1::schedules_client::SchedulesClient;
use holdfast_proto::gateway::v1::sessions_client::SessionsClient;
use holdfast_testkit::{Backends, Database};
use holdfast_tests::checks::check;
use holdfast_tests::load::{Conversation, Senders, SentMessage, TestChannel};
use holdfast_tests::mesh::{Fakes, Mesh, MeshConfig};
use holdfast_tests::node::{Node, NodeSpec, Role};
use holdfast_tests::person::{GrpcClient, until};
use holdfast_tests::script::MessageKind;
use holdfast_tests::tenant::Tenant;
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::Command;
use tokio::time::sleep;
use uuid::Uuid;

use crate::RUNNER;
use crate::faults::finish;
use crate::report::Report;

/// Rows of the version that `tests/compat/PREVIOUS` names; tests/compat/README.md tells how they
/// were made.
const PREVIOUS: &str = include_str!("../../compat/previous.sql");

/// The one secret of all services of the version before.
const MESH_SECRET: &str = "the secret of a mesh of the version before";

/// Settings of this version while the version before runs beside it (docs/operating.md).
const BELIEVES_OLD: [(&str, &str); 2] =
    [("HOLDFAST_MESH__ACCEPT_VERSION_1", "true"), ("HOLDFAST_MESH__SECRET", MESH_SECRET)];

/// What the future wrote, statement by statement.
const FUTURE: &str = include_str!("../../compat/future.sql");

/// How long a process may take to be ready.
const SOON: Duration = Duration::from_secs(45);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_previous_version_left_unfinished_goes_on_after_an_upgrade() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let backends = Backends::get().await?;
    let database = Database::create_on(backends).await?;
    let admin_url = database.admin_url();
    load_previous(&admin_url).await?;
    let plan = MeshConfig { schedulers: 1, memories: 1, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::over(database, &plan, backends, async |fakes: &Fakes| {
        holdfast_pg::migrate(&admin_url).await?;
        Ok(vec![adopt(&admin_url, fakes).await?])
    })
    .await?;
    for node in mesh.nodes() {
        node.start().await?;
    }
    for node in mesh.nodes() {
        node.ready(Duration::from_secs(30)).await?;
    }
    let client = GrpcClient::of(&mesh, 0)?;

    // A conversation with a past goes on, and the model is shown the past.
    let answer = client.ask("talk-0", "t0m000007 say").await?;
    ensure!(answer == "re t0m000007", "the conversation goes on with `{answer}`");
    let shown = mesh.fakes.model.requests();
    let shown = shown.iter().any(|asked| asked.body.to_string().contains("re t0m000002"));
    ensure!(shown, "the model is not shown what was said before the upgrade");
    // The message that waited, the call that waited, the reply that waited.
    let mut sessions = SessionsClient::new(client.channel.clone());
    let resume = pb::ResumeSessionRequest { session: "agent:main:api:talk-1".to_owned() };
    sessions.resume_session(client.request(resume)?).await?;
    is_done(&mesh, "t0m000004").await?;
    approve(&client).await?;
    is_done(&mesh, "t0m000005").await?;
    until("the reply arrives", async || Ok(mesh.fakes.receiver.unique().len() == 1)).await?;
    // The job, the memory, the file.
    run_job(&client).await?;
    is_done(&mesh, "t0m000090").await?;
    let found = find_memory(&client).await?;
    ensure!(found.contains("without sugar"), "the memory is not found: `{found}`");
    let read = pb::ReadFileRequest { path: "notes.txt".to_owned(), ..Default::default() };
    let mut files = FilesClient::new(client.channel.clone());
    let content = files.read_file(client.request(read)?).await?.into_inner().content;
    ensure!(content == b"kept by the version before\n", "the file is another");
    // The webhook's secret was sealed by the version before.
    let load = Senders::on(&mesh)?;
    let webhook = Conversation { tenant: 0, number: 3, door: TestChannel::Webhook };
    load.say(&webhook, MessageKind::Say, 1).await?;
    until("both replies arrive", async || Ok(mesh.fakes.receiver.unique().len() == 2)).await?;
    no_panic(&mesh).await
}

/// Loads the rows into a schema of the version that wrote them.
async fn load_previous(admin_url: &str) -> anyhow::Result<()> {
    let head = |name: &str| {
        let line = PREVIOUS.lines().find_map(|line| line.strip_prefix(name));
        line.with_context(|| format!("the dump does not say `{name}`"))
    };
    let schema: i64 = head("-- schema ")?.parse()?;
    let named = include_str!("../../compat/PREVIOUS").trim();
    ensure!(head("-- commit ")? == named, "the dump is not of `{named}`: make it anew");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut before = Migrator::new(folder).await?;
    let all = before.iter().filter(|migration| migration.version <= schema).cloned();
    before.migrations = Cow::Owned(all.collect());
    let mut admin = PgConnection::connect(admin_url).await?;
    before.run(&mut admin).await?;
    // As a restore does: rows come in any order, and triggers have run where they were written.
    sqlx::raw_sql("set session_replication_role = replica").execute(&mut admin).await?;
    sqlx::raw_sql(PREVIOUS).execute(&mut admin).await?;
    admin.close().await?;
    Ok(())
}

/// Points the installation of the dump at the fakes of this mesh, and makes it as young as if it had
/// just been stopped. Returns its tenant.
async fn adopt(admin_url: &str, fakes: &Fakes) -> anyhow::Result<Tenant> {
    let mut admin = PgConnection::connect(admin_url).await?;
    for (sql, url) in [
        ("update control.providers set base_url = $1", fakes.model.url()),
        (
            "update control.accounts set settings = settings || jsonb_build_object('url', $1)
             where channel = 'webhook'",
            fakes.receiver.url(),
        ),
    ] {
        sqlx::query(sql).bind(url).execute(&mut admin).await?;
    }
    const YOUNG: &str = "
        update session.approvals set expires_at = clock_timestamp() + interval '1 hour'
        where state = 'pending';
        update session.session_lease set wait_until = clock_timestamp() + interval '1 hour'
        where wait_until is not null;
        update session.deliveries set next_at = clock_timestamp(), lease_until = null, owner = null
        where state = 'pending'";
    sqlx::raw_sql(YOUNG).execute(&mut admin).await?;
    const TENANT: &str = "
        select tenant_id, account_id from control.accounts where channel = 'webhook'";
    let (tenant, webhook): (Uuid, Uuid) = sqlx::query_as(TENANT).fetch_one(&mut admin).await?;
    let key = PREVIOUS.lines().find_map(|line| line.strip_prefix("-- key "));
    Ok(Tenant {
        id: tenant.into(),
        name: "t0".to_owned(),
        key: key.context("the dump has no key")?.to_owned(),
        mode: QueueMode::Steer,
        webhook: webhook.into(),
        secret: "webhook-secret-of-t0".to_owned(),
        bot: "1000:token-of-t0".to_owned(),
    })
}

async fn is_done(mesh: &Mesh, id: &str) -> anyhow::Result<()> {
    let done = format!(
        "select count(*) from session.inbox
         where body->>'text' like '{id}%' and state = 'done' and outcome = 'completed'"
    );
    until(&format!("`{id}` is answered"), async || Ok(mesh.number(&done).await? == 1)).await
}

async fn approve(client: &GrpcClient) -> anyhow::Result<()> {
    let mut approvals = ApprovalsClient::new(client.channel.clone());
    let list = pb::ListApprovalsRequest { state: "pending".into(), ..Default::default() };
    let pending = approvals.list_approvals(client.request(list)?).await?.into_inner().approvals;
    ensure!(pending.len() == 1, "{} approvals wait, and not 1", pending.len());
    let decision = pb::ResolveApprovalRequest {
        approval: pending[0].id.clone(),
        decision: pb::Decision::AllowOnce.into(),
        ..Default::default()
    };
    approvals.resolve_approval(client.request(decision)?).await?;
    Ok(())
}

async fn run_job(client: &GrpcClient) -> anyhow::Result<()> {
    let mut schedules = SchedulesClient::new(client.channel.clone());
    let list = pb::ListJobsRequest::default();
    let jobs = schedules.list_jobs(client.request(list)?).await?.into_inner().jobs;
    let job = jobs.first().context("the job is gone")?.id.clone();
    let run = pb::RunJobRequest { job, mode: "force".to_owned(), ..Default::default() };
    schedules.run_job(client.request(run)?).await?;
    Ok(())
}

async fn find_memory(client: &GrpcClient) -> anyhow::Result<String> {
    let mut memories = MemoriesClient::new(client.channel.clone());
    let query = "how does Anna take her tea?".to_owned();
    let search = pb::SearchMemoriesRequest { query, ..Default::default() };
    let found = memories.search_memories(client.request(search)?).await?.into_inner().found;
    let first = found.into_iter().next().and_then(|found| found.memory);
    Ok(first.map(|memory| memory.text).unwrap_or_default())
}

async fn no_panic(mesh: &Mesh) -> anyhow::Result<()> {
    for node in mesh.nodes() {
        let panics = node.complaints().await;
        let panics: Vec<_> = panics.iter().filter(|line| line.contains("panicked")).collect();
        ensure!(panics.is_empty(), "{} panicked: {panics:?}", node.spec().name);
    }
    Ok(())
}

/// The tenant whose rows a future version has changed has number 0, the other 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_future_version_wrote_stop_no_session_sweep_or_service() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        schedulers: 1,
        memories: 1,
        tenants: vec![QueueMode::Steer; 3],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::start(&plan, Backends::get().await?).await?;
    let load = Senders::on(&mesh)?;
    let talks =
        |tenant: usize, number: usize, door: TestChannel| Conversation { tenant, number, door };
    let grpc = talks(0, 0, TestChannel::Grpc);
    for conversation in [
        grpc.clone(),
        talks(0, 1, TestChannel::Webhook),
        talks(0, 2, TestChannel::Telegram),
        talks(0, 3, TestChannel::Webhook),
    ] {
        load.say(&conversation, MessageKind::Status, 1).await?;
    }
    at_rest(&mesh, 4).await?;
    // A message that waits when the future writes.
    let client = GrpcClient::of(&mesh, 0)?;
    let session = || "agent:main:api:talk-0".to_owned();
    let mut sessions = SessionsClient::new(client.channel.clone());
    sessions.pause_session(client.request(pb::PauseSessionRequest { session: session() })?).await?;
    load.say(&grpc, MessageKind::Say, 1).await?;

    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    for statement in FUTURE.split(";\n\n") {
        let what = statement.lines().next().unwrap_or_default().to_owned();
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.context(what)?;
    }

    sessions
        .resume_session(client.request(pb::ResumeSessionRequest { session: session() })?)
        .await?;
    let mut approvals = ApprovalsClient::new(client.channel.clone());
    approvals.list_approvals(client.request(pb::ListApprovalsRequest::default())?).await?;

    // Each session whose rows were changed goes on; so does everybody else, on each channel.
    load.ask(&grpc, MessageKind::Status).await.context("the changed session")?;
    for tenant in [0, 1] {
        for (number, door) in
            [(1, TestChannel::Webhook), (2, TestChannel::Telegram), (7, TestChannel::Webhook)]
        {
            load.say(&talks(tenant, number, door), MessageKind::Status, 1).await?;
        }
        load.ask(&talks(tenant, 8, TestChannel::Grpc), MessageKind::Note).await?;
    }
    // A sweep frees the session of a runner that is gone, beside the rows of the future.
    mesh.fakes.model.latency(Duration::from_secs(2));
    load.say(&talks(0, 8, TestChannel::Grpc), MessageKind::Say, 1).await?;
    until("the model is asked", async || {
        Ok(mesh
            .number("select count(*) from session.session_lease where state = 'RUNNING'")
            .await?
            > 0)
    })
    .await?;
    mesh.runners[0].crash().await?;
    mesh.fakes.model.latency(Duration::ZERO);
    mesh.runners[0].ready(SOON).await?;
    // The job of a kind that is not known does not keep the other one from firing.
    until("the known job fires", async || {
        Ok(mesh.number("select count(*) from schedule.runs where status = 'ok'").await? > 0)
    })
    .await?;
    // What a policy forbids that cannot be read is not known: its tenant's turns end with a reason.
    load.say(&talks(2, 1, TestChannel::Webhook), MessageKind::Status, 1).await?;
    at_rest(&mesh, 15).await?;

    for node in mesh.nodes() {
        node.ready(SOON).await?;
    }
    no_panic(&mesh).await?;
    let skipped = "select count(*) from session.deliveries where act->>'act' = 'hologram' \
                   and state in ('pending', 'sending') and attempt > 0";
    ensure!(mesh.number(skipped).await? == 1, "the unknown action was not kept for its version");
    judge(&mesh, &load.said()).await
}

/// Waits until so many messages of people are done and every reply that can be sent was sent.
async fn at_rest(mesh: &Mesh, messages: i64) -> anyhow::Result<()> {
    const DONE: &str = "
        select count(*) from session.inbox where state in ('done', 'dead') and body->'fired' is null";
    const OPEN: &str = "
        select (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending')
                and coalesce(act->>'act', '') <> 'hologram')";
    until("all is answered", async || {
        Ok(mesh.number(DONE).await? >= messages && mesh.number(OPEN).await? == 0)
    })
    .await
}

/// All promises, but for those about rows that nobody of this version wrote.
async fn judge(mesh: &Mesh, said: &[SentMessage]) -> anyhow::Result<()> {
    let findings = check(mesh, said).await?;
    let future = |line: &&String| {
        line.contains("hologram")
            || line.contains("I2 nothing is stored that nobody said")
            || line.contains("no delivery is left over")
            || line.contains("does not know the action")
            // This tenant's turns end with a reason, since its policy cannot be read.
            || line.contains("I4 the answer is the answer to that message: t2m")
    };
    let broken: Vec<_> = findings.broken.iter().filter(|line| !future(line)).collect();
    ensure!(broken.is_empty(), "promises were broken: {broken:#?}");
    Ok(())
}

/// Gateways, runners, bridges, a scheduler and a memory service of both versions take turns under
/// load: from the version before to this one, back, and forth again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "builds the version before: `make chaos`"]
async fn two_versions_over_one_database_lose_nothing_whichever_is_rolled_out() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_exclusive().await?;
    let program = previous_program().await?;
    let plan = MeshConfig {
        gateways: 2,
        runners: 2,
        bridges: 2,
        schedulers: 1,
        memories: 1,
        tenants: vec![QueueMode::Steer, QueueMode::Followup, QueueMode::Collect],
        ..MeshConfig::small(RUNNER)
    };
    // The schema is this version's: migrations run before anything is rolled out.
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    // In the order of docs/operating.md: a service before those that call it.
    let mut this = mesh.nodes();
    this.sort_by_key(|node| match node.spec().role {
        Role::Memory => 0,
        Role::Gateway => 1,
        Role::Runner | Role::Bridge | Role::Scheduler => 2,
    });
    let before: Vec<Node> =
        this.iter().map(|node| twin(&mesh, node, &program)).collect::<anyhow::Result<_>>()?;
    for node in &before {
        node.start().await?;
    }
    for node in &before {
        node.ready(UP).await.context("the version before does not start on the new schema")?;
    }
    let load = Senders::on(&mesh)?;
    let is_over = AtomicBool::new(false);
    let doors = [TestChannel::Grpc, TestChannel::Webhook, TestChannel::Telegram];
    let talking = (0..9).map(|number| {
        let (load, is_over) = (&load, &is_over);
        let conversation = Conversation { tenant: number / 3, number, door: doors[number % 3] };
        async move {
            let words = [MessageKind::Say, MessageKind::Status, MessageKind::Note];
            for turn in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                load.say(&conversation, words[turn % 3], 1 + turn % 2).await?;
                sleep(Duration::from_millis(300)).await;
            }
            anyhow::Ok(())
        }
    });
    let rolling = async {
        for (old, new) in before.iter().zip(&this) {
            roll(old, new, &BELIEVES_OLD).await.context("to this version")?;
        }
        for (old, new) in before.iter().zip(&this).rev() {
            roll(new, old, &[]).await.context("back to the version before")?;
        }
        for (old, new) in before.iter().zip(&this) {
            roll(old, new, &BELIEVES_OLD).await.context("to this version again")?;
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let (talked, rolled) = tokio::join!(futures::future::try_join_all(talking), rolling);
    rolled?;
    talked?;

    let mut report = Report::of("two versions");
    report.line("processes replaced", 3 * this.len());
    report.line("messages", load.said().len());
    report.line("calls made again by senders", load.retries.load(Ordering::Relaxed));
    report.show()?;
    for node in &before {
        let panics = node.complaints().await;
        let panics: Vec<_> = panics.iter().filter(|line| line.contains("panicked")).collect();
        ensure!(panics.is_empty(), "{} of before panicked: {panics:?}", node.spec().name);
    }
    finish(&mesh, &load).await
}

/// How long a process may take to start or to stop while all others are busy.
const UP: Duration = Duration::from_secs(45);

/// Stops one and starts the other at its address.
async fn roll(from: &Node, to: &Node, env: &[(&str, &str)]) -> anyhow::Result<()> {
    from.stop(UP).await?;
    to.start_with(env).await?;
    to.ready(UP).await
}

/// The same process in the version before, where all services have one secret and one login.
fn twin(mesh: &Mesh, node: &Node, program: &Path) -> anyhow::Result<Node> {
    // Settings that the version before refuses because it does not know them, and those that differ.
    const UNKNOWN: [&str; 6] = [
        "HOLDFAST_EGRESS__ALLOW",
        "HOLDFAST_MESH__KEY",
        "HOLDFAST_MESH__CALLER_KEYS",
        "HOLDFAST_MESH__NODE_KEY",
        "HOLDFAST_MESH__NODE_PUBLIC_KEY",
        "HOLDFAST_DATABASE__URL",
    ];
    let spec = node.spec();
    let args = match spec.role {
        // The runner of these tests has tools that the product lacks.
        Role::Runner => vec!["agent-runner".to_owned()],
        Role::Gateway | Role::Bridge | Role::Scheduler | Role::Memory => spec.args.clone(),
    };
    let env = spec.env.iter().filter(|(name, _)| !UNKNOWN.contains(&name.as_str()));
    let mut env: Vec<(String, String)> = env.cloned().collect();
    for (name, value) in &mut env {
        match name.as_str() {
            "HOLDFAST_NATS__URL" => *value = with_login_of(mesh.nats.url(), value),
            "HOLDFAST_REDIS__URL" => *value = with_login_of(mesh.redis.url(), value),
            _ => {}
        }
    }
    env.push(("HOLDFAST_DATABASE__URL".to_owned(), mesh.url()));
    env.push(("HOLDFAST_MESH__SECRET".to_owned(), MESH_SECRET.to_owned()));
    env.push(("HOLDFAST_SECRETS__KEK".to_owned(), STANDARD.encode([7; 32])));
    if spec.role == Role::Bridge {
        env.push(("HOLDFAST_BRIDGE__WEBHOOK__ALLOW_PRIVATE".to_owned(), "true".to_owned()));
    }
    Node::new(NodeSpec { program: program.to_owned(), args, env, ..spec.clone() })
}

/// The address of `url` with the login of `other`.
fn with_login_of(other: &str, url: &str) -> String {
    match (other.rsplit_once('@'), url.rsplit_once('@')) {
        (Some((login, _)), Some((_, address))) => format!("{login}@{address}"),
        _ => url.to_owned(),
    }
}

/// The `holdfast` binary of the commit in `tests/compat/PREVIOUS`: the one that
/// `HOLDFAST_PREVIOUS` names, else built here.
async fn previous_program() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os("HOLDFAST_PREVIOUS") {
        return Ok(given.into());
    }
    let exe = std::env::current_exe()?;
    let target = exe.ancestors().nth(3).context("this program is not in a target directory")?;
    let (source, built) = (target.join("previous/source"), target.join("previous/target"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let commit = include_str!("../../compat/PREVIOUS").trim();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(&root).args(args);
        command
    };
    let source = source.display().to_string();
    // Left by a run that was stopped, if it is there.
    drop(git(&["worktree", "remove", "--force", &source]).output().await);
    run(git(&["worktree", "add", "--detach", &source, commit])).await?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "-p", "holdfast", "--target-dir"]).arg(&built).current_dir(&source);
    let built_well = run(build).await;
    run(git(&["worktree", "remove", "--force", &source])).await?;
    built_well?;
    Ok(built.join("debug/holdfast"))
}

async fn run(mut command: Command) -> anyhow::Result<()> {
    let output = command.output().await.with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(())
}
