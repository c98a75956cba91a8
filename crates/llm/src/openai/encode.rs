//! From a request to the body that is sent.
//!
//! All that is told comes in one system message, the stable part first: there
//! are servers that take only one, and only at the beginning. Sampling
//! parameters are left to the provider.

use std::borrow::Cow;

use holdfast_types::{ChatMessage, ToolCall, ToolSpec};
use reqwest::Url;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::Request;

/// What OpenAI takes as the longest name of a function.
const LONGEST_NAME: usize = 64;

/// In which words a server wants to be asked, where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wording {
    /// OpenAI's own, which has replaced some of them.
    OpenAi,
    /// The ones that every compatible server knows.
    Compatible,
}

impl Wording {
    /// The wording of the server at an address.
    pub(super) fn of(url: &Url) -> Self {
        match url.host_str() {
            Some("api.openai.com") => Self::OpenAi,
            Some(_) | None => Self::Compatible,
        }
    }
}

/// Builds the body of a request.
pub(super) fn encode(request: &Request, wording: Wording) -> Value {
    let chat = &request.chat;
    let told: Vec<&str> = [chat.stable.trim_end(), chat.dynamic.trim_end()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let mut messages = Vec::with_capacity(chat.messages.len() + 1);
    if !told.is_empty() {
        messages.push(json!({ "role": "system", "content": told.join("\n\n") }));
    }
    messages.extend(chat.messages.iter().map(message));
    let mut body = json!({
        "model": request.model.id(),
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !chat.tools.is_empty() {
        body["tools"] = chat.tools.iter().map(tool).collect();
    }
    if let Some(most) = request.max_output {
        let word = match wording {
            Wording::OpenAi => "max_completion_tokens",
            Wording::Compatible => "max_tokens",
        };
        body[word] = most.into();
    }
    body
}

fn message(message: &ChatMessage) -> Value {
    match message {
        ChatMessage::User { text } => json!({ "role": "user", "content": text }),
        ChatMessage::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        ChatMessage::Assistant { text, calls } => json!({
            "role": "assistant",
            "content": (!text.is_empty()).then_some(text),
            "tool_calls": calls.iter().map(call).collect::<Value>(),
        }),
        ChatMessage::Tool { call, output, failed: false } => {
            json!({ "role": "tool", "tool_call_id": call, "content": output })
        }
        ChatMessage::Tool { call, output, failed: true } => {
            json!({ "role": "tool", "tool_call_id": call, "content": format!("error: {output}") })
        }
    }
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": name(&call.tool), "arguments": arguments(&call.input) },
    })
}

/// A name as providers take it: what a model made up is sent back to it for good, and must not
/// make every later request fail.
fn name(given: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=LONGEST_NAME).contains(&given.len()) && given.chars().all(fits) {
        return given.into();
    }
    let name: String =
        given.chars().take(LONGEST_NAME).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".into() } else { name.into() }
}

/// An input as servers take it, some of which read it as JSON and fail on what is none.
fn arguments(input: &str) -> Cow<'_, str> {
    match serde_json::from_str::<IgnoredAny>(input) {
        Ok(_) => input.into(),
        Err(_) => json!({ "unreadable": input }).to_string().into(),
    }
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input,
        },
    })
}

#[cfg(test)]
mod tests {
    use holdfast_types::Chat;

    use super::*;
    use crate::scripted::{Scripted, tests::request};

    fn asked(messages: Vec<ChatMessage>) -> Request {
        let chat = Chat {
            stable: "You are coach.\n".into(),
            dynamic: "It is noon.".into(),
            messages,
            tools: vec![],
        };
        Request { model: "openai:gpt-5".parse().unwrap(), chat, ..request() }
    }

    #[test]
    fn a_chat_becomes_the_messages_that_servers_take() {
        let calls = Scripted::calls(&[("1", "recall", r#"{"query":"tea"}"#)]).calls;
        let request = asked(vec![
            ChatMessage::User { text: "hi".into() },
            ChatMessage::Assistant { text: String::new(), calls },
            ChatMessage::Tool { call: "1".into(), output: "green".into(), failed: false },
            ChatMessage::Assistant { text: "green".into(), calls: vec![] },
        ]);

        assert_eq!(
            encode(&request, Wording::OpenAi),
            json!({
                "model": "gpt-5",
                "stream": true,
                "stream_options": { "include_usage": true },
                "messages": [
                    { "role": "system", "content": "You are coach.\n\nIt is noon." },
                    { "role": "user", "content": "hi" },
                    {
                        "role": "assistant",
                        "content": null,
                        "tool_calls": [{
                            "id": "1",
                            "type": "function",
                            "function": { "name": "recall", "arguments": "{\"query\":\"tea\"}" },
                        }],
                    },
                    { "role": "tool", "tool_call_id": "1", "content": "green" },
                    { "role": "assistant", "content": "green" },
                ],
            })
        );
    }

    #[test]
    fn what_a_model_made_up_cannot_make_later_requests_fail() {
        let long = "x".repeat(100);
        let calls =
            Scripted::calls(&[("1", "no such/töol", "{\"a"), ("2", "", ""), ("3", &long, "{}")]);
        let encoded = encode(
            &asked(vec![ChatMessage::Assistant { text: "so".into(), calls: calls.calls }]),
            Wording::OpenAi,
        );

        let function = |at: usize| &encoded["messages"][1]["tool_calls"][at]["function"];
        assert_eq!(function(0)["name"], "no_such_t_ol");
        assert_eq!(function(0)["arguments"], "{\"unreadable\":\"{\\\"a\"}");
        assert_eq!(function(1)["name"], "unknown");
        assert_eq!(function(2)["name"], "x".repeat(64));
    }

    #[test]
    fn a_failed_result_says_so_and_tools_are_functions() {
        let mut request = asked(vec![ChatMessage::Tool {
            call: "1".into(),
            output: "no luck".into(),
            failed: true,
        }]);
        request.chat.tools = vec![ToolSpec {
            name: "recall".into(),
            description: "Search.".into(),
            input: json!({ "type": "object", "properties": {} }),
        }];

        let encoded = encode(&request, Wording::Compatible);

        assert_eq!(encoded["messages"][1]["content"], "error: no luck");
        assert_eq!(encoded["tools"][0]["function"]["parameters"]["type"], "object");
    }

    #[test]
    fn the_most_that_may_be_written_is_named_as_the_server_names_it() {
        let request = Request { max_output: Some(9), ..asked(vec![]) };
        let of = |url: &str| Wording::of(&Url::parse(url).unwrap());

        let openai = encode(&request, of("https://api.openai.com/v1"));
        let other = encode(&request, of("http://localhost:11434/v1"));

        assert_eq!((&openai["max_completion_tokens"], openai.get("max_tokens")), (&json!(9), None));
        assert_eq!((&other["max_tokens"], other.get("max_completion_tokens")), (&json!(9), None));
    }
}
