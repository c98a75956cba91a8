//! Benchmark with conversations in LoCoMo's format: recall of the evidence for each question.
//!
//! Each file is a conversation, or a list of them: `session_N` has turns with `speaker`, `dia_id`
//! and `text`; `qa` has `question`, `evidence` and `category`. Category 5 has questions without an
//! answer and is left out. Only speaker, text and order are used.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, TenantId};
use serde_json::Value;

use crate::mesh::{self, Times, add, ask, embedded, say};

const KS: [usize; 3] = [5, 10, 20];
/// Maximum sessions read from a conversation.
const SESSIONS: u32 = 1_000;

/// Recall of the evidence of some questions.
#[derive(Default)]
struct Found {
    questions: f64,
    share: [f64; 3],
    any: [f64; 3],
}

pub async fn run(dir: &str) -> anyhow::Result<String> {
    let conversations = read(Path::new(dir))?;
    let database = mesh::database().await?;
    let served = mesh::serve(mesh::config(&database)?).await?;
    let tenant = TenantId::generate();
    let mut found: BTreeMap<i64, Found> = BTreeMap::new();
    let (mut turns, mut ingest, mut times) = (0, Duration::ZERO, Times::default());
    let mut model = String::new();
    for (n, conversation) in conversations.iter().enumerate() {
        say(&format!("conversation {} of {}", n + 1, conversations.len()))?;
        let who = pb::Who { agent: AgentId::generate().to_string(), ..pb::Who::default() };
        let began = Instant::now();
        for (session, said) in sessions(conversation) {
            turns += said.len();
            add(&served.memory, tenant, &who, &session, &said).await?;
        }
        model = embedded(&served.memory, tenant).await?.model;
        ingest += began.elapsed();
        for question in questions(conversation) {
            let (answer, took) =
                ask(&served.memory, tenant, &who, &question.text, 20, None).await?;
            times.add(took);
            let ids: Vec<String> = answer.hits.into_iter().map(|hit| hit.id).collect();
            found.entry(question.category).or_default().count(&question.evidence, &ids);
        }
    }
    Ok(table(&found, conversations.len(), turns, ingest, &model, &mut times)?)
}

fn table(
    found: &BTreeMap<i64, Found>,
    conversations: usize,
    turns: usize,
    ingest: Duration,
    model: &str,
    times: &mut Times,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{conversations} conversations, {turns} turns, model {model}\n")?;
    writeln!(out, "| category | questions | recall@5 (any) | recall@10 (any) | recall@20 (any) |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    let mut all = Found::default();
    for (category, some) in found {
        some.row(&mut out, &category.to_string())?;
        all.add(some);
    }
    all.row(&mut out, "all")?;
    let each = ingest.as_secs_f64() * 1000.0 / f64::from(u32::try_from(turns.max(1)).unwrap_or(1));
    writeln!(out, "\ningest {:.1} s, {each:.1} ms a turn", ingest.as_secs_f64())?;
    writeln!(out, "query {}", times.told())?;
    Ok(out)
}

impl Found {
    fn count(&mut self, evidence: &BTreeSet<String>, ids: &[String]) {
        self.questions += 1.0;
        for (at, k) in KS.into_iter().enumerate() {
            let hits = ids.iter().take(k).filter(|id| evidence.contains(*id)).count();
            let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            self.share[at] += of(hits) / of(evidence.len());
            self.any[at] += f64::from(u8::from(hits > 0));
        }
    }

    fn add(&mut self, other: &Self) {
        self.questions += other.questions;
        for at in 0..KS.len() {
            self.share[at] += other.share[at];
            self.any[at] += other.any[at];
        }
    }

    fn row(&self, out: &mut String, name: &str) -> std::fmt::Result {
        write!(out, "| {name} | {} ", self.questions)?;
        for (share, any) in self.share.iter().zip(&self.any) {
            write!(out, "| {:.3} ({:.3}) ", share / self.questions, any / self.questions)?;
        }
        writeln!(out, "|")
    }
}

fn read(dir: &Path) -> anyhow::Result<Vec<Value>> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .with_context(|| format!("cannot read `{}`", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut conversations = Vec::new();
    for file in files {
        let read = fs::read_to_string(&file)?;
        match serde_json::from_str(&read).with_context(|| file.display().to_string())? {
            Value::Array(several) => conversations.extend(several),
            one => conversations.push(one),
        }
    }
    ensure!(!conversations.is_empty(), "`{}` has no conversation (*.json)", dir.display());
    Ok(conversations)
}

fn sessions(conversation: &Value) -> Vec<(String, Vec<pb::Turn>)> {
    let said = conversation.get("conversation").unwrap_or(conversation);
    let text = |turn: &Value, name: &str| turn[name].as_str().unwrap_or_default().to_owned();
    (1..=SESSIONS)
        .filter_map(|n| {
            let name = format!("session_{n}");
            let turns = said[&name].as_array()?.iter().map(|turn| pb::Turn {
                r#ref: text(turn, "dia_id"),
                author: text(turn, "speaker"),
                text: text(turn, "text"),
                at: None,
            });
            let turns: Vec<_> = turns.filter(|turn| !turn.text.trim().is_empty()).collect();
            (!turns.is_empty()).then_some((name, turns))
        })
        .collect()
}

struct Question {
    text: String,
    category: i64,
    evidence: BTreeSet<String>,
}

fn questions(conversation: &Value) -> Vec<Question> {
    let asked = conversation["qa"].as_array().into_iter().flatten();
    asked
        .filter_map(|qa| {
            let category = qa["category"].as_i64()?;
            // Some entries name several turns in one text.
            let evidence: BTreeSet<String> = qa["evidence"]
                .as_array()?
                .iter()
                .filter_map(Value::as_str)
                .flat_map(|ids| ids.split([';', ',', ' ']))
                .filter(|id| !id.is_empty())
                .map(str::to_owned)
                .collect();
            let text = qa["question"].as_str()?.to_owned();
            (category != 5 && !evidence.is_empty()).then_some(Question { text, category, evidence })
        })
        .collect()
}
