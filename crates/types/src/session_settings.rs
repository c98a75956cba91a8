//! What somebody set for one conversation.

use serde::{Deserialize, Serialize};

use crate::{AgentId, Elevated, Reasoning, Thinking, Verbose};

/// What differs in a conversation from what its agent is set to. Stored as JSON: fields are only
/// ever added, with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSettings {
    /// The model, as `provider:id`; `None` is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much its model thinks before it answers; `None` is as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Whether people are told of calls as they happen; `None` is no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose: Option<Verbose>,
    /// Whether they are shown what its model thinks; `None` is no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// What becomes of commands that need a person's word; `None` is that they are asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elevated: Option<Elevated>,
    /// The key of its model's provider that it used last, as `provider/key`, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Who answered last, where a model chooses among agents; `None` is the session's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<AgentId>,
    /// Where whoever it is with is, as a name of the tz database; `None` is where the agent is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_wrote_is_read() {
        let read = |text: &str| serde_json::from_str::<SessionSettings>(text).unwrap();

        assert_eq!(read("{}"), SessionSettings::default());
        assert_eq!(read(r#"{"model":"a:b","of_tomorrow":1}"#).model.as_deref(), Some("a:b"));
        assert_eq!(serde_json::to_string(&SessionSettings::default()).unwrap(), "{}");
    }
}
