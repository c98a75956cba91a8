//! Every RPC, called with ids and names of another tenant.

use flate2::{Compression, write::GzEncoder};
use holdfast_proto::gateway::v1 as pb;
use holdfast_workspace::ContentHash;
use prost::Message;

use super::things::{FILE, Things};

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// Looks up an object; another tenant's is not found.
    Found,
    /// Deletes an object; another tenant's is answered as one that does not exist, without error.
    Gone,
    /// Lists objects, and nothing of another tenant.
    Shown,
    /// Creates an object; the same name, key or peer may exist in another tenant.
    Made,
    /// No key of a tenant may call it.
    Closed,
    /// Is about the caller's own person, whom the keys of this test do not have.
    Personal,
}

/// One attempt.
pub struct Row {
    pub method: &'static str,
    pub is: Is,
    pub ask: fn(&Things) -> Vec<u8>,
}

fn bytes(message: impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

pub fn table() -> Vec<Row> {
    let doors =
        [talking(), sessions(), agents(), models(), files(), channels(), routing(), operations()];
    let doors = doors.into_iter().chain([
        approvals(),
        policies(),
        others(),
        schedules(),
        people(),
        skills(),
    ]);
    let doors =
        doors.chain([memories(), event_webhooks(), behaviors(), work(), workspaces(), economy()]);
    let doors = doors.chain([proposals()]);
    doors.into_iter().flatten().map(|(method, is, ask)| Row { method, is, ask }).collect()
}

type Try = (&'static str, Is, fn(&Things) -> Vec<u8>);

fn send(to: pb::SendRequest) -> Vec<u8> {
    bytes(pb::SendRequest { text: "history".into(), ..to })
}

fn talking() -> Vec<Try> {
    vec![
        ("Messages/Send", Is::Found, |of| {
            send(pb::SendRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Messages/Send", Is::Found, |of| {
            send(pb::SendRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Messages/Send", Is::Made, |of| {
            let request_id = of.request_id.clone();
            send(pb::SendRequest { request_id, session: of.user.clone(), ..Default::default() })
        }),
        ("Messages/Stream", Is::Found, |of| {
            send(pb::SendRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Messages/Stream", Is::Found, |of| {
            send(pb::SendRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Messages/Follow", Is::Found, |of| {
            bytes(pb::FollowRequest { message_id: of.message.clone() })
        }),
        ("Messages/Cancel", Is::Found, |of| {
            bytes(pb::CancelRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Messages/Cancel", Is::Found, |of| {
            bytes(pb::CancelRequest { session: of.session_key.clone(), ..Default::default() })
        }),
        // Bridges of two tenants are tested in `arrivals`; no key may call it.
        ("Ingest/Accept", Is::Closed, |of| {
            bytes(pb::AcceptRequest { account_id: of.account.clone(), ..Default::default() })
        }),
    ]
}

fn sessions() -> Vec<Try> {
    vec![
        ("Sessions/ListSessions", Is::Shown, |_| bytes(pb::ListSessionsRequest::default())),
        ("Sessions/ListSessions", Is::Found, |of| {
            bytes(pb::ListSessionsRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Sessions/GetSession", Is::Found, |of| {
            bytes(pb::GetSessionRequest { session: of.session.clone() })
        }),
        ("Sessions/GetSession", Is::Found, |of| {
            bytes(pb::GetSessionRequest { session: of.session_key.clone() })
        }),
        ("Sessions/UpdateSession", Is::Found, |of| {
            let (session, pinned) = (of.session.clone(), Some(true));
            bytes(pb::UpdateSessionRequest { session, pinned, ..Default::default() })
        }),
        ("Sessions/UpdateSession", Is::Found, |of| {
            let (session, label) = (of.session_key.clone(), Some("named".to_owned()));
            bytes(pb::UpdateSessionRequest { session, label, ..Default::default() })
        }),
        ("Sessions/GetHistory", Is::Found, |of| {
            bytes(pb::GetHistoryRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Sessions/GetHistory", Is::Found, |of| {
            bytes(pb::GetHistoryRequest { session: of.session_key.clone(), ..Default::default() })
        }),
        ("Sessions/ExportSession", Is::Found, |of| {
            bytes(pb::ExportSessionRequest { session: of.session.clone() })
        }),
        ("Sessions/ExportSession", Is::Found, |of| {
            bytes(pb::ExportSessionRequest { session: of.session_key.clone() })
        }),
        // Anna's session exists, so she is told so before any entry is read.
        ("Sessions/ImportSession", Is::Found, |of| {
            let (agent, session) = (of.agent_name.clone(), of.session_key.clone());
            let target = pb::ImportTarget { agent, session };
            let part = Some(pb::import_session_request::Part::Target(target));
            bytes(pb::ImportSessionRequest { part })
        }),
        ("Sessions/GetCanvas", Is::Found, |of| {
            bytes(pb::GetCanvasRequest { session: of.session.clone() })
        }),
        ("Sessions/GetCanvas", Is::Found, |of| {
            bytes(pb::GetCanvasRequest { session: of.session_key.clone() })
        }),
        ("Settings/GetSettings", Is::Shown, |_| bytes(pb::GetSettingsRequest::default())),
        ("Settings/DescribeSettings", Is::Gone, |of| {
            bytes(pb::DescribeSettingsRequest { path: format!("agents.{}", of.agent_name) })
        }),
        ("Settings/SetSetting", Is::Found, |of| {
            let path = format!("agents.{}.description", of.agent_name);
            bytes(pb::SetSettingRequest { path, value: r#""x""#.into(), base_version: Some(0) })
        }),
        ("Settings/SetSetting", Is::Found, |of| {
            let path = format!("agents.{}.policy", of.agent_name);
            bytes(pb::SetSettingRequest { path, value: "{}".into(), base_version: Some(99) })
        }),
        ("Sessions/PauseSession", Is::Found, |of| {
            bytes(pb::PauseSessionRequest { session: of.session.clone() })
        }),
        ("Sessions/ResumeSession", Is::Found, |of| {
            bytes(pb::ResumeSessionRequest { session: of.session.clone() })
        }),
        ("Sessions/DeleteSession", Is::Found, |of| {
            bytes(pb::DeleteSessionRequest { session: of.session.clone() })
        }),
        ("Sessions/DeleteSession", Is::Found, |of| {
            bytes(pb::DeleteSessionRequest { session: of.session_key.clone() })
        }),
        ("Sessions/RollBackStep", Is::Found, |of| {
            bytes(pb::RollBackStepRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Sessions/RollBackStep", Is::Found, |of| {
            bytes(pb::RollBackStepRequest { session: of.session_key.clone(), ..Default::default() })
        }),
        ("Sessions/ListRuns", Is::Shown, |_| bytes(pb::ListRunsRequest::default())),
        ("Sessions/ListRuns", Is::Found, |of| {
            bytes(pb::ListRunsRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Sessions/GetRun", Is::Found, |of| bytes(pb::GetRunRequest { run_id: of.run.clone() })),
        ("Sessions/ListRuns", Is::Found, |of| {
            bytes(pb::ListRunsRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Sessions/SearchMessages", Is::Shown, |_| {
            bytes(pb::SearchMessagesRequest { query: "a".into(), ..Default::default() })
        }),
        ("Sessions/SearchMessages", Is::Found, |of| {
            let (query, session) = ("a".into(), of.session.clone());
            bytes(pb::SearchMessagesRequest { query, session, ..Default::default() })
        }),
        ("Sessions/SearchMessages", Is::Found, |of| {
            let (query, agent) = ("a".into(), of.agent_name.clone());
            bytes(pb::SearchMessagesRequest { query, agent, ..Default::default() })
        }),
        ("Sessions/BranchSession", Is::Found, |of| {
            bytes(pb::BranchSessionRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Sessions/BranchSession", Is::Found, |of| {
            bytes(pb::BranchSessionRequest {
                session: of.session_key.clone(),
                ..Default::default()
            })
        }),
        ("Sessions/ListBranches", Is::Found, |of| {
            bytes(pb::ListBranchesRequest { session: of.session.clone() })
        }),
        ("Sessions/ListBranches", Is::Found, |of| {
            bytes(pb::ListBranchesRequest { session: of.session_key.clone() })
        }),
        ("Runs/GetRunTrace", Is::Found, |of| {
            bytes(pb::GetRunTraceRequest { run_id: of.run.clone(), ..Default::default() })
        }),
        ("Runs/RenderPrompt", Is::Found, |of| {
            bytes(pb::RenderPromptRequest { run_id: of.run.clone(), seq: 0 })
        }),
        ("Runs/ListActivity", Is::Found, |of| {
            bytes(pb::ListActivityRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Runs/WatchActivity", Is::Found, |of| {
            bytes(pb::WatchActivityRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Sessions/ListToolCalls", Is::Found, |of| {
            bytes(pb::ListToolCallsRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Sessions/ListToolCalls", Is::Found, |of| {
            bytes(pb::ListToolCallsRequest { run_id: of.run.clone(), ..Default::default() })
        }),
    ]
}

/// Memories and articles.
fn memories() -> Vec<Try> {
    vec![
        ("Memories/ListMemories", Is::Shown, |_| bytes(pb::ListMemoriesRequest::default())),
        ("Memories/ListMemories", Is::Found, |of| {
            bytes(pb::ListMemoriesRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Memories/SearchMemories", Is::Shown, |of| {
            let (query, user) = ("annas tea".into(), of.user.clone());
            bytes(pb::SearchMemoriesRequest { query, user, ..Default::default() })
        }),
        ("Memories/SearchMemories", Is::Found, |of| {
            let (query, agent) = ("tea".into(), of.agent.clone());
            bytes(pb::SearchMemoriesRequest { query, agent, ..Default::default() })
        }),
        ("Memories/SaveMemory", Is::Found, |of| {
            let (text, agent) = ("tea".into(), of.agent.clone());
            bytes(pb::SaveMemoryRequest { text, agent, ..Default::default() })
        }),
        ("Memories/SaveMemory", Is::Found, |of| {
            let (text, replaces) = ("tea".into(), of.memory.clone());
            let user = of.user.clone();
            bytes(pb::SaveMemoryRequest { text, user, replaces, ..Default::default() })
        }),
        ("Memories/SaveMemory", Is::Made, |of| bytes(save_memory(of))),
        ("Memories/SetMemoryValue", Is::Found, |of| {
            bytes(pb::SetMemoryValueRequest { agent: of.agent.clone(), ..memory_value(of) })
        }),
        ("Memories/SetMemoryValue", Is::Made, |of| bytes(memory_value(of))),
        ("Memories/GetMemoryValue", Is::Found, |of| {
            let (user, key) = (of.user.clone(), of.user.clone());
            bytes(pb::GetMemoryValueRequest { user, key, ..Default::default() })
        }),
        ("Memories/ForgetMemory", Is::Found, |of| {
            bytes(pb::ForgetMemoryRequest { id: of.memory.clone() })
        }),
        // It counts the caller's own rows; the lists show that Anna's still exist.
        ("Memories/EraseMemories", Is::Made, |of| {
            bytes(pb::EraseMemoriesRequest { user: of.user.clone(), ..Default::default() })
        }),
        ("Memories/GetMemoryStatus", Is::Made, |_| bytes(pb::GetMemoryStatusRequest {})),
        ("Memories/ListErasures", Is::Made, |_| bytes(pb::ListErasuresRequest::default())),
        ("Knowledge/SearchArticles", Is::Shown, |_| {
            bytes(pb::SearchArticlesRequest { query: "annas tea".into(), ..Default::default() })
        }),
        ("Knowledge/SearchArticles", Is::Found, |of| {
            let (query, agent) = ("tea".into(), of.agent.clone());
            bytes(pb::SearchArticlesRequest { query, agent, ..Default::default() })
        }),
        ("Knowledge/IngestArticle", Is::Made, |of| bytes(ingest_article(of))),
        ("Knowledge/IngestArticle", Is::Found, |of| {
            let agent = of.agent.clone();
            bytes(pb::IngestArticleRequest { agent, ..ingest_article(of) })
        }),
        ("Knowledge/GetArticle", Is::Found, |of| {
            bytes(pb::GetArticleRequest { id: of.article.clone(), version: 0 })
        }),
        ("Knowledge/UpdateArticle", Is::Found, |of| {
            let (id, title, source) = (of.article.clone(), "Tea".into(), "Ann".into());
            bytes(pb::UpdateArticleRequest { id, title, source, ..Default::default() })
        }),
        ("Knowledge/ListArticles", Is::Shown, |_| bytes(pb::ListArticlesRequest::default())),
        ("Knowledge/ListArticles", Is::Found, |of| {
            bytes(pb::ListArticlesRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Knowledge/ListArticleVersions", Is::Found, |of| {
            bytes(pb::ListArticleVersionsRequest { id: of.article.clone() })
        }),
        ("Knowledge/ListProposals", Is::Shown, |_| bytes(pb::ListProposalsRequest::default())),
        ("Knowledge/GetProposal", Is::Found, |of| {
            bytes(pb::GetProposalRequest { id: of.proposal.clone() })
        }),
        ("Knowledge/DeclineProposal", Is::Found, |of| {
            let (id, reason) = (of.proposal.clone(), "no".into());
            bytes(pb::DeclineProposalRequest { id, reason })
        }),
        ("Knowledge/AcceptProposal", Is::Found, |of| {
            let id = of.proposal.clone();
            bytes(pb::AcceptProposalRequest { id, ..Default::default() })
        }),
        ("Knowledge/RemoveArticle", Is::Found, |of| {
            bytes(pb::RemoveArticleRequest { id: of.article.clone() })
        }),
    ]
}

/// Memory of a user.
pub fn save_memory(of: &Things) -> pb::SaveMemoryRequest {
    pb::SaveMemoryRequest {
        user: of.user.clone(),
        text: format!("{} likes tea", of.user),
        request_id: of.request_id.clone(),
        ..Default::default()
    }
}

/// Value by key of a user.
pub fn memory_value(of: &Things) -> pb::SetMemoryValueRequest {
    pb::SetMemoryValueRequest {
        user: of.user.clone(),
        key: of.user.clone(),
        value: "true".into(),
        ..Default::default()
    }
}

/// Article.
pub fn ingest_article(of: &Things) -> pb::IngestArticleRequest {
    pb::IngestArticleRequest {
        title: format!("{} on tea", of.user),
        content: format!("{} says that tea is drunk hot.", of.user).into_bytes(),
        media_type: "text/plain".into(),
        source: "Ann".into(),
        request_id: of.request_id.clone(),
        ..Default::default()
    }
}

/// Subagents and chains.
fn event_webhooks() -> Vec<Try> {
    vec![
        ("EventWebhooks/ListEventWebhooks", Is::Shown, |_| bytes(pb::ListEventWebhooksRequest {})),
        ("EventWebhooks/CreateEventWebhook", Is::Made, |of| {
            bytes(pb::CreateEventWebhookRequest {
                webhook: Some(event_webhook(&of.event_webhook)),
                from_earliest: true,
            })
        }),
        ("EventWebhooks/UpdateEventWebhook", Is::Found, |of| {
            let webhook = Some(event_webhook(&of.event_webhook));
            bytes(pb::UpdateEventWebhookRequest { name: of.event_webhook.clone(), webhook })
        }),
        ("EventWebhooks/DeleteEventWebhook", Is::Found, |of| {
            bytes(pb::DeleteEventWebhookRequest { name: of.event_webhook.clone() })
        }),
        ("EventWebhooks/RotateEventWebhookSecret", Is::Found, |of| {
            bytes(pb::RotateEventWebhookSecretRequest { name: of.event_webhook.clone() })
        }),
        ("EventWebhooks/ListEventDeadLetters", Is::Found, |of| {
            let webhook = of.event_webhook.clone();
            bytes(pb::ListEventDeadLettersRequest { webhook, ..Default::default() })
        }),
        ("EventWebhooks/ReplayEvents", Is::Found, |of| {
            bytes(pb::ReplayEventsRequest {
                webhook: of.event_webhook.clone(),
                what: Some(pb::replay_events_request::What::AfterCursor("evc1_0".into())),
            })
        }),
    ]
}

pub fn event_webhook(name: &str) -> pb::EventWebhook {
    pb::EventWebhook {
        name: name.to_owned(),
        url: "https://events.example.com/holdfast".to_owned(),
        ..Default::default()
    }
}

fn others() -> Vec<Try> {
    vec![
        ("Events/Subscribe", Is::Shown, |_| {
            bytes(pb::SubscribeRequest {
                start: pb::EventStart::Earliest.into(),
                include_content: true,
                end_at_newest: true,
                ..Default::default()
            })
        }),
        ("Events/Subscribe", Is::Found, |of| {
            let filter =
                Some(pb::EventFilter { session: of.session.clone(), ..Default::default() });
            bytes(pb::SubscribeRequest { filter, end_at_newest: true, ..Default::default() })
        }),
        ("Events/Subscribe", Is::Found, |of| {
            let filter =
                Some(pb::EventFilter { agent: of.agent_name.clone(), ..Default::default() });
            bytes(pb::SubscribeRequest { filter, end_at_newest: true, ..Default::default() })
        }),
        ("Subagents/ListSubagents", Is::Shown, |_| bytes(pb::ListSubagentsRequest::default())),
        ("Subagents/ListSubagents", Is::Found, |of| {
            bytes(pb::ListSubagentsRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Subagents/ListSubagents", Is::Found, |of| {
            let session = of.session_key.clone();
            bytes(pb::ListSubagentsRequest { session, ..Default::default() })
        }),
        ("Subagents/StopSubagent", Is::Found, |of| {
            bytes(pb::StopSubagentRequest { session: of.subagent.clone() })
        }),
        ("Subagents/SendToSubagent", Is::Found, |of| {
            let (session, text) = (of.subagent.clone(), "history".into());
            bytes(pb::SendToSubagentRequest { session, text, ..Default::default() })
        }),
        ("Chains/ListChains", Is::Shown, |_| bytes(pb::ListChainsRequest {})),
        ("Chains/GetChain", Is::Found, |of| bytes(pb::GetChainRequest { name: of.chain.clone() })),
        ("Chains/DeleteChain", Is::Found, |of| {
            bytes(pb::DeleteChainRequest { name: of.chain.clone() })
        }),
        ("Chains/PutChain", Is::Made, |of| bytes(put_chain(&of.chain))),
    ]
}

fn proposals() -> Vec<Try> {
    vec![
        ("Proposals/ListAgentProposals", Is::Shown, |_| {
            bytes(pb::ListAgentProposalsRequest::default())
        }),
        ("Proposals/GetAgentProposal", Is::Found, |of| {
            bytes(pb::GetAgentProposalRequest { id: of.agent_proposal.clone() })
        }),
        ("Proposals/ApproveAgentProposal", Is::Found, |of| {
            bytes(pb::ApproveAgentProposalRequest { id: of.agent_proposal.clone() })
        }),
        ("Proposals/RollBackAgentProposal", Is::Found, |of| {
            bytes(pb::RollBackAgentProposalRequest { id: of.agent_proposal.clone() })
        }),
        ("Proposals/RejectAgentProposal", Is::Found, |of| {
            let (id, reason) = (of.other_agent_proposal.clone(), String::new());
            bytes(pb::RejectAgentProposalRequest { id, reason })
        }),
    ]
}

/// Hit points and wallets.
fn economy() -> Vec<Try> {
    vec![
        ("Economy/GetHitPoints", Is::Found, |of| {
            bytes(pb::GetHitPointsRequest { agent: of.agent_name.clone() })
        }),
        ("Economy/EnableAgent", Is::Found, |of| {
            bytes(pb::EnableAgentRequest { agent: of.agent_name.clone() })
        }),
        ("Economy/GetWallet", Is::Found, |of| {
            bytes(pb::GetWalletRequest { agent: of.agent_name.clone() })
        }),
        ("Economy/SetWalletLimits", Is::Found, |of| {
            bytes(pb::SetWalletLimitsRequest { agent: of.agent_name.clone(), limits: None })
        }),
        ("Economy/FundWallet", Is::Found, |of| {
            let (agent, amount) = (of.agent_name.clone(), "1".into());
            bytes(pb::FundWalletRequest { agent, amount, ..Default::default() })
        }),
        ("Economy/ListPayments", Is::Found, |of| {
            bytes(pb::ListPaymentsRequest { agent: of.agent_name.clone(), limit: 0 })
        }),
    ]
}

/// Todos, worklogs, tasks and the ledger.
fn work() -> Vec<Try> {
    vec![
        ("Work/ListTodos", Is::Found, |of| {
            bytes(pb::ListTodosRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Work/ListTodos", Is::Found, |of| {
            bytes(pb::ListTodosRequest { session: of.session_key.clone(), ..Default::default() })
        }),
        ("Work/GetTodo", Is::Found, |of| {
            bytes(pb::GetTodoRequest { session: of.session.clone(), code: "T001".into() })
        }),
        ("Work/GetTodoView", Is::Found, |of| {
            bytes(pb::GetTodoViewRequest { session: of.session.clone(), budget_tokens: 0 })
        }),
        ("Work/ApplyTodos", Is::Found, |of| bytes(apply_todos(&of.session))),
        ("Work/ApplyTodos", Is::Found, |of| bytes(apply_todos(&of.session_key))),
        ("Work/ListWorklog", Is::Found, |of| {
            bytes(pb::ListWorklogRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Work/GetTaskTree", Is::Found, |of| {
            bytes(pb::GetTaskTreeRequest { session: of.session.clone(), steps: 0 })
        }),
        ("Work/ListLedger", Is::Shown, |_| bytes(pb::ListLedgerRequest::default())),
        ("Work/ListLedger", Is::Found, |of| {
            bytes(pb::ListLedgerRequest { session: of.session.clone(), ..Default::default() })
        }),
        // It makes nothing, and answers about the caller's own ledger only.
        ("Work/VerifyLedger", Is::Made, |_| bytes(pb::VerifyLedgerRequest {})),
    ]
}

/// Workspaces of agents, and sessions in them.
fn workspaces() -> Vec<Try> {
    vec![
        ("Workspaces/ListWorkspaces", Is::Shown, |_| bytes(pb::ListWorkspacesRequest::default())),
        ("Workspaces/ListWorkspaces", Is::Found, |of| {
            bytes(pb::ListWorkspacesRequest { agent: of.agent_name.clone() })
        }),
        ("Workspaces/CreateWorkspace", Is::Found, |of| {
            bytes(create_workspace(&of.agent_name, "annas-workspace"))
        }),
        ("Workspaces/BindWorkspace", Is::Found, |of| {
            bytes(pb::BindWorkspaceRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Workspaces/BindWorkspace", Is::Found, |of| {
            let session = of.session_key.clone();
            bytes(pb::BindWorkspaceRequest { session, ..Default::default() })
        }),
        ("Workspaces/ArchiveWorkspace", Is::Found, |of| {
            let agent = of.agent_name.clone();
            bytes(pb::ArchiveWorkspaceRequest { agent, workspace: "annas-workspace".into() })
        }),
    ]
}

/// Makes a workspace in the owner's files.
pub fn create_workspace(agent: &str, name: &str) -> pb::CreateWorkspaceRequest {
    let (agent, name) = (agent.to_owned(), name.to_owned());
    pb::CreateWorkspaceRequest { agent, name, ..Default::default() }
}

/// Adds a todo behind the existing ones.
pub fn apply_todos(session: &str) -> pb::ApplyTodosRequest {
    let operations = r#"[{"op": "init", "mode": "merge", "items": [{"title": "annas todo"}]}]"#;
    let (session, operations) = (session.to_owned(), operations.to_owned());
    pb::ApplyTodosRequest { session, operations, request_id: String::new() }
}

/// Jobs and reminders.
fn schedules() -> Vec<Try> {
    vec![
        ("Schedules/GetScheduleStatus", Is::Shown, |_| bytes(pb::GetScheduleStatusRequest {})),
        ("Schedules/ListJobs", Is::Shown, |_| bytes(pb::ListJobsRequest::default())),
        ("Schedules/ListJobs", Is::Found, |of| {
            bytes(pb::ListJobsRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Schedules/GetJob", Is::Found, |of| bytes(pb::GetJobRequest { job: of.job.clone() })),
        ("Schedules/GetJob", Is::Found, |of| bytes(pb::GetJobRequest { job: of.job_id.clone() })),
        ("Schedules/AddJob", Is::Found, |of| {
            bytes(pb::AddJobRequest { id: String::new(), request_id: String::new(), ..add_job(of) })
        }),
        ("Schedules/AddJob", Is::Made, |of| {
            bytes(pb::AddJobRequest { agent: String::new(), ..add_job(of) })
        }),
        ("Schedules/UpdateJob", Is::Found, |of| {
            let (job, patch) = (of.job.clone(), r#"{"description":"changed"}"#.into());
            bytes(pb::UpdateJobRequest { job, patch, ..Default::default() })
        }),
        ("Schedules/PauseJob", Is::Found, |of| bytes(pb::PauseJobRequest { job: of.job.clone() })),
        ("Schedules/ResumeJob", Is::Found, |of| {
            bytes(pb::ResumeJobRequest { job: of.job.clone() })
        }),
        ("Schedules/RunJob", Is::Found, |of| {
            bytes(pb::RunJobRequest { job: of.job.clone(), ..Default::default() })
        }),
        ("Schedules/ListJobRuns", Is::Found, |of| {
            bytes(pb::ListJobRunsRequest { job: of.job.clone(), ..Default::default() })
        }),
        ("Schedules/BackfillJob", Is::Found, |of| {
            let from = Some(prost_types::Timestamp { seconds: 4_000_000_000, nanos: 0 });
            bytes(pb::BackfillJobRequest { job: of.job.clone(), from, until: None })
        }),
        ("Schedules/ListNextTimes", Is::Found, |of| {
            bytes(pb::ListNextTimesRequest { job: of.job.clone(), ..Default::default() })
        }),
        ("Schedules/ListCalendar", Is::Shown, |_| {
            bytes(pb::ListCalendarRequest { kind: "all".into(), ..Default::default() })
        }),
        ("Schedules/ListCalendar", Is::Found, |of| {
            bytes(pb::ListCalendarRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Schedules/WakeAgent", Is::Found, |of| {
            let (agent, text) = (of.agent_name.clone(), "history".into());
            bytes(pb::WakeAgentRequest { agent, text, ..Default::default() })
        }),
        ("Schedules/ListReminders", Is::Shown, |of| {
            bytes(pb::ListRemindersRequest { user: format!("api:{}", of.user) })
        }),
        ("Schedules/AddReminder", Is::Found, |of| {
            bytes(pb::AddReminderRequest { agent: of.agent_name.clone(), ..add_reminder(of) })
        }),
        ("Schedules/AddReminder", Is::Made, |of| bytes(add_reminder(of))),
        ("Schedules/CancelReminder", Is::Found, |of| {
            let (user, id) = (format!("api:{}", of.user), of.reminder.clone());
            bytes(pb::CancelReminderRequest { user, id })
        }),
        ("Schedules/DeleteJob", Is::Gone, |of| bytes(pb::DeleteJobRequest { job: of.job.clone() })),
    ]
}

/// Skills, agents as packages, people and the audit log.
fn people() -> Vec<Try> {
    vec![
        ("People/GetCaller", Is::Shown, |_| bytes(pb::GetCallerRequest {})),
        ("People/ListPeople", Is::Shown, |_| bytes(pb::ListPeopleRequest::default())),
        ("People/SetPersonState", Is::Found, |of| {
            bytes(pb::SetPersonStateRequest { id: of.person.clone(), disabled: true })
        }),
        ("People/UpdatePerson", Is::Found, |of| {
            let language = Some("nb".to_owned());
            bytes(pb::UpdatePersonRequest { id: of.person.clone(), language, ..Default::default() })
        }),
        ("People/GetPerson", Is::Found, |of| bytes(pb::GetPersonRequest { id: of.person.clone() })),
        ("People/CreateLinkCode", Is::Personal, |_| bytes(pb::CreateLinkCodeRequest {})),
        ("People/LinkProgramUser", Is::Found, |of| {
            let (person, user) = (of.person.clone(), "quill".to_owned());
            bytes(pb::LinkProgramUserRequest { person, user })
        }),
        ("People/SplitPerson", Is::Found, |of| {
            let (person, identity) = (of.person.clone(), "api:quill".to_owned());
            bytes(pb::SplitPersonRequest { person, identity })
        }),
        ("People/AssignConversations", Is::Made, |_| {
            bytes(pb::AssignConversationsRequest::default())
        }),
        ("People/MergePeople", Is::Found, |of| {
            let (from, into) = (of.person.clone(), of.other_person.clone());
            bytes(pb::MergePeopleRequest { from, into })
        }),
        ("People/ErasePerson", Is::Found, |of| {
            bytes(pb::ErasePersonRequest { id: of.person.clone() })
        }),
    ]
}

fn skills() -> Vec<Try> {
    vec![
        ("Audit/ListAuditEvents", Is::Shown, |_| bytes(pb::ListAuditEventsRequest::default())),
        ("Skills/ListSkills", Is::Shown, |_| bytes(pb::ListSkillsRequest::default())),
        ("Skills/ListSkills", Is::Found, |of| {
            bytes(pb::ListSkillsRequest { agent: of.agent_name.clone() })
        }),
        ("Skills/GetSkill", Is::Found, |of| {
            bytes(pb::GetSkillRequest { name: of.skill.clone(), ..Default::default() })
        }),
        ("Skills/GetSkill", Is::Found, |of| {
            let (agent, name) = (of.agent_name.clone(), "plan-a-trip".into());
            bytes(pb::GetSkillRequest { agent, name })
        }),
        ("Skills/PutSkill", Is::Found, |of| {
            bytes(pb::PutSkillRequest { agent: of.agent_name.clone(), ..put_skill(&of.skill) })
        }),
        ("Skills/PutSkill", Is::Made, |of| bytes(put_skill(&of.skill_name))),
        ("Skills/RemoveSkill", Is::Found, |of| {
            bytes(pb::RemoveSkillRequest { name: of.skill.clone(), ..Default::default() })
        }),
        // The operator's registries are the same for all tenants.
        ("Skills/FindSkills", Is::Made, |_| {
            bytes(pb::FindSkillsRequest { query: "plants".into(), limit: 0 })
        }),
        ("Skills/InstallSkill", Is::Found, |of| {
            let (slug, registry) = ("water-plants".into(), "shelf".into());
            let agent = of.agent_name.clone();
            bytes(pb::InstallSkillRequest { agent, slug, registry, ..Default::default() })
        }),
        ("Skills/ListSkillChanges", Is::Shown, |_| bytes(pb::ListSkillChangesRequest::default())),
        ("Skills/GetSkillPolicy", Is::Shown, |_| bytes(pb::GetSkillPolicyRequest {})),
        ("Skills/PutSkillPolicy", Is::Made, |_| {
            let policy = pb::SkillPolicy { allow_unjudged: true, ..Default::default() };
            bytes(pb::PutSkillPolicyRequest { policy: Some(policy) })
        }),
        ("Skills/ListSkillEnv", Is::Shown, |_| bytes(pb::ListSkillEnvRequest {})),
        ("Skills/PutSkillEnv", Is::Made, |of| bytes(put_skill_env(&of.skill))),
        ("Skills/RemoveSkillEnv", Is::Found, |of| {
            let (skill, name) = (of.skill.clone(), "GARDEN_KEY".into());
            bytes(pb::RemoveSkillEnvRequest { skill, name })
        }),
        ("Packages/ExportAgent", Is::Found, |of| {
            bytes(pb::ExportAgentRequest { agent: of.packaged.clone(), ..Default::default() })
        }),
        ("Packages/ImportAgent", Is::Made, |of| bytes(package(&of.packaged))),
        ("Packages/ApproveAgent", Is::Found, |of| {
            bytes(pb::ApproveAgentRequest { agent: of.agent_name.clone() })
        }),
    ]
}

pub fn add_job(of: &Things) -> pb::AddJobRequest {
    let job = r#"{"name":"annas job","schedule":{"kind":"cron","expr":"0 9 * * *"},
                  "payload":{"kind":"systemEvent","message":"annas tea"}}"#;
    pb::AddJobRequest {
        job: job.to_owned(),
        agent: of.agent_name.clone(),
        id: of.job.clone(),
        request_id: of.request_id.clone(),
    }
}

pub fn add_reminder(of: &Things) -> pb::AddReminderRequest {
    pb::AddReminderRequest {
        user: format!("api:{}", of.user),
        time: "in 9 days".into(),
        content: "annas plants".into(),
        request_id: of.request_id.clone(),
        ..Default::default()
    }
}

/// A secret of a skill's.
pub fn put_skill_env(skill: &str) -> pb::PutSkillEnvRequest {
    let (skill, name, value) = (skill.into(), "GARDEN_KEY".into(), "s3cret-of-plants".into());
    pb::PutSkillEnvRequest { skill, name, value }
}

/// A skill of one file.
pub fn put_skill(name: &str) -> pb::PutSkillRequest {
    let content = format!("---\nname: {name}\ndescription: {name}\n---\nx").into_bytes();
    let files = vec![pb::SkillFile { path: "SKILL.md".into(), content }];
    pb::PutSkillRequest { files, ..Default::default() }
}

/// An agent as a package.
pub fn package(name: &str) -> pb::ImportAgentRequest {
    let agent = format!("agent:\n  id: {name}\n  prompt: You plan.\n");
    let text = format!("name: {name}\nversion: \"1\"\n{agent}routing:\n  pattern: {name}\n");
    pb::ImportAgentRequest { text }
}

/// A behaviour in the layer of the tenant.
pub fn put_behavior(name: &str) -> pb::PutBehaviorRequest {
    let source = format!("description: {name}\nprocess_rule: Water.\n");
    pb::PutBehaviorRequest { name: name.to_owned(), source, ..Default::default() }
}

/// A step of a built-in behaviour, with an answer.
fn try_behavior() -> pb::TryBehaviorRequest {
    let (name, answers) = ("plan".to_owned(), vec!["{}".to_owned()]);
    pb::TryBehaviorRequest { name, answers, messages: vec!["go".into()], ..Default::default() }
}

/// Behaviours of the tenant, and of an agent.
fn behaviors() -> Vec<Try> {
    vec![
        ("Behaviors/ListBehaviors", Is::Shown, |_| bytes(pb::ListBehaviorsRequest::default())),
        ("Behaviors/ListBehaviors", Is::Found, |of| {
            bytes(pb::ListBehaviorsRequest { agent: of.agent.clone() })
        }),
        ("Behaviors/GetBehavior", Is::Found, |of| {
            bytes(pb::GetBehaviorRequest { name: of.behavior.clone(), ..Default::default() })
        }),
        ("Behaviors/GetBehavior", Is::Found, |of| {
            let (agent, name) = (of.agent.clone(), "plan".to_owned());
            bytes(pb::GetBehaviorRequest { agent, name, ..Default::default() })
        }),
        ("Behaviors/ListBehaviorVersions", Is::Found, |of| {
            let name = of.behavior.clone();
            bytes(pb::ListBehaviorVersionsRequest { name, ..Default::default() })
        }),
        ("Behaviors/ValidateBehavior", Is::Found, |of| {
            let source = put_behavior(&of.behavior).source;
            let (agent, name) = (of.agent.clone(), of.behavior.clone());
            bytes(pb::ValidateBehaviorRequest { agent, name, source, ..Default::default() })
        }),
        ("Behaviors/RenderBehavior", Is::Found, |of| {
            bytes(pb::RenderBehaviorRequest { name: of.behavior.clone(), ..Default::default() })
        }),
        ("Behaviors/RenderBehavior", Is::Found, |of| {
            let (agent, name) = (of.agent.clone(), "plan".to_owned());
            bytes(pb::RenderBehaviorRequest { agent, name, ..Default::default() })
        }),
        ("Behaviors/ParseBehaviorAnswer", Is::Found, |of| {
            let (name, answer) = (of.behavior.clone(), "{}".to_owned());
            bytes(pb::ParseBehaviorAnswerRequest { name, answer, ..Default::default() })
        }),
        ("Behaviors/TryBehavior", Is::Found, |of| {
            bytes(pb::TryBehaviorRequest { name: of.behavior.clone(), ..try_behavior() })
        }),
        ("Behaviors/TryBehavior", Is::Found, |of| {
            bytes(pb::TryBehaviorRequest { agent: of.agent.clone(), ..try_behavior() })
        }),
        ("Behaviors/TryBehavior", Is::Found, |of| {
            bytes(pb::TryBehaviorRequest { session: of.session.clone(), ..try_behavior() })
        }),
        ("Behaviors/PutBehavior", Is::Found, |of| {
            let agent = of.agent.clone();
            bytes(pb::PutBehaviorRequest { agent, ..put_behavior(&of.behavior) })
        }),
        ("Behaviors/PutBehavior", Is::Made, |of| bytes(put_behavior(&of.behavior))),
        ("Behaviors/DeleteBehavior", Is::Found, |of| {
            bytes(pb::DeleteBehaviorRequest { name: of.behavior.clone(), ..Default::default() })
        }),
    ]
}

pub fn put_chain(name: &str) -> pb::PutChainRequest {
    let spec = r#"{"stages":[{"steps":[{"name":"a","prompt":"{{input}}"}]}]}"#.to_owned();
    let chain = pb::Chain { name: name.to_owned(), spec, ..Default::default() };
    pb::PutChainRequest { chain: Some(chain) }
}

fn approvals() -> Vec<Try> {
    vec![
        ("Approvals/ListApprovals", Is::Shown, |_| bytes(pb::ListApprovalsRequest::default())),
        ("Approvals/ListApprovals", Is::Found, |of| {
            let session_id = of.session.clone();
            bytes(pb::ListApprovalsRequest { session_id, ..Default::default() })
        }),
        ("Approvals/GetApproval", Is::Found, |of| {
            bytes(pb::GetApprovalRequest { approval: of.approval.clone() })
        }),
        ("Approvals/ResolveApproval", Is::Found, |of| {
            let decision = pb::Decision::AllowAlways.into();
            bytes(pb::ResolveApprovalRequest {
                approval: of.approval.clone(),
                decision,
                ..Default::default()
            })
        }),
        ("Approvals/ListApprovalRules", Is::Shown, |_| {
            bytes(pb::ListApprovalRulesRequest::default())
        }),
        ("Approvals/ListApprovalRules", Is::Found, |of| {
            bytes(pb::ListApprovalRulesRequest { agent: of.agent_name.clone() })
        }),
        ("Approvals/ForgetApprovalRule", Is::Found, |of| {
            bytes(pb::ForgetApprovalRuleRequest { id: of.approval_rule.clone() })
        }),
    ]
}

/// An archive with one file.
fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o644);
    let packed = archive.append_data(&mut header, "note.md", b"note".as_slice());
    packed.and_then(|()| archive.into_inner()).and_then(GzEncoder::finish).unwrap_or_default()
}

fn files() -> Vec<Try> {
    vec![
        ("Files/ListFiles", Is::Found, |of| {
            bytes(pb::ListFilesRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Files/ListFiles", Is::Found, |of| {
            bytes(pb::ListFilesRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
        ("Files/ReadFile", Is::Found, |of| {
            let (agent, path) = (of.agent.clone(), "SOUL.md".into());
            bytes(pb::ReadFileRequest { agent, path, ..Default::default() })
        }),
        ("Files/ReadAttachment", Is::Found, |of| {
            let (agent, hash) = (of.agent.clone(), ContentHash::of(FILE).to_string());
            bytes(pb::ReadAttachmentRequest { agent, hash })
        }),
        ("Files/WriteFile", Is::Found, |of| {
            let (agent, path) = (of.agent.clone(), "SOUL.md".into());
            bytes(pb::WriteFileRequest { agent, path, ..Default::default() })
        }),
        ("Files/DeleteFile", Is::Found, |of| {
            let (agent, path) = (of.agent.clone(), "SOUL.md".into());
            bytes(pb::DeleteFileRequest { agent, path, ..Default::default() })
        }),
        ("Files/GetFileLog", Is::Found, |of| {
            bytes(pb::GetFileLogRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Files/DiffFiles", Is::Found, |of| {
            bytes(pb::DiffFilesRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Files/RestoreFiles", Is::Found, |of| {
            let agent = of.agent.clone();
            bytes(pb::RestoreFilesRequest { agent, revision: 1, ..Default::default() })
        }),
        ("Files/ExportFiles", Is::Found, |of| {
            bytes(pb::ExportFilesRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Files/ImportFiles", Is::Found, |of| {
            let (agent, archive) = (of.agent.clone(), archive());
            bytes(pb::ImportFilesRequest { agent, archive, ..Default::default() })
        }),
    ]
}

fn agents() -> Vec<Try> {
    vec![
        ("Agents/ListAgents", Is::Shown, |_| bytes(pb::ListAgentsRequest {})),
        ("Agents/GetAgent", Is::Found, |of| bytes(pb::GetAgentRequest { agent: of.agent.clone() })),
        ("Agents/GetAgent", Is::Found, |of| {
            bytes(pb::GetAgentRequest { agent: of.agent_name.clone() })
        }),
        ("Agents/CreateAgent", Is::Made, |of| {
            let agent = pb::Agent { name: of.agent_name.clone(), ..Default::default() };
            bytes(pb::CreateAgentRequest { agent: Some(agent) })
        }),
        ("Agents/UpdateAgent", Is::Found, |of| {
            let (id, name) = (of.agent.clone(), of.agent_name.clone());
            let agent = pb::Agent { id, name, ..Default::default() };
            bytes(pb::UpdateAgentRequest { agent: Some(agent), base_version: None })
        }),
        ("Agents/UpdateAgent", Is::Found, |of| {
            let agent = pb::Agent { name: of.agent_name.clone(), ..Default::default() };
            bytes(pb::UpdateAgentRequest { agent: Some(agent), base_version: None })
        }),
        ("Agents/SetAgentState", Is::Found, |of| {
            let state = "enabled".to_owned();
            bytes(pb::SetAgentStateRequest { agent: of.agent.clone(), state })
        }),
        ("Agents/ListAgentTemplates", Is::Gone, |_| bytes(pb::ListAgentTemplatesRequest {})),
        ("Agents/DeleteAgent", Is::Found, |of| {
            bytes(pb::DeleteAgentRequest { agent: of.agent.clone() })
        }),
        ("Agents/DeleteAgent", Is::Found, |of| {
            bytes(pb::DeleteAgentRequest { agent: of.agent_name.clone() })
        }),
        ("Providers/ListProviders", Is::Shown, |_| bytes(pb::ListProvidersRequest {})),
        ("Providers/PutProvider", Is::Made, |of| {
            let (name, kind) = (of.provider.clone(), "openai".into());
            let provider = pb::Provider { name, kind, ..Default::default() };
            bytes(pb::PutProviderRequest {
                provider: Some(provider),
                api_key: "sk-ben".into(),
                ..Default::default()
            })
        }),
        ("Providers/DeleteProvider", Is::Found, |of| {
            bytes(pb::DeleteProviderRequest { name: of.provider.clone() })
        }),
        ("McpServers/ListMcpServers", Is::Shown, |_| bytes(pb::ListMcpServersRequest {})),
        ("McpServers/PutMcpServer", Is::Made, |of| bytes(mcp_server(of, None))),
        ("McpServers/PutMcpServer", Is::Found, |of| bytes(mcp_server(of, Some(&of.agent)))),
        ("McpServers/PutMcpServer", Is::Found, |of| bytes(mcp_server(of, Some(&of.agent_name)))),
        ("McpServers/ProbeMcpServer", Is::Found, |of| {
            bytes(pb::ProbeMcpServerRequest { name: of.mcp_server.clone() })
        }),
        ("McpServers/DeleteMcpServer", Is::Found, |of| {
            bytes(pb::DeleteMcpServerRequest { name: of.mcp_server.clone() })
        }),
        ("Connections/ListConnections", Is::Shown, |_| bytes(pb::ListConnectionsRequest {})),
        ("Connections/PutConnection", Is::Made, |of| bytes(connection(of, ""))),
        ("Connections/PutConnection", Is::Found, |of| bytes(connection(of, &of.agent))),
        ("Connections/PutConnection", Is::Found, |of| bytes(connection(of, &of.agent_name))),
        ("Connections/DeleteConnection", Is::Found, |of| {
            bytes(pb::DeleteConnectionRequest { name: of.connection.clone() })
        }),
        ("Nodes/ListNodes", Is::Shown, |_| bytes(pb::ListNodesRequest {})),
        ("Nodes/CreateNode", Is::Made, |of| bytes(node(of))),
        ("Nodes/GetNode", Is::Found, |of| bytes(pb::GetNodeRequest { node: of.node.clone() })),
        ("Nodes/GetNode", Is::Found, |of| bytes(pb::GetNodeRequest { node: of.node_name.clone() })),
        ("Nodes/RevokeNode", Is::Found, |of| {
            bytes(pb::RevokeNodeRequest { node: of.node.clone() })
        }),
        ("Nodes/RevokeNode", Is::Found, |of| {
            bytes(pb::RevokeNodeRequest { node: of.node_name.clone() })
        }),
        // Nodes of two tenants are tested in `nodes`; no key may act as one.
        ("Nodes/Attach", Is::Closed, |_| bytes(pb::AttachRequest::default())),
        ("Console/CreateSignInLink", Is::Made, |of| {
            bytes(pb::CreateSignInLinkRequest { name: of.key_name.clone(), ..Default::default() })
        }),
        ("Console/ListConsoleSessions", Is::Shown, |_| {
            bytes(pb::ListConsoleSessionsRequest::default())
        }),
        ("Console/EndConsoleSession", Is::Found, |of| {
            bytes(pb::EndConsoleSessionRequest { id: of.console_session.clone() })
        }),
        ("Console/InvitePerson", Is::Made, |of| {
            let (name, role) = (of.key_name.clone(), "member".to_owned());
            bytes(pb::InvitePersonRequest { name, role })
        }),
        ("Console/ListInvitations", Is::Shown, |_| bytes(pb::ListInvitationsRequest {})),
        ("Console/RevokeInvitation", Is::Found, |of| {
            bytes(pb::RevokeInvitationRequest { id: of.invitation.clone() })
        }),
        ("Devices/ListDevices", Is::Shown, |_| bytes(pb::ListDevicesRequest {})),
        ("Devices/ApproveDevice", Is::Found, |of| {
            bytes(pb::ApproveDeviceRequest { request: of.device_request.clone() })
        }),
        ("Devices/RejectDevice", Is::Found, |of| {
            bytes(pb::RejectDeviceRequest { request: of.other_device_request.clone() })
        }),
        ("Devices/RotateDeviceToken", Is::Found, |of| {
            bytes(pb::RotateDeviceTokenRequest { device: of.device.clone(), scopes: Vec::new() })
        }),
        ("Devices/RemoveDevice", Is::Found, |of| {
            bytes(pb::RemoveDeviceRequest { device: of.device.clone() })
        }),
        ("Devices/RevokeDeviceToken", Is::Found, |of| {
            bytes(pb::RevokeDeviceTokenRequest { device: of.device.clone() })
        }),
        ("Keys/ListKeys", Is::Shown, |_| bytes(pb::ListKeysRequest {})),
        ("Keys/CreateKey", Is::Made, |of| {
            let (name, scopes) = (of.key_name.clone(), vec!["read".into()]);
            bytes(pb::CreateKeyRequest {
                name,
                scopes,
                lifetime_seconds: 0,
                person: String::new(),
                ..Default::default()
            })
        }),
        ("Keys/RevokeKey", Is::Found, |of| bytes(pb::RevokeKeyRequest { id: of.key.clone() })),
        ("Plans/ListPlans", Is::Closed, |_| bytes(pb::ListPlansRequest {})),
        ("Plans/GetPlan", Is::Closed, |_| bytes(pb::GetPlanRequest { name: "basic".into() })),
        ("Plans/PutPlan", Is::Closed, |_| {
            let plan = pb::Plan { name: "bens".into(), ..Default::default() };
            bytes(pb::PutPlanRequest { plan: Some(plan) })
        }),
        ("Plans/DeletePlan", Is::Closed, |_| bytes(pb::DeletePlanRequest { name: "basic".into() })),
        ("PlatformKeys/ListPlatformKeys", Is::Closed, |_| bytes(pb::ListPlatformKeysRequest {})),
        ("PlatformKeys/PutPlatformKey", Is::Closed, |_| {
            bytes(pb::PutPlatformKeyRequest {
                provider: "openai".into(),
                name: "bens".into(),
                api_key: "sk".into(),
                ..Default::default()
            })
        }),
        ("PlatformKeys/DeletePlatformKey", Is::Closed, |_| {
            let (provider, name) = ("openai".into(), "main".into());
            bytes(pb::DeletePlatformKeyRequest { provider, name })
        }),
        ("UsageReports/GetTenantUsage", Is::Shown, |_| bytes(pb::GetTenantUsageRequest::default())),
        ("UsageReports/GetTenantUsage", Is::Closed, |_| {
            bytes(pb::GetTenantUsageRequest { tenant: "anna".into() })
        }),
        ("UsageReports/ExportUsage", Is::Shown, |_| bytes(export(""))),
        ("UsageReports/ExportUsage", Is::Closed, |_| bytes(export("anna"))),
        ("UsageReports/ExportUsage", Is::Closed, |_| {
            bytes(pb::ExportUsageRequest { all_tenants: true, ..export("") })
        }),
        ("UsageReports/ListTenantEvents", Is::Shown, |_| {
            bytes(pb::ListTenantEventsRequest::default())
        }),
        ("UsageReports/ListTenantEvents", Is::Closed, |_| {
            bytes(pb::ListTenantEventsRequest { tenant: "anna".into(), ..Default::default() })
        }),
        ("UsageReports/ListTenantEvents", Is::Closed, |_| {
            bytes(pb::ListTenantEventsRequest { all_tenants: true, ..Default::default() })
        }),
        ("Tenants/ListTenants", Is::Closed, |_| bytes(pb::ListTenantsRequest {})),
        ("Tenants/GetTenant", Is::Closed, |_| {
            bytes(pb::GetTenantRequest { tenant: "anna".into() })
        }),
        ("Tenants/CreateTenantKey", Is::Closed, |_| {
            let (tenant, name) = ("anna".into(), "bens".into());
            bytes(pb::CreateTenantKeyRequest { tenant, name })
        }),
        ("Tenants/CreateTenant", Is::Closed, |_| {
            bytes(pb::CreateTenantRequest { name: "bens-second".into(), ..Default::default() })
        }),
        ("Tenants/UpdateTenant", Is::Closed, |_| {
            let (name, state) = ("anna".into(), "suspended".into());
            let tenant = pb::Tenant { name, state, ..Default::default() };
            bytes(pb::UpdateTenantRequest { tenant: Some(tenant), ..Default::default() })
        }),
        ("Tenants/DeleteTenant", Is::Closed, |_| {
            bytes(pb::DeleteTenantRequest { name: "anna".into() })
        }),
    ]
}

fn export(tenant: &str) -> pb::ExportUsageRequest {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string();
    let (from, to, tenant) = (today.clone(), today, tenant.into());
    pb::ExportUsageRequest { tenant, all_tenants: false, from, to }
}

/// A further key of Anna's provider.
pub fn credential(of: &Things) -> pb::PutCredentialRequest {
    let (provider, name) = (of.provider.clone(), of.credential.clone());
    let credential = pb::Credential { provider, name, ..Default::default() };
    pb::PutCredentialRequest {
        credential: Some(credential),
        secret: "sk-second".into(),
        ..Default::default()
    }
}

/// A model that is known by its provider's name.
pub fn model(of: &Things) -> pb::PutModelRequest {
    let model = format!("{}:one", of.provider);
    pb::PutModelRequest { model, card: r#"{"context": 9000}"#.into() }
}

/// A short name of it.
pub fn alias(of: &Things) -> pb::PutAliasRequest {
    pb::PutAliasRequest { alias: of.alias.clone(), model: format!("{}:one", of.provider) }
}

fn models() -> Vec<Try> {
    vec![
        ("Credentials/ListCredentials", Is::Shown, |_| bytes(pb::ListCredentialsRequest {})),
        ("Credentials/PutCredential", Is::Found, |of| bytes(credential(of))),
        ("Credentials/OrderCredentials", Is::Found, |of| {
            let (provider, names) = (of.provider.clone(), vec![of.credential.clone()]);
            bytes(pb::OrderCredentialsRequest { provider, names, strict: true })
        }),
        ("Credentials/EnableCredential", Is::Found, |of| {
            let (provider, name) = (of.provider.clone(), of.credential.clone());
            bytes(pb::EnableCredentialRequest { provider, name })
        }),
        ("Credentials/DeleteCredential", Is::Found, |of| {
            let (provider, name) = (of.provider.clone(), of.credential.clone());
            bytes(pb::DeleteCredentialRequest { provider, name })
        }),
        ("Models/ListModels", Is::Shown, |_| bytes(pb::ListModelsRequest { own: true })),
        // Of the caller's own tenant, which uses no model here: its provider would be asked.
        ("Models/CheckModels", Is::Made, |_| bytes(pb::CheckModelsRequest {})),
        // Of the caller's own tenant.
        ("Security/CheckSecurity", Is::Made, |_| bytes(pb::CheckSecurityRequest {})),
        ("Models/PutModel", Is::Made, |of| bytes(model(of))),
        ("Models/DeleteModel", Is::Found, |of| {
            bytes(pb::DeleteModelRequest { model: format!("{}:one", of.provider) })
        }),
        ("Models/PutAlias", Is::Made, |of| bytes(alias(of))),
        ("Models/DeleteAlias", Is::Found, |of| {
            bytes(pb::DeleteAliasRequest { alias: of.alias.clone() })
        }),
        ("Heartbeats/GetHeartbeat", Is::Found, |of| {
            bytes(pb::GetHeartbeatRequest { agent: of.agent.clone(), next: 1 })
        }),
        ("Heartbeats/ListHeartbeatEvents", Is::Found, |of| {
            bytes(pb::ListHeartbeatEventsRequest { agent: of.agent_name.clone(), limit: 1 })
        }),
        ("Heartbeats/RunHeartbeat", Is::Found, |of| {
            let (agent, request_id) = (of.agent.clone(), String::new());
            bytes(pb::RunHeartbeatRequest { agent, request_id })
        }),
        ("Heartbeats/SetHeartbeat", Is::Found, |of| {
            bytes(pb::SetHeartbeatRequest { agent: of.agent_name.clone(), enabled: false })
        }),
        ("Budgets/ListBudgets", Is::Shown, |_| bytes(pb::ListBudgetsRequest {})),
        ("Budgets/SetBudget", Is::Found, |of| {
            bytes(pb::SetBudgetRequest { agent: of.agent.clone(), tokens: 1, ..Default::default() })
        }),
        ("Budgets/SetBudget", Is::Found, |of| {
            let agent = of.agent_name.clone();
            bytes(pb::SetBudgetRequest { agent, tokens: 1, ..Default::default() })
        }),
        ("Budgets/UnsetBudget", Is::Found, |of| {
            bytes(pb::UnsetBudgetRequest { agent: of.agent.clone() })
        }),
        ("Budgets/GetUsage", Is::Shown, |_| bytes(pb::GetUsageRequest::default())),
        ("Budgets/GetUsage", Is::Found, |of| {
            bytes(pb::GetUsageRequest { agent: of.agent_name.clone(), ..Default::default() })
        }),
    ]
}

/// The MCP server as Anna has it, for this agent or for all.
pub fn mcp_server(of: &Things, agent: Option<&str>) -> pb::PutMcpServerRequest {
    let server = pb::McpServer {
        name: of.mcp_server.clone(),
        transport: "http".into(),
        url: "https://host.example/mcp".into(),
        agents: agent.map(str::to_owned).into_iter().collect(),
        enabled: true,
        ..Default::default()
    };
    let secrets = [("Authorization".into(), "Bearer s3cret".into())].into();
    pb::PutMcpServerRequest { server: Some(server), secrets, keep_secrets: false }
}

/// Notion, for one agent or for all.
pub fn connection(of: &Things, agent: &str) -> pb::PutConnectionRequest {
    let (name, kind) = (of.connection.clone(), "notion".into());
    let connection = pb::Connection { name, kind, agent: agent.into(), ..Default::default() };
    pb::PutConnectionRequest { connection: Some(connection), secret: "ntn_1".into() }
}

/// The node as Anna has it.
pub fn node(of: &Things) -> pb::CreateNodeRequest {
    pb::CreateNodeRequest { name: of.node_name.clone(), used_by: String::new() }
}

/// The account as Anna has it, by this id.
pub fn account(of: &Things, id: String) -> pb::Account {
    pb::Account {
        id,
        channel: "telegram".into(),
        name: of.account_name.clone(),
        enabled: true,
        settings: r#"{"allow": ["*"]}"#.into(),
        ..Default::default()
    }
}

pub const SECRETS: &str = r#"{"token": "1:a"}"#;

fn channels() -> Vec<Try> {
    vec![
        ("Channels/ListAccounts", Is::Shown, |_| bytes(pb::ListAccountsRequest::default())),
        ("Channels/ListChannelKinds", Is::Gone, |_| bytes(pb::ListChannelKindsRequest {})),
        ("Channels/CheckAccount", Is::Found, |of| {
            bytes(pb::CheckAccountRequest { id: of.account.clone() })
        }),
        ("Channels/ListAccounts", Is::Shown, |_| {
            bytes(pb::ListAccountsRequest { channel: "telegram".into() })
        }),
        ("Channels/CreateAccount", Is::Made, |of| {
            let account = Some(account(of, String::new()));
            bytes(pb::CreateAccountRequest { account, secrets: SECRETS.into() })
        }),
        ("Channels/SendText", Is::Found, |of| {
            bytes(pb::SendTextRequest {
                channel: "telegram".into(),
                account: of.account_name.clone(),
                chat: "7".into(),
                text: "hello".into(),
                ..Default::default()
            })
        }),
        ("Channels/UpdateAccount", Is::Found, |of| {
            let account = Some(account(of, of.account.clone()));
            bytes(pb::UpdateAccountRequest { account, secrets: SECRETS.into() })
        }),
        ("Channels/DeleteAccount", Is::Found, |of| {
            bytes(pb::DeleteAccountRequest { id: of.account.clone() })
        }),
    ]
}

/// Anna's peer, bound to this agent.
pub fn binding(of: &Things, agent: &str) -> pb::Binding {
    pb::Binding {
        channel: "telegram".into(),
        account: of.account_name.clone(),
        peer_kind: "direct".into(),
        peer_id: of.peer.clone(),
        agent: agent.to_owned(),
        ..Default::default()
    }
}

/// Rule that routes a word of Anna's to this agent.
pub fn rules(of: &Things, agent: &str) -> pb::PutRulesRequest {
    let (pattern, agent) = (of.rule_word.clone(), agent.to_owned());
    pb::PutRulesRequest {
        rules: vec![pb::Rule { pattern, agent, ..Default::default() }],
        ..Default::default()
    }
}

/// Identity of Anna's peer.
pub fn identity(of: &Things) -> pb::PutIdentityRequest {
    let (peer, canonical) = (of.identity.clone(), of.identity.clone());
    let identity = pb::Identity { channel: "telegram".into(), peer, canonical };
    pb::PutIdentityRequest { identity: Some(identity) }
}

fn routing() -> Vec<Try> {
    vec![
        ("Routing/ListBindings", Is::Shown, |_| bytes(pb::ListBindingsRequest {})),
        ("Routing/CreateBinding", Is::Found, |of| {
            let binding = Some(binding(of, &of.agent_name));
            bytes(pb::CreateBindingRequest { binding })
        }),
        ("Routing/CreateBinding", Is::Found, |of| {
            bytes(pb::CreateBindingRequest { binding: Some(binding(of, &of.agent)) })
        }),
        ("Routing/CreateBinding", Is::Made, |of| {
            bytes(pb::CreateBindingRequest { binding: Some(binding(of, "main")) })
        }),
        ("Routing/DeleteBinding", Is::Found, |of| {
            bytes(pb::DeleteBindingRequest { id: of.binding.clone() })
        }),
        ("Routing/ListRules", Is::Shown, |_| bytes(pb::ListRulesRequest {})),
        ("Routing/PutRules", Is::Found, |of| bytes(rules(of, &of.agent_name))),
        ("Routing/PutRules", Is::Found, |of| bytes(rules(of, &of.agent))),
        ("Routing/PutRules", Is::Made, |of| bytes(rules(of, "main"))),
        ("Routing/ListIdentities", Is::Shown, |_| bytes(pb::ListIdentitiesRequest {})),
        ("Routing/PutIdentity", Is::Made, |of| bytes(identity(of))),
        ("Routing/DeleteIdentity", Is::Found, |of| {
            let (channel, peer) = ("telegram".into(), of.identity.clone());
            bytes(pb::DeleteIdentityRequest { channel, peer })
        }),
        ("Routing/Explain", Is::Shown, |of| {
            bytes(pb::ExplainRequest {
                channel: "telegram".into(),
                account: of.account_name.clone(),
                peer_kind: "direct".into(),
                peer_id: "7".into(),
                text: of.rule_word.clone(),
                ..Default::default()
            })
        }),
    ]
}

fn policies() -> Vec<Try> {
    vec![
        ("Policies/GetPolicy", Is::Found, |of| {
            bytes(pb::GetPolicyRequest { agent: of.agent.clone() })
        }),
        ("Policies/PutPolicy", Is::Found, |of| {
            let (agent, document) = (of.agent_name.clone(), "{}".into());
            bytes(pb::PutPolicyRequest { agent, document, base_version: None })
        }),
        ("Policies/PutPolicy", Is::Made, |_| {
            let (agent, document) = (String::new(), "{}".into());
            bytes(pb::PutPolicyRequest { agent, document, base_version: None })
        }),
        ("Policies/CheckPolicy", Is::Found, |of| {
            bytes(pb::CheckPolicyRequest { agent: of.agent.clone(), document: "{}".into() })
        }),
        ("Policies/ExplainTools", Is::Found, |of| {
            bytes(pb::ExplainToolsRequest { agent: of.agent.clone(), ..Default::default() })
        }),
        ("Policies/ExplainTools", Is::Found, |of| {
            bytes(pb::ExplainToolsRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Policies/ExplainTools", Is::Found, |of| {
            bytes(pb::ExplainToolsRequest { session: of.session_key.clone(), ..Default::default() })
        }),
        ("Policies/ExplainTools", Is::Found, |of| {
            let user = format!("api:{}", of.key);
            bytes(pb::ExplainToolsRequest { user, ..Default::default() })
        }),
    ]
}

fn operations() -> Vec<Try> {
    vec![
        ("Operations/GetStatus", Is::Shown, |_| bytes(pb::GetStatusRequest {})),
        ("Operations/ListDeadLetters", Is::Shown, |_| bytes(pb::ListDeadLettersRequest::default())),
        ("Operations/GetDeadLetter", Is::Found, |of| {
            bytes(pb::GetDeadLetterRequest { message_id: of.dead_letter.clone() })
        }),
        ("Operations/RequeueDeadLetter", Is::Found, |of| {
            bytes(pb::RequeueDeadLetterRequest { message_id: of.dead_letter.clone() })
        }),
        ("Operations/ListDeliveries", Is::Shown, |_| bytes(pb::ListDeliveriesRequest::default())),
        ("Operations/ListDeliveries", Is::Gone, |of| {
            bytes(pb::ListDeliveriesRequest {
                account_id: of.account.clone(),
                ..Default::default()
            })
        }),
        ("Operations/ListDeliveries", Is::Found, |of| {
            bytes(pb::ListDeliveriesRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Operations/ListDeadLetters", Is::Found, |of| {
            bytes(pb::ListDeadLettersRequest { session: of.session.clone(), ..Default::default() })
        }),
        ("Operations/GetInboxCounts", Is::Gone, |_| bytes(pb::GetInboxCountsRequest {})),
        ("Mesh/GetMesh", Is::Closed, |_| bytes(pb::GetMeshRequest {})),
        ("Security/CheckInstallation", Is::Closed, |_| bytes(pb::CheckInstallationRequest {})),
        ("Operations/ResendDelivery", Is::Found, |of| {
            bytes(pb::ResendDeliveryRequest { id: of.delivery.clone() })
        }),
    ]
}
