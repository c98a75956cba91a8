//! Cursors, filters and events in the forms of the protos.

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1 as pb;
use holdfast_session::{EventCursor, EventFilter, LoggedEvent};

use crate::permissions::rights::ConversationRight;
use crate::{
    Error,
    control::{State, invalid, non_empty, timestamp},
};

/// Maximum number of types in a filter.
const MAX_TYPES: usize = 20;
/// Maximum length of a type or a channel in a filter, in bytes.
const MAX_WORD_BYTES: usize = 64;

pub(super) fn parse_cursor(field: &'static str, text: &str) -> Result<EventCursor, Error> {
    EventCursor::parse(text).ok_or_else(|| Error::UnknownValue {
        field,
        given: text.chars().take(80).collect(),
        wanted: "the `cursor` of a response or the `id` of an event, unchanged",
    })
}

/// Checks a filter, and finds the agent and the session that it names.
pub(super) async fn filter(
    state: &State,
    caller: &Caller,
    wanted: pb::EventFilter,
) -> Result<EventFilter, Error> {
    let tenant = caller.tenant;
    check_words(&wanted)?;
    let agent = match wanted.agent.as_str() {
        "" => None,
        named => Some(state.directory.agents().get(tenant, named).await?.id),
    };
    let session = match wanted.session.as_str() {
        "" => None,
        named => {
            let session = state.session(caller, named, ConversationRight::Read).await?;
            Some(state.sessions.views().session(tenant, session).await?.id)
        }
    };
    Ok(EventFilter { types: wanted.types, agent, session, channel: non_empty(wanted.channel) })
}

fn check_words(wanted: &pb::EventFilter) -> Result<(), Error> {
    if wanted.types.len() > MAX_TYPES {
        let given = wanted.types.len();
        return Err(invalid(format!(
            "a filter has {MAX_TYPES} types at most, and this has {given}"
        )));
    }
    if wanted.types.iter().any(String::is_empty) {
        return Err(Error::MissingField("types"));
    }
    let mut words = wanted.types.iter().chain([&wanted.channel]);
    match words.find(|word| word.len() > MAX_WORD_BYTES) {
        None => Ok(()),
        Some(long) => Err(invalid(format!(
            "a type or channel in a filter has {MAX_WORD_BYTES} bytes at most, and one has {}",
            long.len()
        ))),
    }
}

pub(super) fn shown(logged: LoggedEvent, text: Option<String>) -> pb::Event {
    let id = logged.cursor().to_string();
    let event = logged.event;
    pb::Event {
        id,
        r#type: event.kind,
        schema_version: event.schema_version,
        at: Some(timestamp(event.at)),
        agent_id: event.agent.map(|agent| agent.to_string()).unwrap_or_default(),
        session_id: event.session.map(|session| session.to_string()).unwrap_or_default(),
        channel: event.channel.unwrap_or_default(),
        data: event.data.to_string(),
        text,
    }
}
