//! Sign-in of a browser at an issuer: the authorization code flow with PKCE, state and nonce (RFC 6749,
//! RFC 7636, OpenID Connect Core 3.1).
//!
//! **What can go wrong.** A code that was meant for another browser: `state` is compared with what this
//! browser keeps. A code that somebody intercepted: it is worth nothing without the verifier. A token of
//! an earlier sign-in: its nonce differs. A code of another issuer: it is redeemed at the issuer that the
//! sign-in began at, and the token must be of that issuer and of this client.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use holdfast_directory::ProviderSignIn;
use reqwest::Url;
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    TokenError, TokenVerifier, VerifiedToken, claims,
    config::{ConsoleClient, Issuer, is_trusted_address},
    keys::IssuerKeys,
    shown,
};

/// Sign-in that has begun: what the browser keeps until it comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSignIn {
    issuer: String,
    client_id: String,
    pub state: String,
    nonce: String,
    /// Secret of PKCE.
    verifier: String,
    redirect_uri: String,
}

impl PendingSignIn {
    /// Issuer at which the person signs in.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }
}

/// Addresses of an issuer, from its discovery document.
#[derive(Debug, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    /// Without the field it is `client_secret_basic`.
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Tokens {
    /// A refresh need not give another one.
    id_token: Option<String>,
    refresh_token: Option<SecretString>,
}

/// What an issuer says for a refresh token.
#[derive(Debug)]
pub struct RefreshedSignIn {
    /// The person, if the issuer gave another ID token.
    pub person: Option<VerifiedToken>,
    /// Refresh token for the next time, if it is another one.
    pub refresh_token: Option<SecretString>,
}

impl TokenVerifier {
    /// Names of the issuers at which people can sign in with a browser.
    #[must_use]
    pub fn sign_in_names(&self) -> Vec<String> {
        self.clients().map(|(_, client, _)| client.name.clone()).collect()
    }

    fn clients(&self) -> impl Iterator<Item = ClientOfIssuer<'_>> {
        self.issuers
            .iter()
            .filter_map(|(issuer, keys)| Some((issuer, issuer.console.as_ref()?, keys)))
    }

    /// Begins a sign-in. Returns the address to which the browser goes.
    ///
    /// # Errors
    ///
    /// [`TokenError::NotConfigured`] if there is no such issuer, [`TokenError::Unavailable`] if it does
    /// not answer.
    pub async fn begin_sign_in(
        &self,
        name: &str,
        redirect_uri: String,
    ) -> Result<(String, PendingSignIn), TokenError> {
        let mut clients = self.clients();
        let found = clients.find(|(_, client, _)| client.name == name);
        let (issuer, client, keys) = found.ok_or(TokenError::NotConfigured)?;
        let endpoints = endpoints(issuer, keys).await?;
        let (state, nonce, verifier) = (random()?, random()?, random()?);
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let scopes = client.scopes.join(" ");
        let parameters = [
            ("response_type", "code"),
            ("client_id", &client.client_id),
            ("redirect_uri", &redirect_uri),
            ("scope", &scopes),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let mut to = Url::parse(&endpoints.authorization_endpoint)
            .map_err(|_| unavailable(issuer, "its authorization endpoint is no address"))?;
        to.query_pairs_mut().extend_pairs(parameters);
        let (issuer, client_id) = (issuer.url.clone(), client.client_id.clone());
        Ok((to.into(), PendingSignIn { issuer, client_id, state, nonce, verifier, redirect_uri }))
    }

    /// Redeems the code of a sign-in, and verifies the token that the issuer gives for it. Returns the
    /// person, and with which refresh token the issuer can be asked about them again.
    ///
    /// # Errors
    ///
    /// [`TokenError`] for what is wrong with the code or the token.
    pub async fn finish_sign_in(
        &self,
        pending: &PendingSignIn,
        code: &str,
    ) -> Result<(VerifiedToken, Option<ProviderSignIn>), TokenError> {
        let found = self.client(&pending.issuer, &pending.client_id)?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &pending.redirect_uri),
            ("code_verifier", &pending.verifier),
        ];
        let Tokens { id_token, refresh_token } = redeem(found, &form).await?;
        let id_token = id_token.ok_or_else(|| unavailable(found.0, "it gives no ID token"))?;
        let claims = self.claims_for(found, &id_token).await?;
        if claims.get("nonce").and_then(Value::as_str) != Some(&*pending.nonce) {
            return Err(TokenError::Nonce);
        }
        let (issuer, client_id) = (pending.issuer.clone(), pending.client_id.clone());
        let sign_in =
            refresh_token.map(|refresh_token| ProviderSignIn { issuer, client_id, refresh_token });
        // The roles are those of the client's own entry: an issuer may have several.
        Ok((claims::read(found.0, &claims)?, sign_in))
    }

    /// Asks an issuer whether a person still is one of its people.
    ///
    /// # Errors
    ///
    /// [`TokenError::Unavailable`] if it does not answer, [`TokenError::NotConfigured`] if it is not one
    /// of the settings any more; any other error is a refusal.
    pub async fn refresh(&self, sign_in: &ProviderSignIn) -> Result<RefreshedSignIn, TokenError> {
        let found = self.client(&sign_in.issuer, &sign_in.client_id)?;
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", sign_in.refresh_token.expose_secret()),
        ];
        let Tokens { id_token, refresh_token } = redeem(found, &form).await?;
        let person = match id_token {
            Some(token) => {
                let claims = self.claims_for(found, &token).await?;
                Some(claims::read(found.0, &claims)?)
            }
            None => None,
        };
        Ok(RefreshedSignIn { person, refresh_token })
    }

    fn client(&self, issuer_url: &str, client_id: &str) -> Result<ClientOfIssuer<'_>, TokenError> {
        let mut clients = self.clients();
        let found = clients
            .find(|(issuer, client, _)| issuer.url == issuer_url && client.client_id == client_id);
        found.ok_or(TokenError::NotConfigured)
    }

    /// Verifies an ID token that a client got from its issuer, and returns its claims.
    async fn claims_for(
        &self,
        (issuer, client, _): ClientOfIssuer<'_>,
        token: &str,
    ) -> Result<Map<String, Value>, TokenError> {
        let (signed_by, claims) = self.verified_claims(token).await?;
        if signed_by.url != issuer.url {
            return Err(TokenError::Issuer(shown(&signed_by.url)));
        }
        if !claims::has_audience(&claims, std::slice::from_ref(&client.client_id)) {
            return Err(TokenError::Audience(vec![client.client_id.clone()]));
        }
        Ok(claims)
    }
}

/// An issuer, one of its clients, and its keys.
type ClientOfIssuer<'a> = (&'a Issuer, &'a ConsoleClient, &'a Arc<IssuerKeys>);

async fn endpoints(issuer: &Issuer, keys: &IssuerKeys) -> Result<Endpoints, TokenError> {
    let found: Endpoints = keys.discover().await.map_err(|why| unavailable(issuer, &why))?;
    if found.issuer != issuer.url {
        return Err(unavailable(issuer, "its discovery document names another issuer"));
    }
    let addresses = [&found.authorization_endpoint, &found.token_endpoint];
    if !addresses.into_iter().all(|address| is_trusted_address(address)) {
        return Err(unavailable(issuer, "its endpoints are not https:// addresses"));
    }
    Ok(found)
}

/// Exchanges a code or a refresh token for tokens.
async fn redeem(
    (issuer, client, keys): ClientOfIssuer<'_>,
    grant: &[(&str, &str)],
) -> Result<Tokens, TokenError> {
    let endpoints = endpoints(issuer, keys).await?;
    let secret = client.client_secret.expose_secret();
    let mut form = [grant, &[("client_id", &*client.client_id)]].concat();
    let methods = &endpoints.token_endpoint_auth_methods_supported;
    let is_basic =
        methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic");
    if !secret.is_empty() && !is_basic {
        form.push(("client_secret", secret));
    }
    let mut request = keys
        .client()
        .post(&endpoints.token_endpoint)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .body(encode_form(&form));
    if !secret.is_empty() && is_basic {
        let (name, secret) = (encode_value(&client.client_id), encode_value(secret));
        request = request.basic_auth(name, Some(secret));
    }
    let response = request
        .send()
        .await
        .map_err(|error| unavailable(issuer, holdfast_egress::describe_failure(&error)))?;
    match response.status().as_u16() {
        200 => {
            let tokens: Result<Tokens, String> = super::keys::read_json(response, "token").await;
            tokens.map_err(|why| unavailable(issuer, &why))
        }
        408 | 429 => Err(unavailable(issuer, "it has too much to do")),
        400..=499 => Err(TokenError::CodeRefused),
        status => Err(unavailable(issuer, &format!("its token endpoint answers with {status}"))),
    }
}

/// Encodes as `application/x-www-form-urlencoded`.
fn encode_form(form: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", form);
    url.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
}

fn encode_value(value: &str) -> String {
    encode_form(&[("", value)]).trim_start_matches('=').to_owned()
}

/// 256 random bits in base64url.
fn random() -> Result<String, TokenError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::NoRandom)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn unavailable(issuer: &Issuer, why: &str) -> TokenError {
    TokenError::Unavailable { issuer: issuer.url.clone(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_with_special_letters_is_encoded() {
        assert_eq!(encode_value("a:b&c=d é"), "a%3Ab%26c%3Dd+%C3%A9");
        assert_eq!(encode_form(&[("a", "1&2"), ("b", "x y")]), "a=1%262&b=x+y");
    }
}
