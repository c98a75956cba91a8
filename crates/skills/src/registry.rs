//! Where skills come from (spec SKL-009).
//!
//! | registry | is | who judged its skills |
//! |---|---|---|
//! | [`ClawHub`] | an HTTP server that speaks ClawHub's protocol | its scanners |
//! | [`Directory`] | a folder of the operator's | the operator, by putting them there |
//! | [`AtUrl`] | one archive at an address | nobody |
//!
//! A registry is believed what it says of a version, and nothing of what its archive holds.

mod at_url;
mod clawhub;
mod directory;
mod http;

use std::{collections::BTreeSet, fmt, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

pub use at_url::AtUrl;
pub use clawhub::ClawHub;
pub use directory::Directory;

use crate::{Download, Error, SkillName};

/// A place to get skills from.
pub trait Registry: Send + Sync + fmt::Debug {
    /// What it is called, by people and in the record of an installation.
    fn name(&self) -> &str;

    /// Skills that fit a question, the best first, `limit` at most.
    fn search<'a>(&'a self, query: &'a str, limit: usize)
    -> BoxFuture<'a, Result<Vec<Hit>, Error>>;

    /// What it says of a skill in a version; in the newest one if none is given.
    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Meta, Error>>;

    /// A skill in a version, as it said that there is one.
    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>>;
}

/// A skill that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// How well it fits; comparable within a registry, and roughly between two.
    pub score: f64,
    /// What it is called there.
    pub slug: SkillName,
    /// What people call it.
    pub title: String,
    /// What it is for.
    pub summary: String,
    /// Its newest version.
    pub version: Option<String>,
    /// The registry.
    pub registry: String,
}

/// What a registry says of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The version that this is about; `None` if the registry counts none.
    pub version: Option<String>,
    /// Whether that version is safe.
    pub verdict: Verdict,
}

/// Whether a skill is safe, the best first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It was looked at, and nothing was found.
    Clean,
    /// Something was found that may be harmless: what, as far as it is told.
    Suspicious(String),
    /// Nobody has judged this version: why. This is not clean (spec SKL-011).
    Unavailable(String),
    /// It does harm.
    Malicious(String),
}

/// The table `[skills]`: where skills come from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The registries, in the order in which they are asked.
    pub registries: Vec<RegistryConfig>,
}

/// The table `[[skills.registries]]`: a place to get skills from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegistryConfig {
    /// A server that speaks ClawHub's protocol.
    Clawhub {
        /// What it is called here.
        name: String,
        /// Where it is: `https://clawhub.ai`.
        base_url: String,
        /// A token, for higher limits.
        #[serde(default, serialize_with = "masked", skip_serializing_if = "Option::is_none")]
        token: Option<SecretString>,
    },
    /// A folder, with a folder for each skill.
    Directory {
        /// What it is called here.
        name: String,
        /// Where it is on this machine.
        path: PathBuf,
    },
}

#[expect(clippy::ref_option, reason = "what serde hands over")]
fn masked<S: Serializer>(token: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if token.is_some() { "********" } else { "" })
}

/// The registries of this installation, in the operator's order.
#[derive(Debug, Clone, Default)]
pub struct Registries(Vec<Arc<dyn Registry>>);

impl Registries {
    /// These, of which no two may have one name, and none that of [`AtUrl`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] says which.
    pub fn new(registries: Vec<Arc<dyn Registry>>) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        for registry in &registries {
            let name = registry.name();
            let _: SkillName = name.parse()?;
            // Or a tenant that allows addresses would allow it too, and the other way about.
            if name == AtUrl::NAME {
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

    /// Those of the settings.
    ///
    /// # Errors
    ///
    /// If an address is none, two have one name, or this machine has no root certificates.
    pub fn of(configs: &[RegistryConfig]) -> Result<Self, Error> {
        let mut registries: Vec<Arc<dyn Registry>> = Vec::new();
        for config in configs {
            registries.push(match config {
                RegistryConfig::Clawhub { name, base_url, token } => {
                    Arc::new(ClawHub::new(name, base_url, token.clone())?)
                }
                RegistryConfig::Directory { name, path } => Arc::new(Directory::new(name, path)),
            });
        }
        Self::new(registries)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Registry>> {
        self.0.iter()
    }

    /// One of them.
    ///
    /// # Errors
    ///
    /// [`Error::NoRegistry`] names those that there are.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Registry>, Error> {
        self.0.iter().find(|registry| registry.name() == name).ok_or_else(|| {
            let known: Vec<String> =
                self.0.iter().map(|registry| format!("`{}`", registry.name())).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::NoRegistry { name: crate::name::shown(name), known }
        })
    }
}

/// A version as registries count: it becomes part of an address.
pub(crate) fn check_version(version: &str) -> Result<(), Error> {
    let is_one = (1..=64).contains(&version.len())
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte));
    if is_one {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "`{}` is no version: write one such as `1.2.3`, or leave it out for the newest",
        crate::name::shown(version)
    )))
}

/// Text of a registry on one line, not too long.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let line = holdfast_tools::clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(most).collect()
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
