//! List of runs: those that wait for an approval, then those that have ended.

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{ListRunsRequest, ListRunsResponse};
use holdfast_session::{ListCursor, RunFilter, RunView, TurnOutcome, WaitingRun};
use holdfast_types::AgentId;
use jiff::Timestamp;
use uuid::Uuid;

use super::{DEFAULT_PAGE_SIZE, Handler, MAX_PAGE_SIZE, convert, paging};
use crate::{
    Error,
    control::{non_empty, page_size, schedules},
    permissions::rights::{self, ConversationRight},
};

/// Status of runs that wait for an approval.
const WAITING_STATUS: &str = "waiting_approval";

const STATUSES: &str = "waiting_approval, completed, interrupted, cancelled, failed or dead";

pub(super) async fn list(
    of: &Handler,
    caller: &Caller,
    request: ListRunsRequest,
) -> Result<ListRunsResponse, Error> {
    let tenant = caller.tenant;
    if request.session.is_empty() && rights::reads_only_own(caller).is_some() {
        return Err(Error::MissingField("session"));
    }
    let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    let is_first = request.page_token.is_empty();
    let status = non_empty(request.status.clone());
    let mut filter = filter(of, caller, request, status.as_deref()).await?;
    let state = &of.0;

    // Waiting runs have no model, cost or origin yet.
    let is_plain = filter.model.is_none()
        && filter.channel.is_none()
        && filter.person.is_none()
        && filter.min_cost_micros == 0
        && filter.until.is_none();
    let waiting = match status.as_deref() {
        None | Some(WAITING_STATUS) if is_first && is_plain => {
            state.sessions.approvals().waiting_runs(tenant, filter.session, most).await?
        }
        _ => Vec::new(),
    };
    let is_shown = |run: &WaitingRun| {
        filter.agent.is_none_or(|agent| agent == run.agent)
            && filter.since.is_none_or(|since| run.asked_at >= since)
    };
    let waiting: Vec<WaitingRun> = waiting.into_iter().filter(is_shown).collect();
    let left = most.saturating_sub(i64::try_from(waiting.len()).unwrap_or(most));
    filter.limit = left + 1;
    let ended = match status.as_deref() {
        Some(WAITING_STATUS) => Vec::new(),
        _ => state.sessions.views().runs(tenant, filter).await?,
    };
    let names = state.agent_names(tenant).await?;

    // A page without room for ended runs is followed by the newest of them.
    let newest = ListCursor { at: Timestamp::now(), id: Uuid::max() };
    let (ended, more) = paging::split_page(ended, left);
    let last = more.then(|| ended.last().map_or(newest, RunView::cursor));
    let waiting = waiting.into_iter().map(|run| convert::waiting_run(run, &names));
    let ended = ended.into_iter().map(|run| convert::run(run, &names));
    Ok(ListRunsResponse {
        runs: waiting.chain(ended).collect(),
        next_page_token: last.map(paging::list_token).unwrap_or_default(),
    })
}

async fn filter(
    of: &Handler,
    caller: &Caller,
    request: ListRunsRequest,
    status: Option<&str>,
) -> Result<RunFilter, Error> {
    let tenant = caller.tenant;
    let outcome = match status {
        None | Some(WAITING_STATUS) => None,
        Some(word) => Some(outcome(word)?),
    };
    let session = match non_empty(request.session) {
        Some(session) => Some(of.find(caller, &session, ConversationRight::Read).await?),
        None => None,
    };
    let agent: Option<AgentId> = match non_empty(request.agent) {
        Some(agent) => Some(of.0.directory.agents().get(tenant, &agent).await?.id),
        None => None,
    };
    let since = request.since.map(|at| schedules::moment("since", &at)).transpose()?;
    let until = request.until.map(|at| schedules::moment("until", &at)).transpose()?;
    Ok(RunFilter {
        session,
        agent,
        outcome,
        model: non_empty(request.model),
        since,
        until,
        min_cost_micros: request.min_cost_micros,
        channel: non_empty(request.channel),
        person: non_empty(request.person),
        limit: 0,
        after: paging::parse_list_token(request.page_token)?,
    })
}

fn outcome(word: &str) -> Result<TurnOutcome, Error> {
    // An unknown word is read as a failure.
    let outcome = TurnOutcome::parse(word);
    (outcome.as_str() == word).then_some(outcome).ok_or_else(|| Error::UnknownValue {
        field: "status",
        given: word.chars().take(80).collect(),
        wanted: STATUSES,
    })
}
