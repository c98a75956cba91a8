//! Renewing what a person agreed to: an OAuth access token that ends, and its refresh token.
//!
//! A refresh token may be good for one exchange only (RFC 6749, section 6), so one process at a
//! time exchanges it: the row is claimed, by its version, for [`CLAIMED`]. What comes of it takes
//! the old tokens' place in one statement, if the version is still the same. A claim whose process
//! was lost lapses, and the old tokens are still there to be tried.

use std::{fmt, time::Duration};

use holdfast_types::TenantId;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, ProviderKind, web};

/// For how long a process may exchange a refresh token, from asking to storing what it got.
pub const CLAIMED: Duration = Duration::from_secs(60);

const LONGEST_URL: usize = 2_000;
const LONGEST_CLIENT: usize = 500;

/// Where a refresh token is exchanged, and as which client.
#[derive(Clone, Default)]
pub struct RenewedAt {
    /// The token endpoint; empty is the provider kind's own, if it has one.
    pub token_url: String,
    /// The client that the person agreed to.
    pub client_id: String,
    /// Its secret, if it is not a public one.
    pub client_secret: Option<SecretString>,
}

impl fmt::Debug for RenewedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token_url, client_id, .. } = self;
        f.debug_struct("RenewedAt")
            .field("token_url", token_url)
            .field("client_id", client_id)
            .finish_non_exhaustive()
    }
}

impl RenewedAt {
    /// Refuses what could never work, and says where a provider of this kind renews if nothing
    /// else is said.
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
        let is_right = web::host(&self.token_url).is_some_and(|host| !host.contains('@'));
        if !is_right || self.token_url.contains('#') || self.token_url.len() > LONGEST_URL {
            return Err(Error::Invalid(
                "a token endpoint begins with https:// or http://, and holds no password and no #"
                    .to_owned(),
            ));
        }
        let client = &self.client_id;
        let is_text = client.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if client.is_empty() || client.len() > LONGEST_CLIENT || !is_text {
            return Err(Error::Invalid(format!(
                "a refresh token needs the id of the client that it was given to: 1 to \
                 {LONGEST_CLIENT} characters of printable ASCII"
            )));
        }
        let secret = self.client_secret.as_ref().map(SecretString::expose_secret);
        if secret.is_some_and(|secret| !secret.chars().all(|c| c.is_ascii_graphic() || c == ' ')) {
            return Err(Error::Invalid("a client's secret is printable ASCII".to_owned()));
        }
        Ok(self)
    }
}

/// Where providers of a kind renew. Google's is at
/// <https://developers.google.com/identity/protocols/oauth2/web-server#offline>.
const fn token_url(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::Gemini => Some("https://oauth2.googleapis.com/token"),
        ProviderKind::OpenAi
        | ProviderKind::Responses
        | ProviderKind::Anthropic
        | ProviderKind::Ollama
        | ProviderKind::Demo => None,
    }
}

/// Which tokens are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renewable {
    /// Whose.
    pub tenant: TenantId,
    /// Of which provider.
    pub provider: String,
    /// What they are called.
    pub name: String,
}

/// What may be renewed now.
#[derive(Debug)]
pub enum Renewal {
    /// The caller exchanges this, and then says what came of it.
    Yours(Grant),
    /// Somebody did already.
    Done(Renewed),
    /// Somebody does.
    Busy,
    /// It cannot be renewed: a person has to sign in again, or it is gone.
    No,
}

/// What is exchanged.
#[derive(Debug)]
pub struct Grant {
    /// The refresh token.
    pub refresh: SecretString,
    /// Where, and as which client.
    pub at: RenewedAt,
}

/// What is presented from now on.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// Which tokens these are: they follow each other.
    pub version: i64,
    /// The access token.
    pub access: SecretString,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

/// What an exchange brought.
#[derive(Debug)]
pub struct NewTokens {
    /// The access token.
    pub access: SecretString,
    /// The refresh token; `None` if the old one stays good.
    pub refresh: Option<SecretString>,
    /// How long the access token lasts; `None` if nobody said.
    pub lasts: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(token_url: &str, client_id: &str) -> RenewedAt {
        RenewedAt {
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
