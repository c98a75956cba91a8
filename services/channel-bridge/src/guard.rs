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
        match self.guard.client_for_secret(&url) {
            Err(egress::AddressRefusal::NoTls(host)) => Err(AddressRefusal::NoTls(host)),
            Ok(_) | Err(_) => Ok((client, url)),
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
        // A user name and a password in it are for the tenant's own server.
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
        Clients::new(&egress::Config { allow }).unwrap()
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
