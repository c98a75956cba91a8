//! `POST /v1/chat/completions`.

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::{Caller, Scope};
use holdfast_types::{MessageId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    OpenAi, Refusal,
    content::{Message, NO_TOOLS, is_given},
    converse::{Ask, given_key},
    sse::{Events, Voice, answer, made_at, tagged},
};
use crate::{auth::require, follow::Finished, http::read};

#[derive(Debug, Deserialize)]
struct Completion {
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
) -> Result<Response, Refusal> {
    require(&caller, Scope::Chat)?;
    let key = given_key(request.headers())?;
    let wanted: Completion = read(request, api.body_limit, api.body_timeout).await?;
    let stream = wanted.stream.unwrap_or_default();
    let options = wanted.stream_options.as_ref().and_then(|options| options.include_usage);
    let ask = wanted.check()?;
    let model = ask.model.clone();

    let follow = api.ask(&caller, key, ask).await?;

    let tags = tagged(&follow);
    let message = follow.message();
    if stream {
        let voice = Chunks { head: Head::new(message, model), usage: options.unwrap_or_default() };
        return Ok((tags, answer(follow, voice, api.heartbeat)).into_response());
    }
    let finished = follow.finish(api.answer_timeout).await?;
    match Refusal::of(&finished) {
        Some(refusal) => Ok((tags, refusal).into_response()),
        None => Ok((tags, Json(whole(Head::new(message, model), finished))).into_response()),
    }
}

impl Completion {
    /// Refuses unsupported parameters; ignoring them would give another result than the client
    /// expects.
    fn check(self) -> Result<Ask, Refusal> {
        let given = |value: &Option<Value>| value.as_ref().is_some_and(is_given);
        if given(&self.tools) {
            return Err(Refusal::unsupported("tools", NO_TOOLS));
        }
        if given(&self.functions) {
            return Err(Refusal::unsupported("functions", NO_TOOLS));
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(Refusal::unsupported("n", "an agent gives one answer: set `n` to 1"));
        }
        let format = self.response_format.as_ref().and_then(|format| format.get("type"));
        if format.is_some_and(|format| format != "text") {
            let message = "only `text` is supported yet: ask for the form in the message itself";
            return Err(Refusal::unsupported("response_format", message));
        }
        let others =
            |value: &Value| value.as_array().is_some_and(|all| all.iter().any(|m| m != "text"));
        if self.modalities.as_ref().is_some_and(others) {
            return Err(Refusal::unsupported("modalities", "only `text` is supported yet"));
        }
        if self.logprobs.unwrap_or_default() {
            return Err(Refusal::unsupported(
                "logprobs",
                "an agent's answer has no log probabilities",
            ));
        }
        let model = self.model.unwrap_or_default();
        if model.is_empty() {
            return Err(Refusal::field("model", "`model` is missing: write `holdfast`"));
        }
        let messages = self.messages.unwrap_or_default().into_iter();
        let turns = messages.map(|message| message.read("messages")).collect::<Result<_, _>>()?;
        Ok(Ask { model, user: self.user, previous: None, turns })
    }
}

/// Fields that all chunks of an answer share.
#[derive(Debug, Clone, Serialize)]
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn new(message: MessageId, model: String) -> Self {
        let id = message.as_uuid();
        Self { id: format!("chatcmpl-{}", id.simple()), created: made_at(id), model }
    }
}

#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    head: Head,
    object: &'static str,
    choices: [Choice; 1],
    usage: Tokens,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    message: Answer,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
struct Answer {
    role: &'static str,
    content: String,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: Details,
}

#[derive(Debug, Serialize)]
struct Details {
    cached_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            total_tokens: usage.input.saturating_add(usage.output),
            prompt_tokens_details: Details { cached_tokens: usage.cached },
        }
    }
}

fn whole(head: Head, finished: Finished) -> Whole {
    let message = Answer { role: "assistant", content: finished.text, refusal: None };
    let choice = Choice { index: 0, message, logprobs: None, finish_reason: "stop" };
    Whole { head, object: "chat.completion", choices: [choice], usage: finished.usage.into() }
}

/// Stream format of Chat Completions.
struct Chunks {
    head: Head,
    /// Whether the client asked for usage.
    usage: bool,
}

#[derive(Serialize)]
struct Chunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    object: &'static str,
    choices: &'a [Piece<'a>],
    // If requested: `null` in every chunk but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Tokens>>,
}

#[derive(Serialize)]
struct Piece<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl Chunks {
    fn piece(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Events) {
        let choices = &[Piece { index: 0, delta, logprobs: None, finish_reason }];
        self.chunk(choices, self.usage.then_some(None), out);
    }

    fn chunk(&self, choices: &[Piece<'_>], usage: Option<Option<Tokens>>, out: &mut Events) {
        let object = "chat.completion.chunk";
        out.data(&Chunk { head: &self.head, object, choices, usage });
    }
}

impl Voice for Chunks {
    fn begin(&mut self, out: &mut Events) {
        self.piece(Delta { role: Some("assistant"), content: Some("") }, None, out);
    }

    fn text(&mut self, part: bool, text: &str, out: &mut Events) {
        if part {
            self.piece(Delta { content: Some("\n\n"), ..Delta::default() }, None, out);
        }
        self.piece(Delta { content: Some(text), ..Delta::default() }, None, out);
    }

    fn end(&mut self, finished: &Finished, out: &mut Events) {
        self.piece(Delta::default(), Some("stop"), out);
        if self.usage {
            self.chunk(&[], Some(Some(finished.usage.into())), out);
        }
        out.finish();
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        out.data(&refusal.shown());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(extra: Value) -> Result<Ask, Refusal> {
        let mut request =
            json!({"model": "holdfast", "messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in extra.as_object().unwrap() {
            request[key] = value.clone();
        }
        serde_json::from_value::<Completion>(request).unwrap().check()
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
}
