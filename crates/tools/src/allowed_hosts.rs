//! The hosts that a call may reach.

use std::{fmt, sync::Arc};

use reqwest::Url;

/// Whether a host may be reached.
type HostRule = dyn Fn(&str) -> bool + Send + Sync;

/// The hosts that the web tools may reach for a caller; by default all.
#[derive(Clone, Default)]
pub struct AllowedHosts {
    rule: Option<Arc<HostRule>>,
    /// The only host that redirects of this call may lead to.
    only: Option<String>,
}

impl AllowedHosts {
    /// Allows the hosts that the rule accepts.
    #[must_use]
    pub fn matching(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { rule: Some(Arc::new(rule)), only: None }
    }

    /// Lets redirects lead to this host only: what the model wrote into an address goes to no other.
    #[must_use]
    pub fn staying_on(self, host: String) -> Self {
        Self { only: Some(host), ..self }
    }

    #[must_use]
    pub fn are_restricted(&self) -> bool {
        self.rule.is_some()
    }

    /// Whether redirects may lead to one host only.
    pub(crate) const fn keep_to_one(&self) -> bool {
        self.only.is_some()
    }

    /// Refuses an address on another host, with a text for the model.
    pub(crate) fn check(&self, url: &Url) -> Result<(), String> {
        self.check_host(url.host_str().unwrap_or_default())
    }

    /// Refuses another host, with a text for the model.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), String> {
        if self.rule.as_ref().is_some_and(|allows| !allows(host)) {
            return Err(format!("`{host}` is not among the hosts that the policy allows"));
        }
        match &self.only {
            Some(only) if without_www(only) != without_www(host) => Err(format!(
                "it leads to the host `{host}`, and the call was allowed for `{only}`: ask for \
                 the address there itself"
            )),
            Some(_) | None => Ok(()),
        }
    }
}

fn without_www(host: &str) -> &str {
    host.strip_prefix("www.").unwrap_or(host)
}

impl fmt::Debug for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllowedHosts({})", if self.are_restricted() { ".." } else { "all" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_host() {
        let hosts = AllowedHosts::default().staying_on("www.a.example".to_owned());

        for (url, is_same) in [
            ("https://www.a.example/x", true),
            ("https://a.example:8443/", true),
            ("https://evil-a.example/", false),
            ("https://x.a.example/", false),
            ("https://a.example.evil.example/", false),
            ("https://b.example/?a.example", false),
        ] {
            assert_eq!(hosts.check(&url.parse().unwrap()).is_ok(), is_same, "{url}");
        }
    }
}
