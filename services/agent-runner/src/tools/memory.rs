//! Memory tools of a turn: calls to the memory service.
//!
//! The subject follows from the conversation (`memory_subject.rs`). If the service is unavailable, the
//! model is told and the turn goes on. Writes use the call's key, so a repeated call stores once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_agent::{
    ASSISTANT,
    bootstrap::{BootstrapName, may_load},
};
use holdfast_grpc::MemoryCallError as MemoryRefused;
use holdfast_proto::memory::v1 as pb;
use holdfast_tools::{
    Article, ArticleChange, ArticleUpdate, Call, KeptMemory, Memories, MemoryDetails, MemoryError,
    MemoryHit, MemoryQuery, NewArticle, NewMemory, NewValue, StoredValue,
};
use holdfast_types::{AgentId, Fault as _, Kind, TenantId};
use serde_json::json;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::tools::{memory_subject::MemorySubject, tool_context::ToolContext};

/// Time limits of reads and of writes.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Similarity from which two memories are the same.
pub(crate) const MIN_DUPLICATE_SIMILARITY: f64 = 0.92;

/// Type of the event that holds a proposed change of the knowledge base.
pub(crate) const PROPOSAL_EVENT: &str = "kb_proposal";

/// Kinds that are found for every person.
pub(crate) const INDEXED_KINDS: [pb::Kind; 3] = [pb::Kind::Memory, pb::Kind::Fact, pb::Kind::Turn];

/// Tenant, agent and user.
type UserKey = (TenantId, AgentId, String);

/// Client of the memory service, with what is known about its availability.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) client: holdfast_grpc::MemoryClient,
    /// Users without memories, and when that was found.
    pub(crate) users_without_memories: Mutex<HashMap<UserKey, Instant>>,
    /// Until this time the prefetch skips the service, which is unavailable.
    pub(crate) unavailable_until: Mutex<Option<Instant>>,
    /// Until this time the prefetch skips the service for a tenant, for which it was slow or
    /// failed.
    pub(crate) slow_until: Mutex<HashMap<TenantId, Instant>>,
}

impl Memory {
    pub(crate) fn new(client: holdfast_grpc::MemoryClient) -> Self {
        Self {
            client,
            users_without_memories: Mutex::default(),
            unavailable_until: Mutex::default(),
            slow_until: Mutex::default(),
        }
    }

    fn subject_of(&self, call: &Call) -> Result<MemorySubject, MemoryError> {
        Ok(ToolContext::of(call)?.memory_subject.clone())
    }

    /// Whether the call's conversation may see notes made for the owner.
    fn can_see_notes(&self, call: &Call) -> Result<bool, MemoryError> {
        let context = ToolContext::of(call)?;
        Ok(may_load(context.kind, context.audience, BootstrapName::Memory))
    }

    /// Records that a user has memories from now on.
    pub(crate) fn on_memory_added(&self, tenant: TenantId, agent: AgentId, user: &str) {
        lock(&self.users_without_memories).remove(&(tenant, agent, user.to_owned()));
    }
}

impl Memories for Memory {
    async fn search(
        &self,
        call: &Call,
        sought: MemoryQuery,
    ) -> Result<Vec<MemoryHit>, MemoryError> {
        let person = self.subject_of(call)?;
        let MemoryQuery { query, most, only, knowledge, tags } = sought;
        let kinds = match (knowledge, only) {
            (true, _) => vec![pb::Kind::Knowledge],
            (false, Some(_)) => vec![pb::Kind::Memory],
            (false, None) if self.can_see_notes(call)? => {
                [INDEXED_KINDS.as_slice(), &[pb::Kind::Value, pb::Kind::Document]].concat()
            }
            (false, None) => [INDEXED_KINDS.as_slice(), &[pb::Kind::Value]].concat(),
        };
        let filter = pb::Filter {
            kinds: kinds.into_iter().map(i32::from).collect(),
            types: only.map(|only| only.as_str().to_owned()).into_iter().collect(),
            tags,
            ..pb::Filter::default()
        };
        let request = pb::SearchRequest {
            who: Some(person.to_proto(call.agent)),
            query,
            k: most,
            filter: Some(filter),
            ..pb::SearchRequest::default()
        };
        let answer = with_timeout(READ_TIMEOUT, self.client.search(call.tenant, request)).await?;
        Ok(answer.hits.into_iter().map(to_found).collect())
    }

    async fn save(&self, call: &Call, what: NewMemory) -> Result<KeptMemory, MemoryError> {
        let NewMemory { text, what, details, about, replaces } = what;
        if let Some(id) = &replaces {
            self.check_owner(call, &self.subject_of(call)?, id).await?;
        }
        let kind = if about.is_some() { pb::Kind::Fact } else { pb::Kind::Memory };
        let (subject, predicate) = about.unwrap_or_default();
        let item = pb::NewItem {
            kind: kind.into(),
            r#type: what.as_str().to_owned(),
            content: text,
            subject,
            predicate,
            supersedes: replaces.unwrap_or_default(),
            ..pb::NewItem::default()
        };
        self.put(call, with_details(item, details), MIN_DUPLICATE_SIMILARITY).await
    }

    async fn set_value(&self, call: &Call, new: NewValue) -> Result<KeptMemory, MemoryError> {
        let item = pb::NewItem {
            kind: pb::Kind::Value.into(),
            content: new.value,
            subject: new.key,
            ..pb::NewItem::default()
        };
        self.put(call, with_details(item, new.details), 0.0).await
    }

    async fn values(
        &self,
        call: &Call,
        prefix: &str,
        most: u32,
    ) -> Result<Vec<StoredValue>, MemoryError> {
        let request = pb::ListItemsRequest {
            who: Some(self.subject_of(call)?.to_proto(call.agent)),
            kinds: vec![pb::Kind::Value.into()],
            key_prefix: prefix.to_owned(),
            limit: most,
            ..pb::ListItemsRequest::default()
        };
        let listed = self.client.list_items(call.tenant, request);
        let listed = with_timeout(READ_TIMEOUT, listed).await?;
        Ok(listed.items.into_iter().map(to_value).collect())
    }

    async fn forget(&self, call: &Call, id: &str) -> Result<(), MemoryError> {
        let person = self.subject_of(call)?;
        self.check_owner(call, &person, id).await?;
        let who = Some(person.to_proto(call.agent));
        let set = pb::SetItemActiveRequest { who, id: id.to_owned(), active: false };
        with_timeout(WRITE_TIMEOUT, self.client.set_item_active(call.tenant, set)).await?;
        Ok(())
    }

    async fn article(&self, call: &Call, id: &str, version: u32) -> Result<Article, MemoryError> {
        let who = Some(self.subject_of(call)?.to_proto(call.agent));
        let request = pb::GetRequest { who, id: id.to_owned(), version };
        Ok(to_article(with_timeout(READ_TIMEOUT, self.client.kb_get(call.tenant, request)).await?))
    }

    async fn ingest(&self, call: &Call, new: NewArticle) -> Result<Article, MemoryError> {
        let person = self.subject_of(call)?;
        if person.is_group || person.is_guest {
            return Err(MemoryError::Refused(
                "whoever speaks here adds nothing to the knowledge base: a member can, in a \
                 conversation of their own"
                    .to_owned(),
            ));
        }
        let scope = if new.for_all { pb::Scope::Tenant } else { pb::Scope::Workspace };
        let request = pb::IngestRequest {
            who: Some(person.to_proto(call.agent)),
            scope: scope.into(),
            title: new.title,
            content: new.text.into_bytes(),
            media_type: "text/markdown".to_owned(),
            tags: new.tags,
            provenance: Some(source_provenance(call, &new.source)?),
            author: call.agent_name.to_string(),
            confidence: None,
            request_id: call.key.clone(),
            session: call.session.to_string(),
        };
        Ok(to_article(
            with_timeout(WRITE_TIMEOUT, self.client.kb_ingest(call.tenant, request)).await?,
        ))
    }

    async fn update(
        &self,
        call: &Call,
        change: ArticleChange,
    ) -> Result<ArticleUpdate, MemoryError> {
        let person = self.subject_of(call)?;
        if !person.is_maintainer {
            return self.propose(call, &person, change).await;
        }
        let request = pb::UpdateRequest {
            who: Some(person.to_proto(call.agent)),
            id: change.id,
            content: change.text.into_bytes(),
            media_type: "text/markdown".to_owned(),
            title: change.title,
            provenance: Some(source_provenance(call, &change.source)?),
            author: call.agent_name.to_string(),
            version: change.version,
            session: call.session.to_string(),
            ..pb::UpdateRequest::default()
        };
        let updated =
            with_timeout(WRITE_TIMEOUT, self.client.kb_update(call.tenant, request)).await?;
        Ok(ArticleUpdate::Done(to_article(updated)))
    }
}

impl Memory {
    /// Stores an item of the call's user under the call's key.
    async fn put(
        &self,
        call: &Call,
        item: pb::NewItem,
        unless_like: f64,
    ) -> Result<KeptMemory, MemoryError> {
        let person = self.subject_of(call)?;
        let Some(user) = &person.user else {
            return Err(MemoryError::Refused(
                "this conversation is nobody's own: there is no one to remember it for".to_owned(),
            ));
        };
        let item = pb::NewItem {
            session: call.session.to_string(),
            // A group's memory is shown in the group only.
            group_safe: person.is_group,
            provenance: Some(agent_provenance(call, &call.session.to_string())?),
            ..item
        };
        let request = pb::PutItemsRequest {
            who: Some(person.to_proto(call.agent)),
            items: vec![item],
            unless_like,
            request_id: call.key.clone(),
        };
        let answer =
            with_timeout(WRITE_TIMEOUT, self.client.put_items(call.tenant, request)).await?;
        self.on_memory_added(call.tenant, call.agent, user);
        let put = answer.items.into_iter().next().unwrap_or_default();
        Ok(KeptMemory { id: put.id, is_duplicate: put.duplicate })
    }

    /// Rejects items of other users, which affect other conversations.
    async fn check_owner(
        &self,
        call: &Call,
        person: &MemorySubject,
        id: &str,
    ) -> Result<(), MemoryError> {
        let get = pb::GetItemRequest {
            who: Some(person.to_proto(call.agent)),
            id: id.to_owned(),
            ..pb::GetItemRequest::default()
        };
        let item = with_timeout(READ_TIMEOUT, self.client.get_item(call.tenant, get)).await?;
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
        person: &MemorySubject,
        change: ArticleChange,
    ) -> Result<ArticleUpdate, MemoryError> {
        let who = person.to_proto(call.agent);
        // Users cannot change what they cannot read.
        let read = pb::GetRequest {
            who: Some(who.clone()),
            id: change.id.clone(),
            version: change.version,
        };
        let there = with_timeout(READ_TIMEOUT, self.client.kb_get(call.tenant, read)).await?;
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
            r#type: PROPOSAL_EVENT.to_owned(),
            content: payload.to_string(),
            session: call.session.to_string(),
            provenance: Some(source_provenance(call, &change.source)?),
            ..pb::NewItem::default()
        };
        let request = pb::PutItemsRequest {
            who: Some(who),
            items: vec![item],
            unless_like: 0.0,
            request_id: call.key.clone(),
        };
        let answer =
            with_timeout(WRITE_TIMEOUT, self.client.put_items(call.tenant, request)).await?;
        let id = answer.items.into_iter().next().unwrap_or_default().id;
        info!(proposal = %id, "a change of the knowledge base was proposed");
        Ok(ArticleUpdate::Proposed(id))
    }
}

/// Applies a time limit and converts the error.
async fn with_timeout<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, MemoryRefused>>,
) -> Result<T, MemoryError> {
    let refused = match timeout(limit, asked).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(refused)) => refused,
        Err(_) => {
            warn!(limit_s = limit.as_secs(), "the memory service has not answered in time");
            return Err(MemoryError::Unavailable);
        }
    };
    Err(match refused.kind() {
        Kind::Unavailable | Kind::Unauthenticated | Kind::Internal => {
            warn!(
                error = &refused as &dyn std::error::Error,
                "the memory service has not answered"
            );
            MemoryError::Unavailable
        }
        Kind::Invalid | Kind::NotFound | Kind::Forbidden | Kind::Conflict | Kind::Exhausted => {
            MemoryError::Refused(refused.message)
        }
    })
}

/// Provenance of a text that the agent wrote itself.
fn agent_provenance(call: &Call, locator: &str) -> anyhow::Result<pb::Provenance> {
    Ok(pb::Provenance {
        kind: pb::SourceKind::Agent.into(),
        name: call.agent_name.to_string(),
        locator: locator.to_owned(),
        retrieved_at: None,
        outside: ToolContext::of(call)?.repeats_outside_text(),
    })
}

/// Provenance of a text whose source the agent names.
fn source_provenance(call: &Call, source: &str) -> anyhow::Result<pb::Provenance> {
    let site = source.strip_prefix("https://").or_else(|| source.strip_prefix("http://"));
    let host = site.and_then(|rest| rest.split(['/', '?', '#']).next());
    match host.filter(|host| !host.is_empty()) {
        Some(host) => Ok(pb::Provenance {
            kind: pb::SourceKind::Web.into(),
            name: host.chars().take(200).collect(),
            locator: source.to_owned(),
            retrieved_at: None,
            outside: true,
        }),
        None => agent_provenance(call, source),
    }
}

fn with_details(item: pb::NewItem, details: MemoryDetails) -> pb::NewItem {
    let expires_at = details.expires_at.map(|at| prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    });
    pb::NewItem { expires_at, importance: details.importance, tags: details.tags, ..item }
}

fn to_value(item: pb::Item) -> StoredValue {
    let mut notes = vec![format_day(item.at.as_ref())];
    notes.extend(item.importance.map(|share| format!("importance {share}")));
    if !item.tags.is_empty() {
        notes.push(item.tags.join(", "));
    }
    if item.expires_at.is_some() {
        notes.push(format!("until {}", format_day(item.expires_at.as_ref())));
    }
    notes.extend(item.provenance.as_ref().map(format_provenance));
    StoredValue { key: item.subject, value: item.content, notes }
}

fn to_found(hit: pb::Hit) -> MemoryHit {
    let kind = hit.kind();
    let why = hit.why.unwrap_or_default();
    let at = (kind == pb::Kind::Document).then_some((hit.start, hit.end));
    let from = match kind {
        pb::Kind::Turn => turn_provenance(&hit),
        _ => hit.provenance.as_ref().map(format_provenance).unwrap_or_default(),
    };
    MemoryHit {
        what: kind_name(kind, &hit.r#type),
        when: format_day(hit.at.as_ref()),
        from,
        score: hit.score,
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
pub(crate) fn turn_provenance(hit: &pb::Hit) -> String {
    let author = match hit.author.as_str() {
        "" => "the user",
        ASSISTANT => "you",
        author => author,
    };
    format!("said by {author} in {}, entry {}", hit.session, hit.id)
}

/// Name of an item's kind, for the model.
pub(crate) fn kind_name(kind: pb::Kind, of: &str) -> String {
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
pub(crate) fn format_day(at: Option<&prost_types::Timestamp>) -> String {
    let at = at.and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok());
    at.map(|at| at.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
}

/// Formats a provenance.
fn format_provenance(provenance: &pb::Provenance) -> String {
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

fn to_article(article: pb::Article) -> Article {
    let masked = article.masked.iter().map(|count| format!("{}: {}", count.what, count.rows));
    Article {
        masked: masked.collect(),
        from: article.provenance.map(|from| format_provenance(&from)).unwrap_or_default(),
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
