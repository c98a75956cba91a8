//! Rules of vendors about requests, as they publish them or as their users report them: a request that
//! breaks one is refused as the vendor refuses it.
//!
//! [`RULES`] names the source of each rule. The predicates are in `strict/order.rs` (roles, calls and their
//! results), `strict/content.rs` (texts, pictures, reasoning), `strict/tools.rs` (tools and their schemas),
//! `strict/fields.rs` (fields and their values), `strict/access.rs` (credentials, versions and paths of
//! clouds) and `strict/converse.rs` (Bedrock's own).

mod access;
mod content;
mod converse;
mod fields;
mod order;
mod sigv4;
mod table;
mod tools;

use serde_json::{Value, json};

use super::{Arrival, Reply, Request, dialect::Dialect};
pub use access::KEY;
pub use sigv4::AWS_KEYS;
pub use table::RULES;

/// A vendor whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    OpenAi,
    OpenAiResponses,
    Anthropic,
    Gemini,
    DeepSeek,
    Moonshot,
    Mistral,
    XAi,
    Groq,
    OpenRouter,
    Qwen,
    Glm,
    MiniMax,
    Doubao,
    Ollama,
    Vllm,
    LlamaCpp,
    LmStudio,
    Azure,
    /// Responses of Azure.
    AzureResponses,
    /// Gemini on Vertex AI.
    Vertex,
    /// Anthropic's models on Vertex AI.
    VertexClaude,
    Bedrock,
}

impl Vendor {
    /// The API that the vendor is asked by.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::OpenAiResponses => Dialect::Responses,
            Self::Anthropic => Dialect::Anthropic,
            Self::Gemini => Dialect::Gemini,
            Self::Ollama => Dialect::Ollama,
            Self::Azure => Dialect::Azure,
            Self::AzureResponses => Dialect::AzureResponses,
            Self::Vertex => Dialect::Vertex,
            Self::VertexClaude => Dialect::VertexClaude,
            Self::Bedrock => Dialect::Converse,
            Self::OpenAi
            | Self::DeepSeek
            | Self::Moonshot
            | Self::Mistral
            | Self::XAi
            | Self::Groq
            | Self::OpenRouter
            | Self::Qwen
            | Self::Glm
            | Self::MiniMax
            | Self::Doubao
            | Self::Vllm
            | Self::LlamaCpp
            | Self::LmStudio => Dialect::ChatCompletions,
        }
    }
}

/// A rule of a vendor, and where it is from.
#[derive(Debug)]
pub struct Rule {
    pub vendor: Vendor,
    /// Public document or report.
    pub source: &'static str,
    status: u16,
    /// Code of the refusal.
    code: &'static str,
    /// What the vendor says of the first thing that breaks it.
    broken: fn(&Asked<'_>) -> Option<String>,
}

/// A request, as rules see it.
struct Asked<'a> {
    model: &'a str,
    /// As it was sent.
    body: &'a Value,
    /// Its messages in the form of Chat Completions.
    messages: &'a [Value],
    /// Its tools in the form of Chat Completions.
    tools: &'a [Value],
    /// What came over the wire.
    arrival: &'a Arrival,
}

/// The refusal of a request by a vendor, and its words; `None` if it breaks no rule.
pub(super) fn refusal(
    vendor: Vendor,
    dialect: Dialect,
    request: &Request,
    arrival: &Arrival,
) -> Option<(String, Reply)> {
    // Some vendors have two APIs with rules of their own.
    let vendor = match (vendor, dialect) {
        (Vendor::OpenAi, Dialect::Responses) => Vendor::OpenAiResponses,
        (Vendor::Azure, Dialect::AzureResponses) => Vendor::AzureResponses,
        (vendor, _) => vendor,
    };
    if vendor.dialect() != dialect {
        let text = format!("{vendor:?} has no API at {}", arrival.uri.path());
        return Some((text, Reply::status(404)));
    }
    let tools = request.form()["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let asked = Asked {
        model: &request.model,
        body: &request.body,
        messages: request.messages(),
        tools,
        arrival,
    };
    let rules = RULES.iter().filter(|rule| rule.vendor == vendor);
    let (rule, text) = rules.filter_map(|rule| Some((rule, (rule.broken)(&asked)?))).next()?;
    // Errors of LM Studio are a text.
    let body = match vendor == Vendor::LmStudio {
        true => json!({ "error": text }).to_string(),
        false => dialect.error(rule.status, rule.code, &text),
    };
    let reply = Reply::status(rule.status).body(body);
    let headers = dialect.error_headers(rule.code).into_iter();
    Some((text, headers.fold(reply, |reply, (name, value)| reply.header(name, value))))
}

fn has_calls(message: &Value) -> bool {
    message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
}

fn calls(message: &Value) -> &[Value] {
    message["tool_calls"].as_array().map_or(&[], Vec::as_slice)
}

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
}

/// The elements of an array; none of anything else.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
