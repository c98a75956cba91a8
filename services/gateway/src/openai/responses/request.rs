//! Requests for a response: their fields, and their check.

use serde::Deserialize;
use serde_json::{Map, Number, Value};
use uuid::Uuid;

use super::{
    super::{
        content::{ConversationMessage, Message, Role, join_calls},
        conversation::AnswerRequest,
        ignored_fields::{IgnoredFields, OtherFields},
        options::{CacheOptions, GivenOptions},
        tools::GivenTools,
    },
    object::ResponseFields,
};
use crate::api_error::ApiError;

/// Beginning of the ids of conversations.
pub const CONVERSATION_PREFIX: &str = "conv_";

/// Limits of `metadata`, as at OpenAI: entries, and bytes of a key and of a value.
const MAX_METADATA: (usize, usize, usize) = (16, 64, 512);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResponsesRequest {
    model: Option<String>,
    input: Option<Input>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    user: Option<String>,
    tools: Option<Value>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    conversation: Option<Value>,
    background: Option<bool>,
    store: Option<bool>,
    metadata: Option<Value>,
    truncation: Option<String>,
    include: Option<Vec<String>>,
    text: Option<TextOptions>,
    reasoning: Option<ReasoningOptions>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    max_output_tokens: Option<u64>,
    prompt_cache_key: Option<String>,
    prompt_cache_retention: Option<String>,
    service_tier: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TextOptions {
    format: Option<Value>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReasoningOptions {
    effort: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Message>),
}

impl ResponsesRequest {
    pub fn streams(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    /// Items of the input; `None` if it is a text.
    pub fn input_items(&mut self) -> Option<&mut Vec<Message>> {
        match &mut self.input {
            Some(Input::Items(items)) => Some(items),
            Some(Input::Text(_)) | None => None,
        }
    }

    /// Refuses parameters that would change the answer, and notes the others that are not followed.
    pub fn check(mut self) -> Result<(AnswerRequest, ResponseFields), ApiError> {
        let text = self.text.take().unwrap_or_default();
        let reasoning = self.reasoning.take().unwrap_or_default();
        let mut ignored = self.note_ignored(&text, &reasoning)?;
        let (fields, conversation) = self.response_fields()?;
        let told = self.instructions.filter(|text| !text.trim().is_empty());
        let told = told.map(|text| ConversationMessage::text_only(Role::System, text));
        let said = match self.input {
            Some(Input::Text(text)) => vec![ConversationMessage::text_only(Role::User, text)],
            Some(Input::Items(items)) => {
                items.into_iter().map(|item| item.convert("input")).collect::<Result<_, _>>()?
            }
            None => {
                return Err(ApiError::invalid_field("input", "`input` is missing: say something"));
            }
        };
        let turns = join_calls(told.into_iter().chain(said).collect());
        let options = GivenOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_output: vec![("max_output_tokens", self.max_output_tokens)],
            effort: Some(("reasoning.effort", reasoning.effort)),
            format: Some(("text.format", text.format)),
            tools: GivenTools {
                tools: self.tools,
                choice: self.tool_choice,
                parallel: self.parallel_tool_calls,
            },
            cache: CacheOptions {
                prompt_cache_key: self.prompt_cache_key,
                prompt_cache_retention: self.prompt_cache_retention,
                service_tier: self.service_tier,
            },
            ..GivenOptions::default()
        };
        let ask = AnswerRequest {
            model: fields.model.clone(),
            user: fields.user.clone(),
            previous: fields.previous.clone(),
            turns,
            options: options.check(&mut ignored)?,
            ignored,
            // Strings, numbers and maps can always be written as JSON.
            response_fields: serde_json::to_value(&fields).ok().map(Box::new),
            conversation,
            ..AnswerRequest::default()
        };
        Ok((ask, fields))
    }

    fn note_ignored(
        &self,
        text: &TextOptions,
        reasoning: &ReasoningOptions,
    ) -> Result<IgnoredFields, ApiError> {
        let mut ignored = IgnoredFields::default();
        ignored.add("", &self.others)?;
        ignored.add("text.", &text.others)?;
        ignored.add("reasoning.", &reasoning.others)?;
        if let Some(options) = &self.stream_options {
            ignored.add("stream_options.", &options.others)?;
        }
        // A response has no reasoning, so its encrypted form is never there; nor has it results of the
        // provider's tools.
        let others = |name: &&String| name.as_str() != "reasoning.encrypted_content";
        for other in self.include.iter().flatten().filter(others) {
            if other.ends_with(".logprobs") {
                let message = "an agent's answer has no log probabilities";
                return Err(ApiError::unsupported("include", message));
            }
            ignored.note(format!("include.{other}"));
        }
        if self.truncation.as_ref().is_some_and(|word| word != "auto" && word != "disabled") {
            let message = "`truncation` must be `auto` or `disabled`";
            return Err(ApiError::invalid_field("truncation", message));
        }
        Ok(ignored)
    }

    /// What the response repeats, and the conversation that it continues.
    fn response_fields(&mut self) -> Result<(ResponseFields, Option<Uuid>), ApiError> {
        let model = self.model.take().unwrap_or_default();
        if model.is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
        let conversation = self.conversation.take().map(read_conversation).transpose()?.flatten();
        let previous = self.previous_response_id.take().filter(|id| !id.is_empty());
        let user = self.user.take();
        if conversation.is_some() && (previous.is_some() || user.is_some()) {
            let message =
                "send `conversation`, `previous_response_id` or `user`: each names a conversation";
            return Err(ApiError::invalid_field("conversation", message));
        }
        let background = self.background.unwrap_or_default();
        let store = self.store.unwrap_or(true);
        if background && !store {
            let message = "a background response is read again: leave `store` out";
            return Err(ApiError::invalid_field("store", message));
        }
        let shown = |id: Uuid| format!("{CONVERSATION_PREFIX}{}", id.simple());
        let fields = ResponseFields {
            model,
            instructions: self.instructions.clone(),
            previous,
            user,
            metadata: read_metadata(self.metadata.take())?,
            store,
            background,
            conversation: conversation.map(shown),
            truncation: self.truncation.take(),
        };
        if serde_json::to_string(&fields).is_ok_and(|text| text.contains("\\u0000")) {
            return Err(ApiError::bad_body("a text of the request contains a NUL: remove it"));
        }
        Ok((fields, conversation))
    }
}

/// Id of a conversation, as a string or in an object.
fn read_conversation(given: Value) -> Result<Option<Uuid>, ApiError> {
    let id = match &given {
        Value::Null => return Ok(None),
        Value::Object(fields) => fields.get("id").and_then(Value::as_str),
        Value::String(id) => Some(id.as_str()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    match id.and_then(conversation_id) {
        Some(id) => Ok(Some(id)),
        None => {
            let message = "`conversation` is no id of a conversation: `POST /v1/conversations` \
                           makes one";
            Err(ApiError::invalid_field("conversation", message))
        }
    }
}

/// Reads the id of a conversation.
pub fn conversation_id(id: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(id.strip_prefix(CONVERSATION_PREFIX)?).ok()?;
    id.get_timestamp().is_some().then_some(id)
}

pub fn read_metadata(given: Option<Value>) -> Result<Map<String, Value>, ApiError> {
    let (entries, key_bytes, value_bytes) = MAX_METADATA;
    let metadata = match given {
        None | Some(Value::Null) => return Ok(Map::new()),
        Some(Value::Object(metadata)) => Some(metadata),
        Some(_) => None,
    };
    let is_right = |metadata: &Map<String, Value>| {
        metadata.len() <= entries
            && metadata.iter().all(|(key, value)| {
                key.len() <= key_bytes
                    && value.as_str().is_some_and(|value| value.len() <= value_bytes)
            })
    };
    metadata.filter(is_right).ok_or_else(|| {
        let message = format!(
            "`metadata` has up to {entries} texts of {value_bytes} bytes, under names of \
             {key_bytes} bytes"
        );
        ApiError::invalid_field("metadata", message)
    })
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(wanted: Value) -> Result<AnswerRequest, ApiError> {
        let (ask, _) = serde_json::from_value::<ResponsesRequest>(wanted).unwrap().check()?;
        Ok(ask)
    }

    #[test]
    fn instructions_come_before_what_is_said() {
        let ask = check(json!({"model": "holdfast", "instructions": "Rhyme.", "input": "hi"}));

        let turns = ask.unwrap().turns;
        assert_eq!(turns[0], ConversationMessage::text_only(Role::System, "Rhyme.".into()));
        assert_eq!(turns[1], ConversationMessage::text_only(Role::User, "hi".into()));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for extra in [
            json!({"conversation": "conv_1"}),
            json!({"conversation": "conv_0190f3c4d5e67890abcd1234567890ab", "user": "u"}),
            json!({"background": true, "store": false}),
            json!({"metadata": {"n": 1}}),
            json!({"include": ["message.output_text.logprobs"]}),
            json!({"prompt": {"id": "pmpt_1"}}),
            json!({"truncation": "sometimes"}),
            json!({"service_tier": "flex"}),
            json!({"text": {"format": {"type": "json_schema"}}}),
            json!({"reasoning": {"effort": "much"}}),
            json!({"input": null}),
            json!({"model": ""}),
        ] {
            let mut wanted = json!({"model": "holdfast", "input": "hi"});
            for (key, value) in extra.as_object().unwrap() {
                wanted[key] = value.clone();
            }
            assert!(check(wanted).is_err(), "{extra}");
        }
    }

    #[test]
    fn what_a_coding_agent_always_sends_is_taken() {
        let asked = check(json!({
            "model": "holdfast", "input": "hi", "store": false,
            "tools": [
                {"type": "web_search"},
                {"type": "custom", "name": "apply_patch"},
                {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}},
            ],
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["reasoning.encrypted_content", "file_search_call.results"],
            "text": {"verbosity": "low"},
            "client_metadata": {"a": "b"},
        }))
        .unwrap();

        let [(_, names)] = asked.ignored.header().unwrap();
        assert_eq!(
            names,
            "client_metadata, text.verbosity, reasoning.summary, \
             include.file_search_call.results, tools.web_search, tools.custom"
        );
        assert_eq!(asked.options.unwrap().tools.len(), 1);
    }

    const BODIES: [&str; 3] = [
        r#"{"model": "holdfast", "instructions": "Rhyme.", "input": "hi", "stream": false, "user": "u"}"#,
        r#"{"model": "holdfast", "previous_response_id": "resp_0190f3c4d5e67890abcd1234567890ab", "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]}]}"#,
        r#"{"model": "holdfast", "input": [{"role": "assistant", "content": "b"}], "tools": [], "conversation": null, "background": false, "text": {"format": {"type": "text"}}}"#,
    ];

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in mutated_json(&BODIES)) {
            if let Ok(request) = serde_json::from_str::<ResponsesRequest>(&body)
                && let Ok((asked, _)) = request.check()
            {
                prop_assert!(!asked.model.is_empty());
            }
        }
    }
}
