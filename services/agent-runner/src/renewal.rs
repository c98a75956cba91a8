//! Tokens that end are renewed before they do, and once when the provider refuses them.
//!
//! | what happens | what follows |
//! |---|---|
//! | the access token ends within five minutes | one runner exchanges the refresh token (RFC 6749, section 6); until it has, others go on with what there is |
//! | the provider refuses it | the same, then it is asked once more |
//! | somebody else renewed it | their token is presented |
//! | the token endpoint refuses the refresh token or the client | a person has to sign in again: `credentials list` says so, nobody asks again |
//! | the token endpoint has trouble | in ten seconds it is asked again |
//!
//! **What can go wrong.** A turn that is cancelled must not lose tokens that were just given: the
//! exchange is a task of its own, and goes on until they are stored. A process that is lost in its
//! midst leaves the old tokens, whose refresh token may be used up: then a person signs in again.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_directory::{
    CLAIMED, Directory, Grant, NewTokens, Renewable, Renewal, Renewed, RenewedAt,
};
use holdfast_kit::Backoff;
use holdfast_llm::{
    Among, Delta, Error, Model, Models, OnDelta, Provider, Reason, Replying, Request,
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

use crate::health::now;

/// How long before its end a token is renewed, in milliseconds.
const AHEAD: i64 = 300_000;

/// How long the token endpoint may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long what somebody else renews is waited for, and how often it is looked at.
const WAIT: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(200);

/// The most that is read of the endpoint's answer, in bytes.
const LARGEST: usize = 64 * 1024;

/// The longest that a token is believed to last.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Between tries to store what was given.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// What a token endpoint says that no further try changes (RFC 6749, section 5.2).
const FINAL: [&str; 6] = [
    "invalid_grant",
    "invalid_client",
    "invalid_request",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
];

/// Renews tokens, for all models of this process.
#[derive(Debug, Clone)]
pub(crate) struct Renewals {
    directory: Directory,
    client: reqwest::Client,
}

/// A model that is asked with a token which is renewed.
#[derive(Debug)]
pub(crate) struct Renewing {
    renewals: Arc<Renewals>,
    which: Renewable,
    held: Mutex<Held>,
    make: Make,
}

/// What is presented now.
#[derive(Clone)]
pub(crate) struct Held {
    /// Which tokens these are.
    pub(crate) version: i64,
    /// When what is presented ends, in milliseconds since 1970.
    pub(crate) expires: Option<i64>,
    /// The model that it is presented to.
    pub(crate) model: Arc<dyn Model>,
}

/// How the model is made anew.
#[derive(Debug)]
pub(crate) struct Make {
    pub(crate) id: ModelId,
    pub(crate) provider: Provider,
    pub(crate) among: Among,
    pub(crate) client: reqwest::Client,
}

/// Why there are no new tokens.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    /// A person has to do something: the endpoint's own word.
    Final(&'static str),
    /// It may pass.
    Passing(&'static str),
}

impl Renewing {
    pub(crate) const fn new(
        renewals: Arc<Renewals>,
        which: Renewable,
        held: Held,
        make: Make,
    ) -> Self {
        Self { renewals, which, held: Mutex::new(held), make }
    }

    async fn ask(
        &self,
        request: &Request,
        on_delta: OnDelta<'_>,
        cancelled: &CancellationToken,
    ) -> Result<Reply, Error> {
        let mut held = self.held();
        let left = held.expires.map(|end| end - now());
        if left.is_some_and(|left| left < AHEAD) {
            // What has not ended yet is good enough while somebody else renews it.
            let wait = if left.is_some_and(|left| left <= 0) { WAIT } else { Duration::ZERO };
            match self.renew(&held, wait).await {
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
        let Some(renewed) = self.renew(&held, WAIT).await else { return answer };
        if said {
            on_delta(Delta::Restarted);
        }
        renewed.model.reply(request, on_delta, cancelled).await
    }

    /// What is presented after these tokens; `None` if there is nothing.
    async fn renew(&self, old: &Held, wait: Duration) -> Option<Held> {
        let now = self.held();
        if now.version != old.version {
            return Some(now);
        }
        let Renewed { version, access, expires } =
            self.renewals.renew(&self.which, old.version, wait).await?;
        let made = self.make.model(access);
        let model = made
            .inspect_err(|error| {
                warn!(error = error as &dyn std::error::Error, "a renewed token cannot be sent");
            })
            .ok()?;
        let expires = expires.map(jiff::Timestamp::as_millisecond);
        let held = Held { version, expires, model };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held.clone();
        Some(held)
    }

    fn held(&self) -> Held {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for Renewing {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> Replying<'a> {
        Box::pin(self.ask(request, on_delta, cancelled))
    }
}

impl Make {
    fn model(&self, access: SecretString) -> Result<Arc<dyn Model>, Error> {
        let provider = Provider { api_key: Some(access), ..self.provider.clone() };
        let (name, client) = (self.id.provider(), self.client.clone());
        Models::new([])?.with_provider_among(name, client, &provider, self.among)?.get(&self.id)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Renewals {
    pub(crate) const fn new(directory: Directory, client: reqwest::Client) -> Self {
        Self { directory, client }
    }

    /// The tokens after those of this version, by whoever exchanges them.
    async fn renew(&self, which: &Renewable, version: i64, wait: Duration) -> Option<Renewed> {
        let until = Instant::now() + wait;
        loop {
            match self.directory.begin_renewal(which, version).await {
                Ok(Renewal::Yours(grant)) => {
                    // Whoever asked may go away: what is given must be stored all the same.
                    let (renewals, which) = (self.clone(), which.clone());
                    let task =
                        tokio::spawn(async move { renewals.exchange(which, version, grant).await });
                    return task.await.ok().flatten();
                }
                Ok(Renewal::Done(renewed)) => return Some(renewed),
                Ok(Renewal::No) => return None,
                Ok(Renewal::Busy) => {}
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "a token cannot be renewed");
                    return None;
                }
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(LOOK).await;
        }
    }

    async fn exchange(self, which: Renewable, version: i64, grant: Grant) -> Option<Renewed> {
        let claimed_at = Instant::now();
        let failed = match self.ask(&grant).await {
            Ok(new) => return self.keep(&which, version, (&grant, &new), claimed_at).await,
            Err(failed) => failed,
        };
        let (trouble, why) = match failed {
            Failed::Final(why) => (Some(why), why),
            Failed::Passing(why) => (None, why),
        };
        let how = if trouble.is_some() { "refused" } else { "failed" };
        counted(how);
        let Renewable { tenant, provider, name } = &which;
        warn!(
            tenant.id = %tenant, provider, credential = name, why, needs_person = trouble.is_some(),
            "a token was not renewed"
        );
        if let Err(error) = self.directory.renewal_failed(&which, version, trouble).await {
            // The claim lapses.
            warn!(error = &error as &dyn std::error::Error, "that is not written down");
        }
        None
    }

    /// Stores what was given: the old refresh token may be of no use any more.
    async fn keep(
        &self,
        which: &Renewable,
        version: i64,
        (grant, new): (&Grant, &NewTokens),
        claimed_at: Instant,
    ) -> Option<Renewed> {
        let mut attempt = 0;
        loop {
            match self.directory.keep_renewed(which, version, grant, new).await {
                Ok(kept) => {
                    counted("renewed");
                    info!(tenant.id = %which.tenant, provider = which.provider, "a token was renewed");
                    return kept;
                }
                Err(error) if error.kind().is_transient() && claimed_at.elapsed() < CLAIMED => {
                    sleep(BACKOFF.delay(attempt)).await;
                    attempt += 1;
                }
                Err(error) => {
                    counted("lost");
                    error!(error = &error as &dyn std::error::Error, "a renewed token is lost");
                    return None;
                }
            }
        }
    }

    /// <https://www.rfc-editor.org/rfc/rfc6749#section-6>
    async fn ask(&self, grant: &Grant) -> Result<NewTokens, Failed> {
        let RenewedAt { token_url, client_id, client_secret } = &grant.at;
        let url = Url::parse(token_url).map_err(|_| Failed::Final("invalid_request"))?;
        let mut form =
            vec![("grant_type", "refresh_token"), ("refresh_token", grant.refresh.expose_secret())];
        let mut request = self
            .client
            .post(url)
            .timeout(PATIENCE)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match client_secret {
            Some(secret) => request = request.header(AUTHORIZATION, basic(client_id, secret)),
            None => form.push(("client_id", client_id)),
        }
        let sent = request.body(form_of(&form)).send().await;
        let mut response = sent.map_err(|_| Failed::Passing("no answer"))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|_| Failed::Passing("half an answer"))?
        {
            if body.len() + chunk.len() > LARGEST {
                return Err(Failed::Passing("too long an answer"));
            }
            body.extend_from_slice(&chunk);
        }
        read(status.as_u16(), &body)
    }
}

/// The client's name and password (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &SecretString) -> String {
    let encoded = |text: &str| form_of(&[("", text)])[1..].to_owned();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair))
}

/// Pairs as forms have them, each with its `=`.
fn form_of(pairs: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form/", pairs).ok();
    url.as_ref().and_then(Url::query).unwrap_or("=").to_owned()
}

/// What an answer of the token endpoint means.
fn read(status: u16, body: &[u8]) -> Result<NewTokens, Failed> {
    #[derive(Deserialize)]
    struct Given {
        access_token: SecretString,
        #[serde(default)]
        refresh_token: Option<SecretString>,
        #[serde(default)]
        expires_in: Option<f64>,
    }
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    if (200..300).contains(&status) {
        let given: Given = serde_json::from_slice(body)
            .map_err(|_| Failed::Passing("an answer without a token"))?;
        let is_sent = |secret: &SecretString| {
            let text = secret.expose_secret();
            !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())
        };
        if !is_sent(&given.access_token) {
            return Err(Failed::Passing("an answer without a token"));
        }
        let lasts = given.expires_in.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        return Ok(NewTokens {
            access: given.access_token,
            refresh: given.refresh_token.filter(is_sent),
            lasts: lasts.map(|lasts| lasts.min(LONGEST)),
        });
    }
    if (400..500).contains(&status)
        && let Ok(Refused { error }) = serde_json::from_slice(body)
        && let Some(word) = FINAL.into_iter().find(|word| *word == error)
    {
        return Err(Failed::Final(word));
    }
    Err(Failed::Passing("refused without a reason that counts"))
}

fn counted(how: &'static str) {
    metrics::counter!("holdfast_runner_renewals_total", "how" => how).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_an_old_refresh_token_stays_good_if_no_other_is_given() {
        let body = br#"{"access_token":"a","token_type":"Bearer","expires_in":3600}"#;

        let new = read(200, body).unwrap();

        assert_eq!(new.access.expose_secret(), "a");
        assert!(new.refresh.is_none());
        assert_eq!(new.lasts, Some(Duration::from_hours(1)));
        let rotated = read(200, br#"{"access_token":"a","refresh_token":"r"}"#).unwrap();
        assert_eq!(rotated.refresh.map(|r| r.expose_secret().to_owned()), Some("r".to_owned()));
        assert_eq!(rotated.lasts, None);
    }

    #[test]
    fn only_what_the_standard_names_needs_a_person_and_all_else_may_pass() {
        let why = |status, body: &str| read(status, body.as_bytes()).unwrap_err();

        assert_eq!(why(400, r#"{"error":"invalid_grant"}"#), Failed::Final("invalid_grant"));
        assert_eq!(why(401, r#"{"error":"invalid_client"}"#), Failed::Final("invalid_client"));
        for (status, body) in [
            (500, r#"{"error":"invalid_grant"}"#),
            (400, r#"{"error":"sk-secret"}"#),
            (429, "slow down"),
            (200, "<html>"),
            (200, r#"{"access_token":"two words"}"#),
        ] {
            assert!(matches!(why(status, body), Failed::Passing(_)), "{status} {body}");
        }
    }

    #[test]
    fn a_clients_name_and_password_are_encoded_before_they_are_joined() {
        // RFC 6749, section 2.3.1: each is form-encoded first.
        let header = basic("a:b", &"p w%".into());

        let pair = STANDARD.decode(header.strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(pair).unwrap(), "a%3Ab:p+w%25");
    }
}
