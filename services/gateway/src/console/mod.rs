//! The web console: its files, sign-in, and the calls of its page; and the documentation.
//!
//! | file | path | contents |
//! |---|---|---|
//! | `pages.rs` | `/console/…`, `/docs/…` | the files of the page and of the documentation |
//! | `headers.rs` | | security headers of every answer |
//! | `sign_in.rs`, `oidc.rs` | `/console/sign-in`, `sign-out`, `oidc/…` | sessions begin and end |
//! | `api.rs` | `/console/api/…` | the gRPC services, as gRPC-web |
//! | `socket.rs` | `/console/ws` | the WebSocket gateway |
//! | `cookies.rs`, `origin.rs` | | the session of a request; whether our own page sent it |
//! | `service.rs` | | the gRPC service `Console` |
//!
//! A browser keeps the token of each session in a cookie that scripts cannot read. The cookie's name has
//! the session's public id, which each request names in `x-holdfast-session`: so two tenants can be
//! signed in in two tabs.
//!
//! **What can go wrong.** Another web page sends a request with our cookies: they are `SameSite=Strict`,
//! and `Origin` and `Sec-Fetch-Site` are checked besides. Another web page signs its visitor in as
//! somebody else: a tab uses only the session that it began itself.

mod api;
mod cookies;
mod headers;
mod oidc;
mod origin;
mod pages;
mod service;
mod sign_in;
mod socket;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::{get, post},
};
use holdfast_kit::config::{Secrets, reload::Current};
use http::{Method, header::ACCEPT, header::UPGRADE};
use ring::hmac;
use secrecy::ExposeSecret as _;
use tonic::service::Routes;

pub use origin::Site;
pub use service::add_service;

use crate::{Config, auth::Authenticator, oidc::TokenVerifier, ws};

/// Header with the public id of a request's session.
const SESSION_HEADER: &str = "x-holdfast-session";

/// State that the handlers of the console share. Clones share it too.
#[derive(Debug, Clone)]
pub struct Console(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    doorman: Authenticator,
    tokens: TokenVerifier,
    settings: Current<Config>,
    sockets: Arc<ws::Service>,
    /// Whether the gateway itself speaks TLS.
    has_tls: bool,
    /// Signs what a browser keeps during a sign-in at an identity provider.
    flow_key: hmac::Key,
}

impl Console {
    #[must_use]
    pub fn new(
        (doorman, tokens): (Authenticator, TokenVerifier),
        settings: Current<Config>,
        sockets: Arc<ws::Service>,
        has_tls: bool,
    ) -> Self {
        let flow_key = flow_key(&settings.get().secrets);
        Self(Arc::new(Shared { doorman, tokens, settings, sockets, has_tls, flow_key }))
    }
}

/// Key derived from the installation's pepper, so that all gateways have the same.
fn flow_key(secrets: &Secrets) -> hmac::Key {
    let pepper = hmac::Key::new(hmac::HMAC_SHA256, secrets.pepper.expose_secret().as_bytes());
    let derived = hmac::sign(&pepper, b"holdfast console: sign-in at an identity provider");
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// Routes of the console. `services` are those that gRPC-web reaches.
pub fn router(console: Console, services: Routes) -> Router {
    let dir = console.0.settings.get().gateway.console.dir.clone();
    let api = api::router(console.clone(), services);
    Router::new()
        .route("/console/sign-in", post(sign_in::sign_in))
        .route("/console/sign-in/methods", get(sign_in::methods))
        .route("/console/sign-out", post(sign_in::sign_out))
        .route("/console/oidc/start", get(oidc::start))
        .route("/console/oidc/callback", get(oidc::callback))
        .route("/console/ws", get(socket::open))
        .nest_service("/console/api", api)
        .merge(pages::console(dir))
        .layer(middleware::from_fn_with_state(console.clone(), headers::add))
        .with_state(console)
}

/// Routes of the documentation, with the headers of the console.
pub fn docs_router(console: Console) -> Router {
    pages::docs(console.0.settings.get().gateway.docs.dir.clone())
        .layer(middleware::from_fn_with_state(console, headers::add))
}

/// Middleware: sends a browser that comes to the gateway's root to the console.
pub async fn redirect_root(request: Request, next: Next) -> Response {
    let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let is_browser = request.uri().path() == "/"
        && matches!(*request.method(), Method::GET | Method::HEAD)
        && !request.headers().contains_key(UPGRADE)
        && accepts.is_some_and(|accepts| accepts.contains("text/html"));
    if is_browser { Redirect::to(pages::ROOT).into_response() } else { next.run(request).await }
}

/// Address at which this machine reaches the console, for links: that of the settings, or the one that
/// the gateway listens on.
pub fn address(config: &Config, listens: SocketAddr, has_tls: bool) -> String {
    if let Some(url) = &config.gateway.console.url {
        return url.clone();
    }
    let scheme = if has_tls { "https" } else { "http" };
    match listens.ip() {
        // A certificate has names, and any address is this machine too.
        ip if ip.is_unspecified() || has_tls => format!("{scheme}://localhost:{}", listens.port()),
        _ => format!("{scheme}://{listens}"),
    }
}
