//! Protection against calls to private addresses that a tenant chose.
//!
//! A tenant chooses where its webhooks go. Unchecked, it could reach everything that this process
//! can reach and the tenant cannot: the database's port, the metadata service of a cloud. So
//! private, local and special addresses are refused. The check runs *after* name resolution, on the
//! very address that is then connected to: a name could resolve to one address when checked and to
//! another when used. Redirects are not followed.

use std::{
    error::Error as StdError,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use holdfast_kit::is_public;
use reqwest::{
    Client, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

/// Connect timeout. A failure within it means that nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that an idle connection is kept. Shorter than the timeouts of servers: if the other side
/// closes a connection just as it is used, the outcome of the send is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Error for an address that must not be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` leads to a private address: give one that is reachable from the Internet, \
     or allow it by `bridge.webhook.allow_private`"
)]
pub struct PrivateAddress(String);

/// Reason why a text is not a callable address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The text is not an `http` or `https` URL.
    #[error("`{0}` is no address to call: write `https://host/path`")]
    Url(String),
    #[error(transparent)]
    Private(#[from] PrivateAddress),
}

/// HTTP clients for calls to platforms.
#[derive(Debug, Clone)]
pub struct Clients {
    /// For addresses that the operator chose.
    pub trusted: Client,
    /// For addresses that a tenant chose.
    pub guarded: Client,
    allow_private: bool,
}

impl Clients {
    /// Builds the clients.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn new(allow_private: bool) -> anyhow::Result<Self> {
        let tls = holdfast_kit::tls::https()?;
        let trusted = builder().tls_backend_preconfigured(tls.clone()).build()?;
        let guarded = if allow_private {
            trusted.clone()
        } else {
            // No proxy: it would resolve names outside our check.
            builder()
                .tls_backend_preconfigured(tls)
                .no_proxy()
                .dns_resolver(Arc::new(PublicResolver))
                .build()?
        };
        Ok(Self { trusted, guarded, allow_private })
    }

    /// Checks an address that a tenant chose, as far as possible without resolving its name.
    ///
    /// # Errors
    ///
    /// If it is not a URL, or a private address.
    pub fn check(&self, url: &str) -> Result<Url, AddressRefusal> {
        let shown = || url.chars().take(200).collect::<String>();
        let parsed = Url::parse(url).map_err(|_| AddressRefusal::Url(shown()))?;
        let is_web = matches!(parsed.scheme(), "http" | "https");
        let Some(host) = parsed.host_str().filter(|host| is_web && !host.is_empty()) else {
            return Err(AddressRefusal::Url(shown()));
        };
        // A literal address needs no resolving, so the resolver's check would not see it.
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if let Ok(address) = address
            && !self.allow_private
            && !is_public(address)
        {
            return Err(PrivateAddress(host.to_owned()).into());
        }
        Ok(parsed)
    }
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .pool_idle_timeout(IDLE_TIMEOUT)
}

/// Returns the private address to which a guarded client refused to connect, if that caused the
/// error.
#[must_use]
pub fn refusal(error: &reqwest::Error) -> Option<PrivateAddress> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(private) = error.downcast_ref::<PrivateAddress>() {
            return Some(private.clone());
        }
        source = error.source();
    }
    None
}

/// Resolver that returns public addresses only.
#[derive(Debug)]
struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> =
                found.iter().copied().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() && !found.is_empty() {
                return Err(PrivateAddress(host).into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_needs_no_resolving_is_checked_too() {
        let clients = Clients::new(false).unwrap();

        for url in
            ["http://127.0.0.1/x", "http://[::1]:80/", "http://2130706433/", "http://0x7f.1/"]
        {
            assert!(matches!(clients.check(url), Err(AddressRefusal::Private(_))), "{url}");
        }
        for url in ["ftp://x/", "file:///etc/passwd", "x", "https://", ""] {
            assert!(matches!(clients.check(url), Err(AddressRefusal::Url(_))), "{url}");
        }
        assert!(clients.check("https://example.com/hook").is_ok());
        assert!(Clients::new(true).unwrap().check("http://127.0.0.1/x").is_ok());
    }

    #[tokio::test]
    async fn a_name_that_leads_home_is_refused_when_it_is_used() {
        let clients = Clients::new(false).unwrap();

        let error = clients.guarded.get("http://localhost:9/").send().await.unwrap_err();

        assert!(refusal(&error).unwrap().to_string().starts_with("`localhost` leads"));
    }

    #[tokio::test]
    async fn a_host_that_refuses_is_no_private_address() {
        let clients = Clients::new(true).unwrap();

        let error = clients.guarded.get("http://127.0.0.1:1/").send().await.unwrap_err();

        assert!(error.is_connect());
        assert_eq!(refusal(&error), None);
    }
}
