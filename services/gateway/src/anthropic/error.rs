//! Errors in the form of Anthropic's API: `{"type": "error", "error": {"type": …, "message": …}}`.

use axum::{
    Json,
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderName, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use serde_json::{Value, json};

use super::models::is_anthropic_client;
use crate::api_error::ApiError;

/// Beginning of the paths of Anthropic's API that no other has.
const PATH: &str = "/v1/messages";

/// Status of an overloaded server, which is Anthropic's own.
const OVERLOADED_STATUS: u16 = 529;

/// Header in which Anthropic's clients look for the id of a request, and the gateway's own.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const OWN_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Middleware: gives clients of Anthropic's API the errors and the request's id in its form.
pub async fn answer_in_own_form(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_own = path.starts_with(PATH) || is_anthropic_client(request.headers());
    let mut response = next.run(request).await;
    if !is_own {
        return response;
    }
    let id = response.headers().get(&OWN_REQUEST_ID).cloned();
    if let Some(refusal) = response.extensions_mut().remove::<ApiError>() {
        response = in_own_form(response, &refusal, id.as_ref().and_then(|id| id.to_str().ok()));
    }
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

fn in_own_form(response: Response, refusal: &ApiError, id: Option<&str>) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.remove(CONTENT_TYPE);
    let (status, _) = status_and_type(refusal.status());
    let mut response = Json(error_object(refusal, id)).into_response();
    *response.status_mut() = status;
    response.headers_mut().extend(parts.headers);
    response
}

/// An error as the body of a response or as an event.
pub fn error_object(refusal: &ApiError, request_id: Option<&str>) -> Value {
    let (_, kind) = status_and_type(refusal.status());
    let mut error = json!({
        "type": "error",
        "error": { "type": kind, "message": refusal.message() },
    });
    if let Some(id) = request_id {
        error["request_id"] = id.into();
    }
    error
}

/// Status and type that Anthropic has for an error.
fn status_and_type(status: StatusCode) -> (StatusCode, &'static str) {
    let overloaded =
        StatusCode::from_u16(OVERLOADED_STATUS).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    match status {
        StatusCode::UNAUTHORIZED => (status, "authentication_error"),
        StatusCode::FORBIDDEN => (status, "permission_error"),
        StatusCode::NOT_FOUND => (status, "not_found_error"),
        StatusCode::PAYLOAD_TOO_LARGE => (status, "request_too_large"),
        StatusCode::TOO_MANY_REQUESTS => (status, "rate_limit_error"),
        StatusCode::SERVICE_UNAVAILABLE => (overloaded, "overloaded_error"),
        StatusCode::GATEWAY_TIMEOUT => (status, "timeout_error"),
        StatusCode::UNPROCESSABLE_ENTITY => (StatusCode::BAD_REQUEST, "invalid_request_error"),
        status if status.is_server_error() => (StatusCode::INTERNAL_SERVER_ERROR, "api_error"),
        status => (status, "invalid_request_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_the_type_that_clients_know() {
        for (status, shown, kind) in [
            (400, 400, "invalid_request_error"),
            (401, 401, "authentication_error"),
            (403, 403, "permission_error"),
            (404, 404, "not_found_error"),
            (409, 409, "invalid_request_error"),
            (413, 413, "request_too_large"),
            (422, 400, "invalid_request_error"),
            (429, 429, "rate_limit_error"),
            (500, 500, "api_error"),
            (502, 500, "api_error"),
            (503, 529, "overloaded_error"),
            (504, 504, "timeout_error"),
        ] {
            let (to, name) = status_and_type(StatusCode::from_u16(status).unwrap());
            assert_eq!((to.as_u16(), name), (shown, kind), "{status}");
        }
    }
}
