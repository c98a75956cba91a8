//! A small identity provider (OpenID Connect) for tests: discovery, key set, rollover, and the
//! endpoints of sign-ins with a browser and with a code.
//!
//! Whoever comes to its authorization endpoint is signed in at once, as the person that the test
//! chose.

mod key;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Query, State},
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use crate::{
    http::{LOCALHOST, Server},
    scratch::lock,
};

pub use key::SigningKey;

/// An identity provider on a loopback port; it is gone when dropped.
#[derive(Debug)]
pub struct FakeIssuer {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    url: Mutex<String>,
    /// Published keys; the last one signs.
    keys: Mutex<Vec<Arc<SigningKey>>>,
    /// Claims of whoever signs in.
    person: Mutex<Map<String, Value>>,
    /// Open codes.
    codes: Mutex<HashMap<String, OpenCode>>,
    refresh_tokens: Mutex<HashMap<String, Map<String, Value>>>,
    /// Device codes, and whether the person has confirmed them.
    devices: Mutex<HashMap<String, bool>>,
    is_away: AtomicBool,
    /// Whether sign-ins give no refresh token.
    no_refresh: AtomicBool,
    key_fetches: AtomicUsize,
    /// Lifetime of the tokens of sign-ins, in seconds.
    lifetime: AtomicUsize,
}

type Form = HashMap<String, String>;
/// Claims, challenge, redirect address.
type OpenCode = (Map<String, Value>, String, String);

impl FakeIssuer {
    /// Starts a provider with one key, for ES256.
    pub async fn start() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared { lifetime: AtomicUsize::new(3600), ..Shared::default() });
        lock(&shared.keys).push(Arc::new(SigningKey::es256("first")));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/device", post(device))
            .route("/revoke", post(revoke))
            .with_state(Arc::clone(&shared));
        let server = Server::start_on(LOCALHOST, router).await?;
        *lock(&shared.url) = format!("http://{}", server.addr());
        Ok(Self { server, shared })
    }

    /// The issuer URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Publishes one more key, which signs from now on.
    pub fn add_key(&self, key: SigningKey) {
        lock(&self.shared.keys).push(Arc::new(key));
    }

    /// Withdraws all keys but the newest.
    pub fn withdraw_old_keys(&self) {
        let mut keys = lock(&self.shared.keys);
        let newest = keys.pop();
        keys.clear();
        keys.extend(newest);
    }

    /// The key that signs.
    #[must_use]
    pub fn signing_key(&self) -> Arc<SigningKey> {
        self.shared.signing_key()
    }

    /// Whether every request fails from now on.
    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::Release);
    }

    /// Sign-ins give no refresh token from now on.
    pub fn give_no_refresh_tokens(&self) {
        self.shared.no_refresh.store(true, Ordering::Release);
    }

    /// Removes everybody who has signed in: their refresh tokens are refused.
    pub fn remove_people(&self) {
        lock(&self.shared.refresh_tokens).clear();
    }

    /// Changes the claims of everybody who has signed in.
    pub fn change_people(&self, change: impl Fn(&mut Map<String, Value>)) {
        lock(&self.shared.refresh_tokens).values_mut().for_each(change);
    }

    /// How often the keys were fetched.
    #[must_use]
    pub fn key_fetches(&self) -> usize {
        self.shared.key_fetches.load(Ordering::Acquire)
    }

    /// Who signs in at the endpoints, by the claims of the token: at least `sub`.
    pub fn set_person(&self, claims: Value) {
        *lock(&self.shared.person) = object(claims);
    }

    /// Lifetime of the tokens of later sign-ins and renewals, in seconds.
    pub fn set_lifetime(&self, seconds: usize) {
        self.shared.lifetime.store(seconds, Ordering::Release);
    }

    /// Confirms all sign-ins with a code.
    pub fn confirm_devices(&self) {
        lock(&self.shared.devices).values_mut().for_each(|confirmed| *confirmed = true);
    }

    /// Whether a refresh token is still accepted.
    #[must_use]
    pub fn has_refresh_token(&self, token: &str) -> bool {
        lock(&self.shared.refresh_tokens).contains_key(token)
    }

    /// Claims of a valid token for the audience `holdfast`, with these in addition or instead. A
    /// claim that is null is left out.
    #[must_use]
    pub fn claims(&self, more: Value) -> Value {
        let now = now();
        let mut claims = object(json!({
            "iss": self.url(), "aud": "holdfast", "sub": "someone",
            "iat": now, "exp": now + 3600,
        }));
        for (name, value) in object(more) {
            if value.is_null() {
                claims.remove(&name);
            } else {
                claims.insert(name, value);
            }
        }
        Value::Object(claims)
    }

    /// A token with [`claims`](Self::claims), signed with the newest key.
    #[must_use]
    pub fn token(&self, more: Value) -> String {
        self.signing_key().sign(&self.claims(more))
    }
}

impl Shared {
    fn signing_key(&self) -> Arc<SigningKey> {
        let keys = lock(&self.keys);
        keys.last().map_or_else(|| Arc::new(SigningKey::es256("none")), Arc::clone)
    }

    /// The answer of the token endpoint for these claims, with a new refresh token.
    fn tokens(&self, claims: Map<String, Value>) -> Value {
        let now = now();
        let mut whole = claims.clone();
        let lifetime = self.lifetime.load(Ordering::Acquire) as u64;
        whole.extend(object(json!({
            "iss": *lock(&self.url), "aud": "holdfast", "iat": now, "exp": now + lifetime,
        })));
        let refresh = uuid::Uuid::now_v7().simple().to_string();
        let mut tokens = json!({
            "id_token": self.signing_key().sign(&Value::Object(whole)),
            "access_token": "opaque", "token_type": "Bearer",
        });
        if !self.no_refresh.load(Ordering::Acquire) {
            lock(&self.refresh_tokens).insert(refresh.clone(), claims);
            tokens["refresh_token"] = refresh.into();
        }
        tokens
    }

    fn check_here(&self) -> Result<(), StatusCode> {
        match self.is_away.load(Ordering::Acquire) {
            true => Err(StatusCode::SERVICE_UNAVAILABLE),
            false => Ok(()),
        }
    }
}

async fn discovery(State(shared): State<Arc<Shared>>) -> axum::response::Result<Json<Value>> {
    shared.check_here()?;
    let url = lock(&shared.url).clone();
    Ok(Json(json!({
        "issuer": url,
        "jwks_uri": format!("{url}/keys"),
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "device_authorization_endpoint": format!("{url}/device"),
        "revocation_endpoint": format!("{url}/revoke"),
    })))
}

async fn keys(State(shared): State<Arc<Shared>>) -> axum::response::Result<Json<Value>> {
    shared.check_here()?;
    shared.key_fetches.fetch_add(1, Ordering::AcqRel);
    let keys: Vec<Value> = lock(&shared.keys).iter().map(|key| key.public_jwk()).collect();
    Ok(Json(json!({ "keys": keys })))
}

async fn authorize(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<Form>,
) -> axum::response::Result<Response> {
    shared.check_here()?;
    let field = |name: &str| asked.get(name).cloned().unwrap_or_default();
    if field("code_challenge_method") != "S256" || field("response_type") != "code" {
        return Err(refusal("invalid_request").into());
    }
    let mut claims = lock(&shared.person).clone();
    claims.insert("nonce".into(), field("nonce").into());
    let code = uuid::Uuid::now_v7().simple().to_string();
    let redirect = field("redirect_uri");
    let known = (claims, field("code_challenge"), redirect.clone());
    lock(&shared.codes).insert(code.clone(), known);
    let to = format!("{redirect}?code={code}&state={}", field("state"));
    Ok((StatusCode::FOUND, [(LOCATION, to)]).into_response())
}

async fn token(
    State(shared): State<Arc<Shared>>,
    body: Bytes,
) -> axum::response::Result<Json<Value>> {
    shared.check_here()?;
    let form = parse_form(&body);
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    let claims = match field("grant_type").as_str() {
        "authorization_code" => {
            let known = lock(&shared.codes).remove(&field("code"));
            let (claims, challenge, redirect) = known.ok_or_else(|| refusal("invalid_grant"))?;
            let verifier =
                ring::digest::digest(&ring::digest::SHA256, field("code_verifier").as_bytes());
            let is_same = URL_SAFE_NO_PAD.encode(verifier) == challenge;
            if !is_same || redirect != field("redirect_uri") {
                return Err(refusal("invalid_grant").into());
            }
            claims
        }
        // A refresh token is accepted once.
        "refresh_token" => lock(&shared.refresh_tokens)
            .remove(&field("refresh_token"))
            .ok_or_else(|| refusal("invalid_grant"))?,
        "urn:ietf:params:oauth:grant-type:device_code" => {
            let code = field("device_code");
            match lock(&shared.devices).get(&code).copied() {
                Some(true) => lock(&shared.person).clone(),
                Some(false) => return Err(refusal("authorization_pending").into()),
                None => return Err(refusal("invalid_grant").into()),
            }
        }
        _ => return Err(refusal("unsupported_grant_type").into()),
    };
    Ok(Json(shared.tokens(claims)))
}

async fn device(State(shared): State<Arc<Shared>>) -> axum::response::Result<Json<Value>> {
    shared.check_here()?;
    let code = uuid::Uuid::now_v7().simple().to_string();
    lock(&shared.devices).insert(code.clone(), false);
    let url = lock(&shared.url).clone();
    Ok(Json(json!({
        "device_code": code, "user_code": "ABCD-EFGH", "verification_uri": format!("{url}/code"),
        "expires_in": 60, "interval": 1,
    })))
}

async fn revoke(State(shared): State<Arc<Shared>>, body: Bytes) -> axum::response::Result<()> {
    shared.check_here()?;
    let token = parse_form(&body).remove("token").unwrap_or_default();
    lock(&shared.refresh_tokens).remove(&token);
    Ok(())
}

fn refusal(error: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response()
}

/// Parses `application/x-www-form-urlencoded`.
fn parse_form(body: &[u8]) -> Form {
    let uri = format!("/?{}", String::from_utf8_lossy(body)).parse::<axum::http::Uri>();
    let query = uri.ok().and_then(|uri| Query::<Form>::try_from_uri(&uri).ok());
    query.map(|Query(form)| form).unwrap_or_default()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
