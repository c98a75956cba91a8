//! The services `Memories` and `Knowledge`: memories, and the knowledge base.
//!
//! The memory service stores everything. The gateway checks scopes, resolves agents and records
//! provenance. The tenant comes from the caller only; no field of a request can name another one.

mod knowledge;
mod person;

use std::time::Duration;

use holdfast_agent::{file_view::FileSpace, person as person_name};
use holdfast_grpc::{Caller, MemoryCallError, MemoryClient as Client};
use holdfast_proto::{
    gateway::v1::{
        self as pb, EraseMemoriesRequest, EraseMemoriesResponse, ForgetMemoryRequest,
        ForgetMemoryResponse, GetMemoryStatusRequest, GetMemoryStatusResponse,
        GetMemoryValueRequest, GetMemoryValueResponse, ListErasuresRequest, ListErasuresResponse,
        ListMemoriesRequest, ListMemoriesResponse, SaveMemoryRequest, SaveMemoryResponse,
        SearchMemoriesRequest, SearchMemoriesResponse, SetMemoryValueRequest,
        SetMemoryValueResponse, memories_server::Memories as Service,
    },
    memory::v1 as kept,
};
use holdfast_types::{AgentId, InvalidPath, TenantId, TreePath};
use holdfast_workspace::ChangeAuthor;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::{AgentNames, State, invalid, require_text};
use crate::{
    Error, audit,
    permissions::rights::{self, ConversationRight},
};

pub use knowledge::Knowledge;

/// Timeout of a call to the memory service: a large document takes some seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);

/// Cosine similarity from which a new memory counts as a duplicate.
const DUPLICATE_SIMILARITY: f64 = 0.92;

/// Implements `holdfast.gateway.v1.Memories`.
#[derive(Debug)]
pub struct Memories(pub State);

#[tonic::async_trait]
impl Service for Memories {
    async fn list_memories(
        &self,
        request: Request<ListMemoriesRequest>,
    ) -> Result<Response<ListMemoriesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;
        let of_agent = match request.agent.as_str() {
            "" => None,
            named => Some(self.0.agent_id(tenant, named).await?.to_string()),
        };
        let of_user = user_in_call(&caller, request.user, ConversationRight::Read)?;
        let of_user = (!of_user.is_empty()).then_some(of_user);
        let kinds = request.kinds.iter().map(|kind| kind_of(kind).map(i32::from));
        let listed = kept::ListItemsRequest {
            who: Some(full_access()),
            of_agent,
            of_user,
            kinds: kinds.collect::<Result<Vec<i32>, Error>>()?,
            r#type: request.r#type,
            session: request.session,
            key_prefix: request.key_prefix,
            history: request.history,
            limit: request.limit,
            after: request.after,
            ..kept::ListItemsRequest::default()
        };

        let listed = with_timeout(self.0.memory()?.list_items(tenant, listed)).await?;

        let agents = self.0.agent_names(tenant).await?;
        let memories = listed.items.into_iter().map(|item| memory_of(item, &agents)).collect();
        Ok(Response::new(ListMemoriesResponse { memories, next: listed.next }))
    }

    async fn search_memories(
        &self,
        request: Request<SearchMemoriesRequest>,
    ) -> Result<Response<SearchMemoriesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;
        require_text("query", &request.query)?;
        let user = user_in_call(&caller, request.user, ConversationRight::Read)?;
        let agent = self.0.agent_id(tenant, &request.agent).await?;
        let kinds = match request.types.is_empty() {
            true => vec![
                kept::Kind::Memory,
                kept::Kind::Fact,
                kept::Kind::Value,
                kept::Kind::Event,
                kept::Kind::Document,
            ],
            false => vec![kept::Kind::Memory],
        };
        let search = kept::SearchRequest {
            who: Some(memory_owner(agent, user)),
            query: request.query,
            k: request.limit,
            filter: Some(kept::Filter {
                kinds: kinds.into_iter().map(i32::from).collect(),
                types: request.types,
                ..kept::Filter::default()
            }),
            ..kept::SearchRequest::default()
        };

        let answer = with_timeout(self.0.memory()?.search(tenant, search)).await?;

        let agents = self.0.agent_names(tenant).await?;
        let found = answer.hits.into_iter().map(|hit| found_of(hit, &agents)).collect();
        Ok(Response::new(SearchMemoriesResponse { found, model: answer.model }))
    }

    async fn save_memory(
        &self,
        request: Request<SaveMemoryRequest>,
    ) -> Result<Response<SaveMemoryResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let tenant = caller.tenant;
        require_text("text", &request.text)?;
        let user = user_in_call(&caller, request.user, ConversationRight::Control)?;
        let agent = self.0.agent_id(tenant, &request.agent).await?;
        let who = memory_owner(agent, user);
        let is_fact = match (request.subject.is_empty(), request.predicate.is_empty()) {
            (false, false) => true,
            (true, true) => false,
            _ => return Err(Error::MissingField("subject and predicate").into()),
        };
        let kind = if is_fact { kept::Kind::Fact } else { kept::Kind::Memory };
        let item = kept::NewItem {
            kind: kind.into(),
            r#type: if request.r#type.is_empty() { "fact".to_owned() } else { request.r#type },
            content: request.text,
            subject: request.subject,
            predicate: request.predicate,
            group_safe: who.group,
            expires_at: request.expires_at,
            importance: request.importance,
            tags: request.tags,
            supersedes: request.replaces,
            provenance: Some(provenance(&caller, &request.source)),
            ..kept::NewItem::default()
        };
        let put = kept::PutItemsRequest {
            who: Some(who),
            items: vec![item],
            unless_like: DUPLICATE_SIMILARITY,
            request_id: caller_idempotency_key(&caller, &request.request_id),
        };

        let put = with_timeout(self.0.memory()?.put_items(tenant, put)).await?;

        let put = put.items.into_iter().next().unwrap_or_default();
        Ok(Response::new(SaveMemoryResponse { id: put.id, duplicate: put.duplicate }))
    }

    async fn set_memory_value(
        &self,
        request: Request<SetMemoryValueRequest>,
    ) -> Result<Response<SetMemoryValueResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.key);
        let tenant = caller.tenant;
        require_text("key", &request.key)?;
        let user = user_in_call(&caller, request.user, ConversationRight::Control)?;
        let agent = self.0.agent_id(tenant, &request.agent).await?;
        let who = memory_owner(agent, user);
        let item = kept::NewItem {
            kind: kept::Kind::Value.into(),
            content: request.value,
            subject: request.key,
            group_safe: who.group,
            expires_at: request.expires_at,
            importance: request.importance,
            tags: request.tags,
            provenance: Some(provenance(&caller, &request.source)),
            ..kept::NewItem::default()
        };
        let put = kept::PutItemsRequest {
            who: Some(who),
            items: vec![item],
            unless_like: 0.0,
            request_id: caller_idempotency_key(&caller, &request.request_id),
        };

        let put = with_timeout(self.0.memory()?.put_items(tenant, put)).await?;

        let id = put.items.into_iter().next().unwrap_or_default().id;
        Ok(Response::new(SetMemoryValueResponse { id }))
    }

    async fn get_memory_value(
        &self,
        request: Request<GetMemoryValueRequest>,
    ) -> Result<Response<GetMemoryValueResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;
        require_text("key", &request.key)?;
        let user = user_in_call(&caller, request.user, ConversationRight::Read)?;
        let agent = self.0.agent_id(tenant, &request.agent).await?;
        let who = Some(memory_owner(agent, user));
        let get = kept::GetItemRequest { who, key: request.key, ..kept::GetItemRequest::default() };

        let item = with_timeout(self.0.memory()?.get_item(tenant, get)).await?;

        let agents = self.0.agent_names(tenant).await?;
        Ok(Response::new(GetMemoryValueResponse { value: Some(memory_of(item, &agents)) }))
    }

    async fn forget_memory(
        &self,
        request: Request<ForgetMemoryRequest>,
    ) -> Result<Response<ForgetMemoryResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        require_text("id", &request.id)?;
        if !rights::reaches_all(&caller, ConversationRight::Control) {
            let (who, id) = (Some(full_access()), request.id.clone());
            let get = kept::GetItemRequest { who, id, ..kept::GetItemRequest::default() };
            let item = with_timeout(self.0.memory()?.get_item(caller.tenant, get)).await?;
            if !rights::is_own_user(&caller, &item.user) {
                return Err(Error::OthersMemory.into());
            }
        }
        let what = Some(kept::forget_request::What::Item(request.id));
        let forget = kept::ForgetRequest { who: Some(full_access()), what };

        with_timeout(self.0.memory()?.forget(caller.tenant, forget)).await?;

        Ok(Response::new(ForgetMemoryResponse {}))
    }

    async fn erase_memories(
        &self,
        request: Request<EraseMemoriesRequest>,
    ) -> Result<Response<EraseMemoriesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.user);
        let erased = match (request.user.is_empty(), request.session.is_empty()) {
            (false, true) => erase_user(&self.0, &caller, request.user, request.everywhere).await?,
            (true, false) => {
                let what = Some(kept::forget_request::What::Session(request.session));
                let forget = kept::ForgetRequest { who: Some(full_access()), what };
                let erased = with_timeout(self.0.memory()?.forget(caller.tenant, forget)).await?;
                let (erased, left) = (counts(erased.erased), counts(erased.left));
                EraseMemoriesResponse { erased, left }
            }
            (true, true) => return Err(Error::MissingField("user").into()),
            (false, false) => {
                return Err(invalid("give `user` or `session`, and not both".to_owned()).into());
            }
        };
        Ok(Response::new(erased))
    }

    async fn list_erasures(
        &self,
        request: Request<ListErasuresRequest>,
    ) -> Result<Response<ListErasuresResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let ListErasuresRequest { subject, limit } = request;
        let asked = kept::ListErasuresRequest { who: Some(full_access()), subject, limit };

        let listed = with_timeout(self.0.memory()?.erasures(caller.tenant, asked)).await?;

        let erasures = listed.erasures.into_iter().map(erasure_of).collect();
        Ok(Response::new(ListErasuresResponse { erasures }))
    }

    async fn get_memory_status(
        &self,
        request: Request<GetMemoryStatusRequest>,
    ) -> Result<Response<GetMemoryStatusResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;
        let asked = kept::GetStatusRequest { who: Some(full_access()) };

        let status = with_timeout(self.0.memory()?.status(caller.tenant, asked)).await?;

        Ok(Response::new(GetMemoryStatusResponse {
            kept: counts(status.rows),
            model: status.model,
            dimension: status.dimension,
            next_model: status.next_model,
            pending: status.pending,
            failed: status.failed,
            search: status.search,
        }))
    }
}

/// Erases what is remembered of a user, their time zones and files, and with `everywhere` also their
/// conversations, jobs and identities, and their messages in conversations of others.
pub(super) async fn erase_user(
    state: &State,
    caller: &Caller,
    user: String,
    everywhere: bool,
) -> Result<EraseMemoriesResponse, Error> {
    let mut elsewhere = match everywhere {
        true => person::erase(state, caller, &user).await?,
        false => Vec::new(),
    };
    elsewhere.push(("zones", state.sessions.settings().forget_zones(caller.tenant, &user).await?));
    elsewhere.push(("files", erase_files(state, caller, &user).await?));
    let what = Some(kept::forget_request::What::User(user));
    let forget = kept::ForgetRequest { who: Some(full_access()), what };

    let erased = with_timeout(state.memory()?.forget(caller.tenant, forget)).await?;

    let (mut erased, left) = (counts(erased.erased), counts(erased.left));
    let elsewhere = elsewhere.into_iter().filter(|(_, rows)| *rows > 0);
    erased.extend(elsewhere.map(|(what, rows)| pb::MemoryCount { what: what.to_owned(), rows }));
    Ok(EraseMemoriesResponse { erased, left })
}

/// Erases a person's folders in the workspaces of all agents. Returns the number of deleted versions
/// of files. The owner's files are the agent's, and stay.
async fn erase_files(state: &State, caller: &Caller, user: &str) -> Result<u64, Error> {
    let space = FileSpace::of_person(user);
    let Some(folder) = space.folder() else { return Ok(0) };
    let folder: TreePath =
        folder.parse().map_err(|error: InvalidPath| holdfast_workspace::Error::from(error))?;
    let by = ChangeAuthor::new(&caller.id(), "erased");
    Ok(state.workspaces.erase_folder(caller.tenant, &folder, &by).await?)
}

impl State {
    fn memory(&self) -> Result<&Client, Error> {
        self.memory.as_ref().ok_or(Error::NoMemory)
    }

    /// Id of the named agent; of the default agent if the name is empty.
    async fn agent_id(&self, tenant: TenantId, named: &str) -> Result<AgentId, Error> {
        let agent = match named {
            "" => self.directory.agents().default_agent(tenant).await?,
            named => self.directory.agents().get(tenant, named).await?,
        };
        Ok(agent.id)
    }
}

/// Limits a call to the memory service to the timeout.
async fn with_timeout<T>(
    asked: impl Future<Output = Result<T, MemoryCallError>>,
) -> Result<T, Error> {
    match timeout(CALL_TIMEOUT, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::MemoryTimeout),
    }
}

/// Access to everything of the tenant: the handlers check scopes before they use it.
fn full_access() -> kept::Who {
    kept::Who { everything: true, maintainer: true, ..kept::Who::default() }
}

/// User whose memories a call is about; empty for those of no particular one, or of all. Callers who
/// reach only what is their own name themselves or their programs' users; the default is themselves.
fn user_in_call(caller: &Caller, named: String, right: ConversationRight) -> Result<String, Error> {
    if rights::reaches_all(caller, right) || rights::is_own_user(caller, &named) {
        return Ok(named);
    }
    match (named.is_empty(), caller.person) {
        (true, Some(person)) => Ok(person_name::of_id(person)),
        (true, None) => Err(Error::MissingField("user")),
        (false, _) => Err(Error::OtherPerson(named.chars().take(80).collect())),
    }
}

/// The memories of an agent about a user, or about no particular one if `user` is empty.
fn memory_owner(agent: AgentId, user: String) -> kept::Who {
    let group = user.starts_with("group:");
    kept::Who { agent: agent.to_string(), user, group, ..kept::Who::default() }
}

/// Idempotency key per caller: two callers may use the same `request_id`. Empty stays empty.
fn caller_idempotency_key(caller: &Caller, request_id: &str) -> String {
    if request_id.is_empty() { String::new() } else { format!("{}:{request_id}", caller.id()) }
}

/// Provenance from the caller's `source`: a website if it is a URL, otherwise the caller.
fn provenance(caller: &Caller, source: &str) -> kept::Provenance {
    let site = source.strip_prefix("https://").or_else(|| source.strip_prefix("http://"));
    let host = site.and_then(|rest| rest.split(['/', '?', '#']).next());
    let (kind, name) = match host.filter(|host| !host.is_empty()) {
        Some(host) => (kept::SourceKind::Web, host.chars().take(200).collect()),
        None => (kept::SourceKind::User, caller.id()),
    };
    kept::Provenance {
        kind: kind.into(),
        name,
        locator: source.to_owned(),
        ..kept::Provenance::default()
    }
}

fn kind_of(word: &str) -> Result<kept::Kind, Error> {
    Ok(match word {
        "memory" => kept::Kind::Memory,
        "fact" => kept::Kind::Fact,
        "value" => kept::Kind::Value,
        "event" => kept::Kind::Event,
        other => {
            return Err(Error::UnknownValue {
                field: "kinds",
                given: other.chars().take(80).collect(),
                wanted: "`memory`, `fact`, `value` or `event`",
            });
        }
    })
}

fn kind_word(kind: kept::Kind) -> String {
    match kind {
        kept::Kind::Memory | kept::Kind::Unspecified => "memory",
        kept::Kind::Value => "value",
        kept::Kind::Fact => "fact",
        kept::Kind::Event => "event",
        kept::Kind::Turn => "said",
        kept::Kind::Document => "note",
        kept::Kind::Knowledge => "article",
    }
    .to_owned()
}

/// Name of an agent; empty if `id` is no agent id.
fn agent_name(id: &str, agents: &AgentNames) -> String {
    id.parse::<AgentId>().map(|id| agents.of(id)).unwrap_or_default()
}

fn memory_of(item: kept::Item, agents: &AgentNames) -> pb::Memory {
    pb::Memory {
        kind: kind_word(item.kind()),
        agent: agent_name(&item.agent, agents),
        source: item.provenance.map(source_of),
        id: item.id,
        r#type: item.r#type,
        text: item.content,
        subject: item.subject,
        predicate: item.predicate,
        user: item.user,
        session: item.session,
        active: item.active,
        at: item.at,
        created_at: item.created_at,
        expires_at: item.expires_at,
        superseded_by: item.superseded_by,
        importance: item.importance,
        tags: item.tags,
    }
}

fn found_of(hit: kept::Hit, agents: &AgentNames) -> pb::FoundMemory {
    let why = hit.why.unwrap_or_default();
    let kind = hit.kind();
    let memory = pb::Memory {
        kind: kind_word(kind),
        agent: agent_name(&hit.agent, agents),
        source: hit.provenance.map(source_of),
        id: if kind == kept::Kind::Document { hit.path } else { hit.id },
        r#type: hit.r#type,
        text: hit.text,
        user: hit.user,
        session: hit.session,
        active: true,
        at: hit.at,
        tags: hit.tags,
        ..pb::Memory::default()
    };
    pb::FoundMemory {
        memory: Some(memory),
        score: hit.score,
        meaning: why.cosine,
        words: why.words_raw,
    }
}

fn source_of(provenance: kept::Provenance) -> pb::MemorySource {
    let kind = match provenance.kind() {
        kept::SourceKind::User => "user",
        kept::SourceKind::Tool => "tool",
        kept::SourceKind::Web => "web",
        kept::SourceKind::File => "file",
        kept::SourceKind::System => "system",
        kept::SourceKind::Agent => "agent",
        kept::SourceKind::Unspecified => "",
    };
    pb::MemorySource {
        kind: kind.to_owned(),
        name: provenance.name,
        locator: provenance.locator,
        retrieved_at: provenance.retrieved_at,
    }
}

fn erasure_of(erasure: kept::Erasure) -> pb::Erasure {
    pb::Erasure {
        what: erasure.what,
        subject: erasure.subject,
        asked_at: erasure.asked_at,
        erased_at: erasure.erased_at,
        done: erasure.done,
        erased: counts(erasure.erased),
        left: counts(erasure.left),
    }
}

fn counts(counts: Vec<kept::Count>) -> Vec<pb::MemoryCount> {
    counts.into_iter().map(|count| pb::MemoryCount { what: count.what, rows: count.rows }).collect()
}
