//! `events.log.*`: the tenant's durable log of events, from a cursor on.
//!
//! A subscription reads the log at its client's pace: while frames wait to be sent it reads nothing,
//! so it holds one page at most, and leaves the queue to the events of turns. A client that reads
//! nothing is disconnected as a slow reader, and goes on behind its cursor.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use holdfast_kit::BudgetShare;
use holdfast_proto::gateway::v1 as pb;
use holdfast_session::EventCursor;
use holdfast_types::{SessionId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{super::call::Call, EVENTS, Method, Reply, method};
use crate::permissions::rights::ConversationRight;
use crate::{
    Error,
    events::{EventItem, subscription},
    permissions::operator_scopes::OperatorScope,
    ws::{
        connection::{LogSubscription, Protocol},
        error::{ErrorKind, MethodError},
        events::{Audience, Event, LOG_EVENT},
    },
};

pub const METHODS: &[Method] = &[
    method!("events.log.subscribe", EVENTS, subscribe),
    method!("events.log.unsubscribe", EVENTS, unsubscribe),
];

/// Subscriptions of one connection.
const MAX_PER_CONNECTION: usize = 8;

/// Subscriptions of a tenant's connections to this process. Those that are not at the end of the log
/// read it by themselves.
pub const MAX_LOG_SUBSCRIPTIONS_PER_TENANT: u64 = 200;

const MAX_NAME_BYTES: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SubscribeParams {
    /// Name of the subscription. One of the same name is replaced.
    #[serde(default = "default_name")]
    subscription: String,
    /// Position in the log behind which the subscription begins.
    #[serde(default)]
    cursor: String,
    #[serde(default)]
    start: LogStart,
    #[serde(default)]
    types: Vec<String>,
    #[serde(default)]
    agent_id: String,
    #[serde(default)]
    session_key: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    include_content: bool,
}

/// Start of a subscription without a cursor.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogStart {
    #[default]
    Now,
    Earliest,
}

fn default_name() -> String {
    "log".to_owned()
}

/// Subscribes, and sends the events after the response.
async fn subscribe(call: Call, params: SubscribeParams) -> Reply {
    let name = params.subscription.clone();
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(MethodError::invalid(format!(
            "invalid events.log.subscribe params: subscription: 1 to {MAX_NAME_BYTES} bytes"
        )));
    }
    let read = OperatorScope::Read;
    if params.include_content && !call.connection.grants.has(read) {
        return Err(MethodError::missing_scope("events.log.subscribe", read.as_str()));
    }
    let request = request(&call, params).await?;
    let share = call.service.log_subscriptions().share(call.tenant());
    share.grow(1).map_err(|_| {
        let message = format!(
            "the tenant has {MAX_LOG_SUBSCRIPTIONS_PER_TENANT} subscriptions here, which is the \
             most: end one"
        );
        let retry_after = Some(Duration::from_secs(5));
        MethodError { retry_after, ..MethodError::new(ErrorKind::Unavailable, message) }
    })?;
    let (cursor, events) = call
        .as_method("Events/Subscribe", async {
            let wanted = subscription(call.state(), &call.caller, request).await?;
            call.service.events().subscribe(call.tenant(), wanted).await
        })
        .await?;
    let ended = add(&call, &name)?;
    let answer = json!({ "subscription": name, "cursor": cursor.to_string() });
    let tasks = call.service.tasks().clone();
    let sending = send_events(call, (name, cursor), ended.clone(), (Box::pin(events), share));
    tasks.spawn(ended.run_until_cancelled_owned(sending));
    Ok(answer)
}

/// The request of the gRPC method that does the same.
async fn request(
    call: &Call,
    params: SubscribeParams,
) -> Result<pb::SubscribeRequest, MethodError> {
    let session = match params.session_key.as_str() {
        "" => String::new(),
        id if id.parse::<SessionId>().is_ok() => id.to_owned(),
        key => {
            let place = call.place(&params.agent_id, key, ConversationRight::Read).await?;
            let found = call.state().sessions.views().find(call.tenant(), &place.key).await?;
            let missing = || MethodError::invalid(format!("there is no session `{key}`"));
            found.ok_or_else(missing)?.to_string()
        }
    };
    let start = match params.start {
        LogStart::Now => pb::EventStart::Now,
        LogStart::Earliest => pb::EventStart::Earliest,
    };
    let (types, agent, channel) = (params.types, params.agent_id, params.channel);
    Ok(pb::SubscribeRequest {
        cursor: params.cursor,
        start: start.into(),
        filter: Some(pb::EventFilter { types, agent, session, channel }),
        include_content: params.include_content,
        end_at_newest: false,
    })
}

/// Adds a subscription to the connection, in place of one of the same name.
fn add(call: &Call, name: &str) -> Result<CancellationToken, MethodError> {
    let mut subscriptions = call.connection.subscriptions();
    let logs = &mut subscriptions.logs;
    logs.retain(|known| !known.ended.is_cancelled());
    if logs.iter().filter(|known| known.name != name).count() >= MAX_PER_CONNECTION {
        return Err(MethodError::invalid(format!(
            "the connection has {MAX_PER_CONNECTION} subscriptions to the log, which is the most: \
             end one"
        )));
    }
    end(logs, name);
    let ended = call.connection.ended.child_token();
    logs.push(LogSubscription { name: name.to_owned(), ended: ended.clone() });
    Ok(ended)
}

/// Ends the subscription of this name. Returns whether there was one.
fn end(logs: &mut Vec<LogSubscription>, name: &str) -> bool {
    let Some(at) = logs.iter().position(|known| known.name == name) else { return false };
    let known = logs.swap_remove(at);
    let was_open = !known.ended.is_cancelled();
    known.ended.cancel();
    was_open
}

/// Sends events until the subscription or the log ends.
async fn send_events(
    call: Call,
    (name, mut cursor): (String, EventCursor),
    ended: CancellationToken,
    (mut events, _share): (
        impl Stream<Item = Result<EventItem, Error>> + Unpin,
        BudgetShare<TenantId>,
    ),
) {
    call.answered.cancelled().await;
    loop {
        call.connection.queue.room().await;
        let (payload, is_droppable) = match events.next().await {
            Some(Ok(EventItem::Event { event, text })) => {
                cursor = event.cursor();
                let mut shown = event.to_json();
                if let Some(text) = text {
                    shown["text"] = text.into();
                }
                (
                    json!({ "subscription": name, "cursor": cursor.to_string(), "event": shown }),
                    false,
                )
            }
            Some(Ok(EventItem::KeepAlive(at))) => {
                cursor = at;
                (json!({ "subscription": name, "cursor": cursor.to_string() }), true)
            }
            Some(Err(error)) => {
                let error = MethodError::from(error);
                let error = match call.connection.protocol {
                    Protocol::OpenClaw(_) => error.openclaw(),
                    Protocol::LurkBot => error.lurkbot(),
                };
                let payload =
                    json!({ "subscription": name, "cursor": cursor.to_string(), "error": error });
                call.connection.send_logged(&ended, &event_of(&payload));
                break;
            }
            None => break,
        };
        let event = event_of(&payload);
        let event = if is_droppable { event.droppable() } else { event };
        if !call.connection.send_logged(&ended, &event) {
            break;
        }
    }
    // The name of the subscription is free again.
    ended.cancel();
}

fn event_of(payload: &Value) -> Event {
    Event::new((LOG_EVENT, LOG_EVENT), payload, Audience::Readers)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsubscribeParams {
    #[serde(default = "default_name")]
    subscription: String,
}

/// Ends a subscription. Nothing of it is sent after the response.
async fn unsubscribe(call: Call, params: UnsubscribeParams) -> Reply {
    let was_open = end(&mut call.connection.subscriptions().logs, &params.subscription);
    Ok(json!({ "subscription": params.subscription, "unsubscribed": was_open }))
}
