//! Which tools a call may use.

use std::{fmt, sync::Arc};

/// Which tools a caller may use, by their canonical names.
///
/// The registry asks it whenever a tool is called, found or described, whatever
/// was on offer before: the model may name what was not.
#[derive(Clone)]
pub struct Allowed(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Allowed {
    /// Every tool.
    #[must_use]
    pub fn all() -> Self {
        Self::by(|_| true)
    }

    /// The tools of which a rule says so.
    #[must_use]
    pub fn by(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    /// The tools with these names.
    #[must_use]
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: std::collections::BTreeSet<String> = names.into_iter().map(Into::into).collect();
        Self::by(move |name| names.contains(name))
    }

    /// Whether this tool may be used.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allowed(..)")
    }
}
