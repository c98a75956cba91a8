//! `POST /v1/audio/transcriptions` and `POST /v1/audio/speech`: passed to a provider of the tenant, with
//! its key, and charged to the caller's agent (decision 0121).
//!
//! | `model` of the request | provider and model |
//! |---|---|
//! | `holdfast` | the first provider that can, with its usual model |
//! | `provider:model` | this model of the tenant's provider of that name |
//! | `whisper-1`, `tts-1`, the names that clients have built in | as `holdfast`, where the provider is not OpenAI |
//! | any other | this model of the first provider that can |
//!
//! One request is sent: it costs money.

mod form;
mod formats;
mod providers;
mod speech;
mod transcription;

pub use providers::AudioProviders;
pub use speech::speak;
use tracing::Instrument as _;
pub use transcription::transcribe;

use crate::api_error::ApiError;

/// Runs a request up to the record of its cost, also if the client goes away meanwhile: the provider
/// is paid all the same.
async fn run_to_record<T: Send + 'static>(
    request: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let request = tokio::spawn(request.in_current_span());
    request.await.unwrap_or_else(|_| Err(ApiError::defect()))
}
