//! The calls of the page.
//!
//! | call | answer |
//! |---|---|
//! | `GET /widget/<account>` and its files | the page; `/widget/<account>.js` is the script for sites |
//! | `POST session` | a token for the visitor |
//! | `POST messages` | accepts a message, once for its key |
//! | `GET events?after=` | messages after a position, and those that come, as server-sent events |

use std::{
    net::IpAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use holdfast_directory::{NewWidgetMessage, WidgetMessage};
use holdfast_doors::{CLIENTS_PER_SITE, ClientNetwork};
use holdfast_proto::gateway::v1::AcceptRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Widget, assets,
    visitor::{self, Claim},
};
use crate::{
    channel::ChannelAccount,
    http::{InboundRequest, error_response},
    inbound::{self, RetryMode, UpdateResult, Verdict},
    meter,
};

/// Maximum size of a body, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 8000;

/// Number of sessions that one address may begin in a minute.
const SESSIONS_PER_MINUTE: u32 = 30;

/// Number of new visitors of an account in a minute, from all addresses. Those who come back and users of
/// the site are not counted.
const NEW_VISITORS_PER_MINUTE: u32 = 600;

/// An address may have several visitors.
const VISITORS_PER_ADDRESS: u32 = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BeginSession {
    #[serde(default)]
    token: Option<String>,
    /// User of the site, and the site's signature.
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    /// Time at which the site signed, in seconds since 1970, as text.
    #[serde(default)]
    time: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PostedMessage {
    key: String,
    text: String,
}

impl Widget {
    pub(super) async fn answer(self: Arc<Self>, mut request: InboundRequest) -> Response {
        let path = std::mem::take(&mut request.path);
        match (request.method.clone(), path.as_str()) {
            (Method::POST, "session") => self.begin_session(request).await,
            (Method::POST, "messages") => self.take_message(request).await,
            (Method::GET, "events") => self.listen(&request),
            (Method::GET, path) => {
                assets::asset(path, &self.account.id.to_string(), &self.settings.origins)
                    .unwrap_or_else(|| {
                        error_response(StatusCode::NOT_FOUND, "there is nothing here")
                    })
            }
            _ => error_response(StatusCode::METHOD_NOT_ALLOWED, "this is not how a page calls"),
        }
    }

    /// Gives a token to a new visitor, to one that has a token, or to a user of the site.
    async fn begin_session(&self, mut request: InboundRequest) -> Response {
        if !self.allow_client("session", request.client, SESSIONS_PER_MINUTE) {
            return too_many();
        }
        let body: BeginSession = match read(&mut request).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let known = body.token.as_deref().and_then(|token| self.visitor_of(token));
        let visitor = match (body.user, &self.secrets.identity_secret) {
            (None, _) => match known {
                Some(known) => known,
                None if self.limits.allow("new visitors", NEW_VISITORS_PER_MINUTE) => {
                    visitor::new_visitor()
                }
                None => return too_many(),
            },
            (Some(_), None) => {
                return error_response(
                    StatusCode::FORBIDDEN,
                    "the account has no `identity_secret`, so no user can be named",
                );
            }
            (Some(user), Some(secret)) => {
                let (signature, time) = (body.signature.unwrap_or_default(), body.time);
                let claim = Claim { user: &user, time: time.as_deref(), signature: &signature };
                // A valid token of this user replaces the signature, which may be too old.
                let known = known.filter(|known| visitor::is_user(known, &user));
                match known.or_else(|| visitor::identified(secret, &claim, now())) {
                    Some(visitor) => visitor,
                    None => {
                        meter::update(self.account.channel, "unauthorized");
                        return error_response(
                            StatusCode::FORBIDDEN,
                            "the site's signature of the user is not right, or too old: load the \
                             page again",
                        );
                    }
                }
            }
        };
        if !self.settings.allow.allows(&visitor, "") {
            meter::update(self.account.channel, "not_allowed");
            return error_response(StatusCode::FORBIDDEN, "You are not allowed to write here.");
        }
        let token = visitor::token(&self.secrets.secret, self.account.id, &visitor, now());
        let (title, greeting) = (&self.settings.title, &self.settings.greeting);
        Json(json!({"token": token, "title": title, "greeting": greeting})).into_response()
    }

    async fn take_message(self: Arc<Self>, mut request: InboundRequest) -> Response {
        let Some(visitor) = self.caller(&request) else { return not_authenticated() };
        let most = self.settings.messages_per_minute;
        let of_address = most.saturating_mul(VISITORS_PER_ADDRESS);
        if !self.limits.allow(&visitor, most)
            || !self.allow_client("address", request.client, of_address)
        {
            return too_many();
        }
        let posted: PostedMessage = match read(&mut request).await {
            Ok(posted) => posted,
            Err(refused) => return refused,
        };
        let is_key = (8..=64).contains(&posted.key.len())
            && posted.key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let text = posted.text.trim();
        if !is_key || text.is_empty() || text.chars().count() > MAX_MESSAGE_CHARS {
            return error_response(
                StatusCode::BAD_REQUEST,
                "a message has a `key` of 8 to 64 letters and digits, and 1 to 8000 characters",
            );
        }
        let verdict = Verdict::Take(Box::new(AcceptRequest {
            // Another visitor may have the same key.
            idempotency_key: format!("{visitor}:{}", posted.key),
            peer_kind: "direct".to_owned(),
            peer_id: visitor.clone(),
            sender_id: visitor.clone(),
            text: text.to_owned(),
            platform_message_id: posted.key.clone(),
            reply_chat: visitor.clone(),
            sender_listed: self.settings.allow.names(&visitor, ""),
            sender_assurance: visitor::assurance(&visitor).into(),
            ..AcceptRequest::default()
        }));
        let new =
            NewWidgetMessage { visitor: &visitor, key: &posted.key, from_visitor: true, text };
        let accounts = self.directory.accounts();
        // Before the gateway has it, so that it stands before its answer. The page sends it again
        // until both have it.
        let added = accounts.add_widget_message(self.account.tenant, self.account.id, new).await;
        let Ok(seq) = added else { return not_now() };
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(&self);
        match inbound::handle(&account, verdict, RetryMode::Once).await {
            UpdateResult::Done => Json(json!({"seq": seq})).into_response(),
            UpdateResult::SendAgain => not_now(),
        }
    }

    fn listen(self: Arc<Self>, request: &InboundRequest) -> Response {
        let Some(visitor) = self.caller(request) else { return not_authenticated() };
        let after = request.query.split('&').find_map(|pair| pair.strip_prefix("after="));
        let after = after.and_then(|after| after.parse().ok()).unwrap_or_default();
        self.stream((&visitor, request.counted), after).unwrap_or_else(too_many)
    }

    /// Counts an action of a client, and refuses more in a minute than the client or its site may do. The
    /// site comes first, so that one with many networks does not fill the table of limits.
    fn allow_client(&self, action: &str, client: IpAddr, per_minute: u32) -> bool {
        let client = ClientNetwork::of(client);
        let of_site = per_minute.saturating_mul(CLIENTS_PER_SITE);
        client.site().is_none_or(|site| self.limits.allow(&format!("{action} {site}"), of_site))
            && self.limits.allow(&format!("{action} {client}"), per_minute)
    }

    /// Returns the visitor that calls, if it has a token and may still write.
    fn caller(&self, request: &InboundRequest) -> Option<String> {
        let token = request.header("authorization").strip_prefix("Bearer ")?;
        self.visitor_of(token).filter(|visitor| self.settings.allow.allows(visitor, ""))
    }

    fn visitor_of(&self, token: &str) -> Option<String> {
        visitor::visitor(&self.secrets.secret, self.account.id, token, now())
    }
}

pub(super) fn message_json(message: &WidgetMessage) -> Value {
    json!({
        "seq": message.seq, "key": message.key, "text": message.text,
        "from_visitor": message.from_visitor,
    })
}

async fn read<T: serde::de::DeserializeOwned>(request: &mut InboundRequest) -> Result<T, Response> {
    let body = request.read_body(MAX_BODY_BYTES).await?;
    serde_json::from_slice(&body)
        .map_err(|_| error_response(StatusCode::BAD_REQUEST, "the body is not understood"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn not_authenticated() -> Response {
    error_response(StatusCode::UNAUTHORIZED, "the token is none, or too old")
}

fn too_many() -> Response {
    error_response(StatusCode::TOO_MANY_REQUESTS, "Too many messages. Please wait a minute.")
}

fn not_now() -> Response {
    error_response(StatusCode::SERVICE_UNAVAILABLE, "Not now. Please try again.")
}
