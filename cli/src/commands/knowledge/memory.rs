//! `holdfast memory`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    EraseMemoriesRequest, ForgetMemoryRequest, FoundMemory, GetMemoryStatusRequest,
    GetMemoryValueRequest, ListErasuresRequest, ListMemoriesRequest, Memory as Kept, MemoryCount,
    MemorySource, SaveMemoryRequest, SearchMemoriesRequest, SetMemoryValueRequest,
};
use serde_json::{Map, Value, json};

use super::super::option_values;
use crate::{
    client::Client,
    error::Error,
    screen::Screen,
    view::{time, timestamp},
};

const TYPES: [&str; 4] = ["preference", "fact", "event", "commitment"];
const KINDS: [&str; 4] = ["memory", "fact", "value", "event"];

const COLUMNS: [&str; 6] = ["id", "type", "user", "agent", "text", "created_at"];
const SEARCH_COLUMNS: [&str; 7] = ["score", "meaning", "words", "type", "user", "text", "id"];

#[derive(Debug, Subcommand)]
pub enum Memory {
    /// Search the memories that an agent would find for a user, with scores
    ///
    /// holdfast memory search "where does she live" --user telegram:42
    Search {
        #[command(flatten)]
        of: MemoryOwner,
        /// Words or a question to search for
        query: String,
        /// Maximum number of memories to find
        #[arg(long, default_value_t = 10)]
        limit: u32,
        /// Show only memories of this type; may be repeated
        #[arg(long = "type", value_parser = TYPES)]
        types: Vec<String>,
    },
    /// List the stored memories, newest first
    List {
        #[command(flatten)]
        of: MemoryOwner,
        /// Show only memories of this kind; may be repeated
        #[arg(long = "kind", value_parser = KINDS)]
        kinds: Vec<String>,
        /// Show only memories from this session, `ses_…`
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Show only values whose key begins with this
        #[arg(long, default_value = "", hide_default_value = true)]
        key_prefix: String,
        /// Include memories that were forgotten or replaced
        #[arg(long)]
        history: bool,
        /// Maximum number of memories to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Continue after this, the last id of the previous list
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
    },
    /// Save a memory for an agent
    ///
    /// holdfast memory save "likes tea" --user telegram:42 --type preference
    Save {
        #[command(flatten)]
        of: MemoryOwner,
        /// Text of the memory; `@file`, or `-` for stdin
        text: String,
        /// Type of the memory to save
        #[arg(long = "type", default_value = "fact", value_parser = TYPES)]
        kind: String,
        /// Subject of the memory, for example `Anna`; a later memory with the same subject and
        /// predicate replaces it
        #[arg(long, default_value = "", hide_default_value = true, requires = "predicate")]
        subject: String,
        /// Predicate of the memory, for example `lives in`
        #[arg(long, default_value = "", hide_default_value = true, requires = "subject")]
        predicate: String,
        /// Id of the memory that this one replaces, `itm_…`
        #[arg(long, default_value = "", hide_default_value = true)]
        replaces: String,
        #[command(flatten)]
        details: MemoryDetails,
    },
    /// Set the value of a key; the last value counts, and `null` ends the key
    ///
    /// holdfast memory set home/city '"Oslo"' --user telegram:42
    Set {
        #[command(flatten)]
        of: MemoryOwner,
        // Not `key`: that is the id of the global option for the API key.
        /// Key of the value
        #[arg(value_name = "KEY")]
        name: String,
        /// The value as JSON; `@file`, or `-` for stdin
        value: String,
        #[command(flatten)]
        details: MemoryDetails,
    },
    /// Show the current value of a key
    Get {
        #[command(flatten)]
        of: MemoryOwner,
        // Not `key`: that is the id of the global option for the API key.
        /// Key of the value
        #[arg(value_name = "KEY")]
        name: String,
    },
    /// Erase one memory by its id
    Forget {
        /// Id of the memory, `itm_…`
        id: String,
    },
    /// Erase everything about a user, or everything from a session
    ///
    /// Prints the number of erased rows by table, and of the rows that are left, which is zero.
    Erase(Erase),
    /// List the erasures of deleted sessions and agents, newest first
    Erasures {
        /// Show only this one, `ses_…` or `agt_…`
        #[arg(default_value = "", hide_default_value = true)]
        id: String,
        /// Maximum number of erasures to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show the number of stored memories and the state of the index
    Status,
}

/// The agent and user whose memories are meant
#[derive(Debug, Args)]
pub struct MemoryOwner {
    /// Name or id of the agent [default: the tenant's default agent; in lists, every agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// The user: `owner`, `telegram:42`, `api:anna` [default: no particular user; in lists, every
    /// user]
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
}

/// Source, expiry, importance and tags of a memory or a value
#[derive(Debug, Args)]
pub struct MemoryDetails {
    /// Source of it: an address, a system, a person [default: your key]
    #[arg(long, default_value = "", hide_default_value = true)]
    source: String,
    /// Time from which it is not used any more, for example `2026-12-31T18:00:00Z`
    #[arg(long)]
    expires_at: Option<jiff::Timestamp>,
    /// Importance, from 0 to 1
    #[arg(long)]
    importance: Option<f64>,
    /// Tag to find it by; may be repeated
    #[arg(long = "tag")]
    tags: Vec<String>,
}

/// The user or session to erase
#[derive(Debug, Args)]
#[group(id = "whose", required = true, args = ["user", "session"])]
pub struct Erase {
    /// Erase everything about this user: `owner`, `telegram:42`, `api:anna`
    #[arg(long)]
    user: Option<String>,
    /// Erase everything from this session, `ses_…`
    #[arg(long)]
    session: Option<String>,
    /// Erase the user's conversations, reminders and messages too, not their memories alone
    #[arg(long, requires = "user", conflicts_with = "session")]
    everywhere: bool,
}

impl Memory {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Search { of: MemoryOwner { agent, user }, query, limit, types } => {
                let request = SearchMemoriesRequest { agent, user, query, limit, types };
                let answer = client.memories().search_memories(client.request(request)).await;
                let found = client.answer(answer)?.found;
                screen.list(&SEARCH_COLUMNS, found.into_iter().map(found_view).collect())
            }
            Self::List {
                of: MemoryOwner { agent, user },
                kinds,
                session,
                key_prefix,
                history,
                limit,
                after,
            } => {
                let request = ListMemoriesRequest {
                    agent,
                    user,
                    kinds,
                    session,
                    key_prefix,
                    history,
                    limit,
                    after,
                    ..ListMemoriesRequest::default()
                };
                let listed = client.memories().list_memories(client.request(request)).await;
                let listed = client.answer(listed)?;
                screen.list(&COLUMNS, listed.memories.into_iter().map(view).collect())?;
                // In JSON, the last id is visible in the list itself.
                match listed.next.is_empty() || screen.is_json() {
                    true => Ok(()),
                    false => screen.note(&format!("more: --after {}", listed.next)),
                }
            }
            Self::Save {
                of: MemoryOwner { agent, user },
                text,
                kind,
                subject,
                predicate,
                replaces,
                details,
            } => {
                let request = SaveMemoryRequest {
                    agent,
                    user,
                    text: option_values::text(&text)?,
                    r#type: kind,
                    subject,
                    predicate,
                    replaces,
                    source: details.source,
                    expires_at: details.expires_at.map(timestamp),
                    importance: details.importance,
                    tags: details.tags,
                    ..SaveMemoryRequest::default()
                };
                let saved = client.memories().save_memory(client.request(request)).await;
                let saved = client.answer(saved)?;
                let sentence = match saved.duplicate {
                    false => format!("saved as {}", saved.id),
                    true => format!("it was known already, as {}", saved.id),
                };
                screen.done(&sentence, &json!({"id": saved.id, "duplicate": saved.duplicate}))
            }
            Self::Set { of: MemoryOwner { agent, user }, name: key, value, details } => {
                let request = SetMemoryValueRequest {
                    agent,
                    user,
                    value: option_values::json(&value)?.to_string(),
                    source: details.source,
                    expires_at: details.expires_at.map(timestamp),
                    importance: details.importance,
                    tags: details.tags,
                    key: key.clone(),
                    ..SetMemoryValueRequest::default()
                };
                let set = client.memories().set_memory_value(client.request(request)).await;
                let id = client.answer(set)?.id;
                screen.done(&format!("set as {id}"), &json!({"id": id, "key": key}))
            }
            Self::Get { of: MemoryOwner { agent, user }, name: key } => {
                let request = client.request(GetMemoryValueRequest { agent, user, key });
                let found = client.answer(client.memories().get_memory_value(request).await)?;
                let value = found.value.unwrap_or_default();
                let mut shown = json!({
                    "key": value.subject,
                    "value": serde_json::from_str(&value.text).unwrap_or(Value::Null),
                });
                if let (Value::Object(shown), Value::Object(rest)) = (&mut shown, view(value)) {
                    shown.extend(rest.into_iter().filter(|(name, _)| name != "text"));
                }
                screen.one(
                    &[
                        "key",
                        "value",
                        "user",
                        "agent",
                        "importance",
                        "tags",
                        "expires_at",
                        "source",
                    ],
                    &shown,
                )
            }
            Self::Forget { id } => {
                let request = client.request(ForgetMemoryRequest { id: id.clone() });
                client.answer(client.memories().forget_memory(request).await)?;
                screen.done("erased", &json!({"erased": id}))
            }
            Self::Erase(Erase { user, session, everywhere }) => {
                let (user, session) = (user.unwrap_or_default(), session.unwrap_or_default());
                let request = client.request(EraseMemoriesRequest { user, session, everywhere });
                let erased = client.answer(client.memories().erase_memories(request).await)?;
                screen.one(
                    &["erased", "left"],
                    &json!({"erased": counts(&erased.erased), "left": counts(&erased.left)}),
                )
            }
            Self::Erasures { id, limit } => {
                let request = client.request(ListErasuresRequest { subject: id, limit });
                let listed = client.answer(client.memories().list_erasures(request).await)?;
                let columns = ["what", "id", "deleted_at", "erased_at", "done", "erased", "left"];
                let erasures = listed.erasures.iter().map(|erasure| {
                    json!({
                        "what": erasure.what,
                        "id": erasure.subject,
                        "deleted_at": time(erasure.asked_at.as_ref()),
                        "erased_at": time(erasure.erased_at.as_ref()),
                        "done": erasure.done,
                        "erased": counts(&erasure.erased),
                        "left": counts(&erasure.left),
                    })
                });
                screen.list(&columns, erasures.collect())
            }
            Self::Status => {
                let request = client.request(GetMemoryStatusRequest {});
                let status = client.answer(client.memories().get_memory_status(request).await)?;
                screen.one(
                    &["kept", "model", "dimension", "next_model", "pending", "failed", "search"],
                    &json!({
                        "kept": counts(&status.kept),
                        "model": status.model,
                        "dimension": status.dimension,
                        "next_model": status.next_model,
                        "pending": status.pending,
                        "failed": status.failed,
                        "search": status.search,
                    }),
                )
            }
        }
    }
}

pub fn view(memory: Kept) -> Value {
    let kind = if memory.r#type.is_empty() { &memory.kind } else { &memory.r#type };
    let text = match memory.subject.as_str() {
        "" => memory.text.clone(),
        subject => format!("{subject} {} {}", memory.predicate, memory.text),
    };
    json!({
        "id": memory.id,
        "type": kind,
        "user": memory.user,
        "agent": memory.agent,
        "text": text,
        "created_at": time(memory.created_at.as_ref()),
        "at": time(memory.at.as_ref()),
        "session": memory.session,
        "source": source(memory.source.as_ref()),
        "active": memory.active,
        "superseded_by": memory.superseded_by,
        "expires_at": time(memory.expires_at.as_ref()),
        "importance": memory.importance,
        "tags": memory.tags,
    })
}

fn found_view(found: FoundMemory) -> Value {
    let mut view = view(found.memory.unwrap_or_default());
    view["score"] = rounded(found.score);
    view["meaning"] = rounded(found.meaning);
    view["words"] = rounded(found.words);
    view
}

/// Rounds a score to three decimals.
pub fn rounded(score: f64) -> Value {
    json!((score * 1_000.0).round() / 1_000.0)
}

/// Formats the source of a memory in one line.
pub fn source(source: Option<&MemorySource>) -> Value {
    let Some(source) = source else { return Value::Null };
    let gap = if source.locator.is_empty() { "" } else { " " };
    json!(format!("{} {}{gap}{}", source.kind, source.name, source.locator))
}

/// Returns the numbers of rows as an object, by table.
pub fn counts(counts: &[MemoryCount]) -> Value {
    let pairs = counts.iter().map(|count| (count.what.clone(), json!(count.rows)));
    Value::Object(pairs.collect::<Map<String, Value>>())
}
