//! The service `Events`.

use futures::{StreamExt as _, stream::BoxStream};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, SubscribeRequest, SubscribeResponse,
    event_webhooks_server::EventWebhooksServer,
    events_server::{Events as Service, EventsServer},
};
use tonic::{Request, Response, Status, service::Routes};

use super::{
    EventItem, EventSource, Subscription, SubscriptionStart,
    convert::{filter, parse_cursor, shown},
    webhooks::EventWebhooks,
};
use crate::{
    Error,
    control::{State, invalid},
    permissions::{Permission, require},
};

/// Implements `holdfast.gateway.v1.Events`.
#[derive(Debug)]
struct Events {
    state: State,
    source: EventSource,
}

/// Adds the services to `routes`.
pub fn add_services(routes: Routes, state: &State, source: EventSource, limit: usize) -> Routes {
    let events = Events { state: state.clone(), source };
    let webhooks = EventWebhooks(state.clone());
    routes
        .add_service(EventsServer::new(events).max_decoding_message_size(limit))
        .add_service(EventWebhooksServer::new(webhooks).max_decoding_message_size(limit))
}

#[tonic::async_trait]
impl Service for Events {
    type SubscribeStream = BoxStream<'static, Result<SubscribeResponse, Status>>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let wanted = subscription(&self.state, &caller, request).await?;

        let (_, items) = self.source.subscribe(caller.tenant, wanted).await?;

        Ok(Response::new(items.map(|item| Ok(response(item?))).boxed()))
    }
}

/// Checks a request: whether the caller may have what it asks for, and what it names.
pub async fn subscription(
    state: &State,
    caller: &Caller,
    request: SubscribeRequest,
) -> Result<Subscription, Error> {
    if request.include_content {
        require(caller, Permission::Read)?;
    }
    Ok(Subscription {
        start: start(&request)?,
        filter: filter(state, caller, request.filter.unwrap_or_default()).await?,
        include_content: request.include_content,
        end_at_newest: request.end_at_newest,
    })
}

fn start(request: &SubscribeRequest) -> Result<SubscriptionStart, Error> {
    if !request.cursor.is_empty() {
        return Ok(SubscriptionStart::After(parse_cursor("cursor", &request.cursor)?));
    }
    match pb::EventStart::try_from(request.start) {
        Ok(pb::EventStart::Earliest) => Ok(SubscriptionStart::Earliest),
        Ok(pb::EventStart::Now | pb::EventStart::Unspecified) => Ok(SubscriptionStart::Now),
        Err(_) => Err(invalid(format!("`start` is {}: give NOW or EARLIEST", request.start))),
    }
}

fn response(item: EventItem) -> SubscribeResponse {
    match item {
        EventItem::KeepAlive(cursor) => {
            SubscribeResponse { cursor: cursor.to_string(), event: None }
        }
        EventItem::Event { event, text } => SubscribeResponse {
            cursor: event.cursor().to_string(),
            event: Some(shown(event, text)),
        },
    }
}
