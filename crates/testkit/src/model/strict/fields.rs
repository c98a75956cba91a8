//! Fields of requests and of messages, their values, and headers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Asked, calls, has_calls, is_assistant, list};
use crate::model::wire;

/// The first field of an object that is none of these.
fn unknown<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    let fields = object.as_object()?;
    fields.keys().map(String::as_str).find(|field| !known.contains(field))
}

fn unknown_of_messages<'a>(asked: &'a Asked<'_>, known: &[&str]) -> Option<&'a str> {
    asked.messages.iter().find_map(|message| unknown(message, known))
}

/// Fields of the published API, of those that an agent may want.
const OPENAI_FIELDS: [&str; 23] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "prompt_cache_key",
    "metadata",
    "store",
    "user",
    "verbosity",
    "n",
];

pub(super) fn openai_field(asked: &Asked<'_>) -> Option<String> {
    let field = unknown(asked.body, &OPENAI_FIELDS)?;
    Some(format!("Unrecognized request argument supplied: {field}"))
}

const MISTRAL_FIELDS: [&str; 16] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "temperature",
    "top_p",
    "stop",
    "random_seed",
    "frequency_penalty",
    "presence_penalty",
    "response_format",
    "safe_prompt",
];

pub(super) fn mistral_field(asked: &Asked<'_>) -> Option<String> {
    const OF_MESSAGES: [&str; 6] =
        ["role", "content", "tool_calls", "tool_call_id", "name", "prefix"];
    let field = unknown(asked.body, &MISTRAL_FIELDS)
        .or_else(|| unknown_of_messages(asked, &OF_MESSAGES))?;
    Some(format!("Extra inputs are not permitted: {field}"))
}

pub(super) fn groq_field(asked: &Asked<'_>) -> Option<String> {
    const OF_MESSAGES: [&str; 6] =
        ["role", "content", "tool_calls", "tool_call_id", "name", "reasoning"];
    if let Some(field) = unknown_of_messages(asked, &OF_MESSAGES) {
        return Some(format!(
            "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : \
             property '{field}' is unsupported)]"
        ));
    }
    let field = unknown(asked.body, &OPENAI_FIELDS)
        .or_else(|| ["store", "metadata"].into_iter().find(|name| !asked.body[*name].is_null()))?;
    Some(format!("property '{field}' is unsupported"))
}

/// Fields of Anthropic's requests, but for the model.
const ANTHROPIC_FIELDS: [&str; 14] = [
    "max_tokens",
    "messages",
    "system",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "cache_control",
];

/// A field that Anthropic does not know in a request, in messages or in blocks.
fn unknown_of_anthropic<'a>(asked: &Asked<'a>, own: &str) -> Option<&'a str> {
    const BLOCK: [&str; 14] = [
        "type",
        "text",
        "id",
        "name",
        "input",
        "tool_use_id",
        "content",
        "is_error",
        "thinking",
        "signature",
        "data",
        "source",
        "cache_control",
        "citations",
    ];
    let known: Vec<&str> = ANTHROPIC_FIELDS.into_iter().chain([own]).collect();
    let messages = list(&asked.body["messages"]);
    unknown(asked.body, &known)
        .or_else(|| messages.iter().find_map(|one| unknown(one, &["role", "content"])))
        .or_else(|| {
            let mut blocks = messages.iter().flat_map(|message| list(&message["content"]));
            blocks.find_map(|block| unknown(block, &BLOCK))
        })
}

/// Anthropic: no fields of others in the request, in messages and in blocks.
pub(super) fn anthropic_field(asked: &Asked<'_>) -> Option<String> {
    let field = unknown_of_anthropic(asked, "model")?;
    Some(format!("{field}: Extra inputs are not permitted"))
}

/// Vertex AI: the same, but the model is in the address.
pub(super) fn vertex_claude_field(asked: &Asked<'_>) -> Option<String> {
    let field = unknown_of_anthropic(asked, "anthropic_version")?;
    Some(format!("{field}: Extra inputs are not permitted"))
}

/// Vertex AI: the version is in the body.
pub(super) fn vertex_claude_version(asked: &Asked<'_>) -> Option<String> {
    let version = &asked.body["anthropic_version"];
    (version != "vertex-2023-10-16").then(|| "anthropic_version: Field required".to_owned())
}

/// Vertex AI: calls and their results have no ids.
pub(super) fn vertex_call_id(asked: &Asked<'_>) -> Option<String> {
    let parts = list(&asked.body["contents"]).iter().flat_map(|one| list(&one["parts"]));
    let named = [("functionCall", "function_call"), ("functionResponse", "function_response")];
    let name_of = |part: &Value| {
        named.into_iter().find(|(field, _)| !part[*field]["id"].is_null()).map(|(_, name)| name)
    };
    let name = parts.into_iter().find_map(name_of)?;
    Some(format!(
        "Invalid JSON payload received. Unknown name \"id\" at 'contents[1].parts[0].{name}': Cannot \
         find field."
    ))
}

/// Azure: newer models take no tools in Chat Completions.
pub(super) fn azure_tools_of_newer_model(asked: &Asked<'_>) -> Option<String> {
    (openai_version(asked.model) >= 5.4 && !asked.tools.is_empty()).then(|| {
        format!(
            "Function tools with reasoning_effort are not supported for {} in \
             /v1/chat/completions. Please use /v1/responses instead.",
            asked.model
        )
    })
}

/// LM Studio: the form of an answer is a schema.
pub(super) fn form_without_schema(asked: &Asked<'_>) -> Option<String> {
    let is_asked = asked.body["response_format"]["type"] == "json_object";
    is_asked.then(|| "'response_format.type' must be 'json_schema' or 'text'".to_owned())
}

/// Gemini: no other fields in a part.
pub(super) fn gemini_field(asked: &Asked<'_>) -> Option<String> {
    const PART: [&str; 7] = [
        "text",
        "thought",
        "thoughtSignature",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
    ];
    let mut parts = list(&asked.body["contents"]).iter().flat_map(|one| list(&one["parts"]));
    let field = parts.find_map(|part| unknown(part, &PART))?;
    Some(format!(
        "Invalid JSON payload received. Unknown name \"{field}\" at 'contents[0].parts[0]': Cannot \
         find field."
    ))
}

/// Gemini up to 2.5: a form of the answer, or tools.
pub(super) fn gemini_form_with_tools(asked: &Asked<'_>) -> Option<String> {
    let is_older = ["gemini-1", "gemini-2"].iter().any(|family| asked.model.starts_with(family));
    let has_form = asked.body["generationConfig"]["responseMimeType"] == "application/json";
    (is_older && has_form && !asked.tools.is_empty()).then(|| {
        "Function calling with a response mime type: 'application/json' is unsupported".to_owned()
    })
}

/// Whether a model of OpenAI reasons.
fn reasons(model: &str) -> bool {
    ["gpt-5", "gpt-6", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}

pub(super) fn old_word_for_limit(asked: &Asked<'_>) -> Option<String> {
    let is_old = reasons(asked.model) && !asked.body["max_tokens"].is_null();
    is_old.then(|| {
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
         'max_completion_tokens' instead."
            .to_owned()
    })
}

pub(super) fn temperature_of_reasoning_model(asked: &Asked<'_>) -> Option<String> {
    let given = asked.body["temperature"].as_f64().filter(|given| (given - 1.0).abs() > 1e-9)?;
    reasons(asked.model).then(|| {
        format!(
            "Unsupported value: 'temperature' does not support {given} with this model. Only the \
             default (1) value is supported."
        )
    })
}

/// Version of a model of OpenAI; 0 of another one.
fn openai_version(model: &str) -> f64 {
    let version = model.strip_prefix("gpt-").and_then(|rest| rest.split('-').next());
    version.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// OpenAI: models of 5.4 and later take no effort beside tools in Chat Completions, but for `none`.
pub(super) fn effort_with_tools(asked: &Asked<'_>) -> Option<String> {
    let effort = asked.body["reasoning_effort"].as_str();
    let is_refused =
        openai_version(asked.model) >= 5.4 && !asked.tools.is_empty() && effort != Some("none");
    is_refused.then(|| {
        format!(
            "Function tools with reasoning_effort are not supported for {} in \
             /v1/chat/completions. To use function tools, use /v1/responses or set \
             reasoning_effort to 'none'.",
            asked.model
        )
    })
}

/// Without the word in a message, a form of any object is refused.
pub(super) fn json_without_word(asked: &Asked<'_>) -> Option<String> {
    let is_asked = asked.body["response_format"]["type"] == "json_object";
    let says =
        |message: &Value| wire::text(&message["content"]).to_ascii_lowercase().contains("json");
    (is_asked && !asked.messages.iter().any(says)).then(|| {
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type \
         'json_object'."
            .to_owned()
    })
}

pub(super) fn form_by_schema(asked: &Asked<'_>) -> Option<String> {
    let is_asked = asked.body["response_format"]["type"] == "json_schema";
    is_asked.then(|| "This response_format type is unavailable now".to_owned())
}

pub(super) fn json_object_with_tools(asked: &Asked<'_>) -> Option<String> {
    let is_asked = asked.body["response_format"]["type"] == "json_object";
    (is_asked && !asked.tools.is_empty()).then(|| {
        "'response_format' json_object cannot be combined with tool/function calling".to_owned()
    })
}

pub(super) fn empty_list_of_calls(asked: &Asked<'_>) -> Option<String> {
    let is_empty = |message: &&Value| message["tool_calls"].as_array().is_some_and(Vec::is_empty);
    asked.messages.iter().find(is_empty)?;
    Some("Invalid 'messages[1].tool_calls': empty array.".to_owned())
}

pub(super) fn long_call_id(asked: &Asked<'_>) -> Option<String> {
    let ids = asked.messages.iter().flat_map(calls);
    let id = ids.filter_map(|call| call["id"].as_str()).find(|id| id.len() > 40)?;
    Some(format!(
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum \
         length 40, but got a string with length {} instead.",
        id.len()
    ))
}

/// Mistral: nine letters or digits.
pub(super) fn call_id_of_others(asked: &Asked<'_>) -> Option<String> {
    let ids = asked.messages.iter().flat_map(calls).map(|call| &call["id"]);
    let results = asked.messages.iter().filter(|message| message["role"] == "tool");
    let mut ids = ids.chain(results.map(|message| &message["tool_call_id"]));
    let is_fit = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let id = ids.find_map(|id| id.as_str().filter(|id| !is_fit(id)))?;
    Some(format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."))
}

/// Anthropic: words, and each but once.
pub(super) fn anthropic_call_id(asked: &Asked<'_>) -> Option<String> {
    let mut known = BTreeSet::new();
    let is_word = |id: &str| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    for call in asked.messages.iter().flat_map(calls) {
        let id = call["id"].as_str().unwrap_or_default();
        if !is_word(id) {
            return Some(
                "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                    .to_owned(),
            );
        }
        if !known.insert(id) {
            return Some("messages.1.content.1: `tool_use` ids must be unique".to_owned());
        }
    }
    None
}

/// Responses: ids of items begin as those of the server do.
pub(super) fn item_id_of_others(asked: &Asked<'_>) -> Option<String> {
    let is_unfit = |item: &&Value| {
        let begins = |with: &str| item["id"].as_str().is_none_or(|id| id.starts_with(with));
        match item["type"].as_str() {
            Some("function_call") => !begins("fc"),
            Some("reasoning") => !begins("rs"),
            Some(_) | None => false,
        }
    };
    let item = list(&asked.body["input"]).iter().find(is_unfit)?;
    Some(format!("Invalid 'input[1].id': {}. Expected another beginning.", item["id"]))
}

/// xAI: penalties are refused by its models that reason.
pub(super) fn penalties(asked: &Asked<'_>) -> Option<String> {
    let given = ["presence_penalty", "frequency_penalty"];
    let name = given.into_iter().find(|name| !asked.body[*name].is_null())?;
    Some(format!("Model {} does not support parameter {name}.", asked.model))
}

/// xAI: an effort is refused by models that decide it themselves.
pub(super) fn grok_4_effort(asked: &Asked<'_>) -> Option<String> {
    let is_given = !asked.body["reasoning_effort"].is_null();
    (is_given && asked.model.starts_with("grok-4"))
        .then(|| format!("Model {} does not support parameter reasoningEffort.", asked.model))
}

/// Kimi: a temperature other than the one that is allowed.
pub(super) fn temperature_of_kimi(asked: &Asked<'_>) -> Option<String> {
    let is_allowed = |given: f64| [1.0, 0.6].iter().any(|known| (given - known).abs() < 1e-9);
    asked.body["temperature"].as_f64().filter(|given| !is_allowed(*given))?;
    Some("invalid temperature: only 1 is allowed for this model".to_owned())
}

/// Anthropic: with thinking there is no temperature but 1.
pub(super) fn temperature_while_thinking(asked: &Asked<'_>) -> Option<String> {
    let thinks = matches!(asked.body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"));
    asked.body["temperature"].as_f64().filter(|given| thinks && (given - 1.0).abs() > 1e-9)?;
    Some(
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
            .to_owned(),
    )
}

pub(super) fn temperature_and_top_p(asked: &Asked<'_>) -> Option<String> {
    let has_both = !asked.body["temperature"].is_null() && !asked.body["top_p"].is_null();
    has_both.then(|| {
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
            .to_owned()
    })
}

pub(super) fn too_many_cache_marks(asked: &Asked<'_>) -> Option<String> {
    let blocks = list(&asked.body["messages"]).iter().flat_map(|one| list(&one["content"]));
    let all = blocks.chain(list(&asked.body["system"])).chain(list(&asked.body["tools"]));
    let count = all.filter(|block| !block["cache_control"].is_null()).count();
    (count > 4).then(|| {
        format!("A maximum of 4 blocks with cache_control may be provided. Found {count}.")
    })
}

/// Anthropic: models of 4.7 and later decide themselves how much to think.
pub(super) fn budget_of_newer_model(asked: &Asked<'_>) -> Option<String> {
    const NEWER: [&str; 6] = ["opus-4-7", "opus-4-8", "opus-5", "sonnet-5", "haiku-5", "fable"];
    let is_newer = NEWER.iter().any(|part| asked.model.contains(part));
    (is_newer && asked.body["thinking"]["type"] == "enabled").then(|| {
        "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" \
         and \"output_config.effort\" to control thinking behavior."
            .to_owned()
    })
}

pub(super) fn no_version(asked: &Asked<'_>) -> Option<String> {
    let is_missing = asked.arrival.header("anthropic-version").is_none();
    is_missing.then(|| "anthropic-version: header is required".to_owned())
}

pub(super) fn no_limit(asked: &Asked<'_>) -> Option<String> {
    asked.body["max_tokens"].is_null().then(|| "max_tokens: Field required".to_owned())
}

/// A role that only OpenAI knows.
pub(super) fn developer(asked: &Asked<'_>) -> Option<String> {
    let is_it = |message: &&Value| message["role"] == "developer";
    asked.messages.iter().find(is_it)?;
    Some(
        "unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`"
            .to_owned(),
    )
}

/// MiniMax-M3: thinking is adaptive or disabled.
pub(super) fn minimax_thinking(asked: &Asked<'_>) -> Option<String> {
    let is_enabled = asked.body["thinking"]["type"] == "enabled";
    is_enabled.then(|| {
        "invalid params, invalid thinking.type: \"enabled\" (allowed: adaptive, disabled) (2013)"
            .to_owned()
    })
}

/// Ollama: a model that cannot think is not asked to.
pub(super) fn thinking_of_plain_model(asked: &Asked<'_>) -> Option<String> {
    const THINKING: [&str; 3] = ["qwen3", "gpt-oss", "deepseek"];
    let thinks = THINKING.iter().any(|part| asked.model.contains(part));
    let is_asked = !matches!(asked.body["think"], Value::Null | Value::Bool(false));
    (is_asked && !thinks).then(|| format!("\"{}\" does not support thinking", asked.model))
}

/// llama.cpp: a reply has a text or calls, and two do not follow each other at the end.
pub(super) fn two_assistants_last(asked: &Asked<'_>) -> Option<String> {
    let are_two = matches!(asked.messages, [.., a, b]
        if is_assistant(a) && is_assistant(b) && !has_calls(a) && !has_calls(b));
    are_two.then(|| "Cannot have 2 or more assistant messages at the end of the list.".to_owned())
}
