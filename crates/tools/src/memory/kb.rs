//! The tools of the knowledge base: `kb_search`, `kb_get`, `kb_ingest`, `kb_update`.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    Article, ArticleChange, ArticleUpdate, Memories, MemoryQuery, NewArticle, checked_tags,
    checked_text, result_limit,
    search::{MAX_QUERY_LEN, format_results},
};
use crate::{Call, Output, Tool, ToolError, untrusted};

/// Maximum length of an article or of results that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 24_000;

/// Maximum length of an article that a call writes, in bytes.
const MAX_ARTICLE_BYTES: usize = 512 * 1024;

/// Maximum lengths of a title and of a source, in bytes.
const MAX_TITLE_LEN: usize = 200;
const MAX_SOURCE_LEN: usize = 2_000;

/// Search the knowledge base.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KbSearchInput {
    /// What to look for, in a few words or as a question.
    query: String,
    /// How many answers at most: 5 if absent, 20 at most.
    #[serde(default, alias = "limit", alias = "topk")]
    k: Option<u32>,
    /// Only articles with one of these tags.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Debug)]
pub struct KbSearch<M>(pub Arc<M>);

impl<M: Memories> Tool for KbSearch<M> {
    const NAME: &'static str = "kb_search";
    const EFFECT: Effect = Effect::Reads;
    type Input = KbSearchInput;

    async fn call(&self, call: Call, input: KbSearchInput) -> Result<String, ToolError> {
        let KbSearchInput { query, k, tags } = input;
        let query = checked_text("query", &query, MAX_QUERY_LEN)?;
        let tags = checked_tags(&tags)?;
        let sought = MemoryQuery {
            query,
            most: result_limit(k, 5),
            knowledge: true,
            tags,
            ..MemoryQuery::default()
        };
        let found = self.0.search(&call, sought).await?;
        if found.is_empty() {
            return Ok("The knowledge base has nothing on this.".to_owned());
        }
        Ok(untrusted(
            &call.key,
            "the knowledge base",
            &format_results(&found, &[]),
            MAX_SHOWN_CHARS,
        ))
    }
}

/// Read an article of the knowledge base.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KbGetInput {
    /// Its id, as `kb_search` shows it.
    id: String,
    /// An earlier version; the newest if absent.
    #[serde(default)]
    version: u32,
}

#[derive(Debug)]
pub struct KbGet<M>(pub Arc<M>);

impl<M: Memories> Tool for KbGet<M> {
    const NAME: &'static str = "kb_get";
    const EFFECT: Effect = Effect::Reads;
    type Input = KbGetInput;

    async fn call(&self, call: Call, input: KbGetInput) -> Result<String, ToolError> {
        let id = checked_text("id", &input.id, 128)?;
        let article = self.0.article(&call, &id, input.version).await?;
        let mut text = format!("{}\nversion {}", article.title, article.version);
        for part in [article.tags.join(", "), article.from.clone()] {
            if !part.is_empty() {
                let _ = write!(text, " · {part}");
            }
        }
        let _ = write!(text, "\n\n{}", article.text);
        Ok(untrusted(&call.key, "the knowledge base", &text, MAX_SHOWN_CHARS))
    }
}

/// Add an article to the knowledge base: what others should find later.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KbIngestInput {
    /// What it is called; its first heading if absent.
    #[serde(default)]
    title: String,
    /// What it says, in Markdown.
    text: String,
    /// Where it is from: an address, a file, or who said it.
    source: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
    /// For all agents of your owner; for you alone if absent.
    #[serde(default)]
    for_all: bool,
}

#[derive(Debug)]
pub struct KbIngest<M>(pub Arc<M>);

impl<M: Memories> Tool<Output> for KbIngest<M> {
    const NAME: &'static str = "kb_ingest";
    const EFFECT: Effect = Effect::Writes;
    type Input = KbIngestInput;

    async fn call(&self, call: Call, input: KbIngestInput) -> Result<Output, ToolError> {
        let KbIngestInput { title, text, source, tags, for_all } = input;
        let article = NewArticle {
            title: optional("title", &title, MAX_TITLE_LEN)?,
            text: checked_text("text", &text, MAX_ARTICLE_BYTES)?,
            tags: checked_tags(&tags)?,
            for_all,
            source: checked_text("source", &source, MAX_SOURCE_LEN)?,
        };
        let article = self.0.ingest(&call, article).await?;
        Ok(article_output("Added", &article))
    }
}

/// Change an article of the knowledge base.
///
/// Where you may not, your change is proposed to those who may.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KbUpdateInput {
    /// Its id.
    id: String,
    /// The version that you read: if it is not the newest any more, nothing is changed.
    version: u32,
    /// All that it is to say; it stays as it is if absent.
    #[serde(default)]
    text: String,
    /// What it is to be called.
    #[serde(default)]
    title: String,
    /// Where the change is from: an address, a file, or who said it.
    source: String,
}

#[derive(Debug)]
pub struct KbUpdate<M>(pub Arc<M>);

impl<M: Memories> Tool<Output> for KbUpdate<M> {
    const NAME: &'static str = "kb_update";
    const EFFECT: Effect = Effect::Writes;
    type Input = KbUpdateInput;

    async fn call(&self, call: Call, input: KbUpdateInput) -> Result<Output, ToolError> {
        let KbUpdateInput { id, version, text, title, source } = input;
        let change = ArticleChange {
            id: checked_text("id", &id, 128)?,
            version,
            text: optional("text", &text, MAX_ARTICLE_BYTES)?,
            title: optional("title", &title, MAX_TITLE_LEN)?,
            source: checked_text("source", &source, MAX_SOURCE_LEN)?,
        };
        if change.text.is_empty() && change.title.is_empty() {
            return Err(ToolError::Tell("nothing is to change: give `text` or `title`".to_owned()));
        }
        Ok(match self.0.update(&call, change).await? {
            ArticleUpdate::Done(article) => article_output("Changed", &article),
            ArticleUpdate::Proposed(id) => Output::from(format!(
                "You may not change it yourself. The change is proposed as {id}, and a maintainer \
                 decides."
            ))
            .record(json!({ "proposal": id })),
        })
    }
}

fn article_output(what: &str, article: &Article) -> Output {
    let mut text = format!("{what}: {}, version {}.", article.id, article.version);
    if !article.masked.is_empty() {
        let _ = write!(text, " Masked before it was kept: {}.", article.masked.join(", "));
    }
    Output::from(text).record(json!({ "article": article.id, "version": article.version }))
}

fn optional(field: &str, text: &str, most: usize) -> Result<String, ToolError> {
    if text.trim().is_empty() { Ok(String::new()) } else { checked_text(field, text, most) }
}
