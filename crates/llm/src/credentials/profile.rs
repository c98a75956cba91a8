//! Provider keys and their validity.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

#[derive(Debug, Clone)]
pub enum Credential {
    ApiKey {
        key: SecretString,
    },
    Token {
        token: SecretString,
        /// Expiry in milliseconds since 1970; `None` is never.
        expires: Option<i64>,
    },
    OAuth {
        access: SecretString,
        refresh: Option<SecretString>,
        /// Expiry of the access token in milliseconds since 1970; `None` is unknown.
        expires: Option<i64>,
    },
}

/// Named credential of a provider.
#[derive(Clone)]
pub struct Profile {
    pub id: String,
    /// Whole name of the provider; a prefix such as `open` does not match `openai`.
    pub provider: String,
    pub credential: Credential,
}

impl Profile {
    /// Whether the credential is usable at a time. An expired access token with a refresh token is.
    #[must_use]
    pub fn is_valid(&self, now: i64) -> bool {
        let is_there = |secret: &SecretString| !secret.expose_secret().trim().is_empty();
        match &self.credential {
            Credential::ApiKey { key } => is_there(key),
            Credential::Token { token, expires } => {
                is_there(token) && expires.is_none_or(|expires| now < expires)
            }
            Credential::OAuth { access, refresh, expires } => {
                is_there(access)
                    && (refresh.is_some() || expires.is_none_or(|expires| now < expires))
            }
        }
    }

    /// Whether the key is for a provider. Ignores case and everything after a colon.
    #[must_use]
    pub fn is_for(&self, provider: &str) -> bool {
        normalised_provider(&self.provider) == normalised_provider(provider)
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("id", &self.id).finish_non_exhaustive()
    }
}

fn normalised_provider(provider: &str) -> String {
    provider.split(':').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(credential: Credential) -> Profile {
        Profile { id: "a".into(), provider: "OpenAI".into(), credential }
    }

    #[test]
    fn what_is_not_there_or_has_ended_cannot_be_used() {
        let key = |key: &str| Credential::ApiKey { key: key.into() };
        let token = |token: &str, expires| Credential::Token { token: token.into(), expires };
        let oauth = |access: &str| Credential::OAuth {
            access: access.into(),
            refresh: Some("r".into()),
            expires: Some(1),
        };
        for (credential, is_valid) in [
            (key("k"), true),
            (key(" "), false),
            (token("t", None), true),
            (token("t", Some(1_001)), true),
            (token("t", Some(1_000)), false),
            (token("", None), false),
            (oauth("a"), true),
            (oauth(""), false),
        ] {
            assert_eq!(profile(credential.clone()).is_valid(1_000), is_valid, "{credential:?}");
        }
    }

    #[test]
    fn it_is_for_one_provider_by_its_whole_name_and_shows_no_secret() {
        let profile = profile(Credential::ApiKey { key: "sk-secret".into() });

        assert!(profile.is_for("openai") && profile.is_for("openai:work"));
        assert!(!profile.is_for("open") && !profile.is_for("openai2"));
        assert!(!format!("{profile:?} {:?}", profile.credential).contains("secret"));
    }
}
