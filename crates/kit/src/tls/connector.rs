//! Connections to `http://` and `https://` addresses, for gRPC clients.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;
use tracing::warn;

use super::explain;

/// Maximum time until a connection is made, and until its handshake is done.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Tcp(Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    Handshake(String),
    #[error("the handshake took longer than {CONNECT_TIMEOUT:?}: does the server speak TLS?")]
    Slow,
    #[error("`{0}` is no host name")]
    Host(String),
    #[error(
        "this machine has no root certificates: install `ca-certificates`, or name a file with \
         those of the server's authority"
    )]
    NoAuthorities,
}

/// Connects to an address, with TLS if its scheme is `https`.
#[derive(Debug, Clone)]
pub struct Connector {
    tcp: HttpConnector,
    /// `None` if the machine has no root certificates, and no others are given.
    tls: Option<Arc<ClientConfig>>,
    authorities: &'static str,
    /// Last failure of a handshake. It is logged when it begins or changes.
    failure: Arc<Mutex<Option<String>>>,
}

impl Connector {
    pub(super) fn new(tls: Option<Arc<ClientConfig>>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self { tcp, tls, authorities: "`tls.authorities`", failure: Arc::default() }
    }

    /// Sets the name of the setting or option for trusted authorities, which errors show.
    #[must_use]
    pub fn named(self, authorities: &'static str) -> Self {
        Self { authorities, ..self }
    }

    async fn connect(mut self, uri: Uri) -> Result<Stream, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let server = uri.authority().map(ToString::to_string).unwrap_or_default();
        let is_tls = uri.scheme_str() == Some("https");
        let tcp = self.tcp.call(uri).await.map_err(|error| ConnectError::Tcp(error.into()))?;
        let tcp = tcp.into_inner();
        if !is_tls {
            return Ok(Stream::Plain(tcp));
        }
        let config = self.tls.clone().ok_or(ConnectError::NoAuthorities)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| ConnectError::Host(host))?;
        let handshake = TlsConnector::from(config).connect(name, tcp);
        let outcome = match timeout(CONNECT_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(ConnectError::Handshake(
                explain(&error, self.authorities)
                    .unwrap_or_else(|| format!("the TLS handshake failed: {error}")),
            )),
            Err(_) => Err(ConnectError::Slow),
        };
        self.log_change(&server, outcome.as_ref().err());
        outcome
    }

    fn log_change(&self, server: &str, error: Option<&ConnectError>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = error.map(ToString::to_string);
        if *failure != problem
            && let Some(problem) = &problem
        {
            warn!(server, problem, "no connection by TLS");
        }
        *failure = problem;
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await.map(TokioIo::new) })
    }
}

/// Connection with or without TLS.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
