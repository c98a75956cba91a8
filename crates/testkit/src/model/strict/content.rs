//! Texts, pictures and reasoning of messages.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Asked, calls, has_calls, is_assistant, list};
use crate::model::{
    dialect::{call_signature, signature},
    wire,
};

/// A thinking model's reply with calls has lost its reasoning.
pub(super) fn lost_reasoning(asked: &Asked<'_>) -> Option<String> {
    let thinks = asked.body["thinking"]["type"] != "disabled";
    let is_lost = |message: &&Value| {
        is_assistant(message) && has_calls(message) && !message["reasoning_content"].is_string()
    };
    asked.messages.iter().find(is_lost).filter(|_| thinks)?;
    let text = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    Some(text.to_owned())
}

/// OpenRouter: details of reasoning are returned as they were.
pub(super) fn changed_details(asked: &Asked<'_>) -> Option<String> {
    let details = asked.messages.iter().flat_map(|message| list(&message["reasoning_details"]));
    let is_changed = |detail: &Value| {
        let text = detail["text"].as_str().unwrap_or_default();
        detail["signature"].as_str().is_none_or(|signed| signed != signature(text))
    };
    details.into_iter().find(|detail| is_changed(detail))?;
    Some("Provider returned error: Invalid `signature` in `thinking` block".to_owned())
}

pub(super) fn empty_assistant(asked: &Asked<'_>) -> Option<String> {
    let is_empty = |message: &Value| {
        is_assistant(message)
            && !has_calls(message)
            && wire::text(&message["content"]).trim().is_empty()
    };
    let at = asked.messages.iter().position(is_empty)?;
    Some(format!("the message at position {at} with role 'assistant' must not be empty"))
}

/// Content is missing, where only a reply with calls may have none.
pub(super) fn null_content(asked: &Asked<'_>) -> Option<String> {
    let is_null = |message: &&Value| message["content"].is_null() && !has_calls(message);
    asked.messages.iter().find(is_null)?;
    Some("Invalid value for 'content': expected a string, got null.".to_owned())
}

/// Content is missing, even of a reply with calls.
pub(super) fn missing_content(asked: &Asked<'_>) -> Option<String> {
    asked.messages.iter().find(|message| message["content"].is_null())?;
    Some("Invalid 'content': 'content' field must be a string or an array of objects.".to_owned())
}

/// LM Studio with GPT-OSS: a reply with calls has a text or its reasoning.
pub(super) fn text_and_reasoning(asked: &Asked<'_>) -> Option<String> {
    let has_both = |message: &&Value| {
        has_calls(message)
            && !wire::text(&message["content"]).is_empty()
            && (!message["reasoning_content"].is_null() || !message["reasoning"].is_null())
    };
    asked.messages.iter().find(has_both).filter(|_| asked.model.contains("gpt-oss"))?;
    Some(
        "Error rendering prompt with jinja template: \"Cannot pass both content and thinking in an \
         assistant message with tool calls!\""
            .to_owned(),
    )
}

/// Content is missing, or an empty list.
pub(super) fn no_content(asked: &Asked<'_>) -> Option<String> {
    let is_missing = |message: &&Value| {
        message["content"].is_null() || message["content"] == Value::Array(vec![])
    };
    asked.messages.iter().find(is_missing)?;
    Some("Invalid request content: Each message must have at least one content element.".to_owned())
}

pub(super) fn empty_text_part(asked: &Asked<'_>) -> Option<String> {
    let is_empty = |part: &Value| part["type"] == "text" && part["text"] == "";
    let has_one = |message: &Value| list(&message["content"]).iter().any(is_empty);
    let at = asked.messages.iter().position(has_one)?;
    Some(format!("messages[{at}].content[0].text:text cannot be empty."))
}

fn has_picture(message: &Value) -> bool {
    list(&message["content"]).iter().any(|part| part["type"] == "image_url")
}

pub(super) fn picture_of_another_role(asked: &Asked<'_>) -> Option<String> {
    let is_it = |message: &Value| message["role"] != "user" && has_picture(message);
    let at = asked.messages.iter().position(is_it)?;
    Some(format!(
        "Invalid 'messages[{at}]'. Image URLs are only allowed for messages with role 'user', but \
         this message with role '{}' contains an image URL.",
        asked.messages[at]["role"].as_str().unwrap_or_default()
    ))
}

/// A picture for a model that sees none.
pub(super) fn picture_for_the_blind(asked: &Asked<'_>) -> Option<String> {
    const BLIND: [&str; 6] =
        ["deepseek-v4-pro", "qwen3.7-max", "qwen-plus", "glm-4.6", "glm-5.2", "qwen3"];
    let is_blind = BLIND.contains(&asked.model);
    let at = asked.messages.iter().position(has_picture).filter(|_| is_blind)?;
    Some(format!(
        "Failed to deserialize the JSON body into the target type: messages[{at}]: unknown variant \
         `image_url`, expected `text`"
    ))
}

/// Longest side, in pixels, of a PNG.
fn longest_side(base64: &str) -> Option<u32> {
    let head = STANDARD.decode(base64.get(..64)?).ok()?;
    let side = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    Some(side(16)?.max(side(20)?))
}

/// Anthropic: a picture is at most 8,000 pixels wide and high, and 2,000 if there are more than 20.
pub(super) fn large_picture(asked: &Asked<'_>) -> Option<String> {
    let blocks = list(&asked.body["messages"]).iter().flat_map(|one| list(&one["content"]));
    let pictures: Vec<&str> = blocks
        .filter(|block| block["type"] == "image")
        .filter_map(|block| block["source"]["data"].as_str())
        .collect();
    if pictures.iter().any(|data| data.len() > 5 * 1024 * 1024) {
        return Some("image exceeds 5 MB maximum".to_owned());
    }
    let (most, many) =
        if pictures.len() > 20 { (2_000, " for many-image requests") } else { (8_000, "") };
    pictures.iter().filter_map(|data| longest_side(data)).find(|side| *side > most)?;
    Some(format!(
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed \
         max allowed size{many}: {most} pixels"
    ))
}

/// Anthropic: texts have something else than white space, and messages have content.
pub(super) fn anthropic_empty(asked: &Asked<'_>) -> Option<String> {
    let messages = list(&asked.body["messages"]);
    if let Some(at) = messages.iter().position(|message| list(&message["content"]).is_empty()) {
        return Some(format!(
            "messages.{at}: all messages must have non-empty content except for the optional final \
             assistant message"
        ));
    }
    let blocks = messages.iter().flat_map(|message| list(&message["content"]));
    let texts = blocks.chain(list(&asked.body["system"])).filter(|one| one["type"] == "text");
    let is_blank = |block: &Value| block["text"].as_str().is_none_or(|text| text.trim().is_empty());
    texts.into_iter().find(|block| is_blank(block))?;
    Some("messages: text content blocks must contain non-whitespace text".to_owned())
}

/// Anthropic: thinking is returned as it was signed.
pub(super) fn anthropic_signature(asked: &Asked<'_>) -> Option<String> {
    let blocks = list(&asked.body["messages"]).iter().flat_map(|one| list(&one["content"]));
    let is_changed = |block: &Value| {
        let thinking = block["thinking"].as_str().unwrap_or_default();
        block["signature"].as_str().is_none_or(|signed| signed != signature(thinking))
    };
    blocks.filter(|block| block["type"] == "thinking").find(|block| is_changed(block))?;
    Some("messages.1.content.0: Invalid `signature` in `thinking` block".to_owned())
}

/// Anthropic: with thinking by a budget, the newest reply with calls begins with its thinking.
pub(super) fn anthropic_lost_thinking(asked: &Asked<'_>) -> Option<String> {
    if asked.body["thinking"]["type"] != "enabled" {
        return None;
    }
    let messages = list(&asked.body["messages"]);
    let is_answering = messages.last().is_some_and(|last| {
        list(&last["content"]).iter().any(|block| block["type"] == "tool_result")
    });
    let reply = messages.iter().rev().find(|message| is_assistant(message));
    let first = reply.map(|reply| &reply["content"][0]["type"]).filter(|_| is_answering)?;
    let is_thought = first == "thinking" || first == "redacted_thinking";
    (!is_thought).then(|| {
        format!(
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
             {first}. When `thinking` is enabled, a final `assistant` message must start with a \
             thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
        )
    })
}

/// Gemini: contents have parts, and parts have data.
pub(super) fn gemini_empty(asked: &Asked<'_>) -> Option<String> {
    let contents = list(&asked.body["contents"]);
    if contents.is_empty() {
        return Some("* GenerateContentRequest.contents: contents is not specified".to_owned());
    }
    if let Some(at) = contents.iter().position(|content| list(&content["parts"]).is_empty()) {
        return Some(format!(
            "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
        ));
    }
    const DATA: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];
    let has_data = |part: &Value| DATA.iter().any(|name| !part[*name].is_null());
    let parts = contents.iter().flat_map(|content| list(&content["parts"]));
    parts.into_iter().find(|part| !has_data(part))?;
    Some(
        "* GenerateContentRequest.contents[0].parts[0].data: required oneof field 'data' must have \
         one initialized field"
            .to_owned(),
    )
}

/// Vertex AI: roles are the user's and the model's.
pub(super) fn vertex_role(asked: &Asked<'_>) -> Option<String> {
    let is_known = |content: &Value| content["role"] == "user" || content["role"] == "model";
    list(&asked.body["contents"]).iter().find(|content| !is_known(content))?;
    Some("Please use a valid role: user, model.".to_owned())
}

/// The word that Google documents for calls of other models, which have no signature.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// Gemini 3: the first call of each reply has its signature, unchanged.
pub(super) fn gemini_signature(asked: &Asked<'_>) -> Option<String> {
    if asked.model.starts_with("gemini-2") {
        return None;
    }
    for content in list(&asked.body["contents"]) {
        let calls = list(&content["parts"]).iter().filter(|part| part["functionCall"].is_object());
        for (at, part) in calls.enumerate() {
            let function = &part["functionCall"];
            let name = function["name"].as_str().unwrap_or_default();
            let own = call_signature(name, &function["args"]);
            match part["thoughtSignature"].as_str() {
                None if at == 0 => {
                    return Some(format!(
                        "Function call is missing a thought_signature in functionCall parts. \
                         Additional data, function call `default_api:{name}`"
                    ));
                }
                Some(signed) if signed != own && signed != UNSIGNED => {
                    return Some("Corrupted thought signature.".to_owned());
                }
                Some(_) | None => {}
            }
        }
    }
    None
}

/// Responses: sealed reasoning is returned as it was.
pub(super) fn unsealed_reasoning(asked: &Asked<'_>) -> Option<String> {
    let items = list(&asked.body["input"]).iter().filter(|item| item["type"] == "reasoning");
    let is_changed = |item: &Value| {
        let id = item["id"].as_str().unwrap_or_default();
        item["encrypted_content"].as_str().is_none_or(|sealed| sealed != signature(id))
    };
    items.into_iter().find(|item| is_changed(item))?;
    Some("The encrypted content could not be verified.".to_owned())
}

/// Arguments of earlier calls are JSON in a string.
pub(super) fn unreadable_arguments(asked: &Asked<'_>) -> Option<String> {
    let calls = asked.messages.iter().flat_map(calls);
    let is_json = |call: &Value| {
        let text = call["function"]["arguments"].as_str().unwrap_or_default();
        serde_json::from_str::<Value>(text).is_ok()
    };
    let call = calls.into_iter().find(|call| !is_json(call))?;
    Some(format!(
        "invalid params, invalid function arguments json string, tool_call_id: {}",
        call["id"].as_str().unwrap_or_default()
    ))
}

/// Ollama: content is a string, arguments are an object, pictures are plain base64.
pub(super) fn ollama_types(asked: &Asked<'_>) -> Option<String> {
    for message in list(&asked.body["messages"]) {
        if !message["content"].is_string() {
            return Some(
                "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of \
                 type string"
                    .to_owned(),
            );
        }
        if calls(message).iter().any(|call| !call["function"]["arguments"].is_object()) {
            return Some(
                "json: cannot unmarshal string into Go struct field \
                 ChatRequest.messages.tool_calls.function.arguments of type \
                 api.ToolCallFunctionArguments"
                    .to_owned(),
            );
        }
        let is_plain =
            |picture: &Value| picture.as_str().is_some_and(|data| STANDARD.decode(data).is_ok());
        if !list(&message["images"]).iter().all(is_plain) {
            return Some("illegal base64 data at input byte 4".to_owned());
        }
    }
    None
}
