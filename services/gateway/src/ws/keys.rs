//! Keys of sessions, as clients of the WebSocket gateway write them.
//!
//! They may name sessions of an agent freely, as in `agent:main:dashboard:7`. Such a session has the
//! kind `api`, and its name is what follows the agent's name.

use holdfast_grpc::Caller;
use holdfast_types::{InvalidSessionKey, SessionKey};

use crate::{
    Error,
    ingest::{Destination, Ingest},
    permissions::rights::{ConversationRight, NamedSession},
};

/// Key of a session, in the form in which clients know it.
pub fn shown(key: &str) -> String {
    let parsed = key.parse::<SessionKey>().ok();
    let free = parsed.and_then(|key| {
        let text = format!("agent:{}:{}", key.agent()?, key.api_name()?);
        matches!(text.parse::<SessionKey>(), Err(InvalidSessionKey::Form(_))).then_some(text)
    });
    free.unwrap_or_else(|| key.to_owned())
}

impl Ingest {
    /// As [`destination`](Self::destination), for a key as clients of the WebSocket gateway write it.
    pub async fn destination_of_key(
        &self,
        caller: &Caller,
        agent: &str,
        key: &str,
        right: ConversationRight,
    ) -> Result<Destination, Error> {
        let (agent, session) = match key {
            "main" | "global" | "unknown" => (agent, ""),
            key => match free_name(key) {
                Some((agent, name)) => (agent, name),
                None => (agent, key),
            },
        };
        self.destination(caller, NamedSession { agent, session }, right).await
    }
}

/// Agent and name of a session that a client has named freely.
fn free_name(key: &str) -> Option<(&str, &str)> {
    let (agent, name) = key.strip_prefix("agent:")?.split_once(':')?;
    let is_free = matches!(key.parse::<SessionKey>(), Err(InvalidSessionKey::Form(_)));
    (is_free && !agent.is_empty() && !name.is_empty()).then_some((agent, name))
}

#[cfg(test)]
mod tests {
    use holdfast_types::AgentName;

    use super::*;

    #[test]
    fn a_free_name_is_shown_as_it_was_written() {
        let agent = AgentName::new("coach");
        for written in ["agent:coach:dashboard:7", "agent:coach:review"] {
            let (of, name) = free_name(written).unwrap();
            assert_eq!(of, "coach");
            assert_eq!(shown(SessionKey::api(&agent, name).unwrap().as_str()), written);
        }
    }

    #[test]
    fn a_documented_form_stays_what_it_is() {
        for key in ["agent:coach:main", "agent:coach:dm:telegram:7", "agent:coach:api:anna"] {
            assert_eq!(free_name(key), None, "{key}");
        }
        assert_eq!(shown("agent:coach:main"), "agent:coach:main");
        // Named `main` by a program: not the agent's main session.
        assert_eq!(shown("agent:coach:api:main"), "agent:coach:api:main");
        assert_eq!(shown("global"), "global");
    }
}
