//! Why something about skills could not be done.

use std::fmt;

use holdfast_types::{Fault, InvalidPath, Kind};

use crate::{InvalidName, SkillName};

/// What is wrong in a document, where, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The field, as in `metadata.openclaw.requires.bins`; `None` if it is the document itself.
    pub field: Option<String>,
    /// What is wrong, and what to write.
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

/// Every way in which a call to this crate fails. The texts are for people and for models; they
/// repeat names and fields, and no more of what a file says.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file does not say what it should.
    #[error("{file}: {flaw}")]
    Document {
        /// Which file.
        file: String,
        /// What is wrong in it.
        flaw: Flaw,
    },
    /// A name is none.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A path is none.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// Something else that was asked is not right.
    #[error("{0}")]
    Invalid(String),
    /// There is no such registry.
    #[error("there is no registry `{name}`: it may be one of {known}")]
    NoRegistry {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The registry has no such skill, or no such version of it.
    #[error("the registry `{registry}` has no {what}: look for it with find_skills")]
    NotFound {
        /// Which registry.
        registry: String,
        /// What it does not have.
        what: String,
    },
    /// There is no such skill.
    #[error("there is no skill `{name}` here")]
    NoSkill {
        /// What was asked for.
        name: SkillName,
    },
    /// A tree says no.
    #[error(transparent)]
    Tree(#[from] holdfast_workspace::Error),
    /// It is installed already.
    #[error("`{slug}` is installed already: say `force` to replace it")]
    Installed {
        /// Which skill.
        slug: SkillName,
    },
    /// The tenant's policy forbids it.
    #[error("{0}")]
    Forbidden(String),
    /// It was judged malicious, or nobody has judged it.
    #[error("`{slug}` of the registry `{registry}` is not installed: {why}")]
    Unsafe {
        /// Which skill.
        slug: SkillName,
        /// Which registry.
        registry: String,
        /// The verdict, or that there is none.
        why: String,
    },
    /// An archive has something in it that is not unpacked.
    #[error("the archive cannot be taken: {0}")]
    Archive(String),
    /// A registry may be asked again later.
    #[error("the registry `{registry}` does not answer: {why}")]
    Unavailable {
        /// Which registry.
        registry: String,
        /// What happened.
        why: String,
    },
    /// A registry was asked too often.
    #[error("the registry `{registry}` was asked too often: ask again in {seconds} s")]
    TooOften {
        /// Which registry.
        registry: String,
        /// When it may be asked again.
        seconds: u64,
    },
    /// This machine cannot do what it should.
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
