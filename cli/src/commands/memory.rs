//! `holdfast memory`.

use clap::{Args, Subcommand};
use holdfast_proto::gateway::v1::{
    EraseMemoriesRequest, ForgetMemoryRequest, FoundMemory, GetMemoryStatusRequest,
    ListErasuresRequest, ListMemoriesRequest, Memory as Kept, MemoryCount, MemorySource,
    SaveMemoryRequest, SearchMemoriesRequest,
};
use serde_json::{Map, Value, json};

use super::{given, view::time};
use crate::{client::Client, error::Error, screen::Screen};

const TYPES: [&str; 4] = ["preference", "fact", "event", "commitment"];
const KINDS: [&str; 4] = ["memory", "fact", "value", "event"];

const COLUMNS: [&str; 6] = ["id", "type", "user", "agent", "text", "created_at"];
const FOUND: [&str; 7] = ["score", "meaning", "words", "type", "user", "text", "id"];

#[derive(Debug, Subcommand)]
pub enum Memory {
    /// Show what an agent would remember for a person, and how well it fits
    ///
    /// holdfast memory search "where does she live" --user telegram:42
    Search {
        #[command(flatten)]
        of: Of,
        /// What to look for
        query: String,
        /// At most so many
        #[arg(long, default_value_t = 10)]
        limit: u32,
        /// Only memories of this type; may be repeated
        #[arg(long = "type", value_parser = TYPES)]
        types: Vec<String>,
    },
    /// List what is remembered, newest first
    List {
        #[command(flatten)]
        of: Of,
        /// Only of this kind; may be repeated
        #[arg(long = "kind", value_parser = KINDS)]
        kinds: Vec<String>,
        /// Only what came from this session, as `ses_…`
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// What was forgotten or replaced, too
        #[arg(long)]
        history: bool,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
        /// Go on after this, the last id of a list that is full
        #[arg(long, default_value = "", hide_default_value = true)]
        after: String,
    },
    /// Have an agent remember something
    ///
    /// holdfast memory save "likes tea" --user telegram:42 --type preference
    Save {
        #[command(flatten)]
        of: Of,
        /// What: the text, `@file`, or `-` for stdin
        text: String,
        /// What it is
        #[arg(long = "type", default_value = "fact", value_parser = TYPES)]
        kind: String,
        /// Whom or what it is about, as `Anna`; a later one of the same takes its place
        #[arg(long, default_value = "", hide_default_value = true, requires = "predicate")]
        subject: String,
        /// In which respect, as `lives in`
        #[arg(long, default_value = "", hide_default_value = true, requires = "subject")]
        predicate: String,
        /// The memory whose place it takes, as `itm_…`
        #[arg(long, default_value = "", hide_default_value = true)]
        replaces: String,
        /// Where it is from: an address, a system, a person [default: your key]
        #[arg(long, default_value = "", hide_default_value = true)]
        source: String,
    },
    /// Erase one memory
    Forget {
        /// Its id, as `itm_…`
        id: String,
    },
    /// Erase everything of a person, or all that came from a session
    ///
    /// What was erased is counted by table, and what is left: nothing.
    Erase(Erase),
    /// Show what was erased of sessions and agents that were deleted, newest first
    Erasures {
        /// Of this one alone, as `ses_…` or `agt_…`
        #[arg(default_value = "", hide_default_value = true)]
        id: String,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show how much is kept, and how it is found
    Status,
}

/// Whose memory.
#[derive(Debug, Args)]
pub struct Of {
    /// The agent [default: the tenant's default one; of a list, every agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,
    /// The person: `owner`, `telegram:42`, `api:anna` [default: nobody in particular; of a list,
    /// everybody]
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
}

/// What is erased.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Erase {
    /// Everything of this person: `owner`, `telegram:42`, `api:anna`
    #[arg(long)]
    user: Option<String>,
    /// All that came from this session, as `ses_…`
    #[arg(long)]
    session: Option<String>,
}

impl Memory {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Search { of: Of { agent, user }, query, limit, types } => {
                let request = SearchMemoriesRequest { agent, user, query, limit, types };
                let answer = client.memories().search_memories(client.request(request)).await;
                let found = client.answer(answer)?.found;
                screen.list(&FOUND, found.into_iter().map(found_view).collect())
            }
            Self::List { of: Of { agent, user }, kinds, session, history, limit, after } => {
                let r#type = String::new();
                let request = ListMemoriesRequest {
                    agent,
                    user,
                    kinds,
                    r#type,
                    session,
                    history,
                    limit,
                    after,
                };
                let listed = client.memories().list_memories(client.request(request)).await;
                let listed = client.answer(listed)?;
                screen.list(&COLUMNS, listed.memories.into_iter().map(view).collect())?;
                // As JSON the last id says the same.
                match listed.next.is_empty() || screen.is_json() {
                    true => Ok(()),
                    false => screen.note(&format!("more: --after {}", listed.next)),
                }
            }
            Self::Save {
                of: Of { agent, user },
                text,
                kind,
                subject,
                predicate,
                replaces,
                source,
            } => {
                let request = SaveMemoryRequest {
                    agent,
                    user,
                    text: given::text(&text)?,
                    r#type: kind,
                    subject,
                    predicate,
                    replaces,
                    source,
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
            Self::Forget { id } => {
                let request = client.request(ForgetMemoryRequest { id: id.clone() });
                client.answer(client.memories().forget_memory(request).await)?;
                screen.done("erased", &json!({"erased": id}))
            }
            Self::Erase(Erase { user, session }) => {
                let (user, session) = (user.unwrap_or_default(), session.unwrap_or_default());
                let request = client.request(EraseMemoriesRequest { user, session });
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

fn view(memory: Kept) -> Value {
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
    })
}

fn found_view(found: FoundMemory) -> Value {
    let mut view = view(found.memory.unwrap_or_default());
    view["score"] = rounded(found.score);
    view["meaning"] = rounded(found.meaning);
    view["words"] = rounded(found.words);
    view
}

/// A score, as far as anybody reads it.
pub fn rounded(score: f64) -> Value {
    json!((score * 1_000.0).round() / 1_000.0)
}

/// Where something is from, on a line.
pub fn source(source: Option<&MemorySource>) -> Value {
    let Some(source) = source else { return Value::Null };
    let gap = if source.locator.is_empty() { "" } else { " " };
    json!(format!("{} {}{gap}{}", source.kind, source.name, source.locator))
}

/// Numbers of rows, by table.
pub fn counts(counts: &[MemoryCount]) -> Value {
    let pairs = counts.iter().map(|count| (count.what.clone(), json!(count.rows)));
    Value::Object(pairs.collect::<Map<String, Value>>())
}
