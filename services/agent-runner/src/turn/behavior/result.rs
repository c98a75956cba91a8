//! Texts of a step's result, and the thought that stores it.

use holdfast_agent::behavior::RESULT_TOOL;
use holdfast_types::{Entry, ModelRecord, StepResult, ToolCall, Usage};
use serde_json::json;

use crate::tools::tool_set::ToolSet;

/// Tool that searches the memory.
pub(super) const MEMORY_SEARCH: &str = "memory_search";

/// Tool that stores a value.
const MEMORY_SET: &str = "memory_set";

/// Tools that `set_memory` and `memory_queries` of a result call.
pub(crate) const RESULT_MEMORY_TOOLS: [&str; 2] = [MEMORY_SET, MEMORY_SEARCH];

/// Error of a router that leaves a person without an answer (C-29), for the model.
pub(super) const NO_REPLY: &str = "nobody would answer the message: give a `reply`, or name what \
                                   goes on with it in `next_behavior`, `route_session_id` or \
                                   `new_session`";

/// Whether a result says nothing, and nothing follows it.
pub(super) fn is_silent_end(result: &StepResult) -> bool {
    let ends = |next: &str| {
        let word = next.trim().to_ascii_uppercase();
        word == "END" || word == "DONE" || word.starts_with("WAIT")
    };
    result.reply.is_empty()
        && result.route_session_id.is_none()
        && result.new_session.is_none()
        && result.next_behavior.as_deref().is_some_and(ends)
}

/// Text of a result's replies.
pub(super) fn reply_text(result: &StepResult) -> String {
    let texts = result.reply.iter().map(|reply| reply.content.trim());
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Thought that stores a result: its actions, then the call that applies it.
pub(super) fn thought(
    tools: &ToolSet,
    result: &StepResult,
    text: String,
    (usage, model, record): (Usage, String, Option<Box<ModelRecord>>),
) -> Entry {
    let call =
        |id: String, tool: &str, input: String| ToolCall { id, tool: tool.to_owned(), input };
    let actions = result.actions.iter().enumerate().map(|(at, action)| {
        let input = match &action.input {
            serde_json::Value::Null => "{}".to_owned(),
            input => input.to_string(),
        };
        call(format!("action-{at}"), &action.tool, input)
    });
    let values = result.set_memory.iter().enumerate().map(|(at, (key, value))| {
        let value = Some(value).filter(|value| !value.is_empty());
        let input = json!({ "key": key, "value": value });
        call(format!("memory-{at}"), MEMORY_SET, input.to_string())
    });
    let queries = result.memory_queries.iter().enumerate().map(|(at, query)| {
        call(format!("query-{at}"), MEMORY_SEARCH, json!({ "query": query }).to_string())
    });
    // Without a memory service the tools do not exist.
    let memory = values.chain(queries).filter(|call| tools.canonical_name(&call.tool).is_some());
    let mut calls: Vec<ToolCall> = actions.chain(memory).collect();
    // A result always converts to JSON.
    let own = serde_json::to_string(result).unwrap_or_default();
    calls.push(call("result".to_owned(), RESULT_TOOL, own));
    Entry::Thought { text, calls, usage, model, carry: None, record }
}
