//! Kinds of failure.

/// Kind of a failure, chosen by how the caller reacts; nothing else about an error crosses a
/// service's edge.
///
/// Add a kind only if a caller would react to it in a new way. Details go to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request can never succeed as written.
    Invalid,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller is known but has no permission.
    Forbidden,
    /// The resource does not exist, or this tenant may not see it.
    NotFound,
    /// Another change came first: read again, then decide again.
    Conflict,
    /// A quota or a rate limit is used up.
    Exhausted,
    /// Temporary: the same request may succeed later.
    Unavailable,
    /// A defect on this side. Retrying will not help; a person should investigate.
    Internal,
}

impl Kind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Exhausted | Self::Unavailable)
    }

    /// Reason for programs, where an error has none of its own.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::Exhausted => "LIMIT_REACHED",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL",
        }
    }
}

pub trait Fault: std::error::Error + Send + Sync + 'static {
    fn kind(&self) -> Kind;

    /// Reason for programs, in capitals with underscores (docs/integrating.md). It never changes,
    /// other than the text.
    fn reason(&self) -> &'static str {
        self.kind().reason()
    }
}
