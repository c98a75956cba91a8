//! Erasure of a person, and of a tenant, after they used everything: no table has a word or an id of
//! theirs, and others keep what they have.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_directory::Actor;
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::memories_client::MemoriesClient;
use holdfast_proto::gateway::v1::policies_client::PoliciesClient;
use holdfast_proto::gateway::v1::routing_client::RoutingClient;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, TelegramUser, until};
use holdfast_tests::turnstile;
use holdfast_types::QueueMode;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::RUNNER;

/// A word that the erased person alone says, in everything that they do.
const WORD: &str = "zyxommatophobia";
/// Their number in Telegram, and their name in the API.
const NUMBER: i64 = 770_042_917;
const API_NAME: &str = "quillanovic";

/// A word and a number of somebody who stays.
const KEPT_WORD: &str = "brontomerus";
const KEPT_NUMBER: i64 = 550_017_301;

/// Uses the tool that a message names, with the message's words. What a subagent reports may come
/// together with the message, before or after it.
fn assistant(asked: &Request) -> Reply {
    let is_new = |message: &&Value| message["role"] == "user";
    let new =
        asked.messages().iter().rev().take_while(is_new).map(|one| one["content"].to_string());
    let Some(said) = new.into_iter().find(|said| said.contains("use ")) else {
        return Reply::text("fine");
    };
    let word = [WORD, KEPT_WORD].into_iter().find(|word| said.contains(word)).unwrap_or_default();
    let text = format!("something about {word}");
    let calls = [
        ("memory_save", json!({"text": text, "type": "fact"})),
        ("memory_set", json!({"key": "topic", "value": text})),
        ("write", json!({"path": "notes.md", "content": text})),
        ("scheduler_add", json!({"time": "tomorrow 9:00", "content": text})),
        ("sessions_spawn", json!({"task": text, "label": word})),
        ("canvas", json!({"action": "present", "title": word, "markdown": text})),
        ("act_if_allowed", json!({"id": word})),
    ];
    let named = calls.into_iter().find(|(tool, _)| said.contains(&format!("use {tool} ")));
    match named {
        Some((tool, input)) => Reply::call(format!("call-{tool}"), tool, input.to_string()),
        None => Reply::text("fine"),
    }
}

const TOOLS: [&str; 6] =
    ["memory_save", "memory_set", "write", "scheduler_add", "sessions_spawn", "canvas"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_an_erased_person_or_tenant_and_others_keep_theirs() -> anyhow::Result<()>
{
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig {
        memories: 1,
        schedulers: 1,
        tenants: vec![QueueMode::Steer, QueueMode::Steer],
        ..MeshConfig::small(RUNNER)
    };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(assistant);
    let nodes = mesh.gateways.iter().chain(&mesh.bridges).chain(&mesh.memories);
    for node in nodes.chain(&mesh.schedulers) {
        node.start().await?;
        node.ready(REPLY_TIMEOUT).await?;
    }
    mesh.runners[0].start_with(&[("HOLDFAST_RUNNER__PRUNE", "500ms")]).await?;
    let caller = GrpcClient::of(&mesh, 0)?;
    caller.put_owner("telegram:1").await?;
    let (channel, peer, canonical) =
        ("telegram".to_owned(), NUMBER.to_string(), format!("canonical-{NUMBER}"));
    let document = json!({"approvals": {"tools": {"act_if_allowed": "always"}}}).to_string();
    let put = pb::PutPolicyRequest { document, ..pb::PutPolicyRequest::default() };
    PoliciesClient::new(caller.channel.clone()).put_policy(caller.request(put)?).await?;
    let identity = Some(pb::Identity { channel, peer, canonical });
    let put = caller.request(pb::PutIdentityRequest { identity })?;
    RoutingClient::new(caller.channel.clone()).put_identity(put).await?;

    use_everything(&mesh, &caller, WORD, NUMBER, API_NAME).await?;
    use_everything(&mesh, &caller, KEPT_WORD, KEPT_NUMBER, "kept").await?;
    let other = GrpcClient::of(&mesh, 1)?;
    other.ask("kept", &format!("use memory_save {KEPT_WORD}")).await?;
    let theirs = [WORD.to_owned(), NUMBER.to_string(), API_NAME.to_owned()];
    let kept = [KEPT_WORD.to_owned(), KEPT_NUMBER.to_string()];
    let open = "select (select count(*) from session.events) + (select count(*) from memory.queue)";
    until("events are published and memories indexed", async || Ok(mesh.number(open).await? == 0))
        .await?;
    // Turns are indexed a moment after their end.
    sleep(Duration::from_secs(3)).await;
    let before = tables_with(&mesh, &theirs).await?;
    for table in [
        "control.identities",
        "memory.items",
        "memory.units",
        "schedule.jobs",
        "session.approvals",
        "session.deliveries",
        "session.entries",
        "session.inbox",
        "session.sessions",
        "session.subagents",
        "session.surfaces",
        "session.zones",
        "workspace.contents",
        "workspace.files",
    ] {
        ensure!(before.contains(table), "{table} is not among {before:?}");
    }
    let mut kept_before = tables_with(&mesh, &kept).await?;
    // An event leaves this table when it is published.
    kept_before.remove("session.events");

    let mut memories = MemoriesClient::new(caller.channel.clone());
    for user in [format!("telegram:canonical-{NUMBER}"), format!("api:{API_NAME}")] {
        let erase = pb::EraseMemoriesRequest { user, everywhere: true, ..Default::default() };
        let erased = memories.erase_memories(caller.request(erase)?).await?.into_inner();
        let count = |what: &str| erased.erased.iter().find(|one| one.what == what).map(|n| n.rows);
        ensure!(count("sessions").is_some_and(|rows| rows > 0), "{erased:?}");
        ensure!(erased.left.iter().all(|left| left.rows == 0), "{erased:?}");
    }

    // The proof of the erasure, the operator's own acts, and what was changed when in the agent's
    // files: ids, and no word.
    let may_stay = ["control.audit", "memory.erasures", "workspace.revisions"];
    settle(&mesh, &theirs, &may_stay).await.context("of the person")?;
    settle(&mesh, &theirs[..1], &[]).await.context("a word of the person")?;
    let kept_after = tables_with(&mesh, &kept).await?;
    let lost: Vec<_> = kept_before.difference(&kept_after).collect();
    ensure!(lost.is_empty(), "others lost what they had in {lost:?}");

    let tenant = &mesh.tenants[0];
    mesh.directory()?.tenants().delete(tenant.id, Actor::Operator).await?;
    let ids = [tenant.id.to_string(), tenant.id.as_uuid().to_string(), KEPT_NUMBER.to_string()];
    // What was done to the tenant by the platform, until its last event was published: ids, and no word.
    settle(&mesh, &ids, &["control.tenant_events"]).await.context("of the tenant")?;
    let other = mesh.tenants[1].id.as_uuid().to_string();
    let words = tables_with(&mesh, &[KEPT_WORD.to_owned()]).await?;
    ensure!(words.contains("memory.items"), "the other tenant lost its memory: {words:?}");
    ensure!(tables_with(&mesh, &[other]).await?.contains("session.entries"), "the other is gone");
    Ok(())
}

/// Talks in Telegram and by the API about a word; uses each tool; sets a time zone;
/// and leaves one call to be approved.
async fn use_everything(
    mesh: &Mesh,
    caller: &GrpcClient,
    word: &str,
    number: i64,
    name: &str,
) -> anyhow::Result<()> {
    let user = TelegramUser::of(mesh, &mesh.tenants[0].bot, number);
    for tool in TOOLS {
        user.ask(&format!("use {tool} for {word}")).await?;
        let session = format!("{name}/trip");
        caller.ask(&session, &format!("use {tool} for {word}")).await?;
    }
    user.ask("/timezone Europe/Oslo").await?;
    user.send(&format!("use act_if_allowed for {word}"));
    let asked = format!("select count(*) from session.approvals where summary like '%{word}%'");
    until("an approval is asked for", async || Ok(mesh.number(&asked).await? > 0)).await
}

/// Waits until these texts are in no table besides these.
pub(crate) async fn settle(mesh: &Mesh, texts: &[String], besides: &[&str]) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let mut found = tables_with(mesh, texts).await?;
        found.retain(|table| !besides.contains(&table.as_str()));
        if found.is_empty() {
            return Ok(());
        }
        ensure!(begun.elapsed() < REPLY_TIMEOUT, "still in {found:?}");
        sleep(Duration::from_millis(500)).await;
    }
}

/// Returns the tables that have rows with one of these texts in any column: as text, and as bytes.
async fn tables_with(mesh: &Mesh, texts: &[String]) -> anyhow::Result<BTreeSet<String>> {
    const TABLES: &str = "
        select format('%I.%I', n.nspname, c.relname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind = 'r' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        order by 1";
    let hex = texts.iter().map(|text| text.bytes().map(|byte| format!("{byte:02x}")).collect());
    let texts: Vec<String> = texts.iter().cloned().chain(hex).collect();
    let mut admin = PgConnection::connect(&mesh.admin_url()).await?;
    let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut admin).await?;
    let mut found = BTreeSet::new();
    for table in tables {
        // A row as text has all its columns: identifiers, texts, lists, JSON, and bytes in
        // hexadecimal.
        let sql = format!(
            "select exists (select from {table} t, unnest($1::text[]) as x (text)
                            where strpos(lower(t::text), lower(x.text)) > 0)"
        );
        let is_there = sqlx::query_scalar(AssertSqlSafe(sql)).bind(&texts);
        if is_there.fetch_one(&mut admin).await? {
            found.insert(table);
        }
    }
    Ok(found)
}
