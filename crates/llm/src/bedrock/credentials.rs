//! AWS keys: those of a provider, and those of the installation's own identity.
//!
//! | source | how | reference |
//! |---|---|---|
//! | the provider's key, as JSON | as `aws configure export-credentials` prints it | <https://docs.aws.amazon.com/cli/latest/reference/configure/export-credentials.html> |
//! | a role for service accounts (IRSA) | the pod's token is exchanged by `AssumeRoleWithWebIdentity` | <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html> |
//! | EKS Pod Identity, ECS | a request to the agent, with the pod's token | <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html> |

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::{
    Client, RequestBuilder, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;

use super::sigv4::{AwsKeys, Scope, sign};
use crate::{
    Error,
    authorize::{Authorize, CachedCredentials, FETCH_TIMEOUT, UnsignedRequest, fetch, with_form},
    identity::AwsIdentityConfig,
};

const SERVICE: &str = "bedrock";

/// Name of the session, which AWS's log shows.
const SESSION_NAME: &str = "holdfast";

/// Lifetime of keys whose answer states none.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(15);

/// Keys as the AWS CLI prints them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExportedKeys {
    access_key_id: String,
    secret_access_key: SecretString,
    session_token: Option<SecretString>,
}

/// Parses the key of a provider; `None` if it is not JSON, but an API key.
pub(super) fn parse_keys(key: &SecretString) -> Result<Option<AwsKeys>, Error> {
    if !key.expose_secret().trim_start().starts_with('{') {
        return Ok(None);
    }
    let keys: ExportedKeys = serde_json::from_str(key.expose_secret()).map_err(|_| {
        Error::Setup("the api key is no json as `aws configure export-credentials` prints it")
    })?;
    Ok(Some(AwsKeys {
        access_key_id: keys.access_key_id,
        secret_access_key: keys.secret_access_key,
        session_token: keys.session_token,
    }))
}

/// Place that keys are read from.
#[derive(Debug)]
pub(super) enum KeySource {
    Fixed(AwsKeys),
    Identity(Arc<AwsIdentity>),
}

/// Signer of requests.
#[derive(Debug)]
pub(super) struct Signer {
    pub(super) keys: KeySource,
    pub(super) region: String,
}

impl Authorize for Signer {
    fn headers<'a>(
        &'a self,
        request: UnsignedRequest<'a>,
    ) -> BoxFuture<'a, Result<HeaderMap, Error>> {
        Box::pin(async move {
            let keys = match &self.keys {
                KeySource::Fixed(keys) => keys.clone(),
                KeySource::Identity(identity) => identity.keys().await?,
            };
            let scope = Scope { region: self.region.clone(), service: SERVICE };
            let date = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
            sign(("POST", request.url, request.body), &keys, &scope, &date)
        })
    }

    fn refused(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let KeySource::Identity(identity) = &self.keys {
                identity.keys.forget().await;
            }
        })
    }
}

/// The installation's own AWS identity.
#[derive(Debug)]
pub(crate) struct AwsIdentity {
    client: Client,
    source: IdentitySource,
    keys: CachedCredentials<AwsKeys>,
}

#[derive(Debug)]
enum IdentitySource {
    WebIdentity { sts: Url, role: String, token_file: PathBuf },
    Container { url: Url, token_file: PathBuf },
}

impl AwsIdentity {
    /// # Errors
    ///
    /// If an address is not a URL, or this machine has no root certificates.
    pub(crate) fn new(config: &AwsIdentityConfig) -> anyhow::Result<Option<Self>> {
        let source = if !config.role_arn.is_empty() {
            IdentitySource::WebIdentity {
                sts: Url::parse(&config.sts_url)?,
                role: config.role_arn.clone(),
                token_file: config.token_file.clone(),
            }
        } else if !config.credentials_url.is_empty() {
            IdentitySource::Container {
                url: Url::parse(&config.credentials_url)?,
                token_file: config.token_file.clone(),
            }
        } else {
            return Ok(None);
        };
        // The agent of pods is at a private address, which only the installation may choose.
        let client = holdfast_egress::client_builder(FETCH_TIMEOUT)?.no_proxy().build()?;
        Ok(Some(Self { client, source, keys: CachedCredentials::new() }))
    }

    async fn keys(&self) -> Result<AwsKeys, Error> {
        self.keys.get(|| self.fetch()).await
    }

    async fn fetch(&self) -> Result<(AwsKeys, Duration), Error> {
        let (_, answer) = fetch(self.request().await?).await?;
        let path = "/AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials";
        parse_answer(answer.pointer(path).unwrap_or(&answer))
    }

    async fn request(&self) -> Result<RequestBuilder, Error> {
        Ok(match &self.source {
            IdentitySource::WebIdentity { sts, role, token_file } => {
                let token = read_token(token_file).await?;
                let form = [
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("RoleArn", role.as_str()),
                    ("RoleSessionName", SESSION_NAME),
                    ("WebIdentityToken", token.expose_secret()),
                ];
                let request = self.client.post(sts.clone()).header(ACCEPT, "application/json");
                with_form(request, &form)
            }
            IdentitySource::Container { url, token_file } => {
                let token = read_token(token_file).await?;
                let mut value = HeaderValue::try_from(token.expose_secret())
                    .map_err(|_| Error::Setup("the installation's aws token is malformed"))?;
                value.set_sensitive(true);
                self.client.get(url.clone()).header(AUTHORIZATION, value)
            }
        })
    }
}

/// Reads the pod's token, which Kubernetes replaces from time to time.
async fn read_token(file: &PathBuf) -> Result<SecretString, Error> {
    let token = tokio::fs::read_to_string(file).await.map_err(|_| {
        Error::Setup("the token file of the installation's aws identity is missing")
    })?;
    Ok(token.trim().to_owned().into())
}

fn parse_answer(answer: &Value) -> Result<(AwsKeys, Duration), Error> {
    let text = |name: &str| answer[name].as_str().map(str::to_owned);
    let token = text("SessionToken").or_else(|| text("Token"));
    let (Some(access_key_id), Some(secret)) = (text("AccessKeyId"), text("SecretAccessKey")) else {
        return Err(Error::Malformed("the answer has no aws keys"));
    };
    // A date, or seconds since 1970.
    let expires = match &answer["Expiration"] {
        Value::String(date) => date.parse::<Timestamp>().ok(),
        #[expect(clippy::cast_possible_truncation, reason = "seconds of a date fit")]
        seconds => seconds.as_f64().and_then(|at| Timestamp::from_second(at as i64).ok()),
    };
    let lifetime = match expires {
        Some(at) => Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default(),
        None => DEFAULT_LIFETIME,
    };
    let keys = AwsKeys {
        access_key_id,
        secret_access_key: secret.into(),
        session_token: token.map(Into::into),
    };
    Ok((keys, lifetime))
}
