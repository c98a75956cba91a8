//! Registries: sources of skills (spec SKL-009).
//!
//! | registry | source | who judged its skills |
//! |---|---|---|
//! | [`ClawHub`] | an HTTP server that speaks ClawHub's protocol | its scanners |
//! | [`DirectoryRegistry`] | a folder of the operator's | the operator, by putting them there |
//! | [`UrlRegistry`] | one archive at a URL | nobody |
//!
//! A registry is trusted for its statements about a version, but not for the contents of archives.

mod clawhub;
mod directory;
mod http;
mod url;

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

pub use self::url::UrlRegistry;
pub use clawhub::ClawHub;
pub use directory::DirectoryRegistry;

use crate::{Download, Error, SkillName};

pub trait Registry: Send + Sync + fmt::Debug {
    /// Name in the configuration and in the record of an installation.
    fn name(&self) -> &str;

    /// Searches skills; returns at most `limit`, the best first.
    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SkillHit>, Error>>;

    /// Loads the metadata of a skill's version, by default of the newest.
    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SkillVersionMeta, Error>>;

    /// Downloads a skill in a version that [`meta`](Self::meta) returned.
    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct SkillHit {
    /// Relevance; comparable within a registry, and roughly between registries.
    pub score: f64,
    /// Name of the skill in the registry.
    pub slug: SkillName,
    /// Title for people, on one line.
    pub title: String,
    pub summary: String,
    /// Newest version; `None` if the registry has no versions.
    pub version: Option<String>,
    pub registry: String,
}

/// Metadata of a skill's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillVersionMeta {
    /// Version described; `None` if the registry has no versions.
    pub version: Option<String>,
    pub verdict: Verdict,
}

/// Safety verdict on a skill's version, ordered from best to worst.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Checked; nothing was found.
    Clean,
    /// Flagged for something that may be harmless, with the reason.
    Suspicious(String),
    /// No verdict on this version, with the reason. Not the same as clean (spec SKL-011).
    Unavailable(String),
    /// Harmful, with the registry's reason.
    Malicious(String),
}

/// Configuration table `[skills]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Registries in the order in which they are asked.
    pub registries: Vec<RegistryConfig>,
}

/// Configuration table `[[skills.registries]]`: one registry.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegistryConfig {
    Clawhub {
        name: String,
        /// Address, such as `https://clawhub.ai`.
        base_url: String,
        /// Optional token, which raises the registry's rate limits.
        #[serde(default, serialize_with = "masked", skip_serializing_if = "Option::is_none")]
        token: Option<SecretString>,
    },
    /// Folder with a subfolder for each skill.
    Directory { name: String, path: PathBuf },
}

#[expect(clippy::ref_option, reason = "what serde hands over")]
fn masked<S: Serializer>(token: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if token.is_some() { "********" } else { "" })
}

/// Registries of this installation, in the operator's order.
#[derive(Debug, Clone, Default)]
pub struct Registries(Vec<Arc<dyn Registry>>);

impl Registries {
    /// Checks that names are unique and none is [`UrlRegistry::NAME`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] names the registry at fault.
    pub fn new(registries: Vec<Arc<dyn Registry>>) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        for registry in &registries {
            let name = registry.name();
            let _: SkillName = name.parse()?;
            // A policy that lists `url` would allow this registry, too, and vice versa.
            if name == UrlRegistry::NAME {
                return Err(Error::Invalid(format!(
                    "a registry cannot be called `{name}`: that is what an address is called"
                )));
            }
            if !names.insert(name.to_owned()) {
                return Err(Error::Invalid(format!(
                    "there are two registries `{name}`: give each a name of its own"
                )));
            }
        }
        Ok(Self(registries))
    }

    /// Makes the registries of a configuration.
    ///
    /// # Errors
    ///
    /// If an address is invalid, two have the same name, or this machine has no root certificates.
    pub fn from_configs(configs: &[RegistryConfig]) -> Result<Self, Error> {
        let mut registries: Vec<Arc<dyn Registry>> = Vec::new();
        for config in configs {
            registries.push(match config {
                RegistryConfig::Clawhub { name, base_url, token } => {
                    Arc::new(ClawHub::new(name, base_url, token.clone())?)
                }
                RegistryConfig::Directory { name, path } => {
                    Arc::new(DirectoryRegistry::new(name, path))
                }
            });
        }
        Self::new(registries)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Registry>> {
        self.0.iter()
    }

    /// Finds a registry by name.
    ///
    /// # Errors
    ///
    /// [`Error::NoRegistry`] lists the existing names.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Registry>, Error> {
        self.0.iter().find(|registry| registry.name() == name).ok_or_else(|| {
            let known: Vec<String> =
                self.0.iter().map(|registry| format!("`{}`", registry.name())).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::NoRegistry { name: crate::name::escape_untrusted(name), known }
        })
    }
}

/// Checks a version, which becomes part of a URL: 1 to 64 of `A-Z a-z 0-9 . + - _`.
pub(crate) fn check_version(version: &str) -> Result<(), Error> {
    let is_one = (1..=64).contains(&version.len())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte));
    if is_one {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "`{}` is no version: write one such as `1.2.3`, or leave it out for the newest",
        crate::name::escape_untrusted(version)
    )))
}

/// Text of a registry on one line, at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let line = holdfast_tools::clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(most).collect()
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
