//! The services `Sessions` and `Runs`: sessions, their entries and runs; pause, resume, roll back,
//! branch, delete.

mod branch;
pub(super) mod convert;
mod failures;
mod import;
pub(super) mod paging;
mod rollback;
mod run_list;
pub mod runs;
mod search;

pub(crate) use convert::usage as usage_message;

pub use branch::branch_key;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use holdfast_agent::behavior::{MAX_TAGS, state::MAX_TAG_CHARS};
use holdfast_bus::{Control, ControlKind};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, BranchSessionRequest, BranchSessionResponse, DeleteSessionRequest,
    DeleteSessionResponse, ExportSessionRequest, ExportSessionResponse, GetCanvasRequest,
    GetCanvasResponse, GetHistoryRequest, GetHistoryResponse, GetRunRequest, GetRunResponse,
    GetSessionRequest, GetSessionResponse, ImportSessionRequest, ImportSessionResponse,
    ListBranchesRequest, ListBranchesResponse, ListRunsRequest, ListRunsResponse,
    ListSessionsRequest, ListSessionsResponse, ListToolCallsRequest, ListToolCallsResponse,
    PauseSessionRequest, PauseSessionResponse, ResumeSessionRequest, ResumeSessionResponse,
    RollBackStepRequest, RollBackStepResponse, SearchMessagesRequest, SearchMessagesResponse,
    UpdateSessionRequest, UpdateSessionResponse, export_session_response::Part,
    sessions_server::Sessions as Service,
};
use holdfast_session::{EntryView, SessionChanges, SessionFilter, ShownState};
use holdfast_types::{PersonId, RunId, SessionId, TenantId};
use jiff::Timestamp;
use tonic::{Request, Response, Status, Streaming};

use super::{AgentNames, State, invalid, non_empty, page_size, parse_word};
use crate::{
    Error, audit, ingest,
    permissions::rights::{self, ConversationRight, NamedSession},
};

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;
const DEFAULT_ENTRIES: u32 = 20;
const DEFAULT_TOOL_CALLS: u32 = 100;
const MAX_ENTRIES: u32 = 1_000;
const MAX_LABEL_CHARS: usize = 200;
const SESSION_KIND_WORDS: &str =
    "main, dm, group, topic, subagent, cron, heartbeat, work, api or global";

/// Implements `holdfast.gateway.v1.Sessions`.
#[derive(Debug)]
pub struct Handler(pub State);

#[tonic::async_trait]
impl Service for Handler {
    type ExportSessionStream = BoxStream<'static, Result<ExportSessionResponse, Status>>;

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let kind = non_empty(request.kind)
            .map(|kind| parse_word("kind", &kind, SESSION_KIND_WORDS))
            .transpose()?;
        let kinds = request.kinds.iter().map(|kind| parse_word("kinds", kind, SESSION_KIND_WORDS));
        let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        let after = paging::parse_session_token(request.page_token)?;
        let states = request.states.iter().map(|word| shown_state(word));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        let agent = match non_empty(request.agent) {
            Some(agent) => {
                let agent = self.0.directory.agents().get(caller.tenant, &agent).await;
                Some(agent.map_err(Error::from)?.id)
            }
            None => None,
        };

        // One session more than requested tells whether there is another page.
        let (search, label) = (non_empty(request.search), non_empty(request.label));
        let (tag, pinned) = (non_empty(request.tag), request.pinned);
        let limit = most + 1;
        let named = non_empty(request.person).map(|id| id.parse::<PersonId>()).transpose();
        let person = match (rights::reads_only_own(&caller), named.map_err(Error::from)?) {
            (Some(own), Some(named)) if named != own => {
                return Err(Error::OtherPerson(named.to_string()).into());
            }
            (own, named) => own.or(named),
        };
        let filter = SessionFilter {
            agent,
            kind,
            kinds,
            search,
            label,
            tag,
            pinned,
            states,
            person,
            limit,
            after,
        };
        let found = self.0.sessions.views().sessions(caller.tenant, filter).await;
        let names = self.0.agent_names(caller.tenant).await?;

        let (sessions, more) = paging::split_page(found.map_err(Error::from)?, most);
        let last = sessions.last().filter(|_| more);
        let next_page_token = last.map(paging::session_token).unwrap_or_default();
        let now = Timestamp::now();
        let listed = |session| convert::with_short_summary(convert::session(session, &names, now));
        let sessions = sessions.into_iter().map(listed).collect();
        Ok(Response::new(ListSessionsResponse { sessions, next_page_token }))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Read).await?;
        let session =
            self.0.sessions.views().session(caller.tenant, id).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let session = Some(convert::session(session, &names, Timestamp::now()));
        Ok(Response::new(GetSessionResponse { session }))
    }

    async fn update_session(
        &self,
        request: Request<UpdateSessionRequest>,
    ) -> Result<Response<UpdateSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let UpdateSessionRequest { session, label, pinned, tags } = request;
        let label = label.map(|label| checked_label(&label)).transpose()?;
        let tags = tags.map(|given| checked_tags(&given.tags)).transpose()?;

        let id = self.find(&caller, &session, ConversationRight::Write).await?;
        let changes = SessionChanges { label, pinned, tags };
        self.0.sessions.settings().change(caller.tenant, id, changes).await.map_err(Error::from)?;
        let view = self.0.sessions.views().session(caller.tenant, id).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let session = Some(convert::session(view, &names, Timestamp::now()));
        Ok(Response::new(UpdateSessionResponse { session }))
    }

    async fn get_history(
        &self,
        request: Request<GetHistoryRequest>,
    ) -> Result<Response<GetHistoryResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_ENTRIES, MAX_ENTRIES)?;
        let before = Some(request.before_seq).filter(|before| *before != 0);
        if before.is_some() && request.after_seq.is_some() {
            return Err(invalid("give `before_seq` or `after_seq`, not both".to_owned()).into());
        }

        let id = self.find(&caller, &request.session, ConversationRight::Read).await?;
        let views = self.0.sessions.views();
        let entries = match request.after_seq {
            Some(after) => {
                views.session(caller.tenant, id).await.map_err(Error::from)?;
                views.entries_after(caller.tenant, id, after, most).await
            }
            None => views.history(caller.tenant, id, most, before).await,
        };
        let entries = entries.map_err(Error::from)?;
        let (first_seq, last_seq) =
            views.journal_bounds(caller.tenant, id).await.map_err(Error::from)?;

        let entries = entries.into_iter().map(convert::entry).collect();
        Ok(Response::new(GetHistoryResponse { entries, first_seq, last_seq }))
    }

    async fn export_session(
        &self,
        request: Request<ExportSessionRequest>,
    ) -> Result<Response<Self::ExportSessionStream>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Read).await?;
        let session =
            self.0.sessions.views().session(caller.tenant, id).await.map_err(Error::from)?;
        let names = self.0.agent_names(caller.tenant).await?;

        let session = Part::Session(convert::session(session, &names, Timestamp::now()));
        let entries = self.0.entries(caller.tenant, id);
        let entries = entries.map_ok(|entry| Part::Entry(convert::entry(entry)));
        let parts = stream::once(async { Ok(session) }).chain(entries);
        let parts = parts.map_ok(|part| ExportSessionResponse { part: Some(part) });
        Ok(Response::new(parts.map_err(|error: Error| Status::from(error)).boxed()))
    }

    async fn import_session(
        &self,
        request: Request<Streaming<ImportSessionRequest>>,
    ) -> Result<Response<ImportSessionResponse>, Status> {
        let (caller, parts) = holdfast_grpc::caller(request)?;
        Ok(Response::new(import::import(&self.0, &caller, parts).await?))
    }

    async fn pause_session(
        &self,
        request: Request<PauseSessionRequest>,
    ) -> Result<Response<PauseSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Control).await?;
        let held = self.0.sessions.pause(caller.tenant, id).await.map_err(Error::from)?;
        for (session, running) in held.running {
            let control = Control { session, kind: ControlKind::Pause, epoch: running.epoch };
            self.0.bus.control(running.owner, &control);
        }

        Ok(Response::new(PauseSessionResponse { paused: held.sessions }))
    }

    async fn resume_session(
        &self,
        request: Request<ResumeSessionRequest>,
    ) -> Result<Response<ResumeSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Control).await?;
        let resumed = self.0.sessions.resume(caller.tenant, id).await.map_err(Error::from)?;
        if resumed.wake {
            self.0.bus.wake_run(0);
        }

        Ok(Response::new(ResumeSessionResponse { resumed: resumed.sessions }))
    }

    async fn delete_session(
        &self,
        request: Request<DeleteSessionRequest>,
    ) -> Result<Response<DeleteSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.session);

        let id = self.find(&caller, &request.session, ConversationRight::Control).await?;
        self.0.sessions.delete(caller.tenant, id).await.map_err(Error::from)?;

        Ok(Response::new(DeleteSessionResponse {}))
    }

    async fn list_runs(
        &self,
        request: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(run_list::list(self, &caller, request).await?))
    }

    async fn get_canvas(
        &self,
        request: Request<GetCanvasRequest>,
    ) -> Result<Response<GetCanvasResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Read).await?;
        let surfaces = self.0.sessions.canvas().surfaces(caller.tenant, id).await;

        let surfaces = surfaces.map_err(Error::from)?.into_iter().map(convert::surface).collect();
        Ok(Response::new(GetCanvasResponse { surfaces }))
    }

    async fn get_run(
        &self,
        request: Request<GetRunRequest>,
    ) -> Result<Response<GetRunResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = request.run_id.parse().map_err(Error::from)?;

        let names = self.0.agent_names(caller.tenant).await?;
        let (run, entries) = find_run(&self.0, caller.tenant, id, &names).await?;
        let session = run.session_id.parse().map_err(Error::from)?;
        rights::check_session(&self.0.sessions, &caller, session, ConversationRight::Read).await?;

        let run = Some(failures::with_failures(run, &entries, &caller));
        let entries = entries.into_iter().map(convert::entry).collect();
        Ok(Response::new(GetRunResponse { run, entries }))
    }

    async fn list_tool_calls(
        &self,
        request: Request<ListToolCallsRequest>,
    ) -> Result<Response<ListToolCallsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_TOOL_CALLS, MAX_ENTRIES)?;
        let views = self.0.sessions.views();
        let run: Option<RunId> =
            non_empty(request.run_id).map(|run| run.parse()).transpose().map_err(Error::from)?;

        let session = match run.filter(|_| request.session.is_empty()) {
            Some(run) => {
                let session =
                    views.session_of_run(caller.tenant, run).await.map_err(Error::from)?;
                let right = ConversationRight::Read;
                rights::check_session(&self.0.sessions, &caller, session, right).await?;
                session
            }
            None => self.find(&caller, &request.session, ConversationRight::Read).await?,
        };
        let calls = views.tool_calls(caller.tenant, session, run, most).await;

        let calls = calls.map_err(Error::from)?.into_iter().map(convert::tool_call).collect();
        Ok(Response::new(ListToolCallsResponse { calls }))
    }

    async fn search_messages(
        &self,
        request: Request<SearchMessagesRequest>,
    ) -> Result<Response<SearchMessagesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(search::search(self, &caller, request).await?))
    }

    async fn branch_session(
        &self,
        request: Request<BranchSessionRequest>,
    ) -> Result<Response<BranchSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.session);
        Ok(Response::new(branch::branch(self, &caller, request).await?))
    }

    async fn list_branches(
        &self,
        request: Request<ListBranchesRequest>,
    ) -> Result<Response<ListBranchesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let id = self.find(&caller, &request.session, ConversationRight::Read).await?;
        let branches = self.0.sessions.views().branches(caller.tenant, id).await;
        let names = self.0.agent_names(caller.tenant).await?;

        let now = Timestamp::now();
        let listed = |session| convert::with_short_summary(convert::session(session, &names, now));
        let sessions = branches.map_err(Error::from)?.into_iter().map(listed).collect();
        Ok(Response::new(ListBranchesResponse { sessions }))
    }

    async fn roll_back_step(
        &self,
        request: Request<RollBackStepRequest>,
    ) -> Result<Response<RollBackStepResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = self.find(&caller, &request.session, ConversationRight::Control).await?;
        Ok(Response::new(rollback::roll_back(&self.0, &caller, id, request).await?))
    }
}

/// Finds a run: one that has ended, waits for an approval, or runs.
async fn find_run(
    state: &State,
    tenant: TenantId,
    id: RunId,
    names: &AgentNames,
) -> Result<(pb::Run, Vec<EntryView>), Error> {
    let is_missing =
        |error: &holdfast_session::Error| matches!(error, holdfast_session::Error::NotFound { .. });
    match state.sessions.views().run(tenant, id).await {
        Ok((run, entries)) => return Ok((convert::run(run, names), entries)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(error.into()),
    }
    match state.sessions.approvals().waiting_run(tenant, id).await {
        Ok((run, entries)) => return Ok((convert::waiting_run(run, names), entries)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let (run, entries) = state.sessions.views().open_run(tenant, id).await?;
    Ok((convert::open_run(run, names), entries))
}

impl Handler {
    async fn find(
        &self,
        caller: &Caller,
        session: &str,
        right: ConversationRight,
    ) -> Result<SessionId, Error> {
        self.0.session(caller, session, right).await
    }
}

impl State {
    /// Finds a session by id, by key, or by the name that the caller gave it with the default agent,
    /// and checks the caller's right to it.
    pub(crate) async fn session(
        &self,
        caller: &Caller,
        session: &str,
        right: ConversationRight,
    ) -> Result<SessionId, Error> {
        if session.is_empty() {
            return Err(Error::MissingField("session"));
        }
        let stores = (&self.directory, &self.sessions);
        ingest::find_session(stores, caller, NamedSession { agent: "", session }, right).await
    }

    /// As [`session`](Self::session), for a session that is there: an id is looked up, too.
    pub(crate) async fn known_session(
        &self,
        caller: &Caller,
        session: &str,
        right: ConversationRight,
    ) -> Result<SessionId, Error> {
        let id = self.session(caller, session, right).await?;
        Ok(self.sessions.views().session(caller.tenant, id).await?.id)
    }
}

/// Whether a text is a page token of a list of sessions.
pub(crate) fn is_page_token(token: &str) -> bool {
    paging::parse_cursor(token).is_some()
}

/// Entries that one query of an export reads.
const ENTRIES_PER_QUERY: i64 = 200;

impl State {
    /// Streams the journal of a session, oldest entry first.
    fn entries(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> impl Stream<Item = Result<EntryView, Error>> + Send + use<> {
        let sessions = self.sessions.clone();
        let pages = stream::try_unfold(Some(0), move |after| {
            let sessions = sessions.clone();
            async move {
                let Some(after) = after else { return Ok::<_, Error>(None) };
                let views = sessions.views();
                let page = views.entries_after(tenant, session, after, ENTRIES_PER_QUERY).await?;
                let next = page.last().map(|last| last.seq);
                Ok(Some((stream::iter(page.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten()
    }
}

fn shown_state(word: &str) -> Result<ShownState, Error> {
    ShownState::parse(word).ok_or_else(|| Error::UnknownValue {
        field: "states",
        given: word.chars().take(80).collect(),
        wanted: "WAIT, WAIT_FOR_MSG, WAIT_FOR_EVENT, READY, RUNNING, PAUSE or SLEEP",
    })
}

/// Trims a label, and refuses one that lists could not show.
fn checked_label(label: &str) -> Result<String, Error> {
    let label = label.trim();
    let chars = label.chars().count();
    if chars > MAX_LABEL_CHARS || label.contains(char::is_control) {
        return Err(invalid(format!(
            "a label has at most {MAX_LABEL_CHARS} characters, none of them a control character, \
             and this one has {chars}"
        )));
    }
    Ok(label.to_owned())
}

/// Trims tags, and refuses those that lists could not show. A repeated one counts once.
fn checked_tags(given: &[String]) -> Result<Vec<String>, Error> {
    if given.len() > MAX_TAGS {
        let count = given.len();
        return Err(invalid(format!(
            "a session has at most {MAX_TAGS} tags, and these are {count}"
        )));
    }
    let mut tags: Vec<String> = Vec::with_capacity(given.len());
    for tag in given {
        let tag = tag.trim();
        let chars = tag.chars().count();
        if !(1..=MAX_TAG_CHARS).contains(&chars) || tag.contains(char::is_control) {
            return Err(invalid(format!(
                "a tag has 1 to {MAX_TAG_CHARS} characters, none of them a control character, and \
                 one of these has {chars}"
            )));
        }
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_trimmed_and_counted_once() {
        let checked = |tags: &[&str]| {
            checked_tags(&tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>())
        };

        assert_eq!(checked(&[" tea ", "garden", "tea"]).unwrap(), ["tea", "garden"]);
        assert_eq!(checked(&[]).unwrap(), Vec::<String>::new());
        for wrong in [" ", "a\nb", &"x".repeat(65)] {
            assert!(checked(&[wrong]).is_err(), "{wrong}");
        }
        assert!(checked(&["x"; 33]).is_err());
    }

    #[test]
    fn a_label_is_trimmed_and_has_a_length() {
        assert_eq!(checked_label("  Tea with Ann ").unwrap(), "Tea with Ann");
        assert_eq!(checked_label(" ").unwrap(), "");
        assert!(checked_label(&"x".repeat(201)).is_err());
        assert!(checked_label("a\nb").is_err());
    }
}
