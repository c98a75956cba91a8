//! The service `Operations`: waiting messages, dead letters and deliveries.

use std::{collections::HashMap, time::Duration};

use holdfast_bus::{Control, ControlKind, RunnerReport};
use holdfast_proto::gateway::v1::{
    self as pb, GetDeadLetterRequest, GetDeadLetterResponse, GetStatusRequest, GetStatusResponse,
    ListDeadLettersRequest, ListDeadLettersResponse, ListDeliveriesRequest, ListDeliveriesResponse,
    RequeueDeadLetterRequest, RequeueDeadLetterResponse, ResendDeliveryRequest,
    ResendDeliveryResponse, operations_server::Operations as Service,
};
use holdfast_session::{DeadLetter, DeliveryView};
use tonic::{Request, Response, Status};

use super::{State, non_empty, page_size, parse_word, timestamp};
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
        }))
    }

    async fn list_dead_letters(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;

        let letters = self.0.sessions.dead_letters().list(caller.tenant, most).await;

        let letters = letters.map_err(Error::from)?.into_iter().map(letter_of).collect();
        Ok(Response::new(ListDeadLettersResponse { letters }))
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

        let deliveries =
            self.0.sessions.deliveries().list(caller.tenant, state.transpose()?, most).await;

        let deliveries = deliveries.map_err(Error::from)?.into_iter();
        let deliveries = deliveries.map(delivery_of).collect();
        Ok(Response::new(ListDeliveriesResponse { deliveries }))
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
        chat: view.chat,
        state: view.state,
        attempt: view.attempt.unsigned_abs(),
        reason: view.reason.unwrap_or_default(),
        platform_id: view.platform_id.unwrap_or_default(),
        created_at: Some(timestamp(view.created_at)),
        finished_at: view.finished_at.map(timestamp),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
