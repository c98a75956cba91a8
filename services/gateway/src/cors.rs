//! Calls of web pages from a browser (CORS): the origins of `gateway.cors_origins` may make them.
//!
//! Callers show a key in `Authorization` or `x-api-key`, never a cookie, so no answer allows credentials.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

const METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// Headers of answers that pages may read.
const EXPOSED_HEADERS: &str = "x-request-id, request-id, x-holdfast-message, x-holdfast-session, x-holdfast-ignored, \
     retry-after, x-should-retry, www-authenticate";

/// Time for which a browser keeps the answer to a preflight request, in seconds.
const MAX_AGE: &str = "600";

/// Origins that may call.
#[derive(Debug, Clone)]
pub struct Origins(Arc<[String]>);

impl Origins {
    pub fn new(allowed: &[String]) -> Self {
        Self(allowed.iter().map(|origin| origin.trim_end_matches('/').to_owned()).collect())
    }

    /// Value of the header that allows an origin; `None` if it may not call.
    fn allowance(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        if self.0.iter().any(|allowed| allowed == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        let is_allowed = self.0.iter().any(|allowed| origin == allowed.as_str());
        is_allowed.then(|| origin.clone())
    }
}

/// Middleware: answers preflight requests, and marks the answers that a page may read.
pub async fn allow(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).and_then(|origin| origins.allowance(origin));
    let Some(origin) = origin else { return next.run(request).await };
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        preflight(request.headers())
    } else {
        let mut response = next.run(request).await;
        set(response.headers_mut(), ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        response
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("origin"));
    response
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    set(headers, ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    set(headers, ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_are_allowed_and_each_exactly() {
        let some = Origins::new(&["https://app.example.com/".to_owned()]);
        let allowed = |origins: &Origins, origin: &'static str| {
            origins.allowance(&HeaderValue::from_static(origin))
        };

        assert_eq!(
            allowed(&some, "https://app.example.com"),
            Some(HeaderValue::from_static("https://app.example.com"))
        );
        for other in ["https://example.com", "http://app.example.com", "null", "*"] {
            assert_eq!(allowed(&some, other), None, "{other}");
        }
        assert_eq!(allowed(&Origins::new(&[]), "https://app.example.com"), None);
        let all = Origins::new(&["*".to_owned()]);
        assert_eq!(allowed(&all, "https://x.example"), Some(HeaderValue::from_static("*")));
    }
}
