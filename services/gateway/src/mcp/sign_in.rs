//! Protected resource metadata of OAuth 2.0 ([RFC 9728](https://www.rfc-editor.org/rfc/rfc9728)): it
//! tells clients of `/mcp` where people sign in, as the MCP specification requires of servers.
//!
//! Only an installation with identity providers (`oidc.issuers`) has it; elsewhere keys are the only
//! credentials, and the pages do not exist.

use axum::{
    Json, Router,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
    routing::get,
};
use holdfast_kit::config::reload::Current;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header::WWW_AUTHENTICATE};
use serde_json::json;

use crate::{Config, api_error::ApiError, console::Site};

/// Path of the metadata; that of a resource below the root is followed by the resource's own path.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Path of the MCP server.
const RESOURCE: &str = "/mcp";

#[derive(Debug, Clone)]
pub struct SignIn {
    pub settings: Current<Config>,
    /// Whether this process ends TLS itself.
    pub has_tls: bool,
}

impl SignIn {
    /// Beginning of the addresses of this installation; `None` without identity providers.
    fn base(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let settings = self.settings.get();
        if settings.oidc.issuers.is_empty() {
            return None;
        }
        let configured = settings.gateway.console.url.as_deref();
        Some(Site::of(configured, self.has_tls, uri, headers).base())
    }

    fn metadata(&self, uri: &Uri, headers: &HeaderMap) -> Response {
        let Some(base) = self.base(uri, headers) else {
            return ApiError::no_route(Method::GET.as_str(), uri.path()).into_response();
        };
        let resource = uri.path().strip_prefix(METADATA).unwrap_or_default();
        let settings = self.settings.get();
        let issuers = settings.oidc.issuers.iter().map(|issuer| &issuer.url);
        Json(json!({
            "resource": format!("{base}{resource}"),
            "resource_name": "Holdfast",
            "authorization_servers": issuers.collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
        }))
        .into_response()
    }
}

/// The pages with the metadata, which need no credentials.
pub fn router(sign_in: SignIn) -> Router {
    Router::new()
        .route("/.well-known/oauth-protected-resource", get(metadata))
        .route("/.well-known/oauth-protected-resource/mcp", get(metadata))
        .with_state(sign_in)
}

async fn metadata(State(sign_in): State<SignIn>, uri: Uri, headers: HeaderMap) -> Response {
    sign_in.metadata(&uri, &headers)
}

/// Middleware: a client of `/mcp` without valid credentials is sent to the metadata.
pub async fn announce(State(sign_in): State<SignIn>, request: Request, next: Next) -> Response {
    let base = match request.uri().path() {
        RESOURCE => sign_in.base(request.uri(), request.headers()),
        _ => None,
    };
    let mut response = next.run(request).await;
    if let Some(base) = base.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
        let challenge = format!("Bearer resource_metadata=\"{base}{METADATA}{RESOURCE}\"");
        // A `Host` that is no text for a header names no address.
        if let Ok(challenge) = HeaderValue::try_from(challenge) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
    }
    response
}
