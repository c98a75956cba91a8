//! Outgoing HTTP requests: every HTTP client of the product is built here.
//!
//! | item | purpose |
//! |---|---|
//! | [`client_builder`] | clients for addresses that the operator chose |
//! | [`Guard`] | clients for addresses that tenants, models or pages chose: public ones only |
//! | [`describe_failure`] | text about a failed request, without its address |
//!
//! No client follows redirects by itself: a redirect may lead to another host, and a credential
//! belongs to one host only.

mod guard;

use std::{net::IpAddr, time::Duration};

use reqwest::{Client, ClientBuilder, Url, redirect::Policy};
use serde::{Deserialize, Serialize};

pub use guard::{AddressRefusal, Guard, Lookup, LookupFuture, SystemResolver, refusal};

/// The table `[egress]`: outgoing requests to addresses that tenants choose for their providers of
/// models, speech and search.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Addresses that are allowed though they are not on the public internet or have no TLS:
    /// `host:port`, or `host` for any port.
    pub allow: Vec<String>,
    /// Whether providers of models, speech and images may be on the loopback of their machine, at
    /// any port and without TLS. `holdfast up` sets it where it is unset and `runner.sandbox.hosted`
    /// is not set.
    pub local_providers: Option<bool>,
}

impl Config {
    /// Builds the guard for providers of models, speech and images.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn provider_guard(&self) -> anyhow::Result<Guard> {
        let guard = self.guard()?;
        Ok(if self.local_providers == Some(true) { guard.with_loopback() } else { guard })
    }

    /// Builds the guard of these addresses.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn guard(&self) -> anyhow::Result<Guard> {
        Guard::with_system_resolver(self.allow.iter().cloned())
    }
}

/// Returns `host:port` of a URL whose host is this machine; `None` for any other.
#[must_use]
pub fn loopback_address(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    is_loopback(host).then(|| format!("{host}:{}", url.port_or_known_default().unwrap_or_default()))
}

/// Whether a URL's host is this machine. Other names count as foreign, whatever they resolve to.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Says how an operator allows a URL that a [`Guard`] refuses.
#[must_use]
pub fn how_to_allow(url: &str) -> String {
    let entry = Guard::parse(url).ok().and_then(|url| {
        let port = url.port_or_known_default().unwrap_or_default();
        url.host_str().map(|host| format!("{host}:{port}"))
    });
    match entry {
        Some(entry) => format!(
            "an operator can allow it: add \"{entry}\" to `egress.allow`, as by \
             HOLDFAST_EGRESS__ALLOW='[\"{entry}\"]', and restart the services"
        ),
        None => "an operator can list it in `egress.allow`".to_owned(),
    }
}

/// Interval of keep-alive probes on an idle connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the settings that all clients share: the machine's root certificates, no redirects, our
/// user agent.
///
/// # Errors
///
/// If this machine has no root certificates.
pub fn client_builder(connect_timeout: Duration) -> anyhow::Result<ClientBuilder> {
    Ok(Client::builder()
        .tls_backend_preconfigured(holdfast_kit::tls::https()?)
        .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEPALIVE_INTERVAL)
        .redirect(Policy::none()))
}

/// Describes a failed request; never its address, which may contain a key.
#[must_use]
pub fn describe_failure(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it took too long"
    } else if error.is_connect() {
        "no connection could be made"
    } else {
        "the connection broke"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_allows_an_address_is_named_with_its_value() {
        let how = how_to_allow("http://127.0.0.1:11434/v1");

        assert!(how.contains(r#"HOLDFAST_EGRESS__ALLOW='["127.0.0.1:11434"]'"#), "{how}");
        assert!(how_to_allow("https://[::1]/").contains(r#""[::1]:443""#));
    }

    #[test]
    fn only_providers_may_be_on_this_machine_and_only_where_the_setting_says_so() {
        let url = |url| Guard::parse(url).unwrap();
        let local = Config { local_providers: Some(true), ..Config::default() };

        let providers = local.provider_guard().unwrap();
        for address in
            ["http://127.0.0.1:11434/v1", "http://localhost:1234/v1", "http://[::1]:8080/"]
        {
            assert!(providers.client_for_secret(&url(address)).is_ok(), "{address}");
            assert!(local.guard().unwrap().client_for_secret(&url(address)).is_err(), "{address}");
            for unset in [None, Some(false)] {
                let config = Config { local_providers: unset, ..Config::default() };
                let refused = config.provider_guard().unwrap();
                assert!(refused.client_for_secret(&url(address)).is_err(), "{address}");
            }
        }
        for address in ["http://10.0.0.7:11434/", "http://169.254.169.254/", "http://100.64.0.1/"] {
            assert!(providers.client_for_secret(&url(address)).is_err(), "{address}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        for (url, local) in [
            ("http://127.0.0.1:11434/v1", Some("127.0.0.1:11434")),
            ("http://localhost/v1", Some("localhost:80")),
            ("http://[::1]:8080", Some("[::1]:8080")),
            ("", None),
            ("https://api.openai.com/v1", None),
            ("http://10.0.0.7:80", None),
            ("http://localhost.example", None),
        ] {
            assert_eq!(loopback_address(url).as_deref(), local, "{url}");
        }
    }
}
