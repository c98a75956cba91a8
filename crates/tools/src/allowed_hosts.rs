//! The hosts that a call may reach.

use std::{fmt, sync::Arc};

use reqwest::Url;

/// Whether a host may be reached.
type HostRule = dyn Fn(&str) -> bool + Send + Sync;

/// The hosts that the web tools may reach for a caller; by default all.
#[derive(Clone, Default)]
pub struct AllowedHosts(Option<Arc<HostRule>>);

impl AllowedHosts {
    /// Allows the hosts that the rule accepts.
    #[must_use]
    pub fn matching(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(rule)))
    }

    #[must_use]
    pub fn are_restricted(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses an address on another host, with a text for the model.
    pub(crate) fn check(&self, url: &Url) -> Result<(), String> {
        let host = url.host_str().unwrap_or_default();
        match &self.0 {
            Some(allows) if !allows(host) => {
                Err(format!("`{host}` is not among the hosts that the policy allows"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllowedHosts({})", if self.are_restricted() { ".." } else { "all" })
    }
}
