//! Gemini and Anthropic's models on Vertex AI: the messages of the vendors' own APIs at other addresses,
//! with access tokens.
//!
//! | rule | source |
//! |---|---|
//! | `https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION/publishers/google/models/MODEL:streamGenerateContent?alt=sse` | <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference> |
//! | the location `global` is at `aiplatform.googleapis.com` | <https://cloud.google.com/vertex-ai/generative-ai/docs/learn/locations> |
//! | Anthropic's models: `…/publishers/anthropic/models/MODEL:streamRawPredict`, with `anthropic_version` and without `model` in the body | <https://platform.claude.com/docs/en/build-with-claude/claude-on-vertex-ai> |
//! | signatures go back as in Google's own API | <https://cloud.google.com/vertex-ai/generative-ai/docs/thought-signatures> |

use std::sync::Arc;

use holdfast_egress::Guard;
use reqwest::Url;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Model, OnDelta, ReplyFuture, Request, RequestExtras, WorkloadIdentity,
    anthropic::Messages,
    authorize::Authorize,
    gemini::GenerateContent,
    google::{self, ServiceAccount},
    http::{self, Server},
};

/// Location of models if the provider names none.
const DEFAULT_LOCATION: &str = "global";

/// Beginning of the ids of Anthropic's models.
const CLAUDE: &str = "claude";

/// Client of Vertex AI, for the models of Google and of Anthropic.
#[derive(Debug, Clone)]
pub struct Vertex {
    gemini: Server<GenerateContent>,
    claude: Server<Messages>,
}

/// Credentials for Vertex AI.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VertexCredentials<'a> {
    /// Key of a service account, as JSON.
    ServiceAccount(&'a SecretString),
    /// Access token that somebody else renews.
    Token(&'a SecretString),
    /// The installation's own identity.
    Identity(&'a WorkloadIdentity),
}

impl Vertex {
    /// Creates a client. The base URL ends with `/projects/PROJECT/locations/LOCATION`; it may be
    /// absent with the key of a service account, whose project is used then.
    ///
    /// # Errors
    ///
    /// If the base URL or the credentials are invalid, or the installation's identity may not be sent
    /// there.
    pub(crate) fn new(
        guard: Guard,
        base_url: Option<&str>,
        credentials: VertexCredentials<'_>,
    ) -> Result<Self, Error> {
        Self::with_token_url(guard, base_url, credentials, google::TOKEN_URL)
    }

    /// Same as [`new`](Self::new) with another token endpoint, for tests.
    fn with_token_url(
        guard: Guard,
        base_url: Option<&str>,
        credentials: VertexCredentials<'_>,
        token_url: &str,
    ) -> Result<Self, Error> {
        let given = base_url.map(str::trim).filter(|url| !url.is_empty());
        let needed = || {
            let given = given.ok_or(Error::Setup(
                "a provider of kind `vertex` needs a base url, as https://\
                 LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION",
            ))?;
            http::base(Some(given), given)
        };
        match credentials {
            VertexCredentials::ServiceAccount(key) => {
                let account = ServiceAccount::new(guard.clone(), key, token_url)?;
                let base = if given.is_some() { needed()? } else { own_url(&account.project)? };
                Ok(Self::at(guard, &base).with_authorizer(&(Arc::new(account) as _)))
            }
            VertexCredentials::Token(token) => {
                let Self { gemini, claude } = Self::at(guard, &needed()?);
                let token = Some(token);
                Ok(Self { gemini: gemini.with_token(token)?, claude: claude.with_token(token)? })
            }
            VertexCredentials::Identity(identity) => {
                let base = needed()?;
                let authorizer = identity.google(&base)?;
                Ok(Self::at(guard, &base).with_authorizer(&authorizer))
            }
        }
    }

    /// A client without credentials.
    fn at(guard: Guard, base: &Url) -> Self {
        let publisher = |name: &str| http::below(base, &["publishers", name]);
        let gemini = GenerateContent { base: publisher("google") };
        let claude = Messages::on_vertex(publisher("anthropic"));
        Self {
            gemini: Server::new(guard.clone(), None, gemini),
            claude: Server::new(guard, None, claude),
        }
    }

    fn with_authorizer(self, authorizer: &Arc<dyn Authorize>) -> Self {
        Self {
            gemini: self.gemini.with_authorizer(Arc::clone(authorizer)),
            claude: self.claude.with_authorizer(Arc::clone(authorizer)),
        }
    }

    /// Adds headers and fields to each request.
    ///
    /// # Errors
    ///
    /// If a header cannot be sent.
    pub(crate) fn with_extras(self, extras: &RequestExtras) -> Result<Self, Error> {
        let Self { gemini, claude } = self;
        Ok(Self { gemini: gemini.with_extras(extras)?, claude: claude.with_extras(extras)? })
    }
}

/// URL of a project in the usual location.
fn own_url(project: &str) -> Result<Url, Error> {
    let base = http::base(None, "https://aiplatform.googleapis.com/v1")?;
    Ok(http::below(&base, &["projects", project, "locations", DEFAULT_LOCATION]))
}

impl Model for Vertex {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        on_delta: OnDelta<'a>,
        cancelled: &'a CancellationToken,
    ) -> ReplyFuture<'a> {
        match request.model.id().starts_with(CLAUDE) {
            true => self.claude.reply(request, on_delta, cancelled),
            false => self.gemini.reply(request, on_delta, cancelled),
        }
    }
}

#[cfg(test)]
mod tests;
