//! OAuth token renewal: before a token expires, and once after the provider rejects it.
//!
//! | situation | reaction |
//! |---|---|
//! | access token expires within five minutes | one runner uses the refresh token (RFC 6749, section 6); until then others use the old token |
//! | provider rejects the token | the same, then the request is repeated once |
//! | another runner renewed it | its token is used |
//! | token endpoint rejects the refresh token or the client | a person must sign in again: `credentials list` shows it, and nobody retries |
//! | token endpoint has trouble | retried in ten seconds |
//!
//! **What can go wrong.** A cancelled turn must not lose new tokens: the exchange is a task of its
//! own and runs until they are stored. If the process crashes during it, the old tokens remain,
//! whose refresh token may be used up: then a person must sign in again.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_directory::{
    Directory, NewTokens, RENEWAL_LEASE, RefreshGrant, RenewableTokens, RenewalClaim,
    RenewedTokens, TokenEndpoint,
};
use holdfast_egress::{Guard, refusal};
use holdfast_kit::Backoff;
use holdfast_llm::{
    Alternatives, Delta, Error, Model, Models, OnDelta, Provider, Reason, ReplyFuture, Request,
};
use holdfast_types::{Fault as _, ModelId, Reply};
use reqwest::{
    Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::agents::key_health::now_ms;

/// Remaining lifetime at which a token is renewed, in milliseconds.
const RENEW_BEFORE_EXPIRY_MS: i64 = 300_000;

/// Timeout of the token endpoint.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of waiting for another runner's renewal, and the interval of checking for it.
const MAX_RENEWAL_WAIT: Duration = Duration::from_secs(15);
const RENEWAL_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Limit on the endpoint's response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Limit on the lifetime that the endpoint may state.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_hours(24 * 365);

/// Delay between attempts to store new tokens.
const STORE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Errors of a token endpoint for which a retry is useless (RFC 6749, section 5.2).
const FINAL_ERRORS: [&str; 6] = [
    "invalid_grant",
    "invalid_client",
    "invalid_request",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
];

/// Renews the tokens of all models of this process.
#[derive(Debug, Clone)]
pub(crate) struct TokenRenewer {
    directory: Directory,
    guard: Guard,
}

/// A model whose token is renewed.
#[derive(Debug)]
pub(crate) struct RenewableModel {
    renewals: Arc<TokenRenewer>,
    which: RenewableTokens,
    current: Mutex<CurrentToken>,
    make: ClientSettings,
}

/// The current token's version and expiry, and a client that uses it.
#[derive(Clone)]
pub(crate) struct CurrentToken {
    pub(crate) version: i64,
    /// In milliseconds since 1970.
    pub(crate) expires: Option<i64>,
    pub(crate) model: Arc<dyn Model>,
}

/// Settings to build a client with a new token.
#[derive(Debug)]
pub(crate) struct ClientSettings {
    pub(crate) id: ModelId,
    pub(crate) provider: Provider,
    pub(crate) among: Alternatives,
    pub(crate) guard: Guard,
}

/// Trouble of a token whose endpoint may not be called: a person must change its address, or the
/// operator allow it.
const REFUSED_ADDRESS: &str = "address_not_allowed";

/// Reason why there are no new tokens.
#[derive(Debug, PartialEq, Eq)]
enum RenewalFailure {
    /// A person must act; the error code of the endpoint.
    Final(&'static str),
    /// A retry may succeed.
    Transient(&'static str),
}

impl RenewableModel {
    pub(crate) const fn new(
        renewals: Arc<TokenRenewer>,
        which: RenewableTokens,
        held: CurrentToken,
        make: ClientSettings,
    ) -> Self {
        Self { renewals, which, current: Mutex::new(held), make }
    }

    async fn ask(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
        cancelled: &CancellationToken,
    ) -> Result<Reply, Error> {
        let mut held = self.current_token();
        let left = held.expires.map(|end| end - now_ms());
        if left.is_some_and(|left| left < RENEW_BEFORE_EXPIRY_MS) {
            // A token that has not expired is good enough while another runner renews it.
            let wait =
                if left.is_some_and(|left| left <= 0) { MAX_RENEWAL_WAIT } else { Duration::ZERO };
            match self.renew_token(&held, wait).await {
                Some(renewed) => held = renewed,
                None if !wait.is_zero() => return Err(Error::Auth),
                None => {}
            }
        }
        let mut said = false;
        let mut note = |delta| {
            said = true;
            on_delta(delta);
        };
        let answer = held.model.reply(request, &mut note, cancelled).await;
        let is_refused = matches!(&answer, Err(error) if error.reason() == Reason::Auth);
        if !is_refused || cancelled.is_cancelled() || Instant::now() >= request.deadline {
            return answer;
        }
        let Some(renewed) = self.renew_token(&held, MAX_RENEWAL_WAIT).await else { return answer };
        if said {
            on_delta(Delta::Restarted);
        }
        renewed.model.reply(request, on_delta, cancelled).await
    }

    /// Returns the token that follows `old`, renewing it if necessary; `None` on failure.
    async fn renew_token(&self, old: &CurrentToken, wait: Duration) -> Option<CurrentToken> {
        let now = self.current_token();
        if now.version != old.version {
            return Some(now);
        }
        let RenewedTokens { version, access, expires } =
            self.renewals.tokens_after(&self.which, old.version, wait).await?;
        let made = self.make.build_client(access);
        let model = made
            .inspect_err(|error| {
                warn!(error = error as &dyn std::error::Error, "a renewed token cannot be sent");
            })
            .ok()?;
        let expires = expires.map(jiff::Timestamp::as_millisecond);
        let held = CurrentToken { version, expires, model };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = held.clone();
        Some(held)
    }

    fn current_token(&self) -> CurrentToken {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for RenewableModel {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        Box::pin(self.ask(request, on_delta, cancelled))
    }
}

impl ClientSettings {
    fn build_client(&self, access: SecretString) -> Result<Arc<dyn Model>, Error> {
        let provider = Provider { api_key: Some(access), ..self.provider.clone() };
        Models::demo()
            .with_provider_and_alternatives(self.id.provider(), &self.guard, &provider, self.among)?
            .get(&self.id)
    }
}

impl fmt::Debug for CurrentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("version", &self.version).finish_non_exhaustive()
    }
}

impl TokenRenewer {
    pub(crate) const fn new(directory: Directory, guard: Guard) -> Self {
        Self { directory, guard }
    }

    /// Returns the tokens that follow a version, exchanged here or by another runner.
    async fn tokens_after(
        &self,
        which: &RenewableTokens,
        version: i64,
        wait: Duration,
    ) -> Option<RenewedTokens> {
        let until = Instant::now() + wait;
        loop {
            match self.directory.credentials().begin_renewal(which, version).await {
                Ok(RenewalClaim::Claimed(grant)) => {
                    // The caller may be cancelled, but new tokens must be stored.
                    let (renewals, which) = (self.clone(), which.clone());
                    let task =
                        tokio::spawn(async move { renewals.exchange(which, version, grant).await });
                    return task.await.ok().flatten();
                }
                Ok(RenewalClaim::Renewed(renewed)) => return Some(renewed),
                Ok(RenewalClaim::Impossible) => return None,
                Ok(RenewalClaim::Busy) => {}
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a token cannot be renewed");
                    return None;
                }
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(RENEWAL_POLL_INTERVAL).await;
        }
    }

    async fn exchange(
        self,
        which: RenewableTokens,
        version: i64,
        grant: RefreshGrant,
    ) -> Option<RenewedTokens> {
        let claimed_at = Instant::now();
        let failed = match self.ask(&grant).await {
            Ok(new) => return self.store_tokens(&which, version, (&grant, &new), claimed_at).await,
            Err(failed) => failed,
        };
        let (trouble, why) = match failed {
            RenewalFailure::Final(why) => (Some(why), why),
            RenewalFailure::Transient(why) => (None, why),
        };
        let how = if trouble.is_some() { "refused" } else { "failed" };
        count_renewal(how);
        let RenewableTokens { tenant, provider, name } = &which;
        warn!(
            tenant.id = %tenant, provider, credential = name, why, needs_person = trouble.is_some(),
            "a token was not renewed"
        );
        if let Err(error) =
            self.directory.credentials().record_renewal_failure(&which, version, trouble).await
        {
            // The claim expires.
            warn!(error = &error as &dyn std::error::Error, "that is not written down");
        }
        None
    }

    /// Stores new tokens, with retries: the old refresh token may be invalid by now.
    async fn store_tokens(
        &self,
        which: &RenewableTokens,
        version: i64,
        (grant, new): (&RefreshGrant, &NewTokens),
        claimed_at: Instant,
    ) -> Option<RenewedTokens> {
        let mut attempt = 0;
        loop {
            match self
                .directory
                .credentials()
                .store_renewed_tokens(which, version, grant, new)
                .await
            {
                Ok(kept) => {
                    count_renewal("renewed");
                    info!(tenant.id = %which.tenant, provider = which.provider, "a token was renewed");
                    return kept;
                }
                Err(error)
                    if error.kind().is_transient() && claimed_at.elapsed() < RENEWAL_LEASE =>
                {
                    sleep(STORE_BACKOFF.delay(attempt)).await;
                    attempt += 1;
                }
                Err(error) => {
                    count_renewal("lost");
                    error!(error = &error as &dyn std::error::Error, "a renewed token is lost");
                    return None;
                }
            }
        }
    }

    /// Requests new tokens (<https://www.rfc-editor.org/rfc/rfc6749#section-6>).
    async fn ask(&self, grant: &RefreshGrant) -> Result<NewTokens, RenewalFailure> {
        let TokenEndpoint { token_url, client_id, client_secret } = &grant.at;
        let url = Url::parse(token_url).map_err(|_| RenewalFailure::Final("invalid_request"))?;
        let mut form =
            vec![("grant_type", "refresh_token"), ("refresh_token", grant.refresh.expose_secret())];
        let client = self.guard.client_for_secret(&url);
        let client = client.map_err(|_| RenewalFailure::Final(REFUSED_ADDRESS))?;
        let mut request = client
            .post(url)
            .timeout(ENDPOINT_TIMEOUT)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match client_secret {
            Some(secret) => request = request.header(AUTHORIZATION, basic_auth(client_id, secret)),
            None => form.push(("client_id", client_id)),
        }
        let sent = request.body(encode_form(&form)).send().await;
        let mut response = sent.map_err(|error| match refusal(&error) {
            Some(_refused) => RenewalFailure::Final(REFUSED_ADDRESS),
            None => RenewalFailure::Transient("no answer"),
        })?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|_| RenewalFailure::Transient("half an answer"))?
        {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(RenewalFailure::Transient("too long an answer"));
            }
            body.extend_from_slice(&chunk);
        }
        parse_response(status.as_u16(), &body)
    }
}

/// Value of the `Authorization` header (RFC 6749, section 2.3.1).
fn basic_auth(client_id: &str, secret: &SecretString) -> String {
    let encoded = |text: &str| encode_form(&[("", text)])[1..].to_owned();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair))
}

/// Encodes pairs as a form, each with its `=`.
fn encode_form(pairs: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", pairs).ok();
    url.as_ref().and_then(Url::query).unwrap_or("=").to_owned()
}

/// Interprets a response of the token endpoint.
fn parse_response(status: u16, body: &[u8]) -> Result<NewTokens, RenewalFailure> {
    #[derive(Deserialize)]
    struct TokenResponse {
        access_token: SecretString,
        #[serde(default)]
        refresh_token: Option<SecretString>,
        #[serde(default)]
        expires_in: Option<f64>,
    }
    #[derive(Deserialize)]
    struct ErrorResponse {
        error: String,
    }
    if (200..300).contains(&status) {
        let given: TokenResponse = serde_json::from_slice(body)
            .map_err(|_| RenewalFailure::Transient("an answer without a token"))?;
        let is_sent = |secret: &SecretString| {
            let text = secret.expose_secret();
            !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())
        };
        if !is_sent(&given.access_token) {
            return Err(RenewalFailure::Transient("an answer without a token"));
        }
        let lasts = given.expires_in.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        return Ok(NewTokens {
            access: given.access_token,
            refresh: given.refresh_token.filter(is_sent),
            lifetime: lasts.map(|lasts| lasts.min(MAX_TOKEN_LIFETIME)),
        });
    }
    if (400..500).contains(&status)
        && let Ok(ErrorResponse { error }) = serde_json::from_slice(body)
        && let Some(word) = FINAL_ERRORS.into_iter().find(|word| *word == error)
    {
        return Err(RenewalFailure::Final(word));
    }
    Err(RenewalFailure::Transient("refused without a reason that counts"))
}

fn count_renewal(how: &'static str) {
    metrics::counter!("holdfast_runner_renewals_total", "how" => how).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_an_old_refresh_token_stays_good_if_no_other_is_given() {
        let body = br#"{"access_token":"a","token_type":"Bearer","expires_in":3600}"#;

        let new = parse_response(200, body).unwrap();

        assert_eq!(new.access.expose_secret(), "a");
        assert!(new.refresh.is_none());
        assert_eq!(new.lifetime, Some(Duration::from_hours(1)));
        let rotated = parse_response(200, br#"{"access_token":"a","refresh_token":"r"}"#).unwrap();
        assert_eq!(rotated.refresh.map(|r| r.expose_secret().to_owned()), Some("r".to_owned()));
        assert_eq!(rotated.lifetime, None);
    }

    #[test]
    fn only_what_the_standard_names_needs_a_person_and_all_else_may_pass() {
        let why = |status, body: &str| parse_response(status, body.as_bytes()).unwrap_err();

        assert_eq!(
            why(400, r#"{"error":"invalid_grant"}"#),
            RenewalFailure::Final("invalid_grant")
        );
        assert_eq!(
            why(401, r#"{"error":"invalid_client"}"#),
            RenewalFailure::Final("invalid_client")
        );
        for (status, body) in [
            (500, r#"{"error":"invalid_grant"}"#),
            (400, r#"{"error":"sk-secret"}"#),
            (429, "slow down"),
            (200, "<html>"),
            (200, r#"{"access_token":"two words"}"#),
        ] {
            assert!(matches!(why(status, body), RenewalFailure::Transient(_)), "{status} {body}");
        }
    }

    #[test]
    fn a_clients_name_and_password_are_encoded_before_they_are_joined() {
        // RFC 6749, section 2.3.1: both parts are form-encoded first.
        let header = basic_auth("a:b", &"p w%".into());

        let pair = STANDARD.decode(header.strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(pair).unwrap(), "a%3Ab:p+w%25");
    }
}
