//! Credentials of a provider: several keys or tokens for the same provider.

use std::{collections::BTreeMap, fmt};

use holdfast_llm::credentials::{Credential, Profile, Stats};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::{Error, TokenEndpoint, provider::is_json_object, tenant::check_name};

/// Name of the API key that a provider was set up with.
pub const PROVIDER_KEY_NAME: &str = "default";

const MAX_SECRET_BYTES: usize = 16_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key without an end.
    ApiKey,
    /// A token that may expire.
    Token,
    /// An OAuth access token, with or without a refresh token.
    OAuth,
}

impl CredentialKind {
    /// Returns the name that the database and the API use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Token => "token",
            Self::OAuth => "oauth",
        }
    }

    /// Parses a kind; empty is [`CredentialKind::ApiKey`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown kind.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word {
            "" | "api_key" => Ok(Self::ApiKey),
            "token" => Ok(Self::Token),
            "oauth" => Ok(Self::OAuth),
            other => {
                let other: String = other.chars().take(80).collect();
                Err(Error::Invalid(format!(
                    "`{other}` is not a kind of credential: use api_key, token or oauth"
                )))
            }
        }
    }
}

#[derive(Clone)]
pub struct NewCredential {
    pub provider: String,
    pub name: String,
    /// What kind of thing it is.
    pub kind: CredentialKind,
    /// API key or access token.
    pub secret: SecretString,
    /// Refresh token, for [`CredentialKind::OAuth`].
    pub refresh: Option<SecretString>,
    /// Expiry; `None` if there is none or it is unknown.
    pub expires: Option<Timestamp>,
    /// Token endpoint and client, for [`CredentialKind::OAuth`] with a refresh token.
    pub renewed_at: TokenEndpoint,
}

impl fmt::Debug for NewCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewCredential").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A credential without its secret, with its statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialSummary {
    pub provider: String,
    pub name: String,
    /// What kind of thing it is.
    pub kind: CredentialKind,
    pub expires: Option<Timestamp>,
    pub stats: Stats,
    /// Position in the configured order, from 1; 0 if the credential is not part of one.
    pub place: usize,
    /// Whether the configured order is followed exactly.
    pub strict: bool,
    /// Token endpoint and client id; `None` if the credential is not renewed.
    pub renewed_at: Option<(String, String)>,
    /// Error of the token endpoint, if a person must sign in again.
    pub trouble: Option<String>,
}

/// Stored statistics of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialStats {
    /// Time of the last change, in milliseconds since 1970.
    pub changed: i64,
    pub stats: Stats,
}

#[derive(Debug, Clone, Default)]
pub struct ProviderCredentials {
    /// All credentials, decrypted; may be empty.
    pub profiles: Vec<Profile>,
    pub stats: BTreeMap<String, CredentialStats>,
    /// Names of the credentials that are used; `None` uses all.
    pub order: Option<Vec<String>>,
    /// Whether they are tried in that order.
    pub strict: bool,
    /// Versions of the secrets of renewable credentials, by name.
    pub versions: BTreeMap<String, i64>,
}

/// Plain text of a sealed credential.
#[derive(Serialize, Deserialize)]
pub(crate) struct SealedCredential {
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
}

impl SealedCredential {
    /// Returns the bytes to seal for a new credential.
    pub(crate) fn bytes(new: &NewCredential) -> Vec<u8> {
        Self {
            secret: new.secret.expose_secret().to_owned(),
            refresh: new.refresh.as_ref().map(plain),
            client_secret: new.renewed_at.client_secret.as_ref().map(plain),
        }
        .to_bytes()
    }

    /// Returns the bytes to seal for renewed tokens.
    pub(crate) fn renewed(
        access: &SecretString,
        refresh: &SecretString,
        client_secret: Option<&SecretString>,
    ) -> Vec<u8> {
        Self {
            secret: plain(access),
            refresh: Some(plain(refresh)),
            client_secret: client_secret.map(plain),
        }
        .to_bytes()
    }

    fn to_bytes(&self) -> Vec<u8> {
        // Strings always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        // The parser's message is dropped, because it could repeat a part of the secret.
        serde_json::from_slice(bytes).map_err(|_| {
            Error::corrupt("credential", anyhow::anyhow!("it is not as it was written"))
        })
    }

    /// Returns the access secret, the refresh token and the client secret.
    pub(crate) fn into_parts(self) -> (SecretString, Option<SecretString>, Option<SecretString>) {
        let Self { secret, refresh, client_secret } = self;
        (secret.into(), refresh.map(Into::into), client_secret.map(Into::into))
    }

    /// Parses unsealed bytes into the credential that requests use.
    pub(crate) fn open(
        bytes: &[u8],
        kind: CredentialKind,
        expires: Option<Timestamp>,
    ) -> Result<Credential, Error> {
        let (secret, refresh, _) = Self::parse(bytes)?.into_parts();
        let expires = expires.map(Timestamp::as_millisecond);
        Ok(match kind {
            CredentialKind::ApiKey => Credential::ApiKey { key: secret },
            CredentialKind::Token => Credential::Token { token: secret, expires },
            CredentialKind::OAuth => Credential::OAuth { access: secret, refresh, expires },
        })
    }
}

fn plain(secret: &SecretString) -> String {
    secret.expose_secret().to_owned()
}

impl NewCredential {
    /// Checks the names, and that the fields fit the kind.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("provider", &self.provider)?;
        check_name("credential", &self.name)?;
        if self.name == PROVIDER_KEY_NAME {
            return Err(Error::Invalid(format!(
                "`{PROVIDER_KEY_NAME}` is the key that the provider was set up with: set the provider up \
                 again, or take another name"
            )));
        }
        check_secret(&self.secret)?;
        match (&self.refresh, self.kind) {
            (Some(refresh), CredentialKind::OAuth) => check_secret(refresh)?,
            (Some(_), CredentialKind::ApiKey | CredentialKind::Token) => {
                return Err(Error::Invalid("only kind oauth has a refresh token".to_owned()));
            }
            (None, _) => {}
        }
        match (self.expires, self.kind) {
            (Some(_), CredentialKind::ApiKey) => {
                Err(Error::Invalid("only kinds token and oauth have an end".to_owned()))
            }
            (Some(_), CredentialKind::Token | CredentialKind::OAuth) | (None, _) => Ok(()),
        }
    }
}

fn check_secret(secret: &SecretString) -> Result<(), Error> {
    let text = secret.expose_secret();
    let is_word = text.chars().all(|c| c.is_ascii_graphic());
    if (1..=MAX_SECRET_BYTES).contains(&text.len()) && (is_word || is_json_object(text)) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "a credential's secret has 1 to {MAX_SECRET_BYTES} characters, all of them printable ASCII \
         without a space, or is a JSON object"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(kind: CredentialKind) -> NewCredential {
        NewCredential {
            provider: "openai".into(),
            name: "work".into(),
            kind,
            secret: "sk-secret".into(),
            refresh: None,
            expires: None,
            renewed_at: TokenEndpoint::default(),
        }
    }

    #[test]
    fn what_is_sealed_comes_back_as_it_was_and_is_not_shown() {
        let oauth =
            NewCredential { refresh: Some("r-secret".into()), ..new(CredentialKind::OAuth) };

        let opened =
            SealedCredential::open(&SealedCredential::bytes(&oauth), oauth.kind, None).unwrap();

        let Credential::OAuth { access, refresh: Some(refresh), .. } = &opened else {
            panic!("{opened:?}")
        };
        assert_eq!((access.expose_secret(), refresh.expose_secret()), ("sk-secret", "r-secret"));
        assert!(!format!("{oauth:?} {opened:?}").contains("secret\""));
    }

    #[test]
    fn what_could_never_work_is_refused() {
        let key = || new(CredentialKind::ApiKey);
        assert!(key().check().is_ok());
        for wrong in [
            NewCredential { name: PROVIDER_KEY_NAME.into(), ..key() },
            NewCredential { name: "two words".into(), ..key() },
            NewCredential { secret: "".into(), ..key() },
            NewCredential { secret: "a b".into(), ..key() },
            NewCredential { refresh: Some("r".into()), ..key() },
            NewCredential { expires: Some(Timestamp::now()), ..key() },
        ] {
            assert!(matches!(wrong.check(), Err(Error::Invalid(_))), "{wrong:?}");
        }
    }
}
