//! Checks of a step's result, and the thought that stores it.

use holdfast_agent::behavior::{Behavior, RESULT_TOOL, parse_result};
use holdfast_types::{Entry, StepResult, ToolCall, Usage};
use serde_json::json;

use crate::tools::tool_set::ToolSet;

/// Searches of the memory for one step.
const MAX_QUERIES: usize = 4;

/// Values that one step may remember.
const MAX_VALUES: usize = 16;

/// Receivers of a reply that mean the one who wrote.
const ASKER: [&str; 4] = ["", "user", "sender", "asker"];

/// Parses and checks the result of a step. The error is for the model.
pub(super) fn read_result(behavior: &Behavior, text: &str) -> Result<StepResult, String> {
    let result = parse_result(behavior.protocol, text).map_err(|error| error.to_string())?;
    let most = usize::try_from(behavior.limits.max_calls_per_round).unwrap_or(usize::MAX);
    if result.actions.len() > most {
        return Err(format!(
            "`actions` has {} calls, and {most} is the most of one step",
            result.actions.len()
        ));
    }
    if result.actions.iter().any(|action| action.tool == RESULT_TOOL) {
        return Err(format!("`actions` names `{RESULT_TOOL}`, which is no tool"));
    }
    if result.set_memory.len() > MAX_VALUES || result.memory_queries.len() > MAX_QUERIES {
        return Err(format!(
            "a step has {MAX_VALUES} entries of `set_memory` and {MAX_QUERIES} `memory_queries` \
             at most"
        ));
    }
    let is_asker = |audience: &str| ASKER.contains(&audience.trim().to_ascii_lowercase().as_str());
    match result.reply.iter().find(|reply| !is_asker(&reply.audience)) {
        Some(_) => {
            Err("`audience` names another receiver: leave it empty, and use a tool such as \
                        `message` to write to others"
                .to_owned())
        }
        None => Ok(result),
    }
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
    (usage, model): (Usage, String),
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
        call(format!("memory-{at}"), "memory_set", input.to_string())
    });
    let queries = result.memory_queries.iter().enumerate().map(|(at, query)| {
        call(format!("query-{at}"), "memory_search", json!({ "query": query }).to_string())
    });
    // Without a memory service the tools do not exist.
    let memory = values.chain(queries).filter(|call| tools.canonical_name(&call.tool).is_some());
    let mut calls: Vec<ToolCall> = actions.chain(memory).collect();
    // A result always converts to JSON.
    let own = serde_json::to_string(result).unwrap_or_default();
    calls.push(call("result".to_owned(), RESULT_TOOL, own));
    Entry::Thought { text, calls, usage, model, carry: None }
}
