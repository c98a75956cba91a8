//! Output protocols: the form of a step's result, as the model is told (spec BHV-014).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::document::{DocumentError, shown};

/// Form of a step's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `BehaviorLLMResult`: all fields of a step (C-28).
    #[default]
    BehaviorResult,
    /// `BehaviorLLMNoActionResult`: the same without actions; the step has native tool calls only.
    NoActionResult,
    /// `RouteResult`: what happens with a message (C-29).
    RouteResult,
}

impl Protocol {
    /// Name in documents and prompts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BehaviorResult => "BehaviorLLMResult",
            Self::NoActionResult => "BehaviorLLMNoActionResult",
            Self::RouteResult => "RouteResult",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let word: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
        Some(match word.to_ascii_lowercase().as_str() {
            "" | "auto" | "behaviorllmresult" | "behaviorresult" => Self::BehaviorResult,
            "behaviorllmnoactionresult" | "noactionresult" => Self::NoActionResult,
            "routeresult" => Self::RouteResult,
            _ => return None,
        })
    }

    /// Names of the fields of a result, with the form of each.
    fn fields(self) -> Vec<(&'static str, Value)> {
        match self {
            Self::BehaviorResult => {
                let mut fields = behavior_fields();
                fields.insert(2, ("actions", actions()));
                fields
            }
            Self::NoActionResult => behavior_fields(),
            Self::RouteResult => route_fields(),
        }
    }

    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::BehaviorResult | Self::NoActionResult => &[],
            Self::RouteResult => &["next_behavior", "reply", "memory_queries"],
        }
    }
}

/// Protocol as it is written: a name, or `mode` with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ProtocolDocument {
    Name(String),
    Mode { mode: String },
}

impl Default for ProtocolDocument {
    fn default() -> Self {
        Self::Name(String::new())
    }
}

impl ProtocolDocument {
    pub(super) fn compile(&self) -> Result<Protocol, DocumentError> {
        let (Self::Name(name) | Self::Mode { mode: name }) = self;
        Protocol::parse(name).ok_or_else(|| {
            let problem = format!(
                "`{}` is not known: write `BehaviorLLMResult`, `BehaviorLLMNoActionResult` or \
                 `RouteResult`",
                shown(name)
            );
            DocumentError::at("output_protocol", problem)
        })
    }
}

/// Returns the JSON schema of a result.
#[must_use]
pub fn result_schema(protocol: Protocol) -> Value {
    let properties: serde_json::Map<String, Value> =
        protocol.fields().into_iter().map(|(name, form)| (name.to_owned(), form)).collect();
    json!({ "type": "object", "properties": properties, "required": protocol.required() })
}

/// Returns the text of the section `output_protocol`.
pub(super) fn instructions(protocol: Protocol) -> String {
    let rules = match protocol {
        Protocol::BehaviorResult => {
            "Leave out fields that you do not need. `actions` are calls of tools that are made \
             after this answer, in their order; their results are in the summary of the step. For \
             results that you need now, call tools directly before you answer."
        }
        Protocol::NoActionResult => {
            "Leave out fields that you do not need. There are no actions: call tools directly \
             before you answer."
        }
        Protocol::RouteResult => {
            "`next_behavior`, `reply` and `memory_queries` are required; use null and [] for \
             nothing. Give `route_session_id`, then without a reply; or `new_session`, then with \
             one; or neither, if you answer or go on yourself. Five tags at most."
        }
    };
    let next = "`next_behavior` is the name of a behaviour, with parameters as in \
                `DO:todo=T001`; `WAIT` to wait for a message or for what `wait_details` says; `END` \
                when all is done; null to go on with this behaviour.";
    format!(
        "Your final answer of this step is read by a program: one JSON object ({}) and nothing \
         else, without a code fence. {rules} {next}\nJSON schema:\n{}",
        protocol.as_str(),
        result_schema(protocol)
    )
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn replies() -> Value {
    json!({
        "type": "array",
        "description": "Texts for people. Without audience: for the one who wrote",
        "items": {
            "type": "object",
            "properties": {
                "audience": { "type": "string" },
                "format": { "type": "string", "enum": ["markdown", "text"] },
                "content": { "type": "string" }
            },
            "required": ["content"]
        }
    })
}

fn actions() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": { "tool": { "type": "string" }, "input": { "type": "object" } },
            "required": ["tool", "input"]
        }
    })
}

fn todo_delta() -> Value {
    let todo = json!({
        "type": "object",
        "properties": {
            "title": { "type": "string" },
            "description": { "type": "string" },
            "type": { "type": "string", "enum": ["task", "bench"] },
            "priority": { "type": "integer", "description": "Smaller is more urgent" },
            "skills": { "type": "array", "items": { "type": "string" } },
            "assignee": { "type": "string", "description": "Subagent" },
            "deps": { "type": "array", "items": { "type": "string" } }
        },
        "required": ["title"]
    });
    let statuses = ["WAIT", "IN_PROGRESS", "COMPLETE", "FAILED", "DONE", "CHECK_FAILED"];
    json!({
        "type": "array",
        "description": "Changes to the todo list: init (items, mode replace or merge), update \
                        (code, to_status, priority, reason), note (code, kind, text)",
        "items": {
            "type": "object",
            "properties": {
                "op": { "type": "string", "enum": ["init", "update", "note"] },
                "mode": { "type": "string", "enum": ["replace", "merge"] },
                "items": { "type": "array", "items": todo },
                "code": { "type": "string", "description": "Such as T001" },
                "to_status": { "type": "string", "enum": statuses },
                "priority": { "type": "integer" },
                "reason": { "type": "string" },
                "kind": { "type": "string", "enum": ["result", "error", "note"] },
                "text": { "type": "string" }
            },
            "required": ["op"]
        }
    })
}

fn session_delta() -> Value {
    json!({
        "type": "object",
        "properties": {
            "title": { "type": "string" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "workspace": {
                "type": "object",
                "description": "Workspace in which the session works from now on; made if there is \
                                none with this name",
                "properties": {
                    "name": { "type": "string" },
                    "kind": { "type": "string", "enum": ["folder", "git"] }
                },
                "required": ["name"]
            }
        }
    })
}

fn wait_details() -> Value {
    json!({
        "type": "object",
        "description": "With next_behavior WAIT: what ends the wait. Each field of the filter that \
                        is set must match",
        "properties": {
            "filter": {
                "type": "object",
                "properties": {
                    "sender": { "type": "string" },
                    "event": { "type": "string" },
                    "contains": { "type": "string" },
                    "reply_to": { "type": "string" }
                }
            },
            "deadline_ms": { "type": "integer", "minimum": 1 },
            "note": { "type": "string" }
        }
    })
}

fn set_memory() -> Value {
    json!({
        "type": "object",
        "additionalProperties": { "type": "string" },
        "description": "Facts to remember by key; an empty text forgets"
    })
}

fn next_behavior() -> Value {
    json!({ "type": ["string", "null"] })
}

fn behavior_fields() -> Vec<(&'static str, Value)> {
    vec![
        ("thinking", text("Short reasons, for the next step and the log")),
        ("reply", replies()),
        ("todo_delta", todo_delta()),
        ("set_memory", set_memory()),
        ("session_delta", session_delta()),
        ("next_behavior", next_behavior()),
        ("wait_details", wait_details()),
        ("memory_queries", texts("Searches of the memory, shown to the next step")),
    ]
}

fn route_fields() -> Vec<(&'static str, Value)> {
    let new_session = json!({
        "type": "object",
        "properties": { "title": { "type": "string" }, "description": { "type": "string" } },
        "required": ["title"]
    });
    vec![
        ("thinking", text("Short reasons, for the log")),
        ("next_behavior", next_behavior()),
        ("reply", replies()),
        ("memory_queries", texts("Searches of the memory, shown to the next step; [] for none")),
        ("route_session_id", text("Session of the list that the message belongs to")),
        ("new_session", new_session),
        ("set_memory", set_memory()),
        ("session_delta", session_delta()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_spelling_and_unknown_ones_refused() {
        for (name, is) in [
            ("BehaviorLLMResult", Some(Protocol::BehaviorResult)),
            ("behavior_llm_result", Some(Protocol::BehaviorResult)),
            ("auto", Some(Protocol::BehaviorResult)),
            ("", Some(Protocol::BehaviorResult)),
            ("behavior_llm_no_action_result", Some(Protocol::NoActionResult)),
            ("RouteResult", Some(Protocol::RouteResult)),
            ("route_result", Some(Protocol::RouteResult)),
            ("text", None),
        ] {
            assert_eq!(Protocol::parse(name), is, "{name}");
        }
    }

    #[test]
    fn the_model_is_told_the_fields_of_its_protocol_only() {
        for (protocol, has, has_not) in [
            (Protocol::BehaviorResult, "actions", "route_session_id"),
            (Protocol::NoActionResult, "todo_delta", "actions"),
            (Protocol::RouteResult, "new_session", "todo_delta"),
        ] {
            let schema = result_schema(protocol);
            assert!(!schema["properties"][has].is_null(), "{protocol:?}");
            assert!(schema["properties"][has_not].is_null(), "{protocol:?}");
            assert!(instructions(protocol).contains(&schema.to_string()));
            let properties = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            assert!(required.iter().all(|name| properties.contains_key(name.as_str().unwrap())));
        }
    }
}
