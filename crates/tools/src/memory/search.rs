//! The `memory_search` tool.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Memories, MemoryHit, MemoryQuery, MemoryType, checked_text, result_limit};
use crate::{Call, Files, Tool, ToolError, untrusted};

/// Maximum length of all results together, in characters.
const MAX_SHOWN_CHARS: usize = 16_000;

/// Maximum length of a query, in bytes.
pub(super) const MAX_QUERY_LEN: usize = 4 * 1024;

/// Search what is remembered of the person you speak with, and your notes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySearchInput {
    /// What to look for, in a few words or as a question.
    query: String,
    /// How many answers at most: 10 if absent, 20 at most.
    #[serde(default, alias = "limit", alias = "k")]
    max_results: Option<u32>,
    /// Leave out answers with a lower score.
    #[serde(default)]
    min_score: Option<f64>,
    /// Only memories of this type.
    #[serde(default, rename = "type")]
    only: Option<MemoryType>,
}

#[derive(Debug)]
pub struct MemorySearch<M, F>(pub Arc<M>, pub Arc<F>);

impl<M: Memories, F: Files> Tool for MemorySearch<M, F> {
    const NAME: &'static str = "memory_search";
    const EFFECT: Effect = Effect::Reads;
    type Input = MemorySearchInput;

    async fn call(&self, call: Call, input: MemorySearchInput) -> Result<String, ToolError> {
        let MemorySearchInput { query, max_results, min_score, only } = input;
        let query = checked_text("query", &query, MAX_QUERY_LEN)?;
        let most = result_limit(max_results, 10);
        let sought = MemoryQuery { query, most, only, ..MemoryQuery::default() };
        let mut found = self.0.search(&call, sought).await?;
        found.retain(|one| min_score.is_none_or(|least| one.score >= least));
        if found.is_empty() {
            return Ok("Nothing is remembered of this.".to_owned());
        }
        let lines = self.lines(&call, &found).await;
        Ok(untrusted(&call.key, "memory", &format_results(&found, &lines), MAX_SHOWN_CHARS))
    }
}

impl<M, F: Files> MemorySearch<M, F> {
    /// Line ranges of the notes among the results, in the numbering of `memory_get`. `None` for a
    /// note that cannot be read any more.
    async fn lines(&self, call: &Call, found: &[MemoryHit]) -> Vec<Option<(usize, usize)>> {
        let mut texts: BTreeMap<&str, Option<Vec<u8>>> = BTreeMap::new();
        for one in found.iter().filter(|one| one.at.is_some()) {
            if !texts.contains_key(one.path.as_str()) {
                let file = self.1.read(call, &one.path).await.ok().flatten();
                texts.insert(&one.path, file.map(|file| file.content));
            }
        }
        let lines = |one: &MemoryHit| {
            let (from, to) = one.at?;
            let text = texts.get(one.path.as_str())?.as_deref()?;
            let line = |at: usize| {
                let before = &text[..at.min(text.len())];
                before.split(|byte| *byte == b'\n').count()
            };
            Some((line(from), line(to.saturating_sub(1).max(from))))
        };
        found.iter().map(lines).collect()
    }
}

/// Formats the results for the model.
pub(super) fn format_results(found: &[MemoryHit], lines: &[Option<(usize, usize)>]) -> String {
    let mut text = String::new();
    for (n, one) in found.iter().enumerate() {
        let _ = write!(text, "{}. {}", n + 1, one.what);
        let mut note = |part: &str| {
            if !part.is_empty() {
                text.push_str(" · ");
                text.push_str(part);
            }
        };
        note(&one.path);
        if let Some((from, to)) = lines.get(n).copied().flatten() {
            note(&format!("lines {from} to {to}"));
        }
        note(&one.headings.join(" > "));
        note(&one.when);
        note(&one.from);
        if one.at.is_none() {
            note(&one.id);
        }
        note(&one.why);
        let _ = writeln!(text, "\n{}\n", one.text.trim());
    }
    text
}
