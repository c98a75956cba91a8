//! What the agent remembers and what its tenant knows: what the tools ask for, and the tools.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `memory_search` | reads | finds in memories, facts and notes |
//! | `memory_get` | reads | lines of `MEMORY.md` and of notes |
//! | `memory_save` | writes | keeps something about whom it speaks with |
//! | `memory_forget` | writes | takes one of those out again |
//! | `kb_search`, `kb_get` | reads | the knowledge base |
//! | `kb_ingest` | writes | adds an article to it |
//! | `kb_update` | writes | changes one; whoever may not proposes it |
//!
//! What is found was written by people, pages and models: it is marked as data, with where it comes
//! from. A call that is made again after a crash is known by its key. Whose memory it is follows
//! from the conversation ([`Memories`] knows it) and never from what the model writes.

mod forget;
mod get;
mod kb;
mod save;
mod search;
#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

pub use forget::MemoryForget;
pub use get::MemoryGet;
pub use kb::{KbGet, KbIngest, KbSearch, KbUpdate};
pub use save::MemorySave;
pub use search::MemorySearch;

use crate::{Call, Files, Registry, ToolError};

/// The longest text that is remembered at once, in bytes: a memory is a line, not a file.
pub const MOST_REMEMBERED: usize = 4 * 1024;

/// The most that is looked for at once.
const MOST_FOUND: u32 = 20;

/// Memory and knowledge, as a call may see and change them; the runner's own, or a fake.
///
/// Each answers for the call's tenant, agent and conversation, and for no others.
pub trait Memories: Send + Sync + 'static {
    /// What fits a question best, best first.
    fn search(
        &self,
        call: &Call,
        sought: Sought,
    ) -> impl Future<Output = Result<Vec<Found>, MemoryError>> + Send;

    /// Keeps something under the call's key; its id.
    fn save(
        &self,
        call: &Call,
        what: ToKeep,
    ) -> impl Future<Output = Result<Kept, MemoryError>> + Send;

    /// Takes something out of what is found.
    fn forget(&self, call: &Call, id: &str)
    -> impl Future<Output = Result<(), MemoryError>> + Send;

    /// An article of the knowledge base, of one version or the newest.
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

    /// Changes an article, or proposes the change where the call may not make it.
    fn update(
        &self,
        call: &Call,
        change: ArticleChange,
    ) -> impl Future<Output = Result<Updated, MemoryError>> + Send;
}

/// Why memory could not be asked or changed. The texts are for the model.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It is not there, or it may not be done, and why.
    #[error("{0}")]
    Refused(String),
    /// The service does not answer: nothing was lost, and nothing is known.
    #[error(
        "memory does not answer just now: go on without it, say so if it matters, and try again \
         later"
    )]
    Away,
    /// For no fault of the model.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

impl From<MemoryError> for ToolError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Broken(error) => Self::Broken(error),
            told @ (MemoryError::Refused(_) | MemoryError::Away) => Self::Tell(told.to_string()),
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
    /// Its word.
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

/// A question to memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sought {
    /// What is looked for, in words.
    pub query: String,
    /// How many answers are wanted at most.
    pub most: u32,
    /// Only memories of this type, if one is given.
    pub only: Option<MemoryType>,
    /// The knowledge base is asked, and not what is remembered.
    pub knowledge: bool,
    /// Any of these tags, of the knowledge base.
    pub tags: Vec<String>,
}

/// Something that was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// What it is known by: `itm_…`, a note's path, an article's id.
    pub id: String,
    /// What it is, in a word: `preference`, `fact`, `note`, `article`.
    pub what: String,
    /// What it says.
    pub text: String,
    /// A note's path, an article's title; empty for what has none.
    pub path: String,
    /// The headings that it stands under, outermost first.
    pub headings: Vec<String>,
    /// Where in the note it stands, in bytes.
    pub at: Option<(usize, usize)>,
    /// When it was said or written, ready to be read; empty if nobody knows.
    pub when: String,
    /// Where it comes from, ready to be read.
    pub from: String,
    /// How well it fits, and what that is made of, ready to be read.
    pub why: String,
}

/// Something to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToKeep {
    /// What is to be kept.
    pub text: String,
    /// What it is.
    pub what: MemoryType,
    /// Whom or what it is about, and in which respect: a newer one of the same takes its place.
    pub about: Option<(String, String)>,
    /// The id of what it takes the place of.
    pub replaces: Option<String>,
}

/// Something that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is known by.
    pub id: String,
    /// The same was there already.
    pub was_there: bool,
}

/// An article of the knowledge base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Article {
    /// What it is known by.
    pub id: String,
    /// Which version this is.
    pub version: u32,
    /// What it is called.
    pub title: String,
    /// What it says; empty where only its id was wanted.
    pub text: String,
    /// What it is tagged with.
    pub tags: Vec<String>,
    /// Where it comes from, ready to be read.
    pub from: String,
    /// What was masked in it before it was kept, as `email: 2`.
    pub masked: Vec<String>,
}

/// An article to add.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewArticle {
    /// What it is called; empty takes its first heading.
    pub title: String,
    /// What it says: Markdown.
    pub text: String,
    /// What it is tagged with.
    pub tags: Vec<String>,
    /// For all agents of the tenant, and not for this one alone.
    pub for_all: bool,
    /// Where it is from: an address, a file, somebody's name.
    pub source: String,
}

/// A change of an article.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArticleChange {
    /// Which.
    pub id: String,
    /// The version that the change was made from; 0 is whichever is the newest.
    pub version: u32,
    /// What it is to say; empty keeps it.
    pub text: String,
    /// What it is to be called; empty keeps it.
    pub title: String,
    /// Where the change is from.
    pub source: String,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Updated {
    /// It was made.
    Done(Article),
    /// It waits for a maintainer, under this id.
    Proposed(String),
}

impl Registry {
    /// The same, with the tools for memory and knowledge.
    #[must_use]
    pub fn with_memory<M: Memories, F: Files>(self, memories: Arc<M>, files: Arc<F>) -> Self {
        self.with(MemorySearch(Arc::clone(&memories), Arc::clone(&files)))
            .with(MemoryGet(files))
            .with(MemorySave(Arc::clone(&memories)))
            .with(MemoryForget(Arc::clone(&memories)))
            .with(KbSearch(Arc::clone(&memories)))
            .with(KbGet(Arc::clone(&memories)))
            .with(KbIngest(Arc::clone(&memories)))
            .with(KbUpdate(memories))
    }
}

/// A text of the model's own that must say something, and not too much.
fn checked(field: &str, text: &str, most: usize) -> Result<String, ToolError> {
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

/// How many answers are looked for.
fn most(asked: Option<u32>, usual: u32) -> u32 {
    asked.unwrap_or(usual).clamp(1, MOST_FOUND)
}
