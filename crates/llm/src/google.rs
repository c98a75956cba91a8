//! Access tokens of Google Cloud.
//!
//! | source | how | reference |
//! |---|---|---|
//! | key of a service account | a JWT, signed with RS256, is exchanged for a token | <https://developers.google.com/identity/protocols/oauth2/service-account#authorizingrequests> |
//! | identity of the machine or pod | a request to the metadata server, with `Metadata-Flavor: Google` | <https://cloud.google.com/compute/docs/access/authenticate-workloads> |
//!
//! A tenant writes the key, so the address in it is not trusted: the JWT goes to Google only. The
//! metadata server is the installation's: see [`WorkloadIdentity`](crate::WorkloadIdentity).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use futures::future::BoxFuture;
use holdfast_egress::Guard;
use reqwest::{Client, Url, header::HeaderMap};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Error,
    authorize::{
        Authorize, CachedCredentials, FETCH_TIMEOUT, UnsignedRequest, bearer, fetch, with_form,
    },
};

/// Google's token endpoint.
pub(crate) const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// Scope of a token: the APIs of the cloud.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Grant of RFC 7523.
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Lifetime of a JWT, in seconds: the longest that Google accepts.
const JWT_LIFETIME: u64 = 3_600;

/// Path of the tokens of the machine's or pod's service account.
const METADATA_TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// Key of a service account, as Google's console offers it for download.
#[derive(Deserialize)]
struct ServiceAccountKey {
    #[serde(rename = "type")]
    kind: String,
    project_id: String,
    private_key_id: String,
    private_key: SecretString,
    client_email: String,
    token_uri: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: SecretString,
    /// In seconds.
    expires_in: u64,
}

/// Tokens of a service account.
#[derive(Debug)]
pub(crate) struct ServiceAccount {
    guard: Guard,
    token_url: Url,
    email: String,
    key_id: String,
    pub(crate) key: RsaKeyPair,
    pub(crate) project: String,
    token: CachedCredentials<SecretString>,
}

impl ServiceAccount {
    /// Reads a key. `token_url` is the endpoint that it must name.
    ///
    /// # Errors
    ///
    /// If it is no key of a service account, or names another endpoint.
    pub(crate) fn new(guard: Guard, json: &SecretString, token_url: &str) -> Result<Self, Error> {
        let key: ServiceAccountKey = serde_json::from_str(json.expose_secret())
            .map_err(|_| Error::Setup("the api key is no json key of a google service account"))?;
        if key.kind != "service_account" {
            return Err(Error::Setup("the api key is not of the type `service_account`"));
        }
        if key.token_uri != token_url {
            return Err(Error::Setup("the `token_uri` of the service account is not google's"));
        }
        let invalid = Error::Setup("the `private_key` of the service account is no RSA key");
        let Some(pkcs8) = pem_content(key.private_key.expose_secret()) else {
            return Err(invalid);
        };
        let Ok(pair) = RsaKeyPair::from_pkcs8(&pkcs8) else { return Err(invalid) };
        let token_url =
            Url::parse(token_url).map_err(|_| Error::Setup("the token endpoint is not a url"))?;
        Ok(Self {
            guard,
            token_url,
            email: key.client_email,
            key_id: key.private_key_id,
            key: pair,
            project: key.project_id,
            token: CachedCredentials::new(),
        })
    }

    async fn exchange(&self) -> Result<(SecretString, Duration), Error> {
        let assertion = self.signed_jwt(now())?;
        let client = self.guard.client_for_secret(&self.token_url)?;
        let form = [("grant_type", GRANT_TYPE), ("assertion", assertion.as_str())];
        let (_, answer) = fetch(with_form(client.post(self.token_url.clone()), &form)).await?;
        token_of(answer)
    }

    /// Returns a JWT that asks for a token.
    fn signed_jwt(&self, now: u64) -> Result<String, Error> {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id }));
        let claims = part(json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_url.as_str(),
            "iat": now,
            "exp": now + JWT_LIFETIME,
        }));
        let mut signature = vec![0; self.key.public().modulus_len()];
        let signed = format!("{header}.{claims}");
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| Error::Setup("the service account's key cannot sign"))?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Authorize for ServiceAccount {
    fn headers<'a>(&'a self, _: UnsignedRequest<'a>) -> BoxFuture<'a, Result<HeaderMap, Error>> {
        Box::pin(async move { bearer(&self.token.get(|| self.exchange()).await?) })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.token.forget())
    }
}

/// Tokens of the machine or pod that this process runs on.
#[derive(Debug)]
pub(crate) struct MetadataServer {
    client: Client,
    url: Url,
    token: CachedCredentials<SecretString>,
}

impl MetadataServer {
    /// `server` is the installation's setting, such as `http://metadata.google.internal`.
    ///
    /// # Errors
    ///
    /// If it is not a URL, or this machine has no root certificates.
    pub(crate) fn new(server: &str) -> anyhow::Result<Self> {
        let url = Url::parse(server)?.join(METADATA_TOKEN_PATH)?;
        // The server is at a private address, which only the installation may choose.
        let client = holdfast_egress::client_builder(FETCH_TIMEOUT)?.no_proxy().build()?;
        Ok(Self { client, url, token: CachedCredentials::new() })
    }

    async fn fetch(&self) -> Result<(SecretString, Duration), Error> {
        let asked = self.client.get(self.url.clone()).header("metadata-flavor", "Google");
        let (headers, answer) = fetch(asked).await?;
        // Another server at that address would not say this.
        if headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
            return Err(Error::Setup("the metadata server of the installation is not google's"));
        }
        token_of(answer)
    }
}

impl Authorize for MetadataServer {
    fn headers<'a>(&'a self, _: UnsignedRequest<'a>) -> BoxFuture<'a, Result<HeaderMap, Error>> {
        Box::pin(async move { bearer(&self.token.get(|| self.fetch()).await?) })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.token.forget())
    }
}

/// Returns the token of an answer and its lifetime.
fn token_of(answer: Value) -> Result<(SecretString, Duration), Error> {
    let answer: TokenAnswer =
        serde_json::from_value(answer).map_err(|_| Error::Malformed("the answer has no token"))?;
    Ok((answer.access_token, Duration::from_secs(answer.expires_in)))
}

/// Returns the content of a PEM text with one block.
fn pem_content(text: &str) -> Option<Vec<u8>> {
    let begun = text.split_once("-----BEGIN PRIVATE KEY-----")?.1;
    let content = begun.split_once("-----END PRIVATE KEY-----")?.0;
    let content: String = content.split_whitespace().collect();
    STANDARD.decode(content).ok()
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
