//! Sign-in at an identity provider: to the provider, and back from it.
//!
//! What the sign-in needs to end, the browser keeps in a cookie for ten minutes: signed, so that nobody
//! else can have written it. It is `Lax`, because the provider's site sends the browser back.

use std::time::Duration;

use axum::{
    extract::{Query, Request, State},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_directory::IssuedConsoleSession;
use holdfast_doors::client_address;
use http::{
    HeaderMap, HeaderValue, Uri,
    header::{CACHE_CONTROL, SET_COOKIE},
};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::{
    Console,
    cookies::{self, CookieKind},
    pages,
};
use crate::{Error, oidc::PendingSignIn};

/// Name of the cookie.
const FLOW: &str = "holdfast-oidc";

/// Time for a person to sign in at the provider.
const FLOW_LIFETIME: Duration = Duration::from_secs(600);

const CALLBACK: &str = "/console/oidc/callback";

#[derive(Debug, Deserialize)]
pub struct Start {
    issuer: String,
}

/// Query with which the provider sends the browser back.
#[derive(Debug, Deserialize)]
pub struct Callback {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
    /// Issuer that answers, where the provider says so (RFC 9207).
    iss: Option<String>,
}

/// Content of the cookie.
#[derive(Debug, Serialize, Deserialize)]
struct Flow {
    pending: PendingSignIn,
    /// Unix seconds.
    expires_at: i64,
}

/// Sends the browser to the provider. Another page cannot begin a sign-in: a provider that knows its person
/// asks nothing, so the session would begin without them.
pub async fn start(
    State(console): State<Console>,
    Query(start): Query<Start>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let begun = async {
        console.check_origin(&parts.uri, &parts.headers)?;
        let address = client_address(&parts.extensions, &parts.headers);
        console.0.doorman.count_sign_in(address).await?;
        let back = format!("{}{CALLBACK}", console.site(&parts.uri, &parts.headers).base());
        Ok(console.0.tokens.begin_sign_in(&start.issuer, back).await?)
    };
    match begun.await {
        Ok((to, pending)) => {
            let expires_at = Timestamp::now().as_second() + FLOW_LIFETIME.as_secs().cast_signed();
            let flow = console.seal(&Flow { pending, expires_at });
            let kind = console.flow_cookie(&parts.uri, &parts.headers);
            let mut response = Redirect::to(&to).into_response();
            let cookie = kind.store(FLOW, &flow, FLOW_LIFETIME);
            response.headers_mut().extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
            no_store(response)
        }
        Err(error) => back_to_page(&error),
    }
}

/// Begins the session of a person whom the provider has sent back.
pub async fn callback(
    State(console): State<Console>,
    Query(given): Query<Callback>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let mut response = match finish(&console, given, &headers).await {
        Ok(session) => {
            let to = format!("{}#session={}", pages::ROOT, session.id.simple());
            let mut response = Redirect::to(&to).into_response();
            console.store(&uri, &headers, (&session, &mut response));
            response
        }
        Err(error) => back_to_page(&error),
    };
    // The sign-in is over, however it ended.
    let deleted = console.flow_cookie(&uri, &headers).delete(FLOW);
    if let Some(deleted) = deleted {
        response.headers_mut().append(SET_COOKIE, deleted);
    }
    no_store(response)
}

async fn finish(
    console: &Console,
    given: Callback,
    headers: &HeaderMap,
) -> Result<IssuedConsoleSession, Error> {
    let failed = |why: &str| Error::SignInFailed(why.to_owned());
    let flow = cookies::find(headers, FLOW).and_then(|sealed| console.open(sealed.expose_secret()));
    let flow = flow.ok_or_else(|| {
        failed("the sign-in was not begun in this browser, or took too long: sign in again")
    })?;
    let is_same = given.state.as_deref() == Some(&*flow.pending.state);
    if !is_same {
        return Err(failed("the answer is of another sign-in: sign in again"));
    }
    // With several providers, the answer of one must not be taken for that of another.
    if given.iss.is_some_and(|issuer| issuer != flow.pending.issuer()) {
        return Err(failed("the answer is of another identity provider: sign in again"));
    }
    let code = given.code.ok_or_else(|| {
        let why: String = given.error.unwrap_or_default().chars().take(40).collect();
        Error::SignInFailed(format!("the identity provider refused the sign-in (`{why}`)"))
    })?;
    let (token, provider) = console.0.tokens.finish_sign_in(&flow.pending, &code).await?;
    let doorman = &console.0.doorman;
    let person = doorman.known_person(token).await?;
    let sessions = doorman.directory().console_sessions();
    Ok(sessions.begin_for_person(person, provider.as_ref(), doorman.session_limits()).await?)
}

/// Shows the page, with the error.
fn back_to_page(error: &Error) -> Response {
    // The same text and log line as over gRPC.
    let message = holdfast_grpc::status(error).message().to_owned();
    let message = utf8_percent_encode(&message, NON_ALPHANUMERIC);
    no_store(Redirect::to(&format!("{}#error={message}", pages::ROOT)).into_response())
}

fn no_store(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Console {
    fn flow_cookie(&self, uri: &Uri, headers: &HeaderMap) -> CookieKind {
        CookieKind { is_secure: self.site(uri, headers).is_secure, same_site: "Lax" }
    }

    fn seal(&self, flow: &Flow) -> String {
        let content = URL_SAFE_NO_PAD.encode(serde_json::to_vec(flow).unwrap_or_default());
        let signature = hmac::sign(&self.0.flow_key, content.as_bytes());
        format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The sign-in that a cookie holds; `None` if it is not ours, or too old.
    fn open(&self, sealed: &str) -> Option<Flow> {
        let (content, signature) = sealed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0.flow_key, content.as_bytes(), &signature).ok()?;
        let flow: Flow = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()?;
        (flow.expires_at > Timestamp::now().as_second()).then_some(flow)
    }
}
