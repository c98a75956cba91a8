//! `RunAgentInput`, the request of AG-UI.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    api_error::ApiError,
    openai::{
        AnswerRequest, GivenOptions, GivenTools, IgnoredFields, MODEL_PREFIX, Message, Role,
        join_calls,
    },
};

/// Maximum length of the ids of threads and runs.
const MAX_ID_BYTES: usize = 256;

/// Beginning of the message that tells the agent what the application knows.
const CONTEXT_PREFIX: &str = "What the application says about itself:";

/// Fields that are not here are ignored: among them `forwardedProps`, which is for other servers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunAgentInput {
    thread_id: String,
    run_id: String,
    /// Clients since version 1.0 send it.
    protocol_version: Option<String>,
    #[serde(default)]
    messages: Vec<InputMessage>,
    #[serde(default)]
    tools: Vec<InputTool>,
    #[serde(default)]
    context: Vec<ContextItem>,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    resume: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputMessage {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Option<Value>,
    #[serde(default)]
    tool_call_id: Option<String>,
    /// Why a tool of the client failed.
    #[serde(default)]
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct InputTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

#[derive(Debug, Deserialize)]
struct ContextItem {
    description: String,
    value: String,
}

/// Ids of a run, which its events repeat.
#[derive(Debug)]
pub struct Run {
    pub thread: String,
    pub run: String,
    /// Whether the client knows what version 1.0 has added.
    pub is_version_1: bool,
}

impl Run {
    /// Key under which a run is answered once.
    pub fn idempotency_key(&self) -> String {
        let hash = Sha256::digest(format!("{}\n{}", self.thread, self.run));
        let hex: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("ag-ui:{hex}")
    }
}

impl RunAgentInput {
    /// Converts a request to `agent`; the default agent if it is empty.
    pub fn check(self, agent: &str) -> Result<(Run, AnswerRequest), ApiError> {
        let is_id = |id: &str| (1..=MAX_ID_BYTES).contains(&id.len());
        for (param, id) in [("threadId", &self.thread_id), ("runId", &self.run_id)] {
            if !is_id(id) {
                let message = format!("`{param}` must have 1 to {MAX_ID_BYTES} bytes");
                return Err(ApiError::invalid_field(param, message));
            }
        }
        if self.resume.as_ref().is_some_and(|resume| resume.as_array() != Some(&Vec::new())) {
            let message = "no run is interrupted: leave `resume` out, and send a message";
            return Err(ApiError::unsupported("resume", message));
        }
        let context = context_text(&self.context, &self.state);
        let tools: Vec<Value> = self.tools.into_iter().map(InputTool::into_function).collect();
        let options = GivenOptions {
            tools: GivenTools { tools: Some(tools.into()), ..GivenTools::default() },
            ..GivenOptions::default()
        };
        let messages = self.messages.into_iter().filter_map(InputMessage::into_message);
        let mut turns = messages
            .map(|message| message.and_then(|message| message.convert("messages")))
            .collect::<Result<Vec<_>, _>>()?;
        if let (Some(text), Some(last)) = (context, turns.len().checked_sub(1)) {
            // Results of tools follow their calls; only a message of the user has something before it.
            if turns[last].role == Role::User {
                turns.insert(
                    last,
                    message(json!({ "role": "system", "content": text }))?.convert("context")?,
                );
            }
        }
        let model = match agent {
            "" => MODEL_PREFIX.to_owned(),
            agent => format!("{MODEL_PREFIX}/{agent}"),
        };
        let ask = AnswerRequest {
            model,
            user: Some(self.thread_id.clone()),
            turns: join_calls(turns),
            options: options.check(&mut IgnoredFields::default())?,
            ..AnswerRequest::default()
        };
        let is_version_1 = self.protocol_version.is_some_and(|version| version.starts_with("1."));
        Ok((Run { thread: self.thread_id, run: self.run_id, is_version_1 }, ask))
    }
}

/// What the application says about itself: its context and its state; `None` if it says nothing.
fn context_text(context: &[ContextItem], state: &Value) -> Option<String> {
    let items = context.iter().map(|item| format!("{}: {}", item.description, item.value));
    let is_empty = match state {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let state = (!is_empty).then(|| format!("state: {state}"));
    let lines: Vec<String> = items.chain(state).collect();
    (!lines.is_empty()).then(|| format!("{CONTEXT_PREFIX}\n{}", lines.join("\n")))
}

impl InputTool {
    fn into_function(self) -> Value {
        let Self { name, description, parameters } = self;
        json!({ "type": "function", "name": name, "description": description, "parameters": parameters })
    }
}

impl InputMessage {
    /// The message as Chat Completions has it; `None` for one that only people see.
    fn into_message(self) -> Option<Result<Message, ApiError>> {
        let Self { role, content, tool_calls, tool_call_id, error } = self;
        if matches!(role.as_str(), "reasoning" | "activity") {
            return None;
        }
        let content = match (content, error) {
            (Value::Array(parts), None) => parts.into_iter().map(part).collect(),
            (Value::Null | Value::Array(_), Some(error)) => format!("error: {error}").into(),
            (Value::String(text), Some(error)) if text.is_empty() => {
                format!("error: {error}").into()
            }
            (Value::Null, None) if tool_calls.is_none() => String::new().into(),
            (content, _) => content,
        };
        let mut shown = json!({ "role": role, "content": content });
        if let Some(calls) = tool_calls {
            shown["tool_calls"] = calls;
        }
        if let Some(call) = tool_call_id {
            shown["tool_call_id"] = call.into();
        }
        Some(message(shown))
    }
}

fn message(shown: Value) -> Result<Message, ApiError> {
    serde_json::from_value(shown).map_err(|error| {
        ApiError::invalid_field("messages", format!("a message is not what it should be: {error}"))
    })
}

/// A part of a message's content. Images become `data:` URLs; other files are refused by their type.
fn part(mut part: Value) -> Value {
    let is_old_image = part["type"] == "binary"
        && part["mimeType"].as_str().is_some_and(|kind| kind.starts_with("image/"));
    let (media_type, data, url) = if is_old_image {
        (take(&mut part, "mimeType"), take(&mut part, "data"), take(&mut part, "url"))
    } else if part["type"] == "image" {
        let mut source = take(&mut part, "source");
        let value = take(&mut source, "value");
        match source["type"].as_str() {
            Some("data") => (take(&mut source, "mimeType"), value, Value::Null),
            _ => (Value::Null, Value::Null, value),
        }
    } else {
        return part;
    };
    let url = match (media_type.as_str(), data.as_str()) {
        (Some(media_type), Some(data)) => format!("data:{media_type};base64,{data}").into(),
        _ => url,
    };
    json!({ "type": "image_url", "image_url": url })
}

/// Takes a field out of a value; null if the value has no such field.
fn take(value: &mut Value, field: &str) -> Value {
    value.get_mut(field).map(Value::take).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;

    use super::*;

    fn read(extra: Value) -> Result<(Run, AnswerRequest), ApiError> {
        let mut input = json!({
            "threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [],
            "messages": [{ "id": "1", "role": "user", "content": "hi" }], "forwardedProps": {},
        });
        for (name, value) in extra.as_object().unwrap() {
            input[name] = value.clone();
        }
        serde_json::from_value::<RunAgentInput>(input).unwrap().check("")
    }

    #[test]
    fn messages_of_a_thread_are_those_of_a_conversation() {
        let (run, ask) = read(json!({
            "messages": [
                { "id": "1", "role": "developer", "content": "rhyme" },
                { "id": "2", "role": "user", "content": "look" },
                { "id": "3", "role": "reasoning", "content": "hm" },
                { "id": "4", "role": "assistant", "content": "so", "toolCalls": [
                    { "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
                { "id": "5", "role": "tool", "toolCallId": "a", "content": "", "error": "no camera" },
                { "id": "6", "role": "activity", "activityType": "x", "content": {} },
            ],
            "tools": [{ "name": "f", "description": "d", "parameters": { "type": "object" } }],
        }))
        .unwrap();

        assert_eq!((ask.user.as_deref(), ask.model.as_str()), (Some("t"), "holdfast"));
        assert_eq!(ask.turns.len(), 4);
        assert_eq!((ask.turns[2].text.as_str(), ask.turns[2].calls[0].tool.as_str()), ("so", "f"));
        assert_eq!(ask.turns[3].results[0].output, "error: no camera");
        assert_eq!(ask.options.unwrap().tools[0].name, "f");
        assert!(run.idempotency_key().len() < 64 && !run.is_version_1);
    }

    #[test]
    fn what_the_application_knows_comes_before_the_users_message() {
        let context = json!([{ "description": "page", "value": "orders" }]);
        let (_, ask) = read(json!({ "context": context, "state": { "n": 1 } })).unwrap();

        let texts: Vec<&str> = ask.turns.iter().map(|turn| turn.text.as_str()).collect();
        let told = "What the application says about itself:\npage: orders\nstate: {\"n\":1}";
        assert_eq!(texts, [told, "hi"]);
    }

    #[test]
    fn a_picture_is_read_in_both_forms_and_other_files_are_refused() {
        let data = "iVBORw0KGgo=";
        let source = json!({ "type": "data", "value": data, "mimeType": "image/png" });
        for picture in [
            json!({ "type": "image", "source": source }),
            json!({ "type": "binary", "mimeType": "image/png", "data": data }),
        ] {
            let messages = json!([{ "id": "1", "role": "user", "content": [picture] }]);
            assert_eq!(read(json!({ "messages": messages })).unwrap().1.turns[0].pictures.len(), 1);
        }
        let audio = json!({ "type": "audio", "source": source });
        let messages = json!([{ "id": "1", "role": "user", "content": [audio] }]);
        let refusal = read(json!({ "messages": messages })).unwrap_err();
        assert!(refusal.message().contains("`audio`"), "{}", refusal.message());
        for wrong in [
            json!({ "threadId": "" }),
            json!({ "runId": "x".repeat(257) }),
            json!({ "resume": [{ "interruptId": "1", "status": "resolved" }] }),
            json!({ "tools": [{ "name": "not a name" }] }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    const INPUTS: [&str; 2] = [
        r#"{"threadId": "t", "runId": "r", "protocolVersion": "1.0", "state": {"a": [1]}, "messages": [{"id": "1", "role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}]}], "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}], "context": [{"description": "a", "value": "b"}], "forwardedProps": {}}"#,
        r#"{"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "assistant", "toolCalls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"id": "2", "role": "tool", "toolCallId": "a", "content": "x", "error": "y"}, {"id": "3", "role": "user", "content": [{"type": "binary", "mimeType": "image/png", "data": "iVBORw0KGgo="}]}], "resume": []}"#,
    ];

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in mutated_json(&INPUTS)) {
            if let Ok(input) = serde_json::from_str::<RunAgentInput>(&body)
                && let Ok((run, ask)) = input.check("")
            {
                prop_assert_eq!(Some(run.thread), ask.user);
            }
        }
    }
}
