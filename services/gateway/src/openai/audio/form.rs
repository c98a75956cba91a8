//! The form of a transcription.

use axum::extract::Request;
use bytes::Bytes;
use holdfast_llm::audio::{MAX_RECORDING_BYTES, Recording};
use holdfast_types::media_type;
use http::header::CONTENT_TYPE;
use multer::{Constraints, Field, Multipart, SizeLimit};

use super::{formats::TranscriptFormat, providers::NamedModel};
use crate::{Error, api_error::ApiError, bodies::BodyRefusal, openai::OpenAi};

/// Limit on the other fields of a form, each, in bytes.
const MAX_FIELD_BYTES: usize = 16 * 1024;

/// Limit on a whole form, in bytes.
const MAX_FORM_BYTES: usize = MAX_RECORDING_BYTES + 256 * 1024;

/// Fields that are passed on as they are, besides the format and the model.
const PASSED_FIELDS: [&str; 4] = ["language", "prompt", "temperature", "timestamp_granularities[]"];

/// Checked form.
#[derive(Debug)]
pub(super) struct TranscriptionForm {
    pub(super) model: NamedModel,
    pub(super) recording: Recording,
    pub(super) format: TranscriptFormat,
    /// Fields that are passed on.
    pub(super) fields: Vec<(&'static str, String)>,
}

/// Reads a form.
///
/// # Errors
///
/// If the body is no form, too large or too slow, or a field is missing or not valid.
pub(super) async fn read_form(
    api: &OpenAi,
    request: Request,
) -> Result<TranscriptionForm, ApiError> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(content_type.unwrap_or_default()).map_err(|_| {
        ApiError::bad_body(
            "send a form: `content-type: multipart/form-data` with the fields `file` and `model`",
        )
    })?;
    let sizes = SizeLimit::new()
        .whole_stream(MAX_FORM_BYTES as u64)
        .per_field(MAX_FIELD_BYTES as u64)
        .for_field("file", MAX_RECORDING_BYTES as u64);
    let body = request.into_body().into_data_stream();
    let constraints = Constraints::new().size_limit(sizes);
    let form = Multipart::with_constraints(body, boundary, constraints);
    let patience = api.settings().gateway.body_timeout;
    let read = tokio::time::timeout(patience, Box::pin(read_fields(form))).await;
    read.map_err(|_| ApiError::too_slow(patience))??.check()
}

/// Fields of a form, not checked.
#[derive(Default)]
struct GivenFields {
    file: Option<(String, Bytes)>,
    model: String,
    format: Option<String>,
    passed: Vec<(&'static str, String)>,
}

async fn read_fields(mut form: Multipart<'_>) -> Result<GivenFields, ApiError> {
    let mut given = GivenFields::default();
    while let Some(field) = form.next_field().await.map_err(|error| form_error(&error))? {
        let name = field.name().unwrap_or_default().to_owned();
        match name.as_str() {
            "file" => {
                let file = field.file_name().unwrap_or_default().to_owned();
                let content = field.bytes().await.map_err(|error| form_error(&error))?;
                given.file = Some((file, content));
            }
            "model" => given.model = text(field).await?,
            "response_format" => given.format = Some(text(field).await?),
            "stream" => match text(field).await?.trim() {
                "" | "false" | "False" | "0" => {}
                _ => {
                    let message = "transcriptions are not streamed: leave `stream` out";
                    return Err(ApiError::unsupported("stream", message));
                }
            },
            name => match PASSED_FIELDS.iter().find(|known| **known == name) {
                Some(known) => given.passed.push((*known, text(field).await?)),
                None => {
                    let name: String = name.chars().take(64).collect();
                    let message = format!("`{name}` is not supported: leave it out");
                    return Err(ApiError::unsupported(name, message));
                }
            },
        }
    }
    Ok(given)
}

async fn text(field: Field<'_>) -> Result<String, ApiError> {
    field.text().await.map_err(|error| form_error(&error))
}

impl GivenFields {
    fn check(self) -> Result<TranscriptionForm, ApiError> {
        let model = NamedModel::parse(&self.model)?;
        let format = TranscriptFormat::parse(self.format.as_deref())?;
        let Some((name, content)) = self.file.filter(|(_, content)| !content.is_empty()) else {
            let message = "`file` is missing or empty: send a recording";
            return Err(ApiError::invalid_field("file", message));
        };
        let media_type = media_type(&name, &content);
        let is_recording =
            media_type.starts_with("audio/") || matches!(media_type, "video/mp4" | "video/webm");
        if !is_recording {
            let message = format!(
                "`file` is of the type `{media_type}`: send flac, m4a, mp3, mp4, ogg, wav or webm"
            );
            return Err(ApiError::invalid_field("file", message));
        }
        let recording = Recording { media_type: media_type.to_owned(), content };
        Ok(TranscriptionForm { model, recording, format, fields: self.passed })
    }
}

fn form_error(error: &multer::Error) -> ApiError {
    if let Some(refusal) = BodyRefusal::find(error) {
        return Error::from(refusal).into();
    }
    match error {
        multer::Error::FieldSizeExceeded { field_name: Some(name), .. } if name != "file" => {
            let message = format!("it has more than {MAX_FIELD_BYTES} bytes: shorten it");
            ApiError::invalid_field(name.chars().take(64).collect::<String>(), message)
        }
        multer::Error::FieldSizeExceeded { .. } | multer::Error::StreamSizeExceeded { .. } => {
            ApiError::too_large(MAX_RECORDING_BYTES)
        }
        _ => ApiError::bad_body("the form cannot be read, or ended too early: send it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(content: &'static [u8]) -> GivenFields {
        GivenFields {
            file: Some(("a.ogg".to_owned(), Bytes::from_static(content))),
            model: "whisper-1".to_owned(),
            ..GivenFields::default()
        }
    }

    #[test]
    fn a_recording_is_known_by_its_content() {
        let form = given(b"OggS...").check().unwrap();

        assert_eq!(form.recording.media_type, "audio/ogg");
        assert!(given(b"<script>").check().is_err());
        assert!(given(b"").check().is_err());
        assert!(GivenFields { model: String::new(), ..given(b"OggS") }.check().is_err());
        let format = Some("mp3".to_owned());
        assert!(GivenFields { format, ..given(b"OggS") }.check().is_err());
    }
}
