//! Providers and keys of the installation itself, which plans allow to tenants.

use std::fmt;

use holdfast_llm::{Catalogue, credentials::Stats};
use holdfast_types::ModelId;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, NewProvider, ProviderKind, tenant::check_name};

/// Beginning of the ids of the installation's keys among those of a provider. No key of a tenant has
/// a `:` in its name.
pub const PLATFORM_KEY_PREFIX: &str = "platform:";

/// Provider of the installation, without the secrets of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformProvider {
    /// Name; the first part of its models' ids.
    pub name: String,
    pub kind: ProviderKind,
    /// The only place to which its keys are sent; empty uses the default of the name or the kind.
    pub base_url: String,
    /// Model of tenants and agents that have none of their own, as `provider:id`.
    pub default_model: Option<String>,
    /// By name; never empty.
    pub keys: Vec<PlatformKeySummary>,
}

/// Key of the installation, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformKeySummary {
    pub name: String,
    /// Statistics of its use by all tenants together.
    pub stats: Stats,
    pub updated_at: Timestamp,
}

/// Key of the installation to store, and changes of its provider.
#[derive(Clone)]
pub struct NewPlatformKey {
    pub provider: String,
    pub name: String,
    pub key: SecretString,
    /// `None` keeps the provider's; that of a new one is [`ProviderKind::OpenAi`].
    pub kind: Option<ProviderKind>,
    /// `None` keeps the provider's.
    pub base_url: Option<String>,
    /// `None` keeps the provider's; empty removes it.
    pub default_model: Option<String>,
}

impl fmt::Debug for NewPlatformKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, name, .. } = self;
        f.debug_struct("NewPlatformKey")
            .field("provider", provider)
            .field("name", name)
            .finish_non_exhaustive()
    }
}

impl NewPlatformKey {
    /// Checks the key, and returns its provider with the changes.
    pub(crate) fn check(
        &self,
        before: Option<PlatformProvider>,
    ) -> Result<PlatformProvider, Error> {
        check_name("key", &self.name)?;
        if self.key.expose_secret().is_empty() {
            return Err(Error::Invalid("a key of the platform is not empty: give one".to_owned()));
        }
        let before = before.unwrap_or_else(|| PlatformProvider {
            name: self.provider.clone(),
            kind: ProviderKind::default(),
            base_url: String::new(),
            default_model: None,
            keys: Vec::new(),
        });
        let default_model = self.default_model.clone().or(before.default_model.clone());
        // The rules of a tenant's provider.
        let checked = NewProvider {
            name: self.provider.clone(),
            kind: self.kind.unwrap_or(before.kind),
            base_url: self.base_url.clone().unwrap_or_else(|| before.base_url.clone()),
            api_key: Some(self.key.clone()),
            default_model: default_model.filter(|model| !model.trim().is_empty()),
            ..NewProvider::default()
        }
        .check()?;
        if checked.kind == ProviderKind::Demo {
            return Err(Error::Invalid(
                "the demonstration model needs no key: take another kind".to_owned(),
            ));
        }
        let goes_elsewhere = before.base_url != checked.base_url || before.kind != checked.kind;
        if goes_elsewhere && before.keys.iter().any(|key| key.name != self.name) {
            return Err(Error::Invalid(
                "the provider's other keys were given for another `base_url` or kind: remove them \
                 first"
                    .to_owned(),
            ));
        }
        let (kind, base_url) = (checked.kind, checked.base_url);
        let model =
            checked.default_model.as_deref().and_then(|model| model.parse::<ModelId>().ok());
        if let Some(model) = model.filter(|model| !has_price(model, &base_url)) {
            return Err(Error::Invalid(format!(
                "`{model}` has no price in the catalogue, so nobody could be billed for it: take a \
                 default model that `holdfast models list` shows with its price"
            )));
        }
        Ok(PlatformProvider { kind, base_url, default_model: checked.default_model, ..before })
    }
}

/// Whether a tenant can be billed for a model at a provider of the installation. The operator's own
/// server may cost nothing.
pub(crate) fn has_price(model: &ModelId, base_url: &str) -> bool {
    !base_url.is_empty() || Catalogue::built_in().card(model).prices.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, base_url: Option<&str>) -> NewPlatformKey {
        NewPlatformKey {
            provider: "openai".to_owned(),
            name: name.to_owned(),
            key: "sk-secret".into(),
            kind: None,
            base_url: base_url.map(str::to_owned),
            default_model: Some("gpt-6.1-terra".to_owned()),
        }
    }

    #[test]
    fn keys_of_a_provider_never_go_to_another_address_than_they_were_given_for() {
        let mut stored = key("a", Some("https://a.example/v1")).check(None).unwrap();
        let (stats, updated_at) = (Stats::default(), Timestamp::UNIX_EPOCH);
        stored.keys = vec![PlatformKeySummary { name: "a".to_owned(), stats, updated_at }];

        let same = key("b", None).check(Some(stored.clone())).unwrap();
        let own = key("a", Some("https://b.example/v1")).check(Some(stored.clone())).unwrap();
        let other = key("b", Some("https://b.example/v1")).check(Some(stored));

        assert_eq!(same.base_url, "https://a.example/v1");
        assert_eq!(own.base_url, "https://b.example/v1");
        assert!(other.unwrap_err().to_string().contains("remove them first"));
    }

    #[test]
    fn a_key_has_a_name_a_secret_and_a_real_provider() {
        let unpriced = NewPlatformKey {
            default_model: Some("unpriced".into()),
            ..key("a", Some("https://a.example/v1"))
        };
        assert!(unpriced.check(None).is_ok());
        let stored = key("a", None).check(None).unwrap();
        assert_eq!(stored.default_model.as_deref(), Some("openai:gpt-6.1-terra"));
        for wrong in [
            key("", None),
            key("a b", None),
            NewPlatformKey { key: "".into(), ..key("a", None) },
            NewPlatformKey { provider: "demo".into(), ..key("a", None) },
            NewPlatformKey { kind: Some(ProviderKind::Demo), ..key("a", None) },
            key("a", Some("https://user:password@host/")),
            // Nobody could be billed for it.
            NewPlatformKey { default_model: Some("unpriced".into()), ..key("a", None) },
        ] {
            assert!(wrong.check(None).is_err(), "{wrong:?}");
        }
        assert!(!format!("{:?}", key("a", None)).contains("secret"));
    }
}
