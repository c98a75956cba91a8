//! `make bench-memory`: recall of the evidence for questions about conversations in LoCoMo's format,
//! measured by the path that the product uses, and by the API of the memory service alone.
//!
//! Product path: each turn enters through the gateway as a message of the conversation's person, in
//! one session for each session of the data, with the speaker's name before the text; the scripted
//! model replies nothing. The runner indexes what was said. Each question is a message in a session
//! of its own, for which the model calls `memory_search`; the result that the model is given is
//! what is judged. The agent does not index the questions.
//!
//! API path: `AddTurns` with the speaker as author, then `Search`.
//!
//! Category 5 has questions without an answer and is left out. The times of turns are not used:
//! search does not rank turns by them.

mod locomo;

use std::{collections::HashMap, io::Write as _, time::Duration};

use anyhow::{Context as _, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use holdfast_grpc::MemoryClient;
use holdfast_proto::memory::v1 as pb;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::{
    mesh::{Mesh, MeshConfig},
    person::{GrpcClient, REPLY_TIMEOUT},
};
use holdfast_types::{AgentId, SessionId};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::locomo::{Conversation, Question, Recall};

/// Results per question; `memory_search` returns no more.
const RESULTS: u32 = 20;

/// Sessions that are written at once.
const PARALLEL_SESSIONS: usize = 8;

/// Questions before those that are measured.
const WARM_UP: usize = 50;

/// Time without questions, to know what else the memory service does.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Milliseconds of CPU time in a tick of `/proc`.
const TICK_MS: f64 = 10.0;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = std::env::args().nth(1).context("write the directory of the conversations")?;
    let conversations = locomo::read(dir.as_ref())?;
    let program = std::env::current_exe()?.with_file_name("chaos-runner");
    let plan = MeshConfig { memories: 1, bridges: 0, ..MeshConfig::small(program) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    mesh.fakes.model.answer(searching);
    let embedder: Vec<(String, String)> =
        std::env::vars().filter(|(name, _)| name.starts_with("HOLDFAST_MEMORY__")).collect();
    let embedder: Vec<(&str, &str)> =
        embedder.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    mesh.memories[0].start_with(&embedder).await?;
    mesh.gateways[0].start().await?;
    mesh.runners[0].start().await?;
    for node in mesh.nodes() {
        node.ready(REPLY_TIMEOUT).await?;
    }
    let memory = mesh.memory_client()?;

    let caller = GrpcClient::of(&mesh, 0)?;
    let ingest = tell(&mesh, &memory, &caller, &conversations).await?;
    // Questions are no part of what is searched, and the prompt is not what is measured.
    mesh.runners[0].end().await?;
    let settings = [
        ("HOLDFAST_RUNNER__MEMORY__INDEX_TURNS", "false"),
        ("HOLDFAST_RUNNER__MEMORY__RECALL", "0"),
    ];
    mesh.runners[0].start_with(&settings).await?;
    mesh.runners[0].ready(REPLY_TIMEOUT).await?;
    let product = ask_the_agent(&mesh, &caller, &conversations).await?;
    let same = ask_directly(&mesh, &memory, &conversations).await?;
    let api = ask_the_api(&mesh, &memory, &conversations).await?;

    let mut out = std::io::stdout().lock();
    let turns: usize = conversations.iter().map(Conversation::turns).sum();
    writeln!(out, "{} conversations, {turns} turns\n", conversations.len())?;
    writeln!(out, "Product path: messages, runner, `memory_search`\n\n{}", product.table())?;
    writeln!(out, "ingest and indexing {:.1} s\n", ingest.as_secs_f64())?;
    writeln!(out, "API path: `AddTurns`, `Search`\n\n{}", api.table())?;
    let more = |one: &Recall| (one.cpu_per_question() / api.cpu_per_question() - 1.0) * 100.0;
    writeln!(out, "CPU of the memory service, more than by the API path:")?;
    writeln!(out, "product path {:+.1} %", more(&product))?;
    writeln!(out, "its search alone, without the turn around it {:+.1} %", more(&same))?;
    Ok(())
}

/// Calls `memory_search` where it is asked a question, and replies with the result.
fn searching(asked: &Request) -> Reply {
    if let Some((_, result)) = asked.tool_results().first() {
        return Reply::text(result.clone());
    }
    match asked.last_user_text().split_once("find: ") {
        Some((_, query)) => {
            let input = json!({ "query": query, "k": RESULTS });
            Reply::call("a", "memory_search", input.to_string())
        }
        None => Reply::text("NO_REPLY"),
    }
}

/// Sends all turns as messages, and waits until they are indexed and embedded.
async fn tell(
    mesh: &Mesh,
    memory: &MemoryClient,
    caller: &GrpcClient,
    conversations: &[Conversation],
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let sessions = conversations.iter().enumerate().flat_map(|(n, conversation)| {
        conversation.sessions.iter().map(move |(name, turns)| (format!("c{n}/{name}"), turns))
    });
    let told = stream::iter(sessions).map(|(session, turns)| async move {
        for turn in turns {
            caller.ask(&session, &format!("{}: {}", turn.author, turn.text)).await?;
        }
        anyhow::Ok(())
    });
    told.buffer_unordered(PARALLEL_SESSIONS).try_collect::<()>().await?;
    progress("all messages are answered")?;
    let open = "select count(*) from session.session_lease l
                left join session.journal_readers x
                  on x.session_id = l.session_id and x.reader = 'turn_index'
                where l.next_entry - 1 > coalesce(x.upto, 0) or x.lease_until is not null";
    while mesh.number(open).await? > 0 {
        ensure!(begun.elapsed() < Duration::from_mins(30), "the turns are not indexed");
        sleep(Duration::from_millis(200)).await;
    }
    embedded(mesh, memory).await?;
    Ok(begun.elapsed())
}

async fn embedded(mesh: &Mesh, memory: &MemoryClient) -> anyhow::Result<()> {
    loop {
        let request = pb::GetStatusRequest { who: Some(pb::Who::default()) };
        if memory.status(mesh.tenants[0].id, request).await?.pending == 0 {
            return progress("all turns are embedded");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn ask_the_agent(
    mesh: &Mesh,
    caller: &GrpcClient,
    conversations: &[Conversation],
) -> anyhow::Result<Recall> {
    let places = places(mesh, conversations).await?;
    let mut recall = Recall::default();
    for n in 0..WARM_UP {
        caller.ask(&format!("warm-up-{n}"), "find: warm-up").await?;
    }
    let usage = Usage::begin(mesh).await?;
    for (n, conversation) in conversations.iter().enumerate() {
        for (at, Question { text, category, evidence }) in conversation.questions.iter().enumerate()
        {
            let found =
                caller.ask(&format!("c{n}/question-{at}"), &format!("find: {text}")).await?;
            // `1. said · 2026-11-23 · said by the user in ses_…, entry 7 · score …`
            let ids = found.lines().filter_map(|line| {
                let (_, from) = line.split_once(" · said by the user in ")?;
                let (place, _) = from.split_once(" · ")?;
                places.get(place).cloned()
            });
            recall.count(*category, evidence, &ids.collect::<Vec<_>>());
        }
    }
    recall.cpu_ms = usage.end(mesh).await?;
    progress("all questions are answered by the agent")?;
    Ok(recall)
}

/// The data's id of each turn, by where the tool says that it was said.
async fn places(
    mesh: &Mesh,
    conversations: &[Conversation],
) -> anyhow::Result<HashMap<String, String>> {
    const SQL: &str = "
        select s.key, s.session_id, e.seq
        from session.entries e join session.sessions s using (tenant_id, session_id)
        where e.kind = 'heard' order by e.seq";
    let mut connection = PgConnection::connect(&mesh.admin_url()).await?;
    let rows: Vec<(String, Uuid, i64)> = sqlx::query_as(SQL).fetch_all(&mut connection).await?;
    let mut places = HashMap::new();
    for (n, conversation) in conversations.iter().enumerate() {
        for (name, turns) in &conversation.sessions {
            let end = format!(":api:c{n}/{name}");
            let of_session: Vec<_> = rows.iter().filter(|(key, ..)| key.ends_with(&end)).collect();
            ensure!(of_session.len() == turns.len(), "`{end}` has {} turns", of_session.len());
            for ((_, session, seq), turn) in of_session.into_iter().zip(turns) {
                let place = format!("{}, entry {seq}", SessionId::from(*session));
                places.insert(place, turn.id.clone());
            }
        }
    }
    Ok(places)
}

/// Makes the search of `memory_search` without a turn, on what the product indexed.
async fn ask_directly(
    mesh: &Mesh,
    memory: &MemoryClient,
    conversations: &[Conversation],
) -> anyhow::Result<Recall> {
    const AGENT: &str = "select agent_id from session.sessions where kind = 'api' limit 1";
    const KINDS: [pb::Kind; 4] =
        [pb::Kind::Memory, pb::Kind::Fact, pb::Kind::Turn, pb::Kind::Value];
    let mut connection = PgConnection::connect(&mesh.admin_url()).await?;
    let agent: Uuid = sqlx::query_scalar(AGENT).fetch_one(&mut connection).await?;
    let kinds = KINDS.into_iter().map(i32::from).collect();
    let filter = Some(pb::Filter { kinds, ..pb::Filter::default() });
    let asking = conversations.iter().enumerate().map(|(n, conversation)| {
        let agent = AgentId::from(agent).to_string();
        let who = pb::Who { agent, user: format!("api:c{n}"), ..pb::Who::default() };
        (who, &conversation.questions)
    });
    search(mesh, memory, &asking.collect::<Vec<_>>(), filter).await
}

async fn search(
    mesh: &Mesh,
    memory: &MemoryClient,
    asking: &[(pb::Who, &Vec<Question>)],
    filter: Option<pb::Filter>,
) -> anyhow::Result<Recall> {
    let mut recall = Recall::default();
    let usage = Usage::begin(mesh).await?;
    for (who, questions) in asking {
        for Question { text, category, evidence } in *questions {
            let request = pb::SearchRequest {
                who: Some(who.clone()),
                query: text.clone(),
                k: RESULTS,
                filter: filter.clone(),
                ..pb::SearchRequest::default()
            };
            let hits = memory.search(mesh.tenants[0].id, request).await?.hits;
            let ids: Vec<String> = hits.into_iter().map(|hit| hit.id).collect();
            recall.count(*category, evidence, &ids);
        }
    }
    recall.cpu_ms = usage.end(mesh).await?;
    Ok(recall)
}

async fn ask_the_api(
    mesh: &Mesh,
    memory: &MemoryClient,
    conversations: &[Conversation],
) -> anyhow::Result<Recall> {
    let tenant = mesh.tenants[0].id;
    let mut asking = Vec::new();
    for conversation in conversations {
        let who = pb::Who { agent: AgentId::generate().to_string(), ..pb::Who::default() };
        for (session, turns) in &conversation.sessions {
            let turns = turns.iter().map(|turn| pb::Turn {
                r#ref: turn.id.clone(),
                author: turn.author.clone(),
                text: turn.text.clone(),
                at: None,
            });
            let request = pb::AddTurnsRequest {
                who: Some(who.clone()),
                session: session.clone(),
                turns: turns.collect(),
                group_safe: false,
                provenance: Some(pb::Provenance {
                    kind: pb::SourceKind::User.into(),
                    name: "bench".into(),
                    ..pb::Provenance::default()
                }),
            };
            memory.add_turns(tenant, request).await?;
        }
        asking.push((who, &conversation.questions));
    }
    embedded(mesh, memory).await?;
    search(mesh, memory, &asking, None).await
}

/// Prints progress to stderr, so that it is not part of the report.
fn progress(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stderr(), "{text}")?)
}

/// CPU time of the memory service since a moment, less what it uses when nobody asks.
struct Usage {
    begun: Instant,
    ticks: u64,
    /// Ticks in a second without questions.
    idle: f64,
}

#[expect(clippy::cast_precision_loss, reason = "ticks of some minutes")]
impl Usage {
    async fn begin(mesh: &Mesh) -> anyhow::Result<Self> {
        let memory = &mesh.memories[0];
        let before = memory.cpu_ticks().await?;
        sleep(IDLE_TIME).await;
        let ticks = memory.cpu_ticks().await?;
        let idle = (ticks - before) as f64 / IDLE_TIME.as_secs_f64();
        Ok(Self { begun: Instant::now(), ticks, idle })
    }

    async fn end(self, mesh: &Mesh) -> anyhow::Result<f64> {
        let ticks = mesh.memories[0].cpu_ticks().await? - self.ticks;
        Ok((ticks as f64 - self.idle * self.begun.elapsed().as_secs_f64()) * TICK_MS)
    }
}

impl Recall {
    /// CPU time of the memory service for a question, in milliseconds.
    fn cpu_per_question(&self) -> f64 {
        self.cpu_ms / self.questions().max(1.0)
    }
}
