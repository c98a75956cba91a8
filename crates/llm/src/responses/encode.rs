//! Encoder of the Responses request body.

use holdfast_types::{AnswerFormat, ChatMessage, Effort, Image, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::API_NAME;
use crate::{
    Request,
    carry::{self, ReplyPart, reply_parts},
    catalogue::{ModelCard, ThinkingForm},
    model::OptionNames,
    openai::effort,
    wire_text::{
        UniqueCallIds, arguments, image_placeholder, image_url, outcome, system_prompt, tool_name,
        tool_schema,
    },
};

/// Names of what a client may ask for.
pub(super) const OPTIONS: OptionNames = OptionNames {
    top_p: Some("top_p"),
    stop: None,
    seed: None,
    frequency_penalty: None,
    presence_penalty: None,
    has_effort: true,
    has_tool_choice: true,
};

pub(super) fn encode(request: &Request) -> Value {
    let (chat, card) = (&request.chat, request.card());
    let mut body = json!({
        "model": request.model.id(),
        "input": input(request, card),
        "stream": true,
        "store": false,
    });
    let told = system_prompt(&chat.stable, &chat.dynamic);
    if !told.is_empty() {
        body["instructions"] = told.into();
    }
    if !chat.tools.is_empty() {
        let tool = |tool: &holdfast_types::ToolSpec| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool_schema(&tool.input),
                // Strict mode accepts only a subset of JSON Schema.
                "strict": request.is_strict(&tool.name),
            })
        };
        body["tools"] = chat.tools.iter().map(tool).collect();
    }
    match request.forced_call() {
        Some(ToolChoice::Function(name)) => {
            body["tool_choice"] = json!({ "type": "function", "name": name });
        }
        Some(_) => body["tool_choice"] = "required".into(),
        None => {}
    }
    if request.calls_singly() {
        body["parallel_tool_calls"] = false.into();
    }
    if card.thinking.by == ThinkingForm::Effort {
        // Reasoning that is not stored is returned encrypted, if requested.
        body["include"] = json!(["reasoning.encrypted_content"]);
        if let Some(effort) = effort(request.thinking, card) {
            body["reasoning"] = json!({ "effort": effort });
        }
        if request.shows_thinking && request.thinking != holdfast_types::Thinking::Off {
            body["reasoning"]["summary"] = "auto".into();
        }
    }
    if let Some(effort) = request.asked_effort() {
        body["reasoning"]["effort"] = Effort::as_str(effort).into();
    }
    if let Some(format) = request.format() {
        body["text"]["format"] = match format {
            AnswerFormat::JsonObject => json!({ "type": "json_object" }),
            AnswerFormat::JsonSchema(named) => {
                let mut format = json!(named);
                format["type"] = "json_schema".into();
                format
            }
        };
    }
    if let Some(body) = body.as_object_mut() {
        request.write_options(&OPTIONS, body);
    }
    if let Some(most) = request.max_output {
        body["max_output_tokens"] = most.into();
    }
    if let Some(temperature) = request.accepted_temperature() {
        body["temperature"] = temperature.into();
    }
    if let Some(key) = &request.cache_key {
        body["prompt_cache_key"] = key.as_str().into();
    }
    body
}

fn input(request: &Request, card: &ModelCard) -> Vec<Value> {
    let mut items = Vec::new();
    let mut ids = UniqueCallIds::default();
    for message in &request.chat.messages {
        match message {
            ChatMessage::User { text, images } => items.push(user_item(text, images, card)),
            ChatMessage::Tool { call, output, failed } => items.push(json!({
                "type": "function_call_output",
                "call_id": ids.of(call),
                "output": outcome(output, *failed),
            })),
            ChatMessage::Assistant { text, calls, carry } => {
                ids.begin(calls);
                let carried = carry::unpack(carry.as_ref(), API_NAME, &request.model);
                push_assistant_items(text, calls, carried.unwrap_or_default(), &ids, &mut items);
            }
        }
    }
    items
}

fn user_item(text: &str, images: &[Image], card: &ModelCard) -> Value {
    let mut parts = Vec::new();
    if !text.is_empty() || images.is_empty() {
        parts.push(json!({ "type": "input_text", "text": text }));
    }
    if card.images {
        let image = |image| json!({ "type": "input_image", "image_url": image_url(image) });
        parts.extend(images.iter().map(image));
    } else if !images.is_empty() {
        parts.push(json!({ "type": "input_text", "text": image_placeholder(images.len()) }));
    }
    json!({ "role": "user", "content": parts })
}

/// Builds a reply's items, with the reasoning where it stood.
fn push_assistant_items(
    text: &str,
    calls: &[ToolCall],
    carried: &[Value],
    ids: &UniqueCallIds,
    items: &mut Vec<Value>,
) {
    for part in reply_parts(text, calls, carried) {
        match part {
            ReplyPart::Text(text, item) => push_text(items, text, &item["phase"]),
            ReplyPart::Call(one, _) => items.push(call(one, ids)),
            ReplyPart::Reasoning(item) => items.push(item.clone()),
        }
    }
}

fn push_text(items: &mut Vec<Value>, text: &str, phase: &Value) {
    if text.is_empty() {
        return;
    }
    let content = json!([{ "type": "output_text", "text": text }]);
    let mut item = json!({ "type": "message", "role": "assistant", "content": content });
    if phase.is_string() {
        item["phase"] = phase.clone();
    }
    items.push(item);
}

fn call(call: &ToolCall, ids: &UniqueCallIds) -> Value {
    json!({
        "type": "function_call",
        "call_id": ids.of(&call.id),
        "name": tool_name(&call.tool),
        "arguments": arguments(&call.input),
    })
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Chat, ImageData, Thinking, ToolSpec};

    use super::*;
    use crate::scripted_model::{ScriptedModel, tests::request};

    fn asked(model: &str, messages: Vec<ChatMessage>) -> Request {
        let chat = Chat {
            stable: "You are coach.\n".into(),
            dynamic: "It is noon.".into(),
            messages,
            tools: vec![],
        };
        Request { model: model.parse().unwrap(), chat, ..request() }
    }

    fn result(call: &str, output: &str, failed: bool) -> ChatMessage {
        ChatMessage::Tool { call: call.into(), output: output.into(), failed }
    }

    #[test]
    fn a_temperature_is_sent_to_a_model_that_accepts_one() {
        let told = |model: &str, thinking| {
            let request = Request { temperature: Some(0.3), thinking, ..asked(model, vec![]) };
            encode(&request)["temperature"].clone()
        };

        assert_eq!(told("openai:gpt-4o", Thinking::Off), 0.3);
        assert_eq!(told("openai:gpt-4o", Thinking::Low), Value::Null);
        assert_eq!(told("openai:gpt-5", Thinking::Off), Value::Null);
    }

    #[test]
    fn a_chat_becomes_items() {
        let calls =
            ScriptedModel::calls(&[("a", "recall", "{\"q\":1}"), ("b", "recall", "{")]).calls;
        let mut request = asked(
            "openai:gpt-4o",
            vec![
                ChatMessage::user("hi"),
                ChatMessage::assistant("Let me see.", calls),
                result("a", "green", false),
                result("b", "no luck", true),
            ],
        );
        request.chat.tools = vec![ToolSpec {
            name: "recall".into(),
            description: "Search.".into(),
            input: json!({ "type": "object" }),
        }];
        request.max_output = Some(99);
        request.cache_key = Some("agt_1".into());

        let call = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "recall", "arguments": arguments });
        assert_eq!(
            encode(&request),
            json!({
                "model": "gpt-4o",
                "stream": true,
                "store": false,
                "instructions": "You are coach.\n\nIt is noon.",
                "max_output_tokens": 99,
                "prompt_cache_key": "agt_1",
                "tools": [{
                    "type": "function",
                    "name": "recall",
                    "description": "Search.",
                    "parameters": { "type": "object" },
                    "strict": false,
                }],
                "input": [
                    { "role": "user", "content": [{ "type": "input_text", "text": "hi" }] },
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{ "type": "output_text", "text": "Let me see." }],
                    },
                    call("a", "{\"q\":1}"),
                    call("b", "{\"unreadable\":\"{\"}"),
                    { "type": "function_call_output", "call_id": "a", "output": "green" },
                    { "type": "function_call_output", "call_id": "b", "output": "error: no luck" },
                ],
            })
        );
    }

    #[test]
    fn reasoning_goes_back_where_it_stood_to_the_model_that_reasoned() {
        let sealed = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "x" });
        let items = vec![
            sealed.clone(),
            json!({ "text": 4, "phase": "commentary" }),
            json!({ "call": "a" }),
        ];
        let spoken = ChatMessage::Assistant {
            text: "so, ".into(),
            calls: ScriptedModel::calls(&[("a", "t", "{}")]).calls,
            carry: carry::pack(API_NAME, "openai:gpt-5", items),
        };
        let messages = vec![spoken, result("a", "", false)];

        let encoded = encode(&asked("openai:gpt-5", messages.clone()));
        assert_eq!(encoded["input"][0], sealed);
        assert_eq!(encoded["input"][1]["phase"], "commentary");
        assert_eq!(encoded["input"][2]["call_id"], "a");
        let other = encode(&asked("openai:gpt-5-mini", messages));
        assert_eq!(other["input"][0]["type"], "message");
    }

    #[test]
    fn a_model_that_thinks_is_told_how_much_and_asked_for_its_reasoning() {
        let told = |model: &str, thinking| {
            let encoded = encode(&Request { thinking, ..asked(model, vec![]) });
            (encoded["reasoning"]["effort"].clone(), encoded["include"].clone())
        };
        let sealed = json!(["reasoning.encrypted_content"]);

        assert_eq!(told("openai:gpt-5", Thinking::High), ("high".into(), sealed.clone()));
        assert_eq!(told("openai:gpt-5", Thinking::Off), ("minimal".into(), sealed.clone()));
        assert_eq!(told("openai:gpt-6.1-terra", Thinking::Off), ("none".into(), sealed));
        assert_eq!(told("openai:gpt-4o", Thinking::High), (Value::Null, Value::Null));
        let shown = |thinking| {
            let asked = asked("openai:gpt-5", vec![]);
            encode(&Request { thinking, shows_thinking: true, ..asked })["reasoning"]["summary"]
                .clone()
        };
        assert_eq!((shown(Thinking::Low), shown(Thinking::Off)), ("auto".into(), Value::Null));
    }

    #[test]
    fn an_id_is_used_once_and_a_picture_is_shown() {
        let calls = || ScriptedModel::calls(&[("call_1", "t", "{}")]).calls;
        let image =
            Image { media_type: "image/png".into(), data: ImageData::Base64("aGk=".into()) };
        let encoded = encode(&asked(
            "openai:gpt-5",
            vec![
                ChatMessage::assistant("", calls()),
                result("call_1", "", false),
                ChatMessage::assistant("", calls()),
                result("call_1", "", false),
                ChatMessage::User { text: String::new(), images: vec![image] },
            ],
        ));

        assert_eq!(encoded["input"][2]["call_id"], "call_1-2");
        assert_eq!(encoded["input"][3]["call_id"], "call_1-2");
        assert_eq!(
            encoded["input"][4]["content"],
            json!([{ "type": "input_image", "image_url": "data:image/png;base64,aGk=" }])
        );
    }

    #[test]
    fn what_a_client_asks_for_is_sent() {
        let (options, schema) = crate::model::tests::options();
        let request = Request { options, ..asked("openai:nobody", vec![]) };

        let body = encode(&request);

        assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.25), &json!(0.5)));
        assert_eq!(body["reasoning"]["effort"], "low");
        let format = &body["text"]["format"];
        assert_eq!((&format["type"], &format["name"]), (&json!("json_schema"), &json!("number")));
        assert_eq!((&format["schema"], &format["strict"]), (&schema, &json!(true)));
    }
}
