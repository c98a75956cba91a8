//! Status of a resource.

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The condition that tells whether the gateway has what the resource describes.
const READY: &str = "Ready";

/// What the operator reports of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Generation of the spec that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its id in the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Digest of the state that was applied last. Another state in the gateway is corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
    /// Version of the referenced Secret that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_version: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// A word for programs.
    pub reason: String,
    /// What is wrong, and what to do about it.
    pub message: String,
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Schema of conditions, merged by their type.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {
                    "description": "What is wrong, and what to do about it.",
                    "type": "string", "maxLength": 32768,
                },
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}

impl ResourceStatus {
    pub(crate) fn ready(&self) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == READY)
    }

    /// Whether the last reconciliation succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready().is_some_and(|ready| ready.status == "True")
    }

    /// Sets the condition `Ready`. Its time changes only with its status.
    pub(crate) fn set_ready(
        &mut self,
        is_ready: bool,
        reason: &str,
        message: String,
        generation: Option<i64>,
    ) {
        let status = if is_ready { "True" } else { "False" };
        let since = self.ready().filter(|ready| ready.status == status);
        let condition = Condition {
            kind: READY.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: since.map_or_else(
                || Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                |ready| ready.last_transition_time.clone(),
            ),
            observed_generation: generation,
        };
        self.conditions.retain(|condition| condition.kind != READY);
        self.conditions.push(condition);
    }
}
