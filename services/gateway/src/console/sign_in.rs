//! Sign-in with an API key or a one-time link, sign-out, and the methods that there are.

use std::{net::IpAddr, time::Duration};

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use holdfast_directory::IssuedConsoleSession;
use holdfast_doors::client_address;
use holdfast_types::{Fault as _, Kind};
use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{CACHE_CONTROL, CONTENT_TYPE, SET_COOKIE},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use tracing::info;
use uuid::Uuid;

use super::{
    Console, SESSION_HEADER,
    cookies::{self, CookieKind},
};
use crate::{Error, api_error::ApiError, control::invalid};

/// Maximum size of a request, in bytes.
const MAX_BODY_BYTES: usize = 8 * 1024;

/// Time for a request's body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Body of a sign-in: one of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum Credential {
    /// API key.
    Key(SecretString),
    /// Token of a one-time link.
    Link(SecretString),
}

/// Begins a session.
pub async fn sign_in(State(console): State<Console>, request: Request) -> Response {
    let (uri, headers) = (request.uri().clone(), request.headers().clone());
    let client = client_address(request.extensions(), &headers);
    match begin(&console, client, request).await {
        Ok(session) => console.signed_in(&uri, &headers, &session),
        Err(error) => {
            // Attempts of an address are counted before their credential is read, so these lines are few.
            if error.kind() == Kind::Unauthenticated {
                info!(client.address = %client, %error, "a sign-in to the console is refused");
            }
            ApiError::from(error).into_response()
        }
    }
}

async fn begin(
    console: &Console,
    client: IpAddr,
    request: Request,
) -> Result<IssuedConsoleSession, Error> {
    let (parts, body) = request.into_parts();
    console.check_origin(&parts.uri, &parts.headers)?;
    let doorman = &console.0.doorman;
    doorman.count_sign_in(client).await?;
    let credential = read(&parts.headers, body).await?;
    let (directory, limits) = (doorman.directory(), doorman.session_limits());
    let sessions = directory.console_sessions();
    Ok(match credential {
        Credential::Key(key) => {
            let known = directory.keys().authenticate(key.expose_secret()).await?;
            sessions.begin_for_key(known, limits).await?
        }
        Credential::Link(link) => sessions.begin_with_link(link.expose_secret(), limits).await?,
    })
}

async fn read(headers: &HeaderMap, body: Body) -> Result<Credential, Error> {
    // A form of another page cannot have this type.
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !content_type.is_some_and(|value| value.starts_with("application/json")) {
        return Err(invalid("`content-type` must be `application/json`".to_owned()));
    }
    let unreadable =
        || invalid(r#"the body must be `{"key": "hf_…"}` or `{"link": "…"}`"#.to_owned());
    let body = timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
    let body = body.ok().and_then(Result::ok).ok_or_else(unreadable)?;
    serde_json::from_slice(&body).map_err(|_| unreadable())
}

/// Ends the session that the request names. Without a session there is nothing to do.
pub async fn sign_out(State(console): State<Console>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(error) = console.check_origin(&uri, &headers) {
        return ApiError::from(error).into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let named = headers.get(SESSION_HEADER).and_then(|id| id.to_str().ok());
    let Some(session) = named.and_then(|id| Uuid::try_parse(id).ok()) else { return response };
    if let Some(token) = cookies::find_session(&headers, session) {
        let sessions = console.0.doorman.directory().console_sessions();
        if let Err(error) = sessions.sign_out(token.expose_secret()).await {
            return ApiError::from(Error::from(error)).into_response();
        }
    }
    let kind = CookieKind::strict(console.site(&uri, &headers).is_secure);
    let deleted = kind.delete(&cookies::session_name(session));
    response.headers_mut().extend(deleted.map(|cookie| (SET_COOKIE, cookie)));
    response
}

/// Lists the ways to sign in.
pub async fn methods(State(console): State<Console>) -> Response {
    let names = console.0.tokens.sign_in_names();
    let oidc = names.into_iter().map(|name| {
        let start = utf8_percent_encode(&name, NON_ALPHANUMERIC).to_string();
        json!({ "name": name, "start": format!("/console/oidc/start?issuer={start}") })
    });
    let methods = json!({ "key": true, "oidc": oidc.collect::<Vec<_>>() });
    ([(CACHE_CONTROL, "no-store")], Json(methods)).into_response()
}

impl Console {
    /// Answer to a sign-in: the session's public id, and its token as a cookie.
    fn signed_in(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        session: &IssuedConsoleSession,
    ) -> Response {
        let body = json!({
            "session": session.id.simple().to_string(),
            "expires_at": session.expires_at.to_string(),
        });
        let mut response = Json(body).into_response();
        self.store(uri, headers, (session, &mut response));
        response
    }

    /// Adds the cookie of a new session to an answer.
    pub(super) fn store(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        (session, response): (&IssuedConsoleSession, &mut Response),
    ) {
        let kind = CookieKind::strict(self.site(uri, headers).is_secure);
        let lifetime = self.0.doorman.session_limits().lifetime;
        let surplus = cookies::surplus_sessions(headers);
        let cookies = surplus.iter().filter_map(|name| kind.delete(name));
        let own = cookies::store_session(kind, session.id, &session.token, lifetime);
        let cookies: Vec<HeaderValue> = cookies.chain(own).collect();
        let answered = response.headers_mut();
        for cookie in cookies {
            answered.append(SET_COOKIE, cookie);
        }
        answered.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}
