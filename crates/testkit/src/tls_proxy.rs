//! A proxy that ends TLS in front of a server without it, as the packaged Postgres and Valkey are.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{Authority, Certificate};

/// What a client of Postgres sends first if it wants TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// How a client begins TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsStart {
    /// With the handshake.
    AtOnce,
    /// As in the protocol of Postgres.
    Postgres,
}

/// A TLS proxy on loopback; it is gone, with its connections, when dropped.
#[derive(Debug)]
pub struct TlsProxy {
    port: u16,
    task: JoinHandle<()>,
}

impl TlsProxy {
    /// Listens on a free port and carries what comes to `upstream`, in plain text.
    pub async fn start(
        upstream: SocketAddr,
        certificate: &Certificate,
        begin: TlsStart,
    ) -> anyhow::Result<Self> {
        Self::start_for(upstream, certificate, begin, None).await
    }

    /// As [`start`](Self::start), for clients that show a certificate of an authority.
    async fn start_for(
        upstream: SocketAddr,
        certificate: &Certificate,
        begin: TlsStart,
        clients: Option<&Authority>,
    ) -> anyhow::Result<Self> {
        let chain = CertificateDer::pem_slice_iter(certificate.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(certificate.private_key.as_bytes())?;
        let config =
            ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()?
                .with_client_cert_verifier(verifier(clients)?)
                .with_single_cert(chain.collect::<Result<_, _>>()?, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // A broken connection concerns its client only.
                connections
                    .spawn(async move { drop(carry(client, upstream, acceptor, begin).await) });
            }
        });
        Ok(Self { port, task })
    }

    /// Listens for clients of the server that a URL names.
    pub async fn in_front_of(
        url: &str,
        certificate: &Certificate,
        begin: TlsStart,
    ) -> anyhow::Result<Self> {
        Self::start(crate::Proxy::server_of(url).await?, certificate, begin).await
    }

    /// As [`in_front_of`](Self::in_front_of), for clients that show a certificate of this authority.
    pub async fn for_clients_of(
        authority: &Authority,
        url: &str,
        certificate: &Certificate,
        begin: TlsStart,
    ) -> anyhow::Result<Self> {
        let upstream = crate::Proxy::server_of(url).await?;
        Self::start_for(upstream, certificate, begin, Some(authority)).await
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn verifier(clients: Option<&Authority>) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let Some(authority) = clients else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let provider = rustls::crypto::ring::default_provider().into();
    Ok(WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build()?)
}

async fn carry(
    mut client: TcpStream,
    upstream: SocketAddr,
    acceptor: TlsAcceptor,
    begin: TlsStart,
) -> anyhow::Result<()> {
    client.set_nodelay(true)?;
    if begin == TlsStart::Postgres {
        let mut request = [0; 8];
        client.read_exact(&mut request).await?;
        ensure!(request == SSL_REQUEST, "a client without TLS");
        client.write_all(b"S").await?;
    }
    let mut client = acceptor.accept(client).await.context("no handshake")?;
    let mut server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
