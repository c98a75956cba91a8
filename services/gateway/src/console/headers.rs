//! Security headers of every answer below `/console`.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{
    HeaderName, HeaderValue,
    header::{
        CONTENT_SECURITY_POLICY, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
        X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

use super::Console;

/// The page's own files only, no inline script or style, no frame around it. The frame in it is
/// that of [`FRAME_POLICY`].
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; \
                      frame-src 'self'; worker-src 'none'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// Path of the frame in which the page shows HTML that agents made.
const FRAME: &str = "/console/frame.html";

/// Policy of the frame: a sandbox, which is of no origin, loads nothing, sends no forms, and may
/// have styles of its own. Its one script takes the HTML from the page (`web/public/frame.html`).
const FRAME_POLICY: &str = "default-src 'none'; \
                            script-src 'sha256-rtLQ8fBMrZPU7nnAVzDJjo1KxMCLVL3JvhHxvLz6txs='; \
                            style-src 'unsafe-inline'; img-src data:; font-src data:; \
                            form-action 'none'; frame-ancestors 'self'; base-uri 'none'; \
                            sandbox allow-scripts";

const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), microphone=(self), geolocation=(), payment=(), usb=()",
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A year.
const TRANSPORT_SECURITY: &str = "max-age=31536000";

/// Middleware: adds the headers.
pub async fn add(State(console): State<Console>, request: Request, next: Next) -> Response {
    let is_secure = console.site(request.uri(), request.headers()).is_secure;
    let is_frame = request.uri().path() == FRAME;
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_frame {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(FRAME_POLICY));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    }
    if is_secure {
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(TRANSPORT_SECURITY));
    }
    response
}
