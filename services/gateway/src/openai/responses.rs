//! `POST /v1/responses`.

mod object;
mod response_stream;

use axum::{
    Extension, Json,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::Caller;
use serde::Deserialize;
use serde_json::Value;

use super::{
    OpenAi,
    body::read_json,
    content::{ConversationMessage, Message, NO_TOOLS, Role, is_given},
    conversation::{AnswerRequest, idempotency_key_of},
    sse::{id_headers, stream_response},
};
use crate::api_error::ApiError;
use object::{ResponseHead, ResponseObject, ResponseStatus};
use response_stream::ResponseStream;

#[derive(Debug, Deserialize)]
struct ResponsesRequest {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    input: Option<Input>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    conversation: Option<Value>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    text: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Message>),
}

/// Handler: answers with one JSON object or a stream.
pub async fn respond(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let key = idempotency_key_of(request.headers())?;
    let wanted: ResponsesRequest = read_json(&api, request).await?;
    let stream = wanted.stream.unwrap_or_default();
    let instructions = wanted.instructions.clone();
    let ask = wanted.check()?;
    let (model, previous, user) = (ask.model.clone(), ask.previous.clone(), ask.user.clone());

    let follow = api.accept_and_follow(&caller, key, ask).await?;

    let tags = id_headers(&follow);
    let frame = ResponseHead { message: follow.message(), model, instructions, previous, user };
    if stream {
        return Ok((
            tags,
            stream_response(follow, ResponseStream::new(frame), api.settings().gateway.heartbeat),
        )
            .into_response());
    }
    let finished = follow.finish(api.settings().gateway.answer_timeout).await?;
    if let Some(refusal) = ApiError::of_result(&finished) {
        return Ok((tags, refusal).into_response());
    }
    let texts = [finished.text.as_str()];
    let shape =
        ResponseObject::new(&frame, ResponseStatus::Completed, &texts).with_usage(finished.usage);
    Ok((tags, Json(shape)).into_response())
}

impl ResponsesRequest {
    /// Refuses unsupported parameters; ignoring them would give another result than the client
    /// expects.
    fn check(self) -> Result<AnswerRequest, ApiError> {
        if self.tools.as_ref().is_some_and(is_given) {
            return Err(ApiError::unsupported("tools", NO_TOOLS));
        }
        if self.conversation.as_ref().is_some_and(is_given) {
            let message =
                "conversations are not supported yet: use `previous_response_id`, or `user`";
            return Err(ApiError::unsupported("conversation", message));
        }
        if self.background.unwrap_or_default() {
            let message = "background responses are not supported yet: leave `background` out";
            return Err(ApiError::unsupported("background", message));
        }
        let format = self.text.as_ref().and_then(|text| text.pointer("/format/type"));
        if format.is_some_and(|format| format != "text") {
            let message = "only `text` is supported yet: ask for the form in the message itself";
            return Err(ApiError::unsupported("text", message));
        }
        let model = self.model.unwrap_or_default();
        if model.is_empty() {
            return Err(ApiError::invalid_field("model", "`model` is missing: write `holdfast`"));
        }
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
        let turns = told.into_iter().chain(said).collect();
        let previous = self.previous_response_id.filter(|id| !id.is_empty());
        Ok(AnswerRequest { model, user: self.user, previous, turns })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(wanted: Value) -> Result<AnswerRequest, ApiError> {
        serde_json::from_value::<ResponsesRequest>(wanted).unwrap().check()
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
            json!({"tools": [{"type": "web_search"}]}),
            json!({"conversation": "conv_1"}),
            json!({"background": true}),
            json!({"text": {"format": {"type": "json_schema"}}}),
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

    const BODIES: [&str; 3] = [
        r#"{"model": "holdfast", "instructions": "Rhyme.", "input": "hi", "stream": false, "user": "u"}"#,
        r#"{"model": "holdfast", "previous_response_id": "resp_0190f3c4d5e67890abcd1234567890ab", "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]}]}"#,
        r#"{"model": "holdfast", "input": [{"role": "assistant", "content": "b"}], "tools": [], "conversation": null, "background": false, "text": {"format": {"type": "text"}}}"#,
    ];

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in mutated_json(&BODIES)) {
            if let Ok(request) = serde_json::from_str::<ResponsesRequest>(&body)
                && let Ok(asked) = request.check()
            {
                prop_assert!(!asked.model.is_empty());
            }
        }
    }
}
