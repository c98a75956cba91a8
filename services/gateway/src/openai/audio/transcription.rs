//! `POST /v1/audio/transcriptions`.

use std::time::Duration;

use axum::{
    Extension,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_directory::ModelChoice;
use holdfast_grpc::Caller;
use holdfast_llm::{
    audio::{
        AudioClient, AudioError, Recording, Transcriber, Transcript, read_transcription,
        transcribe_in_chat,
    },
    servers::WHISPER,
};
use holdfast_types::{FailureClass, ModelId};
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::{
    form::{TranscriptionForm, read_form},
    formats::TranscriptFormat,
    providers::{AudioAccess, NamedModel, provider_error},
    run_to_record,
};
use crate::{api_error::ApiError, openai::OpenAi};

/// Time limit of a provider's answer.
const TRANSCRIPTION_TIMEOUT: Duration = Duration::from_secs(120);

/// The model that clients have built in, which also has times.
const WHISPER_1: &str = "whisper-1";

/// A provider's answer, and what it has counted.
struct Answer {
    value: Value,
    transcript: Transcript,
    model: String,
}

/// Handler: the text of a recording.
pub async fn transcribe(
    State(api): State<OpenAi>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let access = api.audio_access(&caller).await?;
    let form = read_form(&api, request).await?;
    let format = form.format;
    let Answer { value, transcript, model } =
        run_to_record(async move { ask(&access, &form).await }).await?;
    let rendered = format.render(value, &transcript).ok_or_else(|| no_times(&model))?;
    Ok(([(CONTENT_TYPE, rendered.content_type)], rendered.body).into_response())
}

/// Asks the first provider that can, and records what it costs.
async fn ask(access: &AudioAccess, form: &TranscriptionForm) -> Result<Answer, ApiError> {
    let can = |choice: &ModelChoice| {
        access.config.transcriber(choice.model.provider(), &choice.provider())
    };
    let rank = |choice: &ModelChoice, found: &Transcriber| found.rank(choice.model.provider());
    let Some((choice, transcriber)) = access.choose(&form.model, can, rank) else {
        return Err(no_transcriber(&form.model));
    };
    let answer = match &transcriber {
        Transcriber::Form(usual) => Box::pin(ask_form(access, choice, usual, form)).await?,
        Transcriber::Chat(usual) => Box::pin(ask_chat(access, choice, usual, form)).await?,
    };
    let Answer { transcript, model, .. } = &answer;
    let is_own_server = choice.model.provider() == WHISPER;
    let seconds = if is_own_server { 0 } else { transcript.seconds };
    access.record((choice, model), transcript.usage, seconds).await?;
    Ok(answer)
}

async fn ask_form(
    access: &AudioAccess,
    choice: &ModelChoice,
    usual: &str,
    form: &TranscriptionForm,
) -> Result<Answer, ApiError> {
    let model = model_of(&form.model, usual, form.format);
    let has_times = model.contains("whisper");
    if form.format.has_times() && !has_times {
        return Err(no_times(model));
    }
    let mut fields: Vec<(&str, &str)> =
        form.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fields.extend(Transcript::format(model).map(|format| ("response_format", format)));
    let name = choice.model.provider();
    let answered = async {
        let client = AudioClient::new(name, &access.guard, &choice.provider())?;
        let Some(client) = client else { return Err(AudioError::Unreadable) };
        let recording: &Recording = &form.recording;
        let answer = client.transcribe(model, recording, &fields, TRANSCRIPTION_TIMEOUT).await?;
        let body = read_transcription(answer).await?;
        let transcript = Transcript::read(&body).ok_or(AudioError::Unreadable)?;
        let value = serde_json::from_slice(&body).map_err(|_| AudioError::Unreadable)?;
        Ok(Answer { value, transcript, model: model.to_owned() })
    };
    answered.await.map_err(|error| provider_error(name, &error))
}

async fn ask_chat(
    access: &AudioAccess,
    choice: &ModelChoice,
    usual: &ModelId,
    form: &TranscriptionForm,
) -> Result<Answer, ApiError> {
    let name = choice.model.provider();
    let id = match &form.model {
        NamedModel::OfProvider { model, .. } => model.as_str(),
        NamedModel::Plain(model) if model != WHISPER_1 => model.as_str(),
        NamedModel::Usual | NamedModel::Plain(_) => usual.id(),
    };
    if form.format.has_times() {
        return Err(no_times(id));
    }
    let model: ModelId = format!("{name}:{id}").parse().map_err(|_| {
        ApiError::invalid_field("model", "`model` is the name of no model: write `holdfast`")
    })?;
    let (provider, recording) = (choice.provider(), &form.recording);
    let heard =
        transcribe_in_chat(&access.guard, &provider, &model, recording, TRANSCRIPTION_TIMEOUT);
    let transcript = heard.await.map_err(|error| provider_error(name, &error.into()))?;
    let value = json!({ "text": transcript.text, "usage": {
        "type": "tokens",
        "input_tokens": transcript.usage.input,
        "output_tokens": transcript.usage.output,
        "total_tokens": transcript.usage.input.saturating_add(transcript.usage.output),
    }});
    Ok(Answer { value, transcript, model: id.to_owned() })
}

/// The model that a provider is asked for.
fn model_of<'m>(named: &'m NamedModel, usual: &'m str, format: TranscriptFormat) -> &'m str {
    let is_openai = usual.starts_with("gpt-");
    match named {
        NamedModel::OfProvider { model, .. } => model,
        NamedModel::Plain(model) if model != WHISPER_1 || is_openai => model,
        NamedModel::Usual | NamedModel::Plain(_) if format.has_times() && is_openai => WHISPER_1,
        NamedModel::Usual | NamedModel::Plain(_) => usual,
    }
}

fn no_transcriber(named: &NamedModel) -> ApiError {
    let message = match named {
        NamedModel::OfProvider { provider, .. } => {
            let provider: String = provider.chars().take(80).collect();
            format!("there is no provider `{provider}` that transcribes: write `holdfast`")
        }
        NamedModel::Usual | NamedModel::Plain(_) => {
            "no provider of the tenant transcribes: an owner can add `openai`, `groq`, `mistral` or \
             `gemini` with its key, or a server as `whisper` (`holdfast providers put`)"
                .to_owned()
        }
    };
    ApiError::of_class(FailureClass::NoProvider, message)
}

fn no_times(model: &str) -> ApiError {
    let model: String = model.chars().take(80).collect();
    let message = format!(
        "`{model}` names no times: use `json` or `text`, or a model of Whisper such as `whisper-1`"
    );
    ApiError::unsupported("response_format", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_clients_have_built_in_are_the_usual_model_elsewhere() {
        let plain = |name: &str| NamedModel::Plain(name.to_owned());
        let model = |named: &NamedModel, usual: &'static str, format| {
            model_of(named, usual, format).to_owned()
        };
        let (openai, groq) = ("gpt-4o-mini-transcribe", "whisper-large-v3-turbo");
        let (json, srt) = (TranscriptFormat::Json, TranscriptFormat::Srt);

        assert_eq!(model(&NamedModel::Usual, openai, json), openai);
        assert_eq!(model(&NamedModel::Usual, openai, srt), "whisper-1");
        assert_eq!(model(&plain("whisper-1"), openai, json), "whisper-1");
        assert_eq!(model(&plain("whisper-1"), groq, json), groq);
        assert_eq!(model(&plain("whisper-large-v3"), groq, srt), "whisper-large-v3");
    }
}
