//! Errors of this crate.

use std::fmt;

use holdfast_types::{Fault, InvalidPath, Kind};

use crate::{InvalidName, SkillName};

/// Problem in a document: its place and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Path of the field, such as `metadata.openclaw.requires.bins`; `None` for the whole document.
    pub field: Option<String>,
    /// The problem, and how to fix it.
    pub problem: String,
}

impl Flaw {
    pub(crate) fn of(problem: impl Into<String>) -> Self {
        Self { field: None, problem: problem.into() }
    }

    pub(crate) fn at(field: &str, problem: impl Into<String>) -> Self {
        Self { field: Some(field.to_owned()), problem: problem.into() }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "`{field}` {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// Error of this crate. The messages are for people and models; they quote names and fields, but no
/// other contents of files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{file}: {flaw}")]
    Document { file: String, flaw: Flaw },
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error(transparent)]
    Path(#[from] InvalidPath),
    #[error("{0}")]
    Invalid(String),
    #[error("there is no registry `{name}`: it may be one of {known}")]
    NoRegistry {
        name: String,
        /// Existing registries, quoted and joined.
        known: String,
    },
    /// The registry does not have the skill or its version.
    #[error("the registry `{registry}` has no {what}: look for it with find_skills")]
    NotFound {
        registry: String,
        /// Description of the missing thing.
        what: String,
    },
    #[error("there is no skill `{name}` here")]
    NoSkill { name: SkillName },
    #[error(transparent)]
    Tree(#[from] holdfast_workspace::Error),
    #[error("`{slug}` is installed already: set `force` (`--force`) to replace it")]
    Installed { slug: SkillName },
    /// Forbidden by the tenant's policy, the registry, or the guard against private addresses.
    #[error("{0}")]
    Forbidden(String),
    /// The skill was judged malicious, or has no verdict.
    #[error("`{slug}` of the registry `{registry}` is not installed: {why}")]
    Unsafe {
        slug: SkillName,
        registry: String,
        /// Verdict, or why there is none.
        why: String,
    },
    /// An archive is damaged, too large, or has an entry that is refused.
    #[error("the archive cannot be taken: {0}")]
    Archive(String),
    /// A registry failed; a later attempt may succeed.
    #[error("the registry `{registry}` does not answer: {why}")]
    Unavailable { registry: String, why: String },
    /// The registry's rate limit is reached.
    #[error("the registry `{registry}` was asked too often: ask again in {seconds} s")]
    TooOften {
        registry: String,
        /// Seconds until the next request is allowed.
        seconds: u64,
    },
    /// Internal failure of this process or machine.
    #[error("this machine cannot do it")]
    Broken(#[source] anyhow::Error),
}

impl Error {
    pub(crate) fn document(file: impl Into<String>, flaw: Flaw) -> Self {
        Self::Document { file: file.into(), flaw }
    }
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Document { .. }
            | Self::Name(_)
            | Self::Path(_)
            | Self::Invalid(_)
            | Self::Archive(_) => Kind::Invalid,
            Self::NoRegistry { .. } | Self::NotFound { .. } | Self::NoSkill { .. } => {
                Kind::NotFound
            }
            Self::Tree(error) => error.kind(),
            Self::Installed { .. } => Kind::Conflict,
            Self::Forbidden(_) | Self::Unsafe { .. } => Kind::Forbidden,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::TooOften { .. } => Kind::Exhausted,
            Self::Broken(_) => Kind::Internal,
        }
    }
}
