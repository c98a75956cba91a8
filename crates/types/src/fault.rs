//! What went wrong, in the few kinds that callers act on differently.

/// The kinds of failure, and the only vocabulary that crosses a service's edge.
///
/// A new kind is worth its place only if some caller would do something new on
/// seeing it. Everything else is detail, and detail goes to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request can never succeed as written.
    Invalid,
    /// The caller is not known.
    Unauthenticated,
    /// The caller is known, and may not.
    Forbidden,
    /// There is no such thing, or none that this tenant may see.
    NotFound,
    /// Someone else got there first: re-read, then decide again.
    Conflict,
    /// A quota or a rate limit is used up.
    Exhausted,
    /// Not now. The same request may succeed later.
    Unavailable,
    /// A defect here. Retrying will not help; a person should look.
    Internal,
}

impl Kind {
    /// Whether sending the same request again, later, is worth it.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Exhausted | Self::Unavailable)
    }
}

/// An error that knows its [`Kind`].
pub trait Fault: std::error::Error + Send + Sync + 'static {
    /// The kind of this error.
    fn kind(&self) -> Kind;
}
