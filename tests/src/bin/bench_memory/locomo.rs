//! Conversations in LoCoMo's format, and recall of the evidence for their questions.
//!
//! Each file is a conversation, or a list of them: `session_N` has turns with `speaker`, `dia_id`
//! and `text`; `qa` has `question`, `evidence` and `category`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, ensure};
use serde_json::Value;

const RANKS: [usize; 3] = [5, 10, 20];

/// Maximum sessions read from a conversation.
const MAX_SESSIONS: u32 = 1_000;

pub struct Conversation {
    /// Turns by session.
    pub sessions: Vec<(String, Vec<Turn>)>,
    pub questions: Vec<Question>,
}

pub struct Turn {
    pub id: String,
    pub author: String,
    pub text: String,
}

pub struct Question {
    pub text: String,
    pub category: i64,
    /// Ids of the turns that have the answer.
    pub evidence: BTreeSet<String>,
}

impl Conversation {
    pub fn turns(&self) -> usize {
        self.sessions.iter().map(|(_, turns)| turns.len()).sum()
    }
}

/// Reads all conversations of a directory.
pub fn read(dir: &Path) -> anyhow::Result<Vec<Conversation>> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .with_context(|| format!("cannot read `{}`", dir.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut conversations = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let all = match serde_json::from_str(&text).with_context(|| file.display().to_string())? {
            Value::Array(several) => several,
            one => vec![one],
        };
        conversations.extend(
            all.iter()
                .map(|one| Conversation { sessions: sessions(one), questions: questions(one) }),
        );
    }
    ensure!(!conversations.is_empty(), "`{}` has no conversation (*.json)", dir.display());
    Ok(conversations)
}

fn sessions(conversation: &Value) -> Vec<(String, Vec<Turn>)> {
    let all = conversation.get("conversation").unwrap_or(conversation);
    let text = |turn: &Value, name: &str| turn[name].as_str().unwrap_or_default().to_owned();
    let session = |n: u32| {
        let name = format!("session_{n}");
        let turns = all[&name].as_array()?.iter().map(|turn| Turn {
            id: text(turn, "dia_id"),
            author: text(turn, "speaker"),
            text: text(turn, "text"),
        });
        let turns: Vec<_> = turns.filter(|turn| !turn.text.trim().is_empty()).collect();
        (!turns.is_empty()).then_some((name, turns))
    };
    (1..=MAX_SESSIONS).filter_map(session).collect()
}

fn questions(conversation: &Value) -> Vec<Question> {
    let question = |qa: &Value| {
        let category = qa["category"].as_i64()?;
        let evidence = qa["evidence"].as_array()?.iter().filter_map(Value::as_str);
        // Some entries name several turns in one text.
        let ids = evidence.flat_map(|ids| ids.split([';', ',', ' '])).filter(|id| !id.is_empty());
        let evidence: BTreeSet<String> = ids.map(str::to_owned).collect();
        let text = qa["question"].as_str()?.to_owned();
        (category != 5 && !evidence.is_empty()).then_some(Question { text, category, evidence })
    };
    conversation["qa"].as_array().into_iter().flatten().filter_map(question).collect()
}

/// Recall of the evidence, by category.
#[derive(Default)]
pub struct Recall {
    categories: BTreeMap<i64, Sums>,
    /// CPU time of the memory service for all questions, in milliseconds.
    pub cpu_ms: f64,
}

#[derive(Default)]
struct Sums {
    questions: f64,
    share: [f64; 3],
    any: [f64; 3],
}

impl Recall {
    /// Adds the result of a question: ids of turns, best first.
    pub fn count(&mut self, category: i64, evidence: &BTreeSet<String>, ids: &[String]) {
        let sums = self.categories.entry(category).or_default();
        sums.questions += 1.0;
        for (at, rank) in RANKS.into_iter().enumerate() {
            let hits = ids.iter().take(rank).filter(|id| evidence.contains(*id)).count();
            let of = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            sums.share[at] += of(hits) / of(evidence.len());
            sums.any[at] += f64::from(u8::from(hits > 0));
        }
    }

    pub fn questions(&self) -> f64 {
        self.categories.values().map(|sums| sums.questions).sum()
    }

    pub fn table(&self) -> String {
        let mut out = String::from(
            "| category | questions | recall@5 (any) | recall@10 (any) | recall@20 (any) |\n\
             |---|---|---|---|---|\n",
        );
        let mut all = Sums::default();
        for (category, sums) in &self.categories {
            sums.row(&mut out, &category.to_string());
            all.questions += sums.questions;
            for at in 0..RANKS.len() {
                all.share[at] += sums.share[at];
                all.any[at] += sums.any[at];
            }
        }
        all.row(&mut out, "all");
        let _ =
            write!(out, "\nCPU of the memory service {:.1} ms a question", self.cpu_per_question());
        out
    }
}

impl Sums {
    fn row(&self, out: &mut String, name: &str) {
        let _ = write!(out, "| {name} | {} ", self.questions);
        for (share, any) in self.share.iter().zip(&self.any) {
            let _ = write!(out, "| {:.3} ({:.3}) ", share / self.questions, any / self.questions);
        }
        let _ = writeln!(out, "|");
    }
}
