//! `POST /v1/chat/completions`.

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use holdfast_types::{MessageId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    OpenAi,
    body::read_json,
    content::{Message, NO_TOOLS, is_given},
    conversation::{AnswerRequest, idempotency_key_of},
    sse::{EventBuffer, StreamFormat, created_at, id_headers, stream_response},
};
use crate::{api_error::ApiError, follow::TurnResult};

#[derive(Debug, Deserialize)]
struct ChatRequest {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    messages: Option<Vec<Message>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    n: Option<u64>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    functions: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    modalities: Option<Value>,
    #[serde(default)]
    logprobs: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// Handler: answers with one JSON object or a stream.
pub async fn chat(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let key = idempotency_key_of(request.headers())?;
    let wanted: ChatRequest = read_json(&api, request).await?;
    let stream = wanted.stream.unwrap_or_default();
    let options = wanted.stream_options.as_ref().and_then(|options| options.include_usage);
    let ask = wanted.check()?;
    let model = ask.model.clone();

    let follow = api.accept_and_follow(&caller, key, ask).await?;

    let tags = id_headers(&follow);
    let message = follow.message();
    if stream {
        let voice = ChunkFormat {
            head: ChunkHead::new(message, model),
            usage: options.unwrap_or_default(),
        };
        return Ok((tags, stream_response(follow, voice, api.settings().gateway.heartbeat))
            .into_response());
    }
    let finished = follow.finish(api.settings().gateway.answer_timeout).await?;
    match ApiError::of_result(&finished) {
        Some(refusal) => Ok((tags, refusal).into_response()),
        None => {
            Ok((tags, Json(completion_of(ChunkHead::new(message, model), finished)))
                .into_response())
        }
    }
}

impl ChatRequest {
    /// Refuses unsupported parameters; ignoring them would give another result than the client
    /// expects.
    fn check(self) -> Result<AnswerRequest, ApiError> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(is_given);
        if given(&self.tools) {
            return Err(ApiError::unsupported("tools", NO_TOOLS));
        }
        if given(&self.functions) {
            return Err(ApiError::unsupported("functions", NO_TOOLS));
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::unsupported("n", "an agent gives one answer: set `n` to 1"));
        }
        let format = self.response_format.as_ref().and_then(|format| format.get("type"));
        if format.is_some_and(|format| format != "text") {
            let message = "only `text` is supported yet: ask for the form in the message itself";
            return Err(ApiError::unsupported("response_format", message));
        }
        let others =
            |value: &Value| value.as_array().is_some_and(|all| all.iter().any(|m| m != "text"));
        if self.modalities.as_ref().is_some_and(others) {
            return Err(ApiError::unsupported("modalities", "only `text` is supported yet"));
        }
        if self.logprobs.unwrap_or_default() {
            return Err(ApiError::unsupported(
                "logprobs",
                "an agent's answer has no log probabilities",
            ));
        }
        let model = self.model.unwrap_or_default();
        if model.is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
        let messages = self.messages.unwrap_or_default().into_iter();
        let turns =
            messages.map(|message| message.convert("messages")).collect::<Result<_, _>>()?;
        Ok(AnswerRequest { model, user: self.user, previous: None, turns })
    }
}

/// Fields that all chunks of an answer share.
#[derive(Debug, Clone, Serialize)]
struct ChunkHead {
    id: String,
    created: u64,
    model: String,
}

impl ChunkHead {
    fn new(message: MessageId, model: String) -> Self {
        let id = message.as_uuid();
        Self { id: format!("chatcmpl-{}", id.simple()), created: created_at(id), model }
    }
}

#[derive(Debug, Serialize)]
struct ChatCompletion {
    #[serde(flatten)]
    head: ChunkHead,
    object: &'static str,
    choices: [Choice; 1],
    usage: ChatUsage,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    message: ChoiceMessage,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
struct ChoiceMessage {
    role: &'static str,
    content: String,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokenDetails,
}

#[derive(Debug, Serialize)]
struct PromptTokenDetails {
    cached_tokens: u64,
}

impl From<Usage> for ChatUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.input.saturating_add(usage.output),
            prompt_tokens_details: PromptTokenDetails { cached_tokens: usage.cached },
        }
    }
}

fn completion_of(head: ChunkHead, finished: TurnResult) -> ChatCompletion {
    let message = ChoiceMessage { role: "assistant", content: finished.text, refusal: None };
    let choice = Choice { index: 0, message, logprobs: None, finish_reason: "stop" };
    ChatCompletion {
        head,
        object: "chat.completion",
        choices: [choice],
        usage: finished.usage.into(),
    }
}

/// Stream format of Chat Completions.
struct ChunkFormat {
    head: ChunkHead,
    /// Whether the client asked for usage.
    usage: bool,
}

#[derive(Serialize)]
struct Chunk<'a> {
    #[serde(flatten)]
    head: &'a ChunkHead,
    object: &'static str,
    choices: &'a [ChunkChoice<'a>],
    // If requested: `null` in every chunk but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<ChatUsage>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: ChunkDelta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl ChunkFormat {
    fn piece(
        &self,
        delta: ChunkDelta<'_>,
        finish_reason: Option<&'static str>,
        out: &mut EventBuffer,
    ) {
        let choices = &[ChunkChoice { index: 0, delta, logprobs: None, finish_reason }];
        self.chunk(choices, self.usage.then_some(None), out);
    }

    fn chunk(
        &self,
        choices: &[ChunkChoice<'_>],
        usage: Option<Option<ChatUsage>>,
        out: &mut EventBuffer,
    ) {
        let object = "chat.completion.chunk";
        out.data(&Chunk { head: &self.head, object, choices, usage });
    }
}

impl StreamFormat for ChunkFormat {
    fn begin(&mut self, out: &mut EventBuffer) {
        self.piece(ChunkDelta { role: Some("assistant"), content: Some("") }, None, out);
    }

    fn text(&mut self, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.piece(ChunkDelta { content: Some("\n\n"), ..ChunkDelta::default() }, None, out);
        }
        self.piece(ChunkDelta { content: Some(text), ..ChunkDelta::default() }, None, out);
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        self.piece(ChunkDelta::default(), Some("stop"), out);
        if self.usage {
            self.chunk(&[], Some(Some(finished.usage.into())), out);
        }
        out.finish();
    }

    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer) {
        out.data(&refusal.serializable());
    }
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(extra: Value) -> Result<AnswerRequest, ApiError> {
        let mut request =
            json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value::<ChatRequest>(request).unwrap().check()
    }

    #[test]
    fn what_makes_no_difference_here_is_passed_over() {
        for extra in [
            json!({"temperature": 0.5, "seed": 3, "of_tomorrow": {}}),
            json!({"tools": [], "functions": null, "n": 1, "stream": null, "user": null}),
            json!({"response_format": {"type": "text"}, "modalities": ["text"], "logprobs": false}),
        ] {
            assert!(check(extra.clone()).is_ok(), "{extra}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for extra in [
            json!({"tools": [{"type": "function"}]}),
            json!({"functions": [{}]}),
            json!({"n": 2}),
            json!({"response_format": {"type": "json_object"}}),
            json!({"modalities": ["text", "audio"]}),
            json!({"logprobs": true}),
            json!({"model": null}),
        ] {
            assert!(check(extra.clone()).is_err(), "{extra}");
        }
    }

    const BODIES: [&str; 4] = [
        r#"{"model": "holdfast", "messages": [{"role": "system", "content": "Rhyme."}, {"role": "user", "content": "hi"}], "stream": true, "stream_options": {"include_usage": true}, "user": "u"}"#,
        r#"{"model": "holdfast/agent", "messages": [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}"#,
        r#"{"model": "holdfast", "messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, {"role": "tool", "content": "x"}], "tools": [], "functions": null, "n": 1}"#,
        r#"{"model": "holdfast", "messages": [{"role": "user", "content": "a"}], "response_format": {"type": "text"}, "modalities": ["text"], "logprobs": false, "temperature": 0.5}"#,
    ];

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in mutated_json(&BODIES)) {
            if let Ok(request) = serde_json::from_str::<ChatRequest>(&body)
                && let Ok(asked) = request.check()
            {
                prop_assert!(!asked.model.is_empty());
                let size: usize = asked.turns.iter().map(|turn| turn.text.len()).sum();
                prop_assert!(size <= 2 * body.len(), "{} bytes of {}", size, body.len());
            }
        }
    }
}
