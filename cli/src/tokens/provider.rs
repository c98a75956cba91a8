//! An identity provider: its endpoints, and requests for tokens.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Response, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(20);

/// Endpoints of a provider, and the client id of this command.
#[derive(Debug, Clone)]
pub struct Provider {
    pub issuer: String,
    pub client_id: String,
    pub endpoints: Endpoints,
    http: Client,
}

/// The part of a discovery document that is used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Endpoints {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    #[serde(default)]
    pub device_authorization_endpoint: Option<String>,
    #[serde(default)]
    pub revocation_endpoint: Option<String>,
}

/// Answer of the token endpoint.
#[derive(Debug, Clone, Deserialize)]
pub struct Tokens {
    pub id_token: Option<String>,
    pub refresh_token: Option<String>,
}

/// Error answer of an endpoint (RFC 6749, 5.2).
#[derive(Debug, Deserialize)]
pub struct Refusal {
    pub error: String,
    #[serde(default)]
    pub error_description: String,
}

impl Refusal {
    pub fn text(&self) -> String {
        match self.error_description.as_str() {
            "" => format!("`{}`", self.error),
            said => format!("`{}`: {said}", self.error),
        }
    }
}

impl Provider {
    /// Fetches the provider's discovery document.
    pub async fn discover(issuer: &str, client_id: &str) -> anyhow::Result<Self> {
        check_address(issuer).context("--issuer")?;
        let http = holdfast_egress::client_builder(CONNECT_TIMEOUT)?.timeout(TIMEOUT).build()?;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let answer = http.get(&url).send().await.map_err(|error| unreachable(issuer, &error))?;
        ensure!(
            answer.status().is_success(),
            "`{url}` is answered with {}: is `{issuer}` the provider's issuer URL?",
            answer.status().as_u16()
        );
        let endpoints: Endpoints = read(answer)
            .await
            .with_context(|| format!("`{url}` is no discovery document of OpenID Connect"))?;
        ensure!(
            endpoints.issuer == issuer,
            "the provider calls itself `{}`: give that as --issuer",
            endpoints.issuer
        );
        for address in [&endpoints.authorization_endpoint, &endpoints.token_endpoint] {
            check_address(address)?;
        }
        Ok(Self { issuer: issuer.to_owned(), client_id: client_id.to_owned(), endpoints, http })
    }

    /// Posts a form; returns the answer, or what the provider refused it with.
    pub async fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        fields: &[(&str, &str)],
    ) -> anyhow::Result<Result<T, Refusal>> {
        let body = form(fields);
        let request = self.http.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| unreachable(&self.issuer, &error))?;
        if answer.status().is_success() {
            return Ok(Ok(read(answer).await?));
        }
        let status = answer.status().as_u16();
        let refusal = read(answer).await;
        refusal.map(Err).map_err(|_| anyhow!("the provider answered with {status}"))
    }

    /// Asks for tokens.
    pub async fn tokens(&self, fields: &[(&str, &str)]) -> anyhow::Result<Result<Tokens, Refusal>> {
        self.post(&self.endpoints.token_endpoint, fields).await
    }

    /// Withdraws a refresh token, if the provider has an endpoint for that.
    pub async fn revoke(&self, token: &str) -> anyhow::Result<()> {
        let Some(url) = &self.endpoints.revocation_endpoint else { return Ok(()) };
        let fields = [
            ("token", token),
            ("token_type_hint", "refresh_token"),
            ("client_id", self.client_id.as_str()),
        ];
        let request = self.http.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = request.body(form(&fields)).send().await;
        let answer = answer.map_err(|error| unreachable(&self.issuer, &error))?;
        ensure!(answer.status().is_success(), "it answered with {}", answer.status().as_u16());
        Ok(())
    }
}

/// Claims of an ID token. It comes from the provider over TLS, so its signature is left to the
/// gateway (OpenID Connect Core, 3.1.3.7).
pub fn claims(token: &str) -> anyhow::Result<Value> {
    let part = token.split('.').nth(1).context("the provider's ID token is no JWT")?;
    let json = URL_SAFE_NO_PAD.decode(part).context("the provider's ID token is no JWT")?;
    serde_json::from_slice(&json).context("the provider's ID token is no JWT")
}

/// Fields in `application/x-www-form-urlencoded`.
pub fn form(fields: &[(&str, &str)]) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Refuses addresses to which a token would go unencrypted.
fn check_address(url: &str) -> anyhow::Result<()> {
    if url.starts_with("https://") || holdfast_egress::loopback_address(url).is_some() {
        return Ok(());
    }
    bail!("`{url}` is not an https:// address")
}

fn unreachable(issuer: &str, error: &reqwest::Error) -> anyhow::Error {
    let why = holdfast_egress::describe_failure(error);
    anyhow!("the identity provider `{issuer}` cannot be reached: {why}")
}

async fn read<T: DeserializeOwned>(answer: Response) -> anyhow::Result<T> {
    let body = answer.bytes().await.map_err(|_| anyhow!("the provider's answer broke off"))?;
    serde_json::from_slice(&body).context("the provider's answer cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded() {
        assert_eq!(form(&[("a b", "c&d=é"), ("e", "")]), "a%20b=c%26d%3D%C3%A9&e=");
    }

    #[test]
    fn a_token_goes_nowhere_without_tls() {
        check_address("https://id.example.com").unwrap();
        check_address("http://127.0.0.1:9000").unwrap();
        assert!(check_address("http://id.example.com").is_err());
    }
}
