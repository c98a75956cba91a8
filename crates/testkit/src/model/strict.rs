//! Rules of vendors about the messages of a request, as they publish them: a request that breaks one is
//! refused as the vendor refuses it.

use serde_json::{Value, json};

use super::{Reply, wire};

/// A vendor whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    DeepSeek,
    Mistral,
    Moonshot,
}

/// A rule of a vendor, and where it is from.
#[derive(Debug)]
pub struct Rule {
    pub vendor: Vendor,
    /// Public document or report.
    pub source: &'static str,
    /// Code of the refusal.
    code: &'static str,
    /// What the vendor says of the first message that breaks it.
    broken: fn(&[Value]) -> Option<String>,
}

/// All rules.
pub const RULES: [Rule; 8] = [
    Rule {
        vendor: Vendor::DeepSeek,
        source: "https://api-docs.deepseek.com/guides/thinking_mode",
        code: "invalid_request_error",
        broken: lost_reasoning,
    },
    Rule {
        vendor: Vendor::Moonshot,
        source: "https://github.com/anomalyco/opencode/issues/16318",
        code: "invalid_request_error",
        broken: lost_reasoning,
    },
    Rule {
        vendor: Vendor::Moonshot,
        source: "https://github.com/MoonshotAI/kimi-code/issues/1985",
        code: "invalid_request_error",
        broken: empty_assistant,
    },
    Rule {
        vendor: Vendor::Mistral,
        source: "https://github.com/avante-corp/avante.nvim/issues/2562",
        code: "3230",
        broken: user_after_tool,
    },
    Rule {
        vendor: Vendor::Mistral,
        source: "https://github.com/nearai/ironclaw/issues/1241",
        code: "3280",
        broken: call_id_of_others,
    },
    Rule {
        vendor: Vendor::Mistral,
        source: "https://github.com/lobehub/lobe-chat/issues/8419",
        code: "invalid_request_error",
        broken: empty_assistant,
    },
    Rule {
        vendor: Vendor::Mistral,
        source: "https://docs.mistral.ai/api/endpoint/chat",
        code: "3230",
        broken: assistant_last,
    },
    Rule {
        vendor: Vendor::Mistral,
        source: "https://docs.mistral.ai/api/endpoint/chat",
        code: "extra_forbidden",
        broken: unknown_field,
    },
];

/// The refusal of a request by a vendor; `None` if it breaks no rule.
pub(super) fn refusal(vendor: Vendor, messages: &[Value]) -> Option<Reply> {
    let rules = RULES.iter().filter(|rule| rule.vendor == vendor);
    let (code, text) =
        rules.filter_map(|rule| Some((rule.code, (rule.broken)(messages)?))).next()?;
    let error = json!({"message": text, "type": "invalid_request_error", "code": code});
    Some(Reply::status(400).body(json!({ "error": error }).to_string()))
}

fn has_calls(message: &Value) -> bool {
    message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
}

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
}

fn lost_reasoning(messages: &[Value]) -> Option<String> {
    let is_lost = |message: &&Value| {
        is_assistant(message) && has_calls(message) && !message["reasoning_content"].is_string()
    };
    messages.iter().find(is_lost)?;
    let text = "The `reasoning_content` in the thinking mode must be passed back to the API.";
    Some(text.to_owned())
}

fn empty_assistant(messages: &[Value]) -> Option<String> {
    let is_empty = |message: &Value| {
        is_assistant(message)
            && !has_calls(message)
            && wire::text(&message["content"]).trim().is_empty()
    };
    let at = messages.iter().position(is_empty)?;
    Some(format!("the message at position {at} with role 'assistant' must not be empty"))
}

fn user_after_tool(messages: &[Value]) -> Option<String> {
    let is_after = |pair: &[Value]| pair[0]["role"] == "tool" && pair[1]["role"] == "user";
    messages.windows(2).find(|pair| is_after(pair))?;
    Some("Unexpected role 'user' after role 'tool'".to_owned())
}

fn call_id_of_others(messages: &[Value]) -> Option<String> {
    let calls = messages
        .iter()
        .flat_map(|message| message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice));
    let ids = calls.map(|call| &call["id"]).chain(
        messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| &message["tool_call_id"]),
    );
    let is_fit = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let id = ids.filter_map(Value::as_str).find(|id| !is_fit(id))?;
    Some(format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."))
}

fn assistant_last(messages: &[Value]) -> Option<String> {
    messages.last().filter(|last| is_assistant(last))?;
    Some("Expected last role User or Tool (or Assistant with prefix True) for serving".to_owned())
}

fn unknown_field(messages: &[Value]) -> Option<String> {
    const KNOWN: [&str; 6] = ["role", "content", "tool_calls", "tool_call_id", "name", "prefix"];
    let fields = messages.iter().filter_map(Value::as_object).flat_map(|one| one.keys());
    let field = fields.into_iter().find(|field| !KNOWN.contains(&field.as_str()))?;
    Some(format!("Extra inputs are not permitted: {field}"))
}
