//! End of a turn with calls that wait for an API's client.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ClientCall, Entry, Note, RunId, ToolCall};

/// Beginning of the ids under which clients know their calls.
const CALL_ID_PREFIX: &str = "call_";

/// End of a turn whose last calls are the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Text of the model before the calls.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    pub calls: Vec<ClientCall>,
    /// Time until which results are accepted, in milliseconds since 1970.
    pub until_ms: i64,
}

impl Handover {
    /// Hands the calls of a run's last thought over.
    #[must_use]
    pub fn new(run: RunId, text: String, calls: &[ToolCall], until_ms: i64) -> Self {
        let call = |(n, call): (usize, &ToolCall)| ClientCall {
            id: format!("{CALL_ID_PREFIX}{}_{n}", run.as_uuid().simple()),
            call: call.id.clone(),
            name: call.tool.clone(),
            arguments: call.input.clone(),
        };
        Self { text, calls: calls.iter().enumerate().map(call).collect(), until_ms }
    }

    /// Run whose handover has a call, by the id that the client knows.
    #[must_use]
    pub fn run_of(call: &str) -> Option<RunId> {
        let (run, _) = call.strip_prefix(CALL_ID_PREFIX)?.split_once('_')?;
        Uuid::try_parse(run).ok().map(RunId::from)
    }

    /// The note that ends the turn.
    #[must_use]
    pub fn entry(&self) -> Entry {
        // Strings and numbers can always be written as JSON.
        Entry::noted(Note::HandedOver, serde_json::to_string(self).unwrap_or_default())
    }

    #[must_use]
    pub fn from_entry(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Noted { note: Note::HandedOver, text, .. } => Self::parse(text),
            Entry::Noted { .. }
            | Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. } => None,
        }
    }

    /// Reads the text of the note.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_client_tells_its_run_and_nothing_else_does() {
        let run = RunId::generate();
        let call = ToolCall { id: "1".into(), tool: "look".into(), input: "{}".into() };

        let handover = Handover::new(run, "so".into(), &[call.clone(), call], 7);

        assert_eq!(Handover::from_entry(&handover.entry()), Some(handover.clone()));
        let ids: Vec<&str> = handover.calls.iter().map(|call| call.id.as_str()).collect();
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| Handover::run_of(id) == Some(run) && id.len() <= 64));
        for other in ["call_1", "call_", "call_x_1", "toolu_01", ""] {
            assert_eq!(Handover::run_of(other), None, "{other}");
        }
    }
}
