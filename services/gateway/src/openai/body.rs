//! Bodies of requests.

use axum::extract::Request;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::{MIN_BODY_LIMIT_BYTES, OpenAi};
use crate::{Error, api_error::ApiError, bodies::BodyRefusal, config};

/// Reads a request's body as JSON.
///
/// # Errors
///
/// If the body is too large for its limit or the tenant's budget, too slow, not UTF-8, not JSON, or not of the type `T`.
pub async fn read_json<T: DeserializeOwned>(api: &OpenAi, request: Request) -> Result<T, ApiError> {
    let config::Gateway { body_limit, body_timeout: patience, .. } = api.settings().gateway;
    let limit = body_limit.max(MIN_BODY_LIMIT_BYTES);
    let body = Limited::new(request.into_body(), limit).collect();
    let body: Bytes = match tokio::time::timeout(patience, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
            return Err(ApiError::too_large(limit));
        }
        Ok(Err(error)) => {
            return Err(match BodyRefusal::find(&*error) {
                Some(refusal) => Error::from(refusal).into(),
                None => ApiError::bad_body("the body ended too early: send it again"),
            });
        }
        Err(_) => return Err(ApiError::too_slow(patience)),
    };
    let text = std::str::from_utf8(&body).map_err(|error| {
        let at = error.valid_up_to();
        ApiError::bad_body(&format!("the body is not UTF-8 from byte {at} on: encode it as UTF-8"))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() { "is not what it should be" } else { "is no JSON" };
        ApiError::bad_body(&format!("the body {what}: {error}"))
    })
}
