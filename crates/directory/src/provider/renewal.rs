//! Renewal of OAuth access tokens by their refresh tokens.
//!
//! A refresh token may be valid for one exchange only (RFC 6749, section 6), so only one process at
//! a time may exchange it: it claims the row by its version, for [`CLAIMED`]. The new tokens
//! replace the old ones in one statement, if the version is unchanged. If the process crashes, its
//! claim expires, and the old tokens can be tried again.

use std::{fmt, time::Duration};

use holdfast_types::TenantId;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, ProviderKind, url_syntax};

/// How long a claim lasts, from the request to storing the new tokens.
pub const RENEWAL_LEASE: Duration = Duration::from_secs(60);

const MAX_URL_BYTES: usize = 2_000;
const MAX_CLIENT_ID_BYTES: usize = 500;

/// Token endpoint and client of a refresh token.
#[derive(Clone, Default)]
pub struct TokenEndpoint {
    /// Token endpoint; empty uses the default of the provider's kind, if it has one.
    pub token_url: String,
    /// Id of the OAuth client.
    pub client_id: String,
    /// Client secret; `None` for a public client.
    pub client_secret: Option<SecretString>,
}

impl fmt::Debug for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token_url, client_id, .. } = self;
        f.debug_struct("RenewedAt")
            .field("token_url", token_url)
            .field("client_id", client_id)
            .finish_non_exhaustive()
    }
}

impl TokenEndpoint {
    /// Validates the endpoint and the client, and fills in the default endpoint of the provider's
    /// kind.
    pub(crate) fn check(mut self, kind: ProviderKind) -> Result<Self, Error> {
        if self.token_url.is_empty() {
            let own = token_url(kind).ok_or_else(|| {
                Error::Invalid(
                    "a refresh token is exchanged at the provider's token endpoint: say which, as \
                     `https://auth.example.com/oauth/token`"
                        .to_owned(),
                )
            })?;
            own.clone_into(&mut self.token_url);
        }
        let is_right =
            url_syntax::authority(&self.token_url).is_some_and(|host| !host.contains('@'));
        if !is_right || self.token_url.contains('#') || self.token_url.len() > MAX_URL_BYTES {
            return Err(Error::Invalid(
                "a token endpoint begins with https:// or http://, and holds no password and no #"
                    .to_owned(),
            ));
        }
        let client = &self.client_id;
        let is_text = client.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if client.is_empty() || client.len() > MAX_CLIENT_ID_BYTES || !is_text {
            return Err(Error::Invalid(format!(
                "a refresh token needs the id of the client that it was given to: 1 to \
                 {MAX_CLIENT_ID_BYTES} characters of printable ASCII"
            )));
        }
        let secret = self.client_secret.as_ref().map(SecretString::expose_secret);
        if secret.is_some_and(|secret| !secret.chars().all(|c| c.is_ascii_graphic() || c == ' ')) {
            return Err(Error::Invalid("a client's secret is printable ASCII".to_owned()));
        }
        Ok(self)
    }
}

/// Returns the default token endpoint of a provider kind. For Google's, see
/// <https://developers.google.com/identity/protocols/oauth2/web-server#offline>.
const fn token_url(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::Gemini | ProviderKind::Vertex => Some("https://oauth2.googleapis.com/token"),
        ProviderKind::OpenAi
        | ProviderKind::Responses
        | ProviderKind::Anthropic
        | ProviderKind::Ollama
        | ProviderKind::Azure
        | ProviderKind::Bedrock
        | ProviderKind::Demo => None,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RenewableTokens {
    pub tenant: TenantId,
    pub provider: String,
    pub name: String,
}

/// Result of a request to renew tokens.
#[derive(Debug)]
pub enum RenewalClaim {
    /// The caller has the claim, exchanges the grant, and reports the result.
    Claimed(RefreshGrant),
    /// Another process has renewed the tokens.
    Renewed(RenewedTokens),
    /// Another process holds the claim.
    Busy,
    /// The tokens cannot be renewed: a person must sign in again, or they were deleted.
    Impossible,
}

#[derive(Debug)]
pub struct RefreshGrant {
    pub refresh: SecretString,
    pub at: TokenEndpoint,
}

#[derive(Debug, Clone)]
pub struct RenewedTokens {
    /// Version of the tokens, increased by each renewal.
    pub version: i64,
    pub access: SecretString,
    /// Expiry of the access token; `None` if unknown.
    pub expires: Option<Timestamp>,
}

/// Response of the token endpoint.
#[derive(Debug)]
pub struct NewTokens {
    pub access: SecretString,
    /// Refresh token; `None` if the old one stays valid.
    pub refresh: Option<SecretString>,
    /// Lifetime of the access token; `None` if unknown.
    pub lifetime: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(token_url: &str, client_id: &str) -> TokenEndpoint {
        TokenEndpoint {
            token_url: token_url.into(),
            client_id: client_id.into(),
            client_secret: Some("hush".into()),
        }
    }

    #[test]
    fn a_token_endpoint_is_given_or_known_by_the_providers_kind() {
        let google = at("", "c").check(ProviderKind::Gemini).unwrap();
        assert_eq!(google.token_url, "https://oauth2.googleapis.com/token");
        assert!(!format!("{google:?}").contains("hush"));

        let unknown = at("", "c").check(ProviderKind::OpenAi).unwrap_err().to_string();
        assert!(unknown.contains("say which"), "{unknown}");
    }

    #[test]
    fn what_could_never_be_asked_is_refused() {
        assert!(at("http://127.0.0.1:1/token", "c").check(ProviderKind::OpenAi).is_ok());
        for (url, client) in [
            ("ftp://a/token", "c"),
            ("https://me:pw@a/token", "c"),
            ("https://a/token#x", "c"),
            ("https://a/token", ""),
            ("https://a/token", "two\nlines"),
        ] {
            let refused = at(url, client).check(ProviderKind::OpenAi);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{url} {client}");
        }
    }
}
