//! The services `Operations`, `Mesh` and `Security`: waiting messages, dead letters and deliveries;
//! processes and backends; what is open or weak.

pub mod mesh;
pub mod security;

use holdfast_grpc::Caller;
use std::{collections::HashMap, time::Duration};

use holdfast_bus::{Control, ControlKind, RunnerReport};
use holdfast_directory::Routing;
use holdfast_proto::gateway::v1::{
    self as pb, GetDeadLetterRequest, GetDeadLetterResponse, GetInboxCountsRequest,
    GetInboxCountsResponse, GetStatusRequest, GetStatusResponse, ListDeadLettersRequest,
    ListDeadLettersResponse, ListDeliveriesRequest, ListDeliveriesResponse,
    RequeueDeadLetterRequest, RequeueDeadLetterResponse, ResendDeliveryRequest,
    ResendDeliveryResponse, operations_server::Operations as Service,
};
use holdfast_session::{
    DeadLetter, DeadLetterFilter, DeliveryFilter, DeliveryView, InboxCounts, ListCursor, WaitGroup,
};
use holdfast_types::{AccountId, SessionId};
use tonic::{Request, Response, Status};

use super::{State, non_empty, page_size, parse_word, sessions::paging, timestamp};
use crate::permissions::rights::ConversationRight;
use crate::{Error, audit};

/// Wait for runners to report their state.
const RUNNER_STATUS_TIMEOUT: Duration = Duration::from_millis(300);

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;

/// Implements `holdfast.gateway.v1.Operations`.
#[derive(Debug)]
pub struct Handler(pub State);

#[tonic::async_trait]
impl Service for Handler {
    async fn get_status(
        &self,
        request: Request<GetStatusRequest>,
    ) -> Result<Response<GetStatusResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let counts = self.0.sessions.queues().counts(caller.tenant).await.map_err(Error::from)?;
        let waiting = self.0.sessions.queues().wait_groups(caller.tenant).await;
        let waiting = waiting.map_err(Error::from)?;
        let routing = self.0.directory.routing().get(caller.tenant).await.map_err(Error::from)?;
        let tenant = self.0.directory.tenants().get(&caller.tenant.to_string()).await;

        let pool = self.0.sessions.runner_pools().of_tenant(caller.tenant).await;
        let pool = pool.map_err(Error::from)?;

        // Without NATS no runner answers; the rest of the status is complete.
        let runners = self.0.bus.runner_reports(RUNNER_STATUS_TIMEOUT).await.unwrap_or_default();
        let (mut sandboxes, mut no_commands) = (HashMap::new(), HashMap::new());
        for RunnerReport { sandbox, no_commands: why } in runners {
            let (counts, name) =
                if why.is_empty() { (&mut sandboxes, sandbox) } else { (&mut no_commands, why) };
            *counts.entry(name).or_default() += 1;
        }

        Ok(Response::new(GetStatusResponse {
            sandboxes,
            no_commands,
            sessions: counts.sessions.into_iter().collect(),
            waiting_messages: counts.waiting,
            oldest_wait_ms: millis(counts.oldest_wait),
            dead_letters: counts.dead,
            deliveries: counts.deliveries.into_iter().collect(),
            agents: i64::try_from(routing.agents().len()).unwrap_or(i64::MAX),
            tenant: tenant.map_err(Error::from)?.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runner_pool: pool.pool.map(|pool| pool.to_string()).unwrap_or_default(),
            pool_runners: pool.live_runners,
            wait_reasons: waiting.into_iter().map(|group| wait_reason(group, &routing)).collect(),
        }))
    }

    async fn list_dead_letters(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let filter = DeadLetterFilter {
            account: account(request.account_id)?,
            session: self.session(&caller, request.session).await?,
            limit: most + 1,
            after: paging::parse_list_token(request.page_token)?,
        };

        let letters = self.0.sessions.dead_letters().list(caller.tenant, filter).await;

        let (page, more) = paging::split_page(letters.map_err(Error::from)?, most);
        let last = page.last().filter(|_| more);
        let last = last.map(|last| ListCursor { at: last.died_at, id: last.message.as_uuid() });
        let next_page_token = last.map(paging::list_token).unwrap_or_default();
        let letters = page.into_iter().map(letter_of).collect();
        Ok(Response::new(ListDeadLettersResponse { letters, next_page_token }))
    }

    async fn get_dead_letter(
        &self,
        request: Request<GetDeadLetterRequest>,
    ) -> Result<Response<GetDeadLetterResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let message = request.message_id.parse().map_err(Error::from)?;

        let letter = self.0.sessions.dead_letters().get(caller.tenant, message).await;

        let letter = Some(letter_of(letter.map_err(Error::from)?));
        Ok(Response::new(GetDeadLetterResponse { letter }))
    }

    async fn requeue_dead_letter(
        &self,
        request: Request<RequeueDeadLetterRequest>,
    ) -> Result<Response<RequeueDeadLetterResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.message_id);
        let message = request.message_id.parse().map_err(Error::from)?;

        let accepted = self.0.sessions.dead_letters().requeue(caller.tenant, message).await;
        let accepted = accepted.map_err(Error::from)?;
        if let Some(after) = accepted.wake {
            self.0.bus.wake_run(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        if let Some(running) = accepted.running {
            let (session, kind) = (accepted.session, ControlKind::Input);
            self.0.bus.control(running.owner, &Control { session, kind, epoch: running.epoch });
        }

        let message_id = accepted.message.to_string();
        Ok(Response::new(RequeueDeadLetterResponse { message_id, seq: accepted.seq }))
    }

    async fn list_deliveries(
        &self,
        request: Request<ListDeliveriesRequest>,
    ) -> Result<Response<ListDeliveriesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let wanted = "pending, sending, sent, unknown or dead";
        let state = non_empty(request.state).map(|state| parse_word("state", &state, wanted));
        let filter = DeliveryFilter {
            state: state.transpose()?,
            account: account(request.account_id)?,
            channel: non_empty(request.channel),
            session: self.session(&caller, request.session).await?,
            run: None,
            limit: most + 1,
            after: paging::parse_list_token(request.page_token)?,
        };

        let deliveries = self.0.sessions.deliveries().list(caller.tenant, filter).await;

        let (page, more) = paging::split_page(deliveries.map_err(Error::from)?, most);
        let last = page.last().filter(|_| more);
        let last = last.map(|last| ListCursor { at: last.created_at, id: last.id.as_uuid() });
        let next_page_token = last.map(paging::list_token).unwrap_or_default();
        let deliveries = page.into_iter().map(delivery_of).collect();
        Ok(Response::new(ListDeliveriesResponse { deliveries, next_page_token }))
    }

    async fn resend_delivery(
        &self,
        request: Request<ResendDeliveryRequest>,
    ) -> Result<Response<ResendDeliveryResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;

        let channel =
            self.0.sessions.deliveries().resend(caller.tenant, id).await.map_err(Error::from)?;
        self.0.bus.wake_deliver(&channel);

        Ok(Response::new(ResendDeliveryResponse {}))
    }

    async fn get_inbox_counts(
        &self,
        request: Request<GetInboxCountsRequest>,
    ) -> Result<Response<GetInboxCountsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let counts = self.0.sessions.views().inbox_counts(caller.tenant).await;
        let proposals = self.0.proposals.count_open(caller.tenant).await;

        let counts = counts.map_err(Error::from)?;
        let agent_proposals = proposals.map_err(Error::from)?;
        let InboxCounts { approvals, questions, failed_deliveries, dead_letters } = counts;
        Ok(Response::new(GetInboxCountsResponse {
            approvals,
            questions,
            failed_deliveries,
            dead_letters,
            agent_proposals,
            total: approvals + questions + failed_deliveries + dead_letters + agent_proposals,
        }))
    }
}

impl Handler {
    /// Finds a session by id or key; `None` for an empty name.
    async fn session(&self, caller: &Caller, named: String) -> Result<Option<SessionId>, Error> {
        let Some(named) = non_empty(named) else { return Ok(None) };
        let id = self.0.session(caller, &named, ConversationRight::Read).await?;
        Ok(Some(self.0.sessions.views().session(caller.tenant, id).await?.id))
    }
}

fn account(id: String) -> Result<Option<AccountId>, Error> {
    Ok(non_empty(id).map(|id| id.parse()).transpose()?)
}

fn letter_of(letter: DeadLetter) -> pb::DeadLetter {
    pb::DeadLetter {
        message_id: letter.message.to_string(),
        session_id: letter.session.to_string(),
        seq: letter.seq,
        source: letter.source,
        reason: letter.reason,
        text: letter.body.text,
        accepted_at: Some(timestamp(letter.accepted_at)),
        died_at: Some(timestamp(letter.died_at)),
    }
}

fn delivery_of(view: DeliveryView) -> pb::Delivery {
    pb::Delivery {
        id: view.id.to_string(),
        session_id: view.session.to_string(),
        run_id: view.run.to_string(),
        channel: view.channel,
        account_id: view.account.to_string(),
        text: view.text,
        chat: view.chat,
        state: view.state,
        attempt: view.attempt.unsigned_abs(),
        reason: view.reason.unwrap_or_default(),
        platform_id: view.platform_id.unwrap_or_default(),
        created_at: Some(timestamp(view.created_at)),
        finished_at: view.finished_at.map(timestamp),
    }
}

fn wait_reason(group: WaitGroup, routing: &Routing) -> pb::WaitReason {
    let agent = group.agent.map(|id| {
        let agent = routing.agents().iter().find(|agent| agent.id == id);
        agent.map_or_else(|| id.to_string(), |agent| agent.name.to_string())
    });
    pb::WaitReason {
        reason: group.reason,
        object: agent.or(group.object).unwrap_or_default(),
        holder: group.holder.unwrap_or_default(),
        sessions: group.sessions,
        messages: group.messages,
        oldest_wait_ms: millis(group.oldest_wait),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
