//! The service `Work`: todos, worklogs, tasks and the ledger.

mod convert;
pub mod economy;

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    ApplyTodosRequest, ApplyTodosResponse, GetTaskTreeRequest, GetTaskTreeResponse, GetTodoRequest,
    GetTodoResponse, GetTodoViewRequest, GetTodoViewResponse, ListLedgerRequest,
    ListLedgerResponse, ListTodosRequest, ListTodosResponse, ListWorklogRequest,
    ListWorklogResponse, VerifyLedgerRequest, VerifyLedgerResponse, work_server::Work as Service,
};
use holdfast_session::SubagentFilter;
use holdfast_types::{SessionId, TodoOperation, TodoStatus};
use holdfast_work::{Actor, ActorKind, LedgerFilter, Place, TodoFilter, details_of};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{State, invalid, non_empty, page_size, parse_word};
use crate::permissions::rights::{self, ConversationRight};
use crate::{Error, audit};

const DEFAULT_TODO_PAGE: u32 = 32;
const MAX_TODO_PAGE: u32 = 128;
const DEFAULT_WORKLOG_PAGE: u32 = 64;
const MAX_WORKLOG_PAGE: u32 = 256;
const DEFAULT_LEDGER_PAGE: u32 = 50;
const MAX_LEDGER_PAGE: u32 = 500;
const DEFAULT_STEPS: u32 = 50;
const MAX_STEPS: u32 = 200;

/// Budget of the list in a prompt, in tokens.
const DEFAULT_VIEW_TOKENS: u32 = 1_600;
const MAX_VIEW_TOKENS: u32 = 16_000;

/// Subagents of a session whose trees are named.
const MAX_SUBAGENTS: i64 = 200;

const STATUSES: &str = "WAIT, IN_PROGRESS, COMPLETE, FAILED, DONE or CHECK_FAILED";

/// Implements `holdfast.gateway.v1.Work`.
#[derive(Debug)]
pub struct Work(pub State);

#[tonic::async_trait]
impl Service for Work {
    async fn list_todos(
        &self,
        request: Request<ListTodosRequest>,
    ) -> Result<Response<ListTodosResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_limit(request.limit, DEFAULT_TODO_PAGE, MAX_TODO_PAGE)?;
        let filter = match (non_empty(request.status), request.pending) {
            (None, false) => TodoFilter::All,
            (None, true) => TodoFilter::Pending,
            (Some(word), false) => {
                let status: TodoStatus = parse_word("status", &word, STATUSES)?;
                TodoFilter::Status(status)
            }
            (Some(_), true) => {
                return Err(invalid("give `status` or `pending`, not both".to_owned()).into());
            }
        };
        let list = self.list(&caller, &request.session, ConversationRight::Read).await?;
        let after = non_empty(request.after);

        let page = self.0.work.todos(caller.tenant, list, filter, (after.as_deref(), limit)).await;

        let page = page.map_err(Error::from)?;
        let last = page.todos.last().filter(|_| page.todos.len() == limit as usize);
        Ok(Response::new(ListTodosResponse {
            next: last.map(|todo| todo.code()).unwrap_or_default(),
            counts: Some(convert::counts(page.counts)),
            todos: page.todos.into_iter().map(convert::todo).collect(),
        }))
    }

    async fn get_todo(
        &self,
        request: Request<GetTodoRequest>,
    ) -> Result<Response<GetTodoResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let list = self.list(&caller, &request.session, ConversationRight::Read).await?;

        let todo = self.0.work.todo(caller.tenant, list, &request.code).await;

        let todo = todo.map_err(Error::from)?;
        let details = details_of(&todo);
        Ok(Response::new(GetTodoResponse { todo: Some(convert::todo(todo)), details }))
    }

    async fn get_todo_view(
        &self,
        request: Request<GetTodoViewRequest>,
    ) -> Result<Response<GetTodoViewResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let budget = match request.budget_tokens {
            0 => DEFAULT_VIEW_TOKENS,
            asked => asked.min(MAX_VIEW_TOKENS),
        };
        let list = self.list(&caller, &request.session, ConversationRight::Read).await?;

        let view = self.0.work.view(caller.tenant, list).await.map_err(Error::from)?;

        Ok(Response::new(GetTodoViewResponse {
            text: view.render(budget as usize),
            counts: Some(convert::counts(view.counts)),
            next: view.next_ready().unwrap_or_default().to_owned(),
            ready_bench: view.ready_bench().unwrap_or_default().to_owned(),
        }))
    }

    async fn apply_todos(
        &self,
        request: Request<ApplyTodosRequest>,
    ) -> Result<Response<ApplyTodosResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.session);
        let list = self.list(&caller, &request.session, ConversationRight::Write).await?;
        let ops: Vec<TodoOperation> =
            serde_json::from_str(&request.operations).map_err(|error| {
                invalid(format!(
                    "`operations` is no list of operations: {error}; see docs/todos.md"
                ))
            })?;
        let view = self.0.sessions.views().session(caller.tenant, list).await;
        let place = Place::outside(list, view.map_err(Error::from)?.agent);
        let actor = Actor {
            kind: ActorKind::User,
            name: caller.name.clone(),
            role: None,
            // An owner's words are the owner's own; those of others are not.
            has_outside_text: !rights::reaches_all(&caller, ConversationRight::Write),
        };
        // Ids that agents use begin otherwise.
        let op_id = non_empty(request.request_id).unwrap_or_else(|| Uuid::now_v7().to_string());
        let op_id = format!("user:{op_id}");

        let results = self.0.work.apply(caller.tenant, &place, &actor, (&op_id, &ops)).await;

        let results = results.map_err(Error::from)?.into_iter().map(convert::result).collect();
        Ok(Response::new(ApplyTodosResponse { results }))
    }

    async fn list_worklog(
        &self,
        request: Request<ListWorklogRequest>,
    ) -> Result<Response<ListWorklogResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_limit(request.limit, DEFAULT_WORKLOG_PAGE, MAX_WORKLOG_PAGE)?;
        let before = Some(request.before).filter(|before| *before > 0);
        let list = self.list(&caller, &request.session, ConversationRight::Read).await?;

        let records = self.0.work.worklog(caller.tenant, list, (before, limit)).await;

        let names = self.0.agent_names(caller.tenant).await?;
        let records = records.map_err(Error::from)?.into_iter();
        let records = records.map(|record| convert::record(record, &names)).collect();
        Ok(Response::new(ListWorklogResponse { records }))
    }

    async fn get_task_tree(
        &self,
        request: Request<GetTaskTreeRequest>,
    ) -> Result<Response<GetTaskTreeResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let steps = page_limit(request.steps, DEFAULT_STEPS, MAX_STEPS)?;
        let session =
            self.0.known_session(&caller, &request.session, ConversationRight::Read).await?;

        let tasks = self.0.work.tasks(caller.tenant, session, steps).await;

        let filter = SubagentFilter { parent: Some(session), open: false, most: MAX_SUBAGENTS };
        let subagents = self.0.sessions.subagents().list(caller.tenant, &filter).await;
        let subagents = subagents.map_err(Error::from)?.into_iter();
        Ok(Response::new(GetTaskTreeResponse {
            session_id: session.to_string(),
            tasks: tasks.map_err(Error::from)?.into_iter().map(convert::task).collect(),
            subagent_session_ids: subagents.map(|one| one.session.to_string()).collect(),
        }))
    }

    async fn list_ledger(
        &self,
        request: Request<ListLedgerRequest>,
    ) -> Result<Response<ListLedgerResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_limit(request.limit, DEFAULT_LEDGER_PAGE, MAX_LEDGER_PAGE)?;
        let session = match non_empty(request.session) {
            Some(session) => {
                Some(self.0.known_session(&caller, &session, ConversationRight::Read).await?)
            }
            None => None,
        };
        let before = match non_empty(request.before) {
            Some(before) => Some(before.parse::<Uuid>().map_err(|_| {
                invalid("`before` is not the id of an entry of the ledger".to_owned())
            })?),
            None => None,
        };

        let filter = LedgerFilter { session, before, limit };
        let entries = self.0.work.ledger().page(caller.tenant, &filter).await;

        let names = self.0.agent_names(caller.tenant).await?;
        let entries = entries.map_err(Error::from)?.into_iter();
        let entries = entries.map(|entry| convert::entry(entry, &names)).collect();
        Ok(Response::new(ListLedgerResponse { entries }))
    }

    async fn verify_ledger(
        &self,
        request: Request<VerifyLedgerRequest>,
    ) -> Result<Response<VerifyLedgerResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let check = self.0.work.ledger().verify(caller.tenant).await.map_err(Error::from)?;

        Ok(Response::new(VerifyLedgerResponse {
            entries: convert::number(check.entries),
            unchained: convert::number(check.unchained),
            head: check.head,
            broken_at: check.broken_at.unwrap_or_default(),
        }))
    }
}

impl Work {
    /// Root session of the session with this id or key.
    pub(super) async fn list(
        &self,
        caller: &Caller,
        named: &str,
        right: ConversationRight,
    ) -> Result<SessionId, Error> {
        let session = self.0.known_session(caller, named, right).await?;
        Ok(self.0.sessions.root_of(caller.tenant, session).await?)
    }
}

pub(super) fn page_limit(asked: u32, usual: u32, most: u32) -> Result<u32, Error> {
    let limit = page_size(asked, usual, most)?;
    Ok(u32::try_from(limit).unwrap_or(most))
}
