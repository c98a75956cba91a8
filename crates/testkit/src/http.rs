//! HTTP for the fakes: a server whose responses can be cut off, and a minimal client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Where everything listens that names no address.
pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server on a free port; it stops listening when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    addr: SocketAddr,
    stop: CancellationToken,
}

impl Server {
    /// Listens on a free port of this address.
    pub(crate) async fn start_on(ip: IpAddr, router: Router) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((ip, 0)).await.context("cannot listen")?;
        let addr = listener.local_addr()?;
        let stop = CancellationToken::new();
        let service = router.into_make_service_with_connect_info::<Cut>();
        let serving = axum::serve(CuttableListener(listener), service)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::spawn(async move { drop(serving.await) });
        Ok(Self { addr, stop })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Handle by which a request handler cuts its connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    /// From now on nothing is written: the answer is lost and the connection closed.
    pub(crate) fn now(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Cut {
    fn connect_info(stream: IncomingStream<'_, CuttableListener>) -> Self {
        stream.io().cut.clone()
    }
}

pub(crate) struct CuttableListener(TcpListener);

impl Listener for CuttableListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.0).await;
        // An answer is small and awaited; it must not wait for another's acknowledgement.
        drop(stream.set_nodelay(true));
        (Connection { stream, cut: Cut::default() }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    cut: Cut,
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.cut.0.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    #[cfg_attr(not(test), expect(dead_code, reason = "only our own tests read bodies"))]
    pub(crate) body: Vec<u8>,
}

/// A request to an `http://` URL, over a connection of its own.
///
/// HTTP/1.0, so that the answer is not chunked and ends with the connection.
pub(crate) async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<Answer> {
    let rest = url.strip_prefix("http://").with_context(|| format!("`{url}` is not http://"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut head = format!("{method} /{path} HTTP/1.0\r\nhost: {host}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));

    let exchange = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(30), exchange)
        .await
        .with_context(|| format!("`{url}` did not answer within 30 s"))??;
    parse(&answer).with_context(|| format!("`{url}` did not answer with HTTP"))
}

fn parse(answer: &[u8]) -> anyhow::Result<Answer> {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
        bail!("the answer has no end of headers");
    };
    let head = std::str::from_utf8(&answer[..end])?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, body: answer[end + 4..].to_vec() })
}

/// For handlers' streams: a body that ends in an error is a connection closed half way.
pub(crate) fn broken() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

#[cfg(test)]
mod tests {
    use axum::extract::ConnectInfo;
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn an_answer_arrives_whole_or_when_cut_not_at_all() {
        let router = Router::new().route("/whole", get(async || "whole")).route(
            "/cut",
            get(async |ConnectInfo(cut): ConnectInfo<Cut>| {
                cut.now();
                "lost"
            }),
        );
        let server = Server::start_on(LOCALHOST, router).await.unwrap();
        let base = format!("http://{}", server.addr());

        let whole = request("GET", &format!("{base}/whole"), &[], b"").await.unwrap();
        let cut = request("GET", &format!("{base}/cut"), &[], b"").await;

        assert_eq!((whole.status, whole.body.as_slice()), (200, b"whole".as_slice()));
        assert!(cut.is_err());
    }

    #[tokio::test]
    async fn a_dropped_server_is_gone() {
        let server = Server::start_on(LOCALHOST, Router::new()).await.unwrap();
        let addr = server.addr();

        drop(server);

        for _ in 0..100 {
            if TcpStream::connect(addr).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it still listens");
    }
}
