//! Order of roles, calls and their results.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Asked, calls, has_calls, is_assistant, list};
use crate::model::wire;

/// A call without a result right after it.
pub(super) fn unanswered_call(asked: &Asked<'_>) -> Option<String> {
    asked.messages.iter().enumerate().find_map(|(at, message)| {
        let results: BTreeSet<&str> = asked.messages[at + 1..]
            .iter()
            .take_while(|one| one["role"] == "tool")
            .filter_map(|one| one["tool_call_id"].as_str())
            .collect();
        let id = calls(message)
            .iter()
            .filter_map(|call| call["id"].as_str())
            .find(|id| !results.contains(id))?;
        Some(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
             {id}"
        ))
    })
}

/// A result whose call is not in the reply before it.
pub(super) fn result_without_call(asked: &Asked<'_>) -> Option<String> {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for message in asked.messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !known.contains(id) {
                return Some(format!(
                    "Invalid parameter: messages with role 'tool' must be a response to a \
                     preceeding message with 'tool_calls': {id}."
                ));
            }
        } else {
            known = calls(message).iter().filter_map(|call| call["id"].as_str()).collect();
        }
    }
    None
}

pub(super) fn same_number_of_results(asked: &Asked<'_>) -> Option<String> {
    let mut messages = asked.messages.iter().peekable();
    while let Some(message) = messages.next() {
        let mut results = 0;
        while messages.peek().is_some_and(|next| next["role"] == "tool") {
            messages.next();
            results += 1;
        }
        if results != calls(message).len() {
            return Some("Not the same number of function calls and responses".to_owned());
        }
    }
    None
}

pub(super) fn user_after_tool(asked: &Asked<'_>) -> Option<String> {
    pair(asked, |before, after| before["role"] == "tool" && after["role"] == "user")?;
    Some("Unexpected role 'user' after role 'tool'".to_owned())
}

pub(super) fn tool_after_user(asked: &Asked<'_>) -> Option<String> {
    pair(asked, |before, after| before["role"] == "user" && after["role"] == "tool")?;
    Some("Unexpected role 'tool' after role 'user'".to_owned())
}

fn pair(asked: &Asked<'_>, is_it: impl Fn(&Value, &Value) -> bool) -> Option<usize> {
    asked.messages.windows(2).position(|pair| is_it(&pair[0], &pair[1]))
}

/// The system's message must be the first, and the only one.
pub(super) fn late_system(asked: &Asked<'_>) -> Option<String> {
    let is_late = |message: &Value| message["role"] == "system";
    asked.messages.iter().skip(1).find(|message| is_late(message))?;
    Some("System message must be at the beginning.".to_owned())
}

/// After the system's message, user and assistant take turns; results belong to the user's side.
pub(super) fn no_turns(asked: &Asked<'_>) -> Option<String> {
    let mut expects_user = true;
    for message in asked.messages.iter().skip_while(|message| message["role"] == "system") {
        let is_user = message["role"] == "user";
        // Templates count neither calls nor their results.
        if message["role"] == "tool" || has_calls(message) {
            continue;
        }
        if is_user != expects_user {
            return Some(
                "After the optional system message, conversation roles must alternate \
                 user/assistant/user/assistant/..."
                    .to_owned(),
            );
        }
        expects_user = !expects_user;
    }
    None
}

pub(super) fn assistant_last(asked: &Asked<'_>) -> Option<String> {
    asked.messages.last().filter(|last| is_assistant(last))?;
    Some(
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got \
         assistant"
            .to_owned(),
    )
}

pub(super) fn no_user(asked: &Asked<'_>) -> Option<String> {
    let is_user = |message: &Value| message["role"] == "user";
    (!asked.messages.iter().any(is_user)).then(|| "messages 参数非法。请检查文档。".to_owned())
}

/// Anthropic: a call without a result at the beginning of the next message.
pub(super) fn anthropic_unanswered_call(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    messages.iter().enumerate().find_map(|(at, message)| {
        let next = messages.get(at + 1).map_or(&[][..], |next| list(&next["content"]));
        let results: BTreeSet<&str> = next
            .iter()
            .take_while(|block| block["type"] == "tool_result")
            .filter_map(|block| block["tool_use_id"].as_str())
            .collect();
        let calls = list(&message["content"]).iter().filter(|block| block["type"] == "tool_use");
        let id = calls.filter_map(|call| call["id"].as_str()).find(|id| !results.contains(id))?;
        Some(format!(
            "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately \
             after: {id}. Each `tool_use` block must have a corresponding `tool_result` block in \
             the next message."
        ))
    })
}

/// Anthropic: a result whose call is not in the message before.
pub(super) fn anthropic_result_without_call(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    messages.iter().enumerate().find_map(|(at, message)| {
        let before = at.checked_sub(1).map_or(&[][..], |before| list(&messages[before]["content"]));
        let mut results =
            list(&message["content"]).iter().filter(|block| block["type"] == "tool_result");
        let lost = results
            .find(|result| !before.iter().any(|block| block["id"] == result["tool_use_id"]))?;
        Some(format!(
            "messages.{at}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {}.",
            lost["tool_use_id"]
        ))
    })
}

/// Gemini: calls follow the user's side, and their results follow them, in the same number.
pub(super) fn gemini_turns(asked: &Asked<'_>) -> Option<String> {
    let contents = list(&asked.body["contents"]);
    let count = |content: &Value, part: &str| {
        list(&content["parts"]).iter().filter(|one| one[part].is_object()).count()
    };
    for (at, content) in contents.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &contents[before]);
        let calls = count(content, "functionCall");
        if calls > 0 && before.is_none_or(|before| before["role"] != "user") {
            return Some(
                "Please ensure that function call turn comes immediately after a user turn or \
                 after a function response turn."
                    .to_owned(),
            );
        }
        let results = count(content, "functionResponse");
        let asked_for = before.map_or(0, |before| count(before, "functionCall"));
        if results > 0 && asked_for == 0 {
            return Some(
                "Please ensure that function response turn comes immediately after a function \
                 call turn."
                    .to_owned(),
            );
        }
        if results != asked_for {
            return Some(
                "Please ensure that the number of function response parts is equal to the number \
                 of function call parts of the function call turn."
                    .to_owned(),
            );
        }
    }
    let is_open = contents.last().is_some_and(|last| count(last, "functionCall") > 0);
    is_open.then(|| "Requests ending with a model turn are not supported.".to_owned())
}

/// Responses: an output without its call, or a call without its output.
pub(super) fn responses_pairs(asked: &Asked<'_>) -> Option<String> {
    let items = list(&asked.body["input"]);
    let ids = |kind: &str| -> BTreeSet<&str> {
        items
            .iter()
            .filter(|item| item["type"] == kind)
            .filter_map(|item| item["call_id"].as_str())
            .collect()
    };
    let (called, answered) = (ids("function_call"), ids("function_call_output"));
    if let Some(id) = answered.difference(&called).next() {
        return Some(format!("No tool call found for function call output with call_id {id}."));
    }
    let id = called.difference(&answered).next()?;
    Some(format!("No tool output found for function call {id}."))
}

/// Responses: reasoning is followed by what it was for.
pub(super) fn lone_reasoning(asked: &Asked<'_>) -> Option<String> {
    let items = list(&asked.body["input"]);
    let is_lone = |at: usize| {
        items[at]["type"] == "reasoning"
            && items.get(at + 1).is_none_or(|next| {
                next["role"] != "assistant"
                    && next["type"] != "function_call"
                    && next["type"] != "reasoning"
            })
    };
    let at = (0..items.len()).find(|at| is_lone(*at))?;
    Some(format!(
        "Item '{}' of type 'reasoning' was provided without its required following item.",
        items[at]["id"].as_str().unwrap_or_default()
    ))
}

/// Whether the newest message of the user, or results after it, end the conversation.
pub(super) fn ends_with_assistant(asked: &Asked<'_>) -> Option<String> {
    let last = asked.messages.last()?;
    let is_prefill = is_assistant(last) && !wire::text(&last["content"]).is_empty();
    is_prefill.then(|| {
        "This model does not support assistant message prefill. The conversation must end with a \
         user message."
            .to_owned()
    })
}
