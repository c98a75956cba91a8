//! The `notion` tool: finds, reads and writes pages.
//!
//! Uses Notion's public API, version 2022-06-28: `POST /v1/search`, `GET /v1/pages/{id}`, `GET
//! /v1/blocks/{id}/children`, `POST /v1/pages`, `PATCH /v1/blocks/{id}/children`.

mod blocks;

use std::fmt::Write as _;

use holdfast_types::{ConnectionKind, ConnectionSettings, Effect};
use reqwest::{Method, StatusCode, Url};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use self::blocks::{block_text, blocks, rich_text};
use super::{
    ConnectionContext, Connections,
    http::{RequestFailure, request, send, status_message},
    open_connection,
};
use holdfast_egress::Guard;

use crate::{Call, Output, Tool, ToolError, untrusted};

/// Maximum length of a page that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 40_000;

/// Maximum number of requests for one page; each returns a hundred blocks.
const MAX_BLOCK_REQUESTS: usize = 5;

/// Maximum length of a written text, in bytes.
const MAX_TEXT_LEN: usize = 50_000;

/// Number of pages that a search returns.
const SEARCH_PAGE_SIZE: u32 = 20;

/// Search, read, create and append to pages in Notion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotionInput {
    /// `search` takes a `query`; `read` an `id`; `create` a `parent` and a `title`; `append` an
    /// `id` and a `text`.
    action: Action,
    /// Which connection, if there are several.
    #[serde(default)]
    connection: Option<String>,
    #[serde(default)]
    query: Option<String>,
    /// A page's id, as `search` shows it.
    #[serde(default)]
    id: Option<String>,
    /// The id of the page that the new one is to be in.
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    title: Option<String>,
    /// Paragraphs; `# ` begins a heading, `- ` an item, `[ ] ` a task.
    #[serde(default)]
    text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Search,
    Read,
    Create,
    Append,
}

#[derive(Debug)]
pub struct Notion<C>(ConnectionContext<C>);

impl<C> Notion<C> {
    pub(super) const fn new(context: ConnectionContext<C>) -> Self {
        Self(context)
    }
}

impl<C: Connections> Tool<Output> for Notion<C> {
    const NAME: &'static str = "notion";
    const EFFECT: Effect = Effect::Acts;
    type Input = NotionInput;

    async fn call(&self, call: Call, input: NotionInput) -> Result<Output, ToolError> {
        let (connections, kind) = (&*self.0.connections, ConnectionKind::Notion);
        let opened = open_connection(connections, &call, kind, input.connection.as_deref()).await?;
        let ConnectionSettings::Notion(to) = &opened.to else {
            return Err(ToolError::Tell("that connection is not of Notion any more".to_owned()));
        };
        let client = Client {
            guard: &self.0.guard,
            url: &to.url,
            version: &to.version,
            secret: opened.secret.as_ref(),
        };
        let from = format!("Notion (`{}`)", opened.name);
        let outside = |text: &str| Output::from(untrusted(&call.key, &from, text, MAX_SHOWN_CHARS));
        let done = match input.action {
            Action::Search => client.search(&input).await.map(|text| outside(&text)),
            Action::Read => client.read(&input).await.map(|text| outside(&text)),
            Action::Create => client.create(&input).await.map(Output::from),
            Action::Append => client.append(&input).await.map(Output::from),
        };
        let output = done.map_err(ToolError::Tell)?;
        Ok(output.record(json!({ "connection": opened.name })))
    }
}

struct Client<'a> {
    guard: &'a Guard,
    url: &'a str,
    version: &'a str,
    secret: Option<&'a SecretString>,
}

impl Client<'_> {
    /// Sends a request. A response without success becomes an error.
    async fn request_json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, RequestFailure> {
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let url =
            Url::parse(&url).map_err(|_| RequestFailure::NotSent("`url` is none".to_owned()))?;
        let secret = self.secret.map(|secret| secret.expose_secret()).unwrap_or_default();
        let mut asked = request(self.guard, method, &url)?
            .bearer_auth(secret)
            .header("Notion-Version", self.version);
        if let Some(body) = body {
            asked = asked.json(body);
        }
        let answer = send(asked).await?;
        let said: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        match answer.status {
            status if status.is_success() => Ok(said),
            StatusCode::NOT_FOUND => Err(RequestFailure::NotSent(
                "there is no such page, or it is not shared with this connection".to_owned(),
            )),
            StatusCode::BAD_REQUEST => Err(RequestFailure::NotSent(format!(
                "Notion refused it: {}",
                crate::untrusted::one_line(said["message"].as_str().unwrap_or("without a reason"))
                    .chars()
                    .take(300)
                    .collect::<String>()
            ))),
            status if status.is_server_error() => {
                Err(RequestFailure::UnknownOutcome(status_message(status, &answer.headers)))
            }
            status => Err(RequestFailure::NotSent(status_message(status, &answer.headers))),
        }
    }

    async fn search(&self, input: &NotionInput) -> Result<String, String> {
        let query = input.query.as_deref().unwrap_or_default();
        let body = json!({ "query": query, "page_size": SEARCH_PAGE_SIZE });
        let found = self.request_json(Method::POST, "/v1/search", Some(&body)).await;
        let found = found.map_err(RequestFailure::read_message)?;
        let mut text = String::new();
        for page in found["results"].as_array().into_iter().flatten() {
            let (kind, id) = (&page["object"], &page["id"]);
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "- {} ({}, id {}, changed {})",
                title_of(page),
                kind.as_str().unwrap_or("page"),
                id.as_str().unwrap_or_default(),
                page["last_edited_time"].as_str().unwrap_or_default(),
            );
        }
        if text.is_empty() {
            text.push_str("(nothing was found; only what is shared with this connection is)");
        } else if found["has_more"] == true {
            text.push_str("(there are more: search with other words)");
        }
        Ok(text)
    }

    async fn read(&self, input: &NotionInput) -> Result<String, String> {
        let id = checked_id("id", input.id.as_deref())?;
        let page = self.request_json(Method::GET, &format!("/v1/pages/{id}"), None).await;
        let page = page.map_err(RequestFailure::read_message)?;
        let mut text = format!("Title: {}\n\n", title_of(&page));
        let mut cursor = String::new();
        for _ in 0..MAX_BLOCK_REQUESTS {
            let after = match cursor.as_str() {
                "" => String::new(),
                cursor => format!("&start_cursor={cursor}"),
            };
            let path = format!("/v1/blocks/{id}/children?page_size=100{after}");
            let part = self
                .request_json(Method::GET, &path, None)
                .await
                .map_err(RequestFailure::read_message)?;
            for block in part["results"].as_array().into_iter().flatten() {
                text.push_str(&block_text(block));
            }
            let next = part["next_cursor"].as_str().filter(|_| part["has_more"] == true);
            match next.map(|next| self::checked_id("next_cursor", Some(next))) {
                Some(Ok(next)) => cursor = next,
                Some(Err(_)) | None => return Ok(text),
            }
        }
        text.push_str("[the page goes on]\n");
        Ok(text)
    }

    async fn create(&self, input: &NotionInput) -> Result<String, String> {
        let parent = checked_id("parent", input.parent.as_deref())?;
        let title = input.title.as_deref().map(str::trim).unwrap_or_default();
        if title.is_empty() || title.len() > 1_000 {
            return Err("`title` has 1 to 1000 bytes".to_owned());
        }
        let mut parts = blocks(check_len(input.text.as_deref())?).into_iter();
        let body = json!({
            "parent": { "page_id": parent },
            "properties": { "title": { "title": rich_text(title) } },
            "children": parts.next().unwrap_or_default(),
        });
        let made = self.request_json(Method::POST, "/v1/pages", Some(&body)).await;
        let made = made.map_err(RequestFailure::change_message)?;
        let made = checked_id("id", made["id"].as_str())
            .map_err(|_| "the page was made, and Notion did not say its id".to_owned())?;
        for children in parts {
            self.add(&made, children).await.map_err(|failed| {
                format!(
                    "the page {made} was made, but not all of its text: {}",
                    failed.read_message()
                )
            })?;
        }
        Ok(format!("The page was made; its id is {made}."))
    }

    async fn append(&self, input: &NotionInput) -> Result<String, String> {
        let id = checked_id("id", input.id.as_deref())?;
        let text = check_len(input.text.as_deref())?;
        if text.trim().is_empty() {
            return Err("`text` is empty: there is nothing to append".to_owned());
        }
        for (part, children) in blocks(text).into_iter().enumerate() {
            self.add(&id, children).await.map_err(|failed| match part {
                0 => failed.change_message(),
                part => format!(
                    "only the first {part} hundred lines were appended: {}",
                    failed.read_message()
                ),
            })?;
        }
        Ok("The text was appended.".to_owned())
    }

    async fn add(&self, id: &str, children: Vec<Value>) -> Result<(), RequestFailure> {
        let body = json!({ "children": children });
        let path = format!("/v1/blocks/{id}/children");
        self.request_json(Method::PATCH, &path, Some(&body)).await.map(drop)
    }
}

fn check_len(text: Option<&str>) -> Result<&str, String> {
    let text = text.unwrap_or_default();
    match text.len() {
        got if got > MAX_TEXT_LEN => Err(format!(
            "`text` is {got} bytes, and {MAX_TEXT_LEN} are the most: write it in parts"
        )),
        _ => Ok(text),
    }
}

/// Checks an id. It becomes part of a URL, so it must not contain other characters.
fn checked_id(field: &str, given: Option<&str>) -> Result<String, String> {
    let given = given.map(str::trim).unwrap_or_default();
    let is_id =
        (8..=64).contains(&given.len()) && given.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if is_id {
        Ok(given.to_owned())
    } else {
        Err(format!("`{field}` is no id as `search` shows it"))
    }
}

/// Title of a page or database. The name of the title property is chosen by its author.
fn title_of(page: &Value) -> String {
    let properties = page["properties"].as_object();
    let own = properties.into_iter().flatten().map(|(_, property)| &property["title"]);
    let title = std::iter::once(&page["title"]).chain(own).find(|title| title.is_array());
    match title.map(blocks::plain_text).unwrap_or_default() {
        title if title.trim().is_empty() => "(without a title)".to_owned(),
        title => crate::untrusted::one_line(&title),
    }
}

#[cfg(test)]
mod tests;
