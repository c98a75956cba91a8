//! The service `Audit`: reading the audit log.

use holdfast_directory::{AuditEvent, AuditFilter};
use holdfast_proto::gateway::v1::{
    self as pb, ListAuditEventsRequest, ListAuditEventsResponse, audit_server::Audit as Service,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::{
    Error,
    control::{State, invalid, non_empty, page_size, timestamp},
};

const DEFAULT_PAGE_SIZE: u32 = 100;
const MAX_PAGE_SIZE: u32 = 500;

/// Implements `holdfast.gateway.v1.Audit`.
#[derive(Debug)]
pub struct Audit(pub State);

#[tonic::async_trait]
impl Service for Audit {
    async fn list_audit_events(
        &self,
        request: Request<ListAuditEventsRequest>,
    ) -> Result<Response<ListAuditEventsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let filter = AuditFilter { limit: limit + 1, ..filter_of(request)? };

        let events = self.0.directory.audit().list(caller.tenant, &filter).await;

        let mut events = events.map_err(Error::from)?;
        let is_last = events.len() <= usize::try_from(limit).unwrap_or(usize::MAX);
        if !is_last {
            events.pop();
        }
        let next = events.last().filter(|_| !is_last).map(|event| event.id.to_string());
        Ok(Response::new(ListAuditEventsResponse {
            events: events.into_iter().map(event_of).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }
}

fn filter_of(request: ListAuditEventsRequest) -> Result<AuditFilter, Error> {
    let before = non_empty(request.page_token).map(|token| Uuid::try_parse(&token)).transpose();
    Ok(AuditFilter {
        actor: request.actor,
        action: request.action,
        subject: request.subject,
        outcome: request.outcome,
        request_id: request.request_id,
        since: request.since.map(|at| moment("since", at)).transpose()?,
        until: request.until.map(|at| moment("until", at)).transpose()?,
        before: before.map_err(|_| {
            invalid("`page_token` is not one of this list: take `next_page_token`".to_owned())
        })?,
        limit: 0,
    })
}

fn moment(field: &str, at: prost_types::Timestamp) -> Result<jiff::Timestamp, Error> {
    jiff::Timestamp::new(at.seconds, at.nanos)
        .map_err(|_| invalid(format!("`{field}` is no point in time")))
}

fn event_of(event: AuditEvent) -> pb::AuditEvent {
    pb::AuditEvent {
        id: event.id.to_string(),
        created_at: Some(timestamp(event.created_at)),
        actor: event.actor,
        actor_name: event.actor_name,
        action: event.action,
        subject: event.subject,
        method: event.method,
        request_id: event.request_id,
        outcome: event.outcome,
        via: event.via,
        subject_name: event.subject_name,
        invited_by: event.invited_by,
        inviter_name: event.inviter_name,
        changes: if event.changes.is_null() { String::new() } else { event.changes.to_string() },
    }
}
