//! Memory tools of a turn: calls to the memory service.
//!
//! The subject follows from the conversation (`person.rs`). If the service is unavailable, the
//! model is told and the turn goes on. Writes use the call's key, so a repeated call stores once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_agent::ASSISTANT;
use holdfast_grpc::Refused as MemoryRefused;
use holdfast_proto::memory::v1 as pb;
use holdfast_tools::{
    Article, ArticleChange, Call, Found, KeptMemory, Memories, MemoryError, NewArticle, Sought,
    ToKeep, Updated,
};
use holdfast_types::{AgentId, Fault as _, Kind, TenantId};
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::{files::is_seen, held::Held, person::Person};

/// Time limits of reads and of writes.
const SEARCH: Duration = Duration::from_secs(5);
const KEEP: Duration = Duration::from_secs(20);

/// Similarity from which two memories are the same.
pub(crate) const ALIKE: f64 = 0.92;

/// Type of the event that holds a proposed change of the knowledge base.
pub(crate) const PROPOSAL: &str = "kb_proposal";

/// Kinds that are found for every person.
pub(crate) const FOUND: [pb::Kind; 3] = [pb::Kind::Memory, pb::Kind::Fact, pb::Kind::Turn];

/// Tenant, agent and user.
type Whose = (TenantId, AgentId, String);

/// Client of the memory service, with what is known about its availability.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) client: holdfast_grpc::Memory,
    held: Arc<Held>,
    /// Users without memories, and when that was found.
    pub(crate) nothing: Mutex<HashMap<Whose, Instant>>,
    /// Until this time the prefetch skips the service, which is unavailable.
    pub(crate) away_until: Mutex<Option<Instant>>,
    /// Until this time the prefetch skips the service for a tenant, for which it was slow or
    /// failed.
    pub(crate) slow_until: Mutex<HashMap<TenantId, Instant>>,
}

impl Memory {
    pub(crate) fn new(client: holdfast_grpc::Memory, held: Arc<Held>) -> Self {
        Self {
            client,
            held,
            nothing: Mutex::default(),
            away_until: Mutex::default(),
            slow_until: Mutex::default(),
        }
    }

    fn person(&self, call: &Call) -> Result<Person, MemoryError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        Ok(hold.desk().person.clone())
    }

    /// Whether the call's conversation may see notes made for the owner.
    fn sees_notes(&self, call: &Call) -> Result<bool, MemoryError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        let desk = hold.desk();
        Ok(desk.kind.is_some_and(|kind| is_seen(kind, desk.audience, "MEMORY.md")))
    }

    /// Records that a user has memories from now on.
    pub(crate) fn learnt(&self, tenant: TenantId, agent: AgentId, user: &str) {
        lock(&self.nothing).remove(&(tenant, agent, user.to_owned()));
    }
}

impl Memories for Memory {
    async fn search(&self, call: &Call, sought: Sought) -> Result<Vec<Found>, MemoryError> {
        let person = self.person(call)?;
        let Sought { query, most, only, knowledge, tags } = sought;
        let kinds = match (knowledge, only) {
            (true, _) => vec![pb::Kind::Knowledge],
            (false, Some(_)) => vec![pb::Kind::Memory],
            (false, None) if self.sees_notes(call)? => {
                [FOUND.as_slice(), &[pb::Kind::Value, pb::Kind::Document]].concat()
            }
            (false, None) => [FOUND.as_slice(), &[pb::Kind::Value]].concat(),
        };
        let filter = pb::Filter {
            kinds: kinds.into_iter().map(i32::from).collect(),
            types: only.map(|only| only.as_str().to_owned()).into_iter().collect(),
            tags,
            ..pb::Filter::default()
        };
        let request = pb::SearchRequest {
            who: Some(person.asking(call.agent)),
            query,
            k: most,
            filter: Some(filter),
            ..pb::SearchRequest::default()
        };
        let answer = within(SEARCH, self.client.search(call.tenant, request)).await?;
        Ok(answer.hits.into_iter().map(found).collect())
    }

    async fn save(&self, call: &Call, what: ToKeep) -> Result<KeptMemory, MemoryError> {
        let person = self.person(call)?;
        let Some(user) = &person.user else {
            return Err(MemoryError::Refused(
                "this conversation is nobody's own: there is no one to remember it for".to_owned(),
            ));
        };
        let ToKeep { text, what, about, replaces } = what;
        if let Some(id) = &replaces {
            self.check_own(call, &person, id).await?;
        }
        let kind = if about.is_some() { pb::Kind::Fact } else { pb::Kind::Memory };
        let (subject, predicate) = about.unwrap_or_default();
        let item = pb::NewItem {
            kind: kind.into(),
            r#type: what.as_str().to_owned(),
            content: text,
            subject,
            predicate,
            session: call.session.to_string(),
            // A group's memory is shown in the group only.
            group_safe: person.is_group,
            supersedes: replaces.unwrap_or_default(),
            provenance: Some(by_agent(call, &call.session.to_string())),
            ..pb::NewItem::default()
        };
        let request = pb::PutItemsRequest {
            who: Some(person.asking(call.agent)),
            items: vec![item],
            unless_like: ALIKE,
            request_id: call.key.clone(),
        };
        let answer = within(KEEP, self.client.put_items(call.tenant, request)).await?;
        self.learnt(call.tenant, call.agent, user);
        let put = answer.items.into_iter().next().unwrap_or_default();
        Ok(KeptMemory { id: put.id, was_there: put.duplicate })
    }

    async fn forget(&self, call: &Call, id: &str) -> Result<(), MemoryError> {
        let person = self.person(call)?;
        self.check_own(call, &person, id).await?;
        let who = Some(person.asking(call.agent));
        let set = pb::SetItemActiveRequest { who, id: id.to_owned(), active: false };
        within(KEEP, self.client.set_item_active(call.tenant, set)).await?;
        Ok(())
    }

    async fn article(&self, call: &Call, id: &str, version: u32) -> Result<Article, MemoryError> {
        let who = Some(self.person(call)?.asking(call.agent));
        let request = pb::GetRequest { who, id: id.to_owned(), version };
        Ok(article(within(SEARCH, self.client.kb_get(call.tenant, request)).await?))
    }

    async fn ingest(&self, call: &Call, new: NewArticle) -> Result<Article, MemoryError> {
        let person = self.person(call)?;
        if person.is_group || person.is_guest {
            return Err(MemoryError::Refused(
                "whoever speaks here adds nothing to the knowledge base: a member can, in a \
                 conversation of their own"
                    .to_owned(),
            ));
        }
        let scope = if new.for_all { pb::Scope::Tenant } else { pb::Scope::Workspace };
        let request = pb::IngestRequest {
            who: Some(person.asking(call.agent)),
            scope: scope.into(),
            title: new.title,
            content: new.text.into_bytes(),
            media_type: "text/markdown".to_owned(),
            tags: new.tags,
            provenance: Some(source(call, &new.source)),
            author: call.agent_name.to_string(),
            confidence: None,
            request_id: call.key.clone(),
            session: call.session.to_string(),
        };
        Ok(article(within(KEEP, self.client.kb_ingest(call.tenant, request)).await?))
    }

    async fn update(&self, call: &Call, change: ArticleChange) -> Result<Updated, MemoryError> {
        let person = self.person(call)?;
        if !person.is_maintainer {
            return self.propose(call, &person, change).await;
        }
        let request = pb::UpdateRequest {
            who: Some(person.asking(call.agent)),
            id: change.id,
            content: change.text.into_bytes(),
            media_type: "text/markdown".to_owned(),
            title: change.title,
            provenance: Some(source(call, &change.source)),
            author: call.agent_name.to_string(),
            version: change.version,
            session: call.session.to_string(),
            ..pb::UpdateRequest::default()
        };
        let updated = within(KEEP, self.client.kb_update(call.tenant, request)).await?;
        Ok(Updated::Done(article(updated)))
    }
}

impl Memory {
    /// Rejects items of other users, which affect other conversations.
    async fn check_own(&self, call: &Call, person: &Person, id: &str) -> Result<(), MemoryError> {
        let get = pb::GetItemRequest {
            who: Some(person.asking(call.agent)),
            id: id.to_owned(),
            ..pb::GetItemRequest::default()
        };
        let item = within(SEARCH, self.client.get_item(call.tenant, get)).await?;
        match &person.user {
            Some(user) if *user == item.user => Ok(()),
            Some(_) | None => Err(MemoryError::Refused(format!(
                "`{id}` is not of whoever you speak with: your owner can change it"
            ))),
        }
    }

    /// Stores a change as a proposal for a maintainer (C-49).
    async fn propose(
        &self,
        call: &Call,
        person: &Person,
        change: ArticleChange,
    ) -> Result<Updated, MemoryError> {
        let who = person.asking(call.agent);
        // Users cannot change what they cannot read.
        let read = pb::GetRequest {
            who: Some(who.clone()),
            id: change.id.clone(),
            version: change.version,
        };
        let there = within(SEARCH, self.client.kb_get(call.tenant, read)).await?;
        let payload = json!({
            "article": change.id,
            // The change applies to the version that was read.
            "version": there.version,
            "author": call.agent_name.to_string(),
            "title": change.title,
            "text": change.text,
            "source": change.source,
        });
        let item = pb::NewItem {
            kind: pb::Kind::Event.into(),
            r#type: PROPOSAL.to_owned(),
            content: payload.to_string(),
            session: call.session.to_string(),
            provenance: Some(source(call, &change.source)),
            ..pb::NewItem::default()
        };
        let request = pb::PutItemsRequest {
            who: Some(who),
            items: vec![item],
            unless_like: 0.0,
            request_id: call.key.clone(),
        };
        let answer = within(KEEP, self.client.put_items(call.tenant, request)).await?;
        let id = answer.items.into_iter().next().unwrap_or_default().id;
        info!(proposal = %id, "a change of the knowledge base was proposed");
        Ok(Updated::Proposed(id))
    }
}

/// Applies a time limit and converts the error.
async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, MemoryRefused>>,
) -> Result<T, MemoryError> {
    let refused = match timeout(limit, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(refused)) => refused,
        Err(_) => {
            warn!(limit_s = limit.as_secs(), "the memory service has not answered in time");
            return Err(MemoryError::Away);
        }
    };
    Err(match refused.kind() {
        Kind::Unavailable | Kind::Unauthenticated | Kind::Internal => {
            warn!(
                error = &refused as &dyn std::error::Error,
                "the memory service has not answered"
            );
            MemoryError::Away
        }
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict | Kind::Exhausted => {
            MemoryError::Refused(refused.message)
        }
    })
}

/// Provenance of a text that the agent wrote itself.
fn by_agent(call: &Call, locator: &str) -> pb::Provenance {
    pb::Provenance {
        kind: pb::SourceKind::Agent.into(),
        name: call.agent_name.to_string(),
        locator: locator.to_owned(),
        retrieved_at: None,
    }
}

/// Provenance of a text whose source the agent names.
fn source(call: &Call, source: &str) -> pb::Provenance {
    let site = source.strip_prefix("https://").or_else(|| source.strip_prefix("http://"));
    let host = site.and_then(|rest| rest.split(['/', '?', '#']).next());
    match host.filter(|host| !host.is_empty()) {
        Some(host) => pb::Provenance {
            kind: pb::SourceKind::Web.into(),
            name: host.chars().take(200).collect(),
            locator: source.to_owned(),
            retrieved_at: None,
        },
        None => by_agent(call, source),
    }
}

fn found(hit: pb::Hit) -> Found {
    let kind = hit.kind();
    let why = hit.why.unwrap_or_default();
    let at = (kind == pb::Kind::Document).then_some((hit.start, hit.end));
    let from = match kind {
        pb::Kind::Turn => place_of_turn(&hit),
        _ => hit.provenance.as_ref().map(from_of).unwrap_or_default(),
    };
    Found {
        what: word(kind, &hit.r#type),
        when: day(hit.at.as_ref()),
        from,
        why: format!(
            "score {:.2} (meaning {:.2}, words {:.2})",
            hit.score, why.cosine, why.words_raw
        ),
        at: at
            .and_then(|(from, to)| Some((usize::try_from(from).ok()?, usize::try_from(to).ok()?))),
        // A turn has no id that another tool takes.
        id: if kind == pb::Kind::Turn { String::new() } else { hit.id },
        text: hit.text,
        path: hit.path,
        headings: hit.headings,
    }
}

/// Describes where a turn is from, for the model: who said it, the session, the journal entry.
pub(crate) fn place_of_turn(hit: &pb::Hit) -> String {
    let author = match hit.author.as_str() {
        "" => "the user",
        ASSISTANT => "you",
        author => author,
    };
    format!("said by {author} in {}, entry {}", hit.session, hit.id)
}

/// Name of an item's kind, for the model.
pub(crate) fn word(kind: pb::Kind, of: &str) -> String {
    match kind {
        pb::Kind::Memory if !of.is_empty() => of,
        pb::Kind::Memory => "memory",
        pb::Kind::Fact => "fact",
        pb::Kind::Value => "value",
        pb::Kind::Event => "event",
        pb::Kind::Turn => "said",
        pb::Kind::Document => "note",
        pb::Kind::Knowledge => "article",
        pb::Kind::Unspecified => "memory",
    }
    .to_owned()
}

/// Formats a day; empty if there is none.
pub(crate) fn day(at: Option<&prost_types::Timestamp>) -> String {
    let at = at.and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok());
    at.map(|at| at.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
}

/// Formats a provenance.
fn from_of(provenance: &pb::Provenance) -> String {
    let kind = match provenance.kind() {
        pb::SourceKind::User => "user",
        pb::SourceKind::Tool => "tool",
        pb::SourceKind::Web => "web",
        pb::SourceKind::File => "file",
        pb::SourceKind::System => "system",
        pb::SourceKind::Agent => "agent",
        pb::SourceKind::Unspecified => "somebody",
    };
    let gap = if provenance.locator.is_empty() { "" } else { ", " };
    format!("from {kind} {}{gap}{}", provenance.name, provenance.locator)
}

fn article(article: pb::Article) -> Article {
    let masked = article.masked.iter().map(|count| format!("{}: {}", count.what, count.rows));
    Article {
        masked: masked.collect(),
        from: article.provenance.map(|from| from_of(&from)).unwrap_or_default(),
        id: article.id,
        version: article.version,
        title: article.title,
        text: article.text,
        tags: article.tags,
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
