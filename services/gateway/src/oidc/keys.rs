//! Public keys of one issuer: fetched from its discovery document, cached, fetched again for a key
//! id that is not known.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use reqwest::Client;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tracing::{info, warn};

use super::{
    TokenError,
    config::{Oidc, is_trusted_address},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of one request to the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an issuer's document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 512 * 1024;
/// Maximum number of keys of an issuer.
const MAX_KEYS: usize = 200;

#[derive(Debug)]
pub struct IssuerKeys {
    issuer: String,
    client: Client,
    refresh_interval: Duration,
    min_refresh_interval: Duration,
    max_key_age: Duration,
    cache: Mutex<Cache>,
    /// Held while keys are fetched: concurrent callers wait for the same answer.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Cache {
    keys: Option<(Instant, Arc<[PublicKey]>)>,
    last_attempt: Option<Instant>,
    /// Why the last attempt failed; `None` if it succeeded.
    failure: Option<String>,
}

#[derive(Debug)]
struct PublicKey {
    kid: Option<String>,
    /// The only algorithm that the key verifies.
    algorithm: Algorithm,
    key: DecodingKey,
}

#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl IssuerKeys {
    pub fn new(issuer: &str, config: &Oidc) -> anyhow::Result<Self> {
        let client = holdfast_egress::client_builder(CONNECT_TIMEOUT)?;
        Ok(Self {
            issuer: issuer.to_owned(),
            client: client.timeout(FETCH_TIMEOUT).build()?,
            refresh_interval: config.refresh_interval,
            min_refresh_interval: config.min_refresh_interval,
            max_key_age: config.max_key_age,
            cache: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the key with this id, or the only one for the algorithm if the token names none.
    ///
    /// # Errors
    ///
    /// [`TokenError::UnknownKey`], or [`TokenError::Unavailable`] if the issuer had to be asked and
    /// did not answer.
    pub async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, TokenError> {
        if let Some((age, key)) = self.cached(kid, algorithm) {
            if age >= self.refresh_interval && self.may_fetch() {
                let keys = Arc::clone(self);
                // The key is used meanwhile.
                tokio::spawn(async move { keys.refresh().await });
            }
            if age < self.max_key_age {
                return Ok(key);
            }
        }
        if self.may_fetch() {
            self.refresh().await;
        }
        match self.cached(kid, algorithm) {
            Some((age, key)) if age < self.max_key_age => Ok(key),
            _ => Err(match self.lock().failure.clone() {
                Some(why) => TokenError::Unavailable { issuer: self.issuer.clone(), why },
                None => TokenError::UnknownKey,
            }),
        }
    }

    fn cached(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<(Duration, DecodingKey)> {
        let (at, keys) = self.lock().keys.clone()?;
        let mut usable = keys.iter().filter(|key| {
            key.algorithm == algorithm && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        });
        let found = usable.next()?;
        // Without an id, several keys could be meant.
        (kid.is_some() || usable.next().is_none()).then(|| (at.elapsed(), found.key.clone()))
    }

    fn may_fetch(&self) -> bool {
        self.lock().last_attempt.is_none_or(|at| at.elapsed() >= self.min_refresh_interval)
    }

    /// Fetches the keys, unless another caller did so while this one waited.
    async fn refresh(&self) {
        let _guard = self.fetching.lock().await;
        if !self.may_fetch() {
            return;
        }
        self.lock().last_attempt = Some(Instant::now());
        let fetched = self.fetch().await;
        let mut cache = self.lock();
        match fetched {
            Ok(keys) => {
                info!(issuer = %self.issuer, count = keys.len(), "fetched an issuer's keys");
                cache.keys = Some((Instant::now(), keys.into()));
                cache.failure = None;
            }
            Err(why) => {
                warn!(issuer = %self.issuer, why, "an issuer's keys cannot be fetched");
                cache.failure = Some(why);
            }
        }
    }

    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Fetches fields of the discovery document.
    pub async fn discover<T: DeserializeOwned>(&self) -> Result<T, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        self.get(&url, "discovery document").await
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, String> {
        let found: Discovery = self.discover().await?;
        if found.issuer != self.issuer {
            return Err("its discovery document names another issuer".to_owned());
        }
        if !is_trusted_address(&found.jwks_uri) {
            return Err("its `jwks_uri` is not an https:// address".to_owned());
        }
        let set: KeySet = self.get(&found.jwks_uri, "key set").await?;
        let keys: Vec<_> = set.keys.into_iter().take(MAX_KEYS).filter_map(public_key).collect();
        if keys.is_empty() {
            return Err("it has no key for RS256, ES256 or EdDSA".to_owned());
        }
        Ok(keys)
    }

    async fn get<T: DeserializeOwned>(&self, url: &str, what: &str) -> Result<T, String> {
        let response = self.client.get(url).send().await.map_err(failed)?;
        if response.status() != 200 {
            return Err(format!("its {what} is answered with {}", response.status().as_u16()));
        }
        read_json(response, what).await
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(error: reqwest::Error) -> String {
    holdfast_egress::describe_failure(&error).to_owned()
}

/// Reads the body of an issuer's answer.
pub async fn read_json<T: DeserializeOwned>(
    mut response: reqwest::Response,
    what: &str,
) -> Result<T, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(format!("its {what} is too large"));
        }
    }
    serde_json::from_slice(&body).map_err(|_| format!("its {what} cannot be read"))
}

/// Parses a key; `None` if it is of no use here. An issuer may have keys of other kinds.
fn public_key(key: Value) -> Option<PublicKey> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
    {
        return None;
    }
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Algorithm::ES256
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Algorithm::EdDSA
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|named| named != KeyAlgorithm::from(algorithm)) {
        return None;
    }
    Some(PublicKey {
        kid: jwk.common.key_id.clone(),
        algorithm,
        key: DecodingKey::from_jwk(&jwk).ok()?,
    })
}
