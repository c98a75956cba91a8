//! Rules of Amazon Bedrock's Converse API about messages, blocks and tools.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Asked, is_assistant, list};
use crate::model::dialect::signature;

fn blocks<'a>(asked: &Asked<'a>) -> impl Iterator<Item = &'a Value> {
    list(&asked.body["messages"]).iter().flat_map(|message| list(&message["content"]))
}

/// Calls of a message.
fn uses(message: &Value) -> impl Iterator<Item = &Value> {
    list(&message["content"]).iter().map(|block| &block["toolUse"]).filter(|one| one.is_object())
}

fn results(message: &Value) -> impl Iterator<Item = &Value> {
    list(&message["content"]).iter().map(|block| &block["toolResult"]).filter(|one| one.is_object())
}

fn is_claude(asked: &Asked<'_>) -> bool {
    asked.model.contains("anthropic.")
}

/// Calls and their results need tools in the request.
pub(super) fn history_without_tools(asked: &Asked<'_>) -> Option<String> {
    let is_of_tool =
        |block: &Value| block["toolUse"].is_object() || block["toolResult"].is_object();
    let is_lone = asked.body["toolConfig"].is_null() && blocks(asked).any(is_of_tool);
    is_lone.then(|| {
        "The toolConfig field must be defined when using toolUse and toolResult content blocks."
            .to_owned()
    })
}

pub(super) fn empty_tool_config(asked: &Asked<'_>) -> Option<String> {
    let config = &asked.body["toolConfig"];
    (!config.is_null() && list(&config["tools"]).is_empty())
        .then(|| "The provided request is not valid".to_owned())
}

fn pattern_fault(path: &str) -> String {
    format!(
        "1 validation error detected: Value at '{path}' failed to satisfy constraint: Member must \
         satisfy regular expression pattern: [a-zA-Z0-9_-]+"
    )
}

fn is_word(text: &Value) -> bool {
    text.as_str().is_some_and(|text| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    })
}

/// Names of tools, in the request and in calls.
pub(super) fn names(asked: &Asked<'_>) -> Option<String> {
    let specs = list(&asked.body["toolConfig"]["tools"]).iter();
    let specs = specs.map(|tool| &tool["toolSpec"]).filter(|spec| spec.is_object());
    let called = list(&asked.body["messages"]).iter().flat_map(uses);
    specs.chain(called).find(|one| !is_word(&one["name"]))?;
    Some(pattern_fault("toolConfig.tools.1.member.toolSpec.name"))
}

/// Ids of calls, which are used once.
pub(super) fn call_ids(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    let ids = messages.iter().flat_map(|message| uses(message).chain(results(message)));
    if ids.into_iter().any(|one| !is_word(&one["toolUseId"])) {
        return Some(pattern_fault("messages.2.member.content.1.member.toolUse.toolUseId"));
    }
    let mut known = BTreeSet::new();
    let mut ids = messages.iter().flat_map(uses).filter_map(|one| one["toolUseId"].as_str());
    ids.find(|id| !known.insert(*id))?;
    Some("messages.1.content.1: `tool_use` ids must be unique".to_owned())
}

/// A description is absent, or has a text.
pub(super) fn empty_description(asked: &Asked<'_>) -> Option<String> {
    let tools = list(&asked.body["toolConfig"]["tools"]);
    tools.iter().find(|tool| tool["toolSpec"]["description"] == "")?;
    Some(
        "1 validation error detected: Value '' at 'toolConfig.tools.1.member.toolSpec.description' \
         failed to satisfy constraint: Member must have length greater than or equal to 1"
            .to_owned(),
    )
}

/// User and assistant take turns.
pub(super) fn turns(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    messages.windows(2).find(|pair| pair[0]["role"] == pair[1]["role"])?;
    Some(
        "A conversation must alternate between user and assistant roles. Make sure the conversation \
         alternates between user and assistant roles and try again."
            .to_owned(),
    )
}

pub(super) fn begins_with_user(asked: &Asked<'_>) -> Option<String> {
    let first = list(&asked.body["messages"]).first();
    first.is_none_or(|first| first["role"] != "user").then(|| {
        "A conversation must start with a user message. Try again with a conversation that starts \
         with a user message."
            .to_owned()
    })
}

/// Texts have something else than white space, in results and in the instructions, too.
pub(super) fn blank_text(asked: &Asked<'_>) -> Option<String> {
    let within = blocks(asked).flat_map(|block| list(&block["toolResult"]["content"]));
    let all = blocks(asked).chain(within).chain(list(&asked.body["system"]));
    let is_blank =
        |block: &Value| block["text"].as_str().is_some_and(|text| text.trim().is_empty());
    all.into_iter().find(|block| is_blank(block))?;
    Some(
        "The text field in the ContentBlock object at messages.1.content.0 is blank. Add text to \
         the text field, and try again."
            .to_owned(),
    )
}

pub(super) fn empty_message(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    let at = messages.iter().position(|message| list(&message["content"]).is_empty())?;
    Some(format!(
        "The content field in the Message object at messages.{at} is empty. Add a ContentBlock \
         object to the content field and try again."
    ))
}

pub(super) fn empty_result(asked: &Asked<'_>) -> Option<String> {
    let mut all = list(&asked.body["messages"]).iter().flat_map(results);
    all.find(|result| result["status"] == "error" && list(&result["content"]).is_empty())?;
    Some(
        "The content field at messages.2.content.0.toolResult cannot be empty when status value is \
         error."
            .to_owned(),
    )
}

/// Results of all calls are in the next message, before anything else.
pub(super) fn unanswered_call(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    messages.iter().enumerate().find_map(|(at, message)| {
        let next = messages.get(at + 1).map_or(&[][..], |next| list(&next["content"]));
        let answered: BTreeSet<&str> = next
            .iter()
            .take_while(|block| block["toolResult"].is_object())
            .filter_map(|block| block["toolResult"]["toolUseId"].as_str())
            .collect();
        let mut ids = uses(message).filter_map(|one| one["toolUseId"].as_str());
        let id = ids.find(|id| !answered.contains(id))?;
        Some(format!(
            "Expected toolResult blocks at messages.{}.content for the following Ids: {id}",
            at + 1
        ))
    })
}

pub(super) fn result_without_call(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    messages.iter().enumerate().find_map(|(at, message)| {
        let before = at.checked_sub(1).map(|before| &messages[before]);
        let known: BTreeSet<&str> =
            before.into_iter().flat_map(uses).filter_map(|one| one["toolUseId"].as_str()).collect();
        let is_lost =
            |one: &Value| one["toolUseId"].as_str().is_none_or(|id| !known.contains(id));
        results(message).find(|one| is_lost(one))?;
        Some(format!(
            "The number of toolResult blocks at messages.{at}.content exceeds the number of toolUse \
             blocks of previous turn."
        ))
    })
}

/// Models other than Claude and Nova: a turn has texts, or calls, or results.
pub(super) fn mixed_turn(asked: &Asked<'_>) -> Option<String> {
    if is_claude(asked) || asked.model.contains("amazon.nova") {
        return None;
    }
    let has = |message: &Value, name: &str| {
        list(&message["content"]).iter().any(|block| !block[name].is_null())
    };
    let messages = list(&asked.body["messages"]).iter().enumerate();
    messages.into_iter().find_map(|(at, message)| {
        let said = has(message, "text") || has(message, "image");
        let of_tools = [("toolUse", "use"), ("toolResult", "result")];
        let (_, word) = of_tools.into_iter().find(|(name, _)| said && has(message, name))?;
        Some(format!(
            "messages.{at}.content: Conversation blocks and tool {word} blocks cannot be provided in \
             the same turn."
        ))
    })
}

/// Llama: no call can be demanded.
pub(super) fn tool_choice_of_llama(asked: &Asked<'_>) -> Option<String> {
    let choice = &asked.body["toolConfig"]["toolChoice"];
    let field = ["any", "tool"].into_iter().find(|name| !choice[*name].is_null())?;
    asked.model.contains("llama").then(|| {
        format!(
            "This model doesn't support the toolConfig.toolChoice.{field} field. Remove \
             toolConfig.toolChoice.{field} and try again."
        )
    })
}

fn cache_points<'a>(asked: &Asked<'a>) -> impl Iterator<Item = &'a Value> {
    let all = blocks(asked).chain(list(&asked.body["system"]));
    let all = all.chain(list(&asked.body["toolConfig"]["tools"]));
    all.filter(|block| !block["cachePoint"].is_null())
}

/// Only Claude and Nova have a cache.
pub(super) fn cache_of_other_model(asked: &Asked<'_>) -> Option<String> {
    let has_cache = is_claude(asked) || asked.model.contains("amazon.nova");
    (!has_cache && cache_points(asked).next().is_some()).then(|| {
        "You invoked an unsupported model or your request did not allow prompt caching. See the \
         documentation for more information."
            .to_owned()
    })
}

pub(super) fn too_many_cache_points(asked: &Asked<'_>) -> Option<String> {
    let count = cache_points(asked).count();
    (count > 4).then(|| {
        format!("A maximum of 4 blocks with cache_control may be provided. Found {count}.")
    })
}

/// Claude's own fields, which Converse passes on.
fn thinking<'a>(asked: &Asked<'a>) -> &'a str {
    let fields = &asked.body["additionalModelRequestFields"];
    fields["thinking"]["type"].as_str().unwrap_or_default()
}

/// Claude: with thinking by a budget, the newest reply with calls begins with its reasoning.
pub(super) fn lost_reasoning(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    let is_answering = messages.last().is_some_and(|last| results(last).next().is_some());
    let reply = messages.iter().rev().find(|message| is_assistant(message))?;
    let begins = reply["content"][0]["reasoningContent"].is_object();
    (thinking(asked) == "enabled" && is_answering && !begins).then(|| {
        "The model returned the following errors: messages.1.content.0.type: Expected `thinking` or \
         `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` \
         message must start with a thinking block (preceeding the lastmost set of `tool_use` and \
         `tool_result` blocks)."
            .to_owned()
    })
}

/// Claude: reasoning is returned as it was signed.
pub(super) fn changed_reasoning(asked: &Asked<'_>) -> Option<String> {
    let is_changed = |block: &Value| {
        let reasoning = &block["reasoningContent"]["reasoningText"];
        let text = reasoning["text"].as_str().unwrap_or_default();
        reasoning["signature"].as_str().is_none_or(|signed| signed != signature(text))
    };
    blocks(asked)
        .filter(|block| block["reasoningContent"].is_object())
        .find(|block| is_changed(block))?;
    Some(
        "The model returned the following errors: messages.1.content.0: Invalid `signature` in \
         `thinking` block"
            .to_owned(),
    )
}

/// Claude: while it thinks, no call is demanded and the temperature is not changed.
pub(super) fn thinking_with_demands(asked: &Asked<'_>) -> Option<String> {
    if !matches!(thinking(asked), "enabled" | "adaptive") {
        return None;
    }
    let choice = &asked.body["toolConfig"]["toolChoice"];
    if !choice["any"].is_null() || !choice["tool"].is_null() {
        return Some("Thinking may not be enabled when tool_choice forces tool use.".to_owned());
    }
    let given = asked.body["inferenceConfig"]["temperature"].as_f64();
    given.filter(|given| (given - 1.0).abs() > 1e-9).map(|_| {
        "The model returned the following errors: `temperature` may only be set to 1 when thinking \
         is enabled."
            .to_owned()
    })
}

/// Claude: a budget is less than the limit of the output.
pub(super) fn large_budget(asked: &Asked<'_>) -> Option<String> {
    let fields = &asked.body["additionalModelRequestFields"];
    let budget = fields["thinking"]["budget_tokens"].as_u64()?;
    let most = asked.body["inferenceConfig"]["maxTokens"].as_u64();
    (budget < 1_024 || most.is_some_and(|most| most <= budget)).then(|| {
        "The model returned the following errors: `max_tokens` must be greater than \
         `thinking.budget_tokens`."
            .to_owned()
    })
}

/// Claude from 4.5 on: one of the two.
pub(super) fn temperature_and_top_p(asked: &Asked<'_>) -> Option<String> {
    let given = &asked.body["inferenceConfig"];
    let has_both = !given["temperature"].is_null() && !given["topP"].is_null();
    (is_claude(asked) && has_both).then(|| {
        "The model returned the following errors: `temperature` and `top_p` cannot both be \
         specified for this model. Please use only one."
            .to_owned()
    })
}
