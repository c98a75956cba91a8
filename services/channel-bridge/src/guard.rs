//! HTTP clients for calls to platforms, and protection against addresses that a tenant chose.

use std::{sync::Arc, time::Duration};

use holdfast_egress::{self as egress, Guard};
use reqwest::{Client, Url};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

/// Connect timeout. A failure within it means that nothing was sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that an idle connection is kept. Shorter than the timeouts of servers: if the other side
/// closes a connection just as it is used, the outcome of the send is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Reason why an address is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    /// The text is not an `http` or `https` URL.
    #[error("`{0}` is no address to call: write `https://host/path`")]
    Url(String),
    /// The address is not on the public Internet.
    #[error(
        "`{0}` leads to a private address: give one that is reachable from the Internet, \
         or have it listed in `egress.allow`"
    )]
    Private(String),
    /// A secret would be sent to it without TLS.
    #[error("`{0}` would be sent a secret without TLS: write `https://`")]
    NoTls(String),
    /// A platform named it, and it is not the platform's.
    #[error("`{0}` is no host of the platform, and is sent none of its credentials")]
    Foreign(String),
}

/// Hosts of a platform. Addresses in its messages are called only if they are on these, because people
/// who write there can choose some, and calls carry the account's token.
#[derive(Debug, Clone)]
pub struct PlatformHosts {
    /// Names that include their subdomains; they are called by HTTPS at its port.
    domains: &'static [&'static str],
    /// Configured address of the API.
    api: Option<Url>,
}

impl PlatformHosts {
    /// `api_base` is the configured address of the API, whose server counts as the platform's.
    pub fn new(domains: &'static [&'static str], api_base: &str) -> Self {
        Self { domains, api: Url::parse(api_base).ok() }
    }

    fn contains(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_within = |domain: &&str| {
            host.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let is_bare = url.username().is_empty() && url.password().is_none();
        let is_named =
            url.scheme() == "https" && url.port().is_none() && self.domains.iter().any(is_within);
        is_bare && (is_named || self.api.as_ref().is_some_and(|api| api.origin() == url.origin()))
    }
}

/// Connection without HTTP.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Encryption of a connection without HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    None,
    /// TLS with this protocol (ALPN); empty offers none.
    Tls(&'static str),
}

/// HTTP clients for calls to platforms.
#[derive(Debug, Clone)]
pub struct Clients {
    /// For the address of a platform that the operator configured. It uses the system's proxy.
    pub platform: Client,
    guard: Guard,
}

impl Clients {
    /// Builds the clients. Addresses that tenants chose must be public, or listed in `egress`.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn new(egress: &egress::Config) -> anyhow::Result<Self> {
        let platform = egress::client_builder(CONNECT_TIMEOUT)?.pool_idle_timeout(IDLE_TIMEOUT);
        Ok(Self { platform: platform.build()?, guard: egress.guard()? })
    }

    /// Connects to a host and port that a tenant or a platform chose, which must be public or listed.
    ///
    /// # Errors
    ///
    /// Why not, for people.
    pub async fn connect(
        &self,
        host: &str,
        port: u16,
        encryption: Encryption,
    ) -> Result<Box<dyn Stream>, String> {
        let addresses = self.guard.addresses(host, port).await.map_err(|error| match error {
            egress::AddressRefusal::Private(host) => AddressRefusal::Private(host).to_string(),
            other => other.to_string(),
        })?;
        let took_too_long = |_| format!("`{host}:{port}` did not answer in time");
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice()));
        let stream = connecting.await.map_err(took_too_long)?;
        let stream = stream.map_err(|_| format!("`{host}:{port}` could not be reached"))?;
        // Small writes must not wait for each other.
        let _ = stream.set_nodelay(true);
        let protocol = match encryption {
            Encryption::None => return Ok(Box::new(stream)),
            Encryption::Tls(protocol) => protocol,
        };
        self.secure(host, port, protocol, Box::new(stream)).await
    }

    /// Begins TLS on a connection that [`connect`](Self::connect) made without.
    ///
    /// # Errors
    ///
    /// Why not, for people.
    pub async fn secure(
        &self,
        host: &str,
        port: u16,
        protocol: &str,
        stream: Box<dyn Stream>,
    ) -> Result<Box<dyn Stream>, String> {
        let took_too_long = |_| format!("`{host}:{port}` did not answer in time");
        let mut config = holdfast_kit::tls::https().map_err(|error| error.to_string())?;
        config.alpn_protocols = match protocol {
            "" => Vec::new(),
            protocol => vec![protocol.into()],
        };
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("`{host}` is no name that a certificate can have"))?;
        let secured =
            timeout(CONNECT_TIMEOUT, TlsConnector::from(Arc::new(config)).connect(name, stream));
        match secured.await.map_err(took_too_long)? {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("`{host}:{port}` was reached, and TLS failed: {error}")),
        }
    }

    /// Returns an address that a tenant chose and that is sent a secret, and the client for it:
    /// without TLS only if the operator listed the address.
    ///
    /// # Errors
    ///
    /// If it is not a URL, a private address, or without TLS.
    pub fn for_secret(&self, url: &str) -> Result<(Client, Url), AddressRefusal> {
        let (client, url) = self.for_tenant(url)?;
        // A user name in it, which older accounts may have, would be refused before TLS is looked at.
        let mut bare = url.clone();
        if bare.set_username("").and_then(|()| bare.set_password(None)).is_err() {
            return Err(AddressRefusal::Url(url.to_string()));
        }
        match self.guard.client_for_secret(&bare) {
            Ok(_) => Ok((client, url)),
            Err(egress::AddressRefusal::NoTls(host)) => Err(AddressRefusal::NoTls(host)),
            Err(_) => Err(AddressRefusal::Url(bare.to_string())),
        }
    }

    /// Returns an address that a platform named, and the client for it, which follows no redirects.
    ///
    /// # Errors
    ///
    /// If it is not a URL of the platform, a private address, or without TLS.
    pub fn for_platform(
        &self,
        hosts: &PlatformHosts,
        url: &str,
    ) -> Result<(Client, Url), AddressRefusal> {
        let (client, url) = self.for_secret(url)?;
        match hosts.contains(&url) {
            true => Ok((client, url)),
            false => Err(AddressRefusal::Foreign(url.host_str().unwrap_or_default().to_owned())),
        }
    }

    /// Returns the checks of addresses, for connections without an HTTP client.
    #[must_use]
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns an address that a tenant chose, and the client for it. The client checks what the
    /// name resolves to, for each connection.
    ///
    /// # Errors
    ///
    /// If it is not a URL, or a private address.
    pub fn for_tenant(&self, url: &str) -> Result<(Client, Url), AddressRefusal> {
        let not_a_url = || AddressRefusal::Url(url.chars().take(200).collect());
        let parsed = Url::parse(url).map_err(|_| not_a_url())?;
        // A user name and a password in it are for the tenant's own server. New settings have none.
        let mut bare = parsed.clone();
        let _ = (bare.set_username(""), bare.set_password(None));
        match self.guard.client(&bare) {
            Ok(client) => Ok((client.clone(), parsed)),
            Err(egress::AddressRefusal::Private(host)) => Err(AddressRefusal::Private(host)),
            Err(_) => Err(not_a_url()),
        }
    }
}

/// Returns the private address to which a guarded client refused to connect, if that caused the
/// error.
#[must_use]
pub fn refusal(error: &reqwest::Error) -> Option<AddressRefusal> {
    match egress::refusal(error)? {
        egress::AddressRefusal::Private(host) => Some(AddressRefusal::Private(host)),
        other => Some(AddressRefusal::Url(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(allow: &[&str]) -> Clients {
        let allow = allow.iter().map(|&entry| entry.to_owned()).collect();
        Clients::new(&egress::Config { allow, ..egress::Config::default() }).unwrap()
    }

    #[test]
    fn an_address_that_needs_no_resolving_is_checked_too() {
        let clients = clients(&[]);

        for url in
            ["http://127.0.0.1/x", "http://[::1]:80/", "http://2130706433/", "http://0x7f.1/"]
        {
            let refused = clients.for_tenant(url).unwrap_err();
            assert!(matches!(refused, AddressRefusal::Private(_)), "{url}");
        }
        for url in ["ftp://x/", "file:///etc/passwd", "x", "https://", ""] {
            let refused = clients.for_tenant(url).unwrap_err();
            assert!(matches!(refused, AddressRefusal::Url(_)), "{url}");
        }
        assert!(clients.for_tenant("https://user:password@example.com/hook").is_ok());
    }

    #[test]
    fn a_platform_is_called_at_its_own_hosts_only() {
        let clients = clients(&["127.0.0.1"]);
        let hosts = PlatformHosts::new(&["slack.com"], "http://127.0.0.1:8080/api");

        for url in
            ["https://files.slack.com/a", "https://slack.com:443/a", "http://127.0.0.1:8080/a"]
        {
            assert!(clients.for_platform(&hosts, url).is_ok(), "{url}");
        }
        for url in [
            "http://files.slack.com/a",
            "https://files.slack.com:8443/a",
            "https://evilslack.com/a",
            "https://slack.com.evil.example/a",
            "https://slack.com@evil.example/a",
            "https://anna@slack.com/a",
            "https://evil.example/slack.com",
            "http://127.0.0.1:8081/a",
            "ftp://slack.com/a",
            "",
        ] {
            assert!(clients.for_platform(&hosts, url).is_err(), "{url}");
        }
    }

    /// Files are got by `for_platform`. Other addresses are settings of accounts, which these files read.
    #[test]
    fn no_channel_calls_an_address_of_a_message_without_its_hosts() {
        fn check(folder: &std::path::Path) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    check(&path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let calls = text.contains(".for_tenant(") || text.contains(".for_secret(");
                    let reads_settings = ["matrix", "telegram", "webhook", "whatsapp"]
                        .iter()
                        .any(|name| path.ends_with(format!("channels/{name}.rs")));
                    assert!(!calls || reads_settings, "{}", path.display());
                }
            }
        }
        check(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/channels"));
    }

    #[test]
    fn a_secret_needs_tls_although_the_address_has_a_user_name() {
        for url in ["http://example.com/", "http://anna@example.com/", "http://a:b@example.com/"] {
            let refused = clients(&[]).for_secret(url).err();
            assert!(matches!(refused, Some(AddressRefusal::NoTls(_))), "{url}: {refused:?}");
        }
    }

    #[test]
    fn a_private_address_is_reached_only_at_the_port_that_the_operator_allows() {
        let listed = clients(&["127.0.0.1:8080"]);
        assert!(listed.for_tenant("http://127.0.0.1:8080/x").is_ok());
        assert!(listed.for_tenant("http://127.0.0.1:8081/x").is_err());
        assert!(listed.for_tenant("http://10.0.0.1:8080/x").is_err());
    }

    #[tokio::test]
    async fn a_name_that_leads_home_is_refused_when_it_is_used() {
        let clients = clients(&[]);
        let (client, url) = clients.for_tenant("http://localhost:9/").unwrap();

        let error = client.get(url).send().await.unwrap_err();

        assert!(refusal(&error).unwrap().to_string().starts_with("`localhost` leads"));
    }

    #[tokio::test]
    async fn a_host_that_refuses_is_no_private_address() {
        let clients = clients(&["127.0.0.1"]);
        let (client, url) = clients.for_tenant("http://127.0.0.1:1/").unwrap();

        let error = client.get(url).send().await.unwrap_err();

        assert!(error.is_connect());
        assert_eq!(refusal(&error), None);
    }
}
