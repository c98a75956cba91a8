//! Memory and knowledge base: the tools, and the interface to their service.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `memory_search` | reads | searches memories, facts and notes |
//! | `memory_get` | reads | lines of `MEMORY.md` and of notes |
//! | `memory_save` | writes | stores a memory about the user of the conversation |
//! | `memory_set` | writes | stores a value under a key |
//! | `memory_values` | reads | values by key |
//! | `memory_forget` | writes | removes a memory |
//! | `kb_search`, `kb_get` | reads | the knowledge base |
//! | `kb_ingest` | writes | adds an article |
//! | `kb_update` | writes | changes an article, or proposes the change |
//!
//! Results were written by people, pages and models: they are marked as data, with their
//! provenance. A repeated call after a crash is recognised by its key. The owner of the memories
//! follows from the conversation ([`Memories`] knows it), never from the model's input.

mod forget;
mod get;
mod kb;
mod save;
mod search;
#[cfg(test)]
mod tests;
mod values;

use std::{future::Future, sync::Arc};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

pub use forget::MemoryForget;
pub use get::MemoryGet;
pub use kb::{KbGet, KbIngest, KbSearch, KbUpdate};
pub use save::MemorySave;
pub use search::MemorySearch;
pub use values::{MemorySet, MemoryValues};

use crate::{Call, Files, Registry, ToolError};

/// Maximum length of a memory, in bytes: a memory is a sentence, not a file.
pub const MAX_MEMORY_LEN: usize = 4 * 1024;

/// Maximum number of results of a search.
const MAX_RESULTS: u32 = 20;

/// Maximum length of a tag, in bytes, and number of tags.
const MAX_TAG_LEN: usize = 64;
const MAX_TAGS: usize = 16;

/// Memory and knowledge base, as a call may see and change them; implemented by agent-runner and by
/// a fake.
///
/// An implementation serves the call's tenant, agent and conversation, and no others.
pub trait Memories: Send + Sync + 'static {
    /// Returns the best results, in descending order.
    fn search(
        &self,
        call: &Call,
        sought: MemoryQuery,
    ) -> impl Future<Output = Result<Vec<MemoryHit>, MemoryError>> + Send;

    /// Stores a memory under the call's key.
    fn save(
        &self,
        call: &Call,
        what: NewMemory,
    ) -> impl Future<Output = Result<StoredMemory, MemoryError>> + Send;

    /// Stores a value under its key, and under the call's key. The value `null` ends the key.
    fn set_value(
        &self,
        call: &Call,
        new: NewValue,
    ) -> impl Future<Output = Result<StoredMemory, MemoryError>> + Send;

    /// Lists the current values whose keys begin with `prefix`, newest first.
    fn values(
        &self,
        call: &Call,
        prefix: &str,
        most: u32,
    ) -> impl Future<Output = Result<Vec<StoredValue>, MemoryError>> + Send;

    /// Removes a memory from future results.
    fn forget(&self, call: &Call, id: &str)
    -> impl Future<Output = Result<(), MemoryError>> + Send;

    /// Returns an article of the knowledge base; version 0 means the newest.
    fn article(
        &self,
        call: &Call,
        id: &str,
        version: u32,
    ) -> impl Future<Output = Result<Article, MemoryError>> + Send;

    /// Adds an article under the call's key.
    fn ingest(
        &self,
        call: &Call,
        article: NewArticle,
    ) -> impl Future<Output = Result<Article, MemoryError>> + Send;

    /// Changes an article, or proposes the change if the call may not make it.
    fn update(
        &self,
        call: &Call,
        change: ArticleChange,
    ) -> impl Future<Output = Result<ArticleUpdate, MemoryError>> + Send;
}

/// Reason why the memory service refused or failed. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The object does not exist, or the call may not do this; with the reason.
    #[error("{0}")]
    Refused(String),
    /// The service does not answer.
    #[error(
        "memory does not answer just now: go on without it, say so if it matters, and try again \
         later"
    )]
    Unavailable,
    /// An internal failure, not caused by the model.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

impl From<MemoryError> for ToolError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Broken(error) => Self::Broken(error),
            told @ (MemoryError::Refused(_) | MemoryError::Unavailable) => {
                Self::Tell(told.to_string())
            }
        }
    }
}

/// What a memory is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MemoryType {
    /// What somebody likes or wants to have done so.
    Preference,
    /// What is so.
    #[default]
    Fact,
    /// What happened, or will.
    Event,
    /// What somebody is to do.
    Commitment,
}

impl MemoryType {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preference => "preference",
            Self::Fact => "fact",
            Self::Event => "event",
            Self::Commitment => "commitment",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryQuery {
    pub query: String,
    pub most: u32,
    /// Type of the memories to search; `None` means all.
    pub only: Option<MemoryType>,
    /// Whether to search the knowledge base instead of memories.
    pub knowledge: bool,
    /// Tags of which an article must have one; for the knowledge base.
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryHit {
    /// Id: `itm_…`, a note's path, or an article's id.
    pub id: String,
    /// Kind of result: `preference`, `fact`, `note`, `article`.
    pub what: String,
    pub text: String,
    /// Path of a note, or title of an article; else empty.
    pub path: String,
    /// Headings above the text, outermost first.
    pub headings: Vec<String>,
    /// Byte range within the note.
    pub at: Option<(usize, usize)>,
    /// Time when it was written, as text for the model; empty if unknown.
    pub when: String,
    /// Provenance, as text for the model.
    pub from: String,
    /// Score; comparable only within one answer.
    pub score: f64,
    /// Score and its parts, as text for the model.
    pub why: String,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewMemory {
    pub text: String,
    pub what: MemoryType,
    pub details: MemoryDetails,
    /// Subject and predicate. A newer memory with the same two replaces the older one.
    pub about: Option<(String, String)>,
    /// Id of the memory that this one replaces.
    pub replaces: Option<String>,
}

/// Details of a memory or a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryDetails {
    /// Time from which it is not used any more.
    pub expires_at: Option<Timestamp>,
    /// From 0 to 1.
    pub importance: Option<f64>,
    pub tags: Vec<String>,
}

/// Value to store under a key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewValue {
    pub key: String,
    /// The value as JSON.
    pub value: String,
    pub details: MemoryDetails,
}

/// Current value of a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredValue {
    pub key: String,
    /// The value as JSON.
    pub value: String,
    /// Time, provenance and details, as texts for the model.
    pub notes: Vec<String>,
}

/// Result of storing a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMemory {
    pub id: String,
    /// Whether the same memory existed already.
    pub is_duplicate: bool,
}

/// Article of the knowledge base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Article {
    pub id: String,
    pub version: u32,
    pub title: String,
    /// Text; may be empty in the result of a change.
    pub text: String,
    pub tags: Vec<String>,
    /// Provenance, as text for the model.
    pub from: String,
    /// Kinds and numbers of masked values, as `email: 2`.
    pub masked: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewArticle {
    /// Title; if empty, the first heading is used.
    pub title: String,
    /// Text of the article, in Markdown.
    pub text: String,
    pub tags: Vec<String>,
    /// Whether it is for all agents of the tenant, not just for this one.
    pub for_all: bool,
    /// Provenance: an address, a file, or a person's name.
    pub source: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArticleChange {
    pub id: String,
    /// Version that the change is based on; 0 means the newest.
    pub version: u32,
    /// New text; empty keeps the old one.
    pub text: String,
    /// New title; empty keeps the old one.
    pub title: String,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArticleUpdate {
    Done(Article),
    /// The change waits for a maintainer, under this id.
    Proposed(String),
}

impl Registry {
    /// Adds the tools for memory and the knowledge base.
    #[must_use]
    pub fn with_memory<M: Memories, F: Files>(self, memories: Arc<M>, files: Arc<F>) -> Self {
        self.with(MemorySearch(Arc::clone(&memories), Arc::clone(&files)))
            .with(MemoryGet(files))
            .with(MemorySave(Arc::clone(&memories)))
            .with(MemorySet(Arc::clone(&memories)))
            .with(MemoryValues(Arc::clone(&memories)))
            .with(MemoryForget(Arc::clone(&memories)))
            .with(KbSearch(Arc::clone(&memories)))
            .with(KbGet(Arc::clone(&memories)))
            .with(KbIngest(Arc::clone(&memories)))
            .with(KbUpdate(memories))
    }
}

/// Checks that a model's text is not empty and not too long.
fn checked_text(field: &str, text: &str, most: usize) -> Result<String, ToolError> {
    let text = crate::clean(text);
    let text = text.trim();
    if text.is_empty() {
        return Err(ToolError::Tell(format!("`{field}` is empty")));
    }
    if text.len() > most {
        return Err(ToolError::Tell(format!(
            "`{field}` has {} bytes, and {most} are the most",
            text.len()
        )));
    }
    Ok(text.to_owned())
}

/// Checks the details of a memory or a value.
fn checked_details(
    expires_at: Option<&str>,
    importance: Option<f64>,
    tags: &[String],
) -> Result<MemoryDetails, ToolError> {
    let expires_at = match expires_at.map(str::trim).filter(|time| !time.is_empty()) {
        None => None,
        Some(time) => Some(time.parse::<Timestamp>().map_err(|error| {
            ToolError::Tell(format!(
                "`expires_at` is no time such as `2026-12-31T18:00:00Z`: {error}"
            ))
        })?),
    };
    if importance.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(ToolError::Tell("`importance` must be from 0 to 1".to_owned()));
    }
    Ok(MemoryDetails { expires_at, importance, tags: checked_tags(tags)? })
}

fn checked_tags(tags: &[String]) -> Result<Vec<String>, ToolError> {
    if tags.len() > MAX_TAGS {
        return Err(ToolError::Tell(format!(
            "`tags` has {}, and {MAX_TAGS} are the most",
            tags.len()
        )));
    }
    tags.iter().map(|tag| checked_text("tags", tag, MAX_TAG_LEN)).collect()
}

/// Limits the number of results.
fn result_limit(asked: Option<u32>, usual: u32) -> u32 {
    asked.unwrap_or(usual).clamp(1, MAX_RESULTS)
}
