//! `POST /v1/chat/completions`.

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use holdfast_types::{ClientCall, MessageId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::{
    OpenAi,
    body::read_json,
    content::{Message, is_given, join_calls},
    conversation::{AnswerRequest, cancels_on_abort, idempotency_key_of},
    housekeeping::mark_housekeeping,
    ignored_fields::{IgnoredFields, OtherFields},
    options::{CacheOptions, GivenOptions, Stop},
    sse::{self, EventBuffer, StreamFormat, created_at, id_headers, stream_response},
    tools::GivenTools,
};
use crate::{
    api_error::ApiError,
    follow::{EarlyEnd, TurnResult},
};

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
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    functions: Option<Value>,
    #[serde(default)]
    function_call: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    temperature: Option<Number>,
    #[serde(default)]
    top_p: Option<Number>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stop: Option<Stop>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    frequency_penalty: Option<Number>,
    #[serde(default)]
    presence_penalty: Option<Number>,
    #[serde(default)]
    reasoning_effort: Option<String>,
    #[serde(default)]
    modalities: Option<Value>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    prompt_cache_key: Option<String>,
    #[serde(default)]
    prompt_cache_retention: Option<String>,
    #[serde(default)]
    service_tier: Option<String>,
    #[serde(flatten)]
    others: OtherFields,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    #[serde(flatten)]
    others: OtherFields,
}

/// Handler: answers with one JSON object or a stream.
pub async fn chat(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (key, cancels) = (idempotency_key_of(&headers)?, cancels_on_abort(&headers)?);
    let wanted: ChatRequest = read_json(&api, request).await?;
    let stream = wanted.stream.unwrap_or_default();
    let options = wanted.stream_options.as_ref().and_then(|options| options.include_usage);
    let mut ask = wanted.check()?;
    mark_housekeeping(&mut ask, &headers)?;
    let (model, is_final_only) = (ask.model.clone(), ask.has_format());
    let (ignored, forget) =
        (ask.ignored.header(), ask.is_housekeeping().then(|| api.ingest.clone()));

    let follow = api.accept_and_follow(&caller, key, ask).await?;

    let tags = (id_headers(&follow), ignored.map(AppendHeaders));
    let message = follow.message();
    if stream {
        let voice = ChunkFormat {
            head: ChunkHead::new(message, model),
            usage: options.unwrap_or_default(),
        };
        let options = sse::StreamOptions {
            is_final_only,
            heartbeat: api.settings().gateway.heartbeat,
            cancel: cancels.then(|| api.ingest.clone()),
            forget,
        };
        return Ok((tags, stream_response(follow, voice, options)).into_response());
    }
    let session = follow.session();
    let finished = follow.finish(api.settings().gateway.answer_timeout).await?;
    if let Some(ingest) = forget {
        ingest.forget_unstored(caller.tenant, session).await;
    }
    match ApiError::of_result(&finished) {
        Some(refusal) => Ok((tags, refusal).into_response()),
        None => {
            Ok((tags, Json(completion_of(ChunkHead::new(message, model), finished)))
                .into_response())
        }
    }
}

impl ChatRequest {
    /// Refuses parameters that would change the answer, and notes the others that are not followed.
    fn check(self) -> Result<AnswerRequest, ApiError> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(is_given);
        for (name, value) in
            [("functions", &self.functions), ("function_call", &self.function_call)]
        {
            if given(value) {
                let message = format!("`{name}` is not supported: use `tools` and `tool_choice`");
                return Err(ApiError::unsupported(name, message));
            }
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::unsupported("n", "an agent gives one answer: set `n` to 1"));
        }
        let mut ignored = IgnoredFields::default();
        ignored.add("", &self.others)?;
        if let Some(options) = &self.stream_options {
            ignored.add("stream_options.", &options.others)?;
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
        let turns = join_calls(turns);
        let options = GivenOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            max_output: vec![
                ("max_completion_tokens", self.max_completion_tokens),
                ("max_tokens", self.max_tokens),
            ],
            stop: Some(("stop", self.stop)),
            seed: self.seed,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            effort: Some(("reasoning_effort", self.reasoning_effort)),
            format: Some(("response_format", self.response_format)),
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
        let options = options.check(&mut ignored)?;
        let user = self.user;
        Ok(AnswerRequest { model, user, turns, options, ignored, ..AnswerRequest::default() })
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
    /// `None` beside calls without a text.
    content: Option<String>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChoiceCall>,
}

#[derive(Debug, Serialize)]
struct ChoiceCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

#[derive(Debug, Serialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

impl From<ClientCall> for ChoiceCall {
    fn from(call: ClientCall) -> Self {
        let ClientCall { id, name, arguments, .. } = call;
        Self { id, kind: "function", function: CalledFunction { name, arguments } }
    }
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

fn finish_reason(finished: &TurnResult) -> &'static str {
    match finished.early_end() {
        Some(EarlyEnd::Length) => "length",
        Some(EarlyEnd::ContentFilter) => "content_filter",
        None if finished.calls.is_empty() => "stop",
        None => "tool_calls",
    }
}

fn completion_of(head: ChunkHead, finished: TurnResult) -> ChatCompletion {
    let finish_reason = finish_reason(&finished);
    let content = Some(finished.text).filter(|text| !text.is_empty() || finished.calls.is_empty());
    let tool_calls = finished.calls.into_iter().map(ChoiceCall::from).collect();
    let message = ChoiceMessage { role: "assistant", content, refusal: None, tool_calls };
    let choice = Choice { index: 0, message, logprobs: None, finish_reason };
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChunkCall>,
}

#[derive(Serialize)]
struct ChunkCall {
    index: usize,
    #[serde(flatten)]
    call: ChoiceCall,
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
        let delta =
            ChunkDelta { role: Some("assistant"), content: Some(""), ..ChunkDelta::default() };
        self.piece(delta, None, out);
    }

    fn text(&mut self, _: u32, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.piece(ChunkDelta { content: Some("\n\n"), ..ChunkDelta::default() }, None, out);
        }
        self.piece(ChunkDelta { content: Some(text), ..ChunkDelta::default() }, None, out);
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        for (index, call) in finished.calls.iter().enumerate() {
            let tool_calls = vec![ChunkCall { index, call: call.clone().into() }];
            self.piece(ChunkDelta { tool_calls, ..ChunkDelta::default() }, None, out);
        }
        self.piece(ChunkDelta::default(), Some(finish_reason(finished)), out);
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
            json!({"of_tomorrow": {"a": 1}, "logit_bias": {}, "top_logprobs": 0}),
            json!({"metadata": {"a": "b"}, "store": true, "verbosity": "low", "top_k": 40}),
            json!({"stream_options": {"include_obfuscation": true}}),
            json!({"tools": [{"type": "web_search"}]}),
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
            json!({"tool_choice": "required"}),
            json!({"functions": [{}]}),
            json!({"function_call": "auto"}),
            json!({"n": 2}),
            json!({"response_format": {"type": "json_schema"}}),
            json!({"temperature": 3}),
            json!({"logit_bias": {"50256": -100}}),
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
