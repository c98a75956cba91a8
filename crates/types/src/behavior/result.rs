//! Structured result of a step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TodoOperation;
use crate::MessageFilter;

/// Part that a behaviour plays for a todo list: it decides which changes are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BehaviorRole {
    /// Chooses what happens with a message.
    Route,
    Plan,
    Do,
    Check,
    Adjust,
    /// None of these: it may read the list and add notes.
    #[default]
    Other,
}

/// A text for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReply {
    /// Receiver; empty for the one who wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub audience: String,
    /// `markdown` or `text`; empty for Markdown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
    pub content: String,
}

/// A call of a tool, made after the model has answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepAction {
    pub tool: String,
    #[serde(default)]
    pub input: serde_json::Value,
}

/// A conversation that the router opens for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSession {
    pub title: String,
    #[serde(default, alias = "summary", skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Changes to the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(alias = "topic_tags", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Local workspace of the session from now on; made if there is none with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceChoice>,
}

/// Workspace that a step chooses or makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceChoice {
    pub name: String,
    /// `folder` or `git`, for a workspace that is made; empty for a folder.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// What a session waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitDetails {
    /// Message or event that ends the wait; nothing set matches every one.
    pub filter: MessageFilter,
    /// Time in milliseconds after which the session goes on all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Result of a step: the union of the fields of both output protocols (C-28, C-29).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepResult {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reply: Vec<StepReply>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<StepAction>,
    #[serde(alias = "todo", skip_serializing_if = "Vec::is_empty")]
    pub todo_delta: Vec<TodoOperation>,
    /// Facts to remember, by key; an empty text forgets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_memory: BTreeMap<String, String>,
    pub session_delta: SessionDelta,
    /// Behaviour of the next step, `WAIT`, `END`, or none to go on with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_behavior: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_details: Option<WaitDetails>,
    /// Searches of the memory whose hits the next step is shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_queries: Vec<String>,
    /// Key of an existing session that the message is handed to.
    #[serde(alias = "session_id", skip_serializing_if = "Option::is_none")]
    pub route_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_session: Option<NewSession>,
}
