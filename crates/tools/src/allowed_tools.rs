//! The tools that a call may use.

use std::{fmt, sync::Arc};

/// The tools that a caller may use, by their canonical names.
///
/// The registry checks this whenever a tool is called, found or described, whatever was offered
/// before: the model may name a tool that was not offered.
#[derive(Clone)]
pub struct AllowedTools(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl AllowedTools {
    /// Allows the tools that the rule accepts.
    #[must_use]
    pub fn matching(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    /// Allows the tools with these names.
    #[must_use]
    pub fn only<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: std::collections::BTreeSet<String> = names.into_iter().map(Into::into).collect();
        Self::matching(move |name| names.contains(name))
    }

    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for AllowedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allowed(..)")
    }
}
