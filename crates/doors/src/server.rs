//! Server loop of HTTP/1, HTTP/2 and gRPC, with limits on connections that do nothing.

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use holdfast_kit::{config::Proxies, net, tls::VerifiedClient};
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_util::{io::InspectReader, sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    PeerAddress,
    client_address::TrustedProxies,
    connections::{ConnectionPermit, Connections},
    handshake,
    requests::{self, CountedRequests},
};

/// Limits of a listener, so that callers who send nothing cannot use it up.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Time in which the first request of a connection, and each head of an HTTP/1 request, must
    /// arrive.
    head_timeout: Duration,
    /// Time that a connection without a request in flight is kept. An HTTP/1 connection is kept
    /// only for `head_timeout`.
    idle_timeout: Duration,
    /// Open connections; further ones wait to be accepted.
    connections: usize,
    /// Open connections of one public address; further ones are closed at once.
    connections_per_address: usize,
}

const LIMITS: ConnectionLimits = ConnectionLimits {
    head_timeout: Duration::from_secs(30),
    idle_timeout: Duration::from_secs(300),
    connections: 20_000,
    connections_per_address: 2_500,
};

/// Interval of HTTP/2 pings, which find connections whose other side is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Timeout of a ping's answer. After it the connection is closed and its streams are freed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after the system refuses a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time in which a connection without a request in flight must end after it was told to.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until `stop` is cancelled, then finishes the calls in flight. Without `tls` it speaks plain
/// text.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    serve_behind_proxies(listener, router, (tls, Proxies::default()), stop).await
}

/// As [`serve`], with the proxies that may name their clients.
pub async fn serve_behind_proxies(
    listener: TcpListener,
    router: Router,
    (tls, proxies): (Option<Arc<ServerConfig>>, Proxies),
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let proxies = TrustedProxies(Arc::new(proxies));
    serve_with(listener, (router, tls, proxies), stop, LIMITS).await;
    Ok(())
}

async fn serve_with(
    listener: TcpListener,
    (router, tls, proxies): (Router, Option<Arc<ServerConfig>>, TrustedProxies),
    stop: CancellationToken,
    limits: ConnectionLimits,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let open = TaskTracker::new();
    let max = (limits.connections, limits.connections_per_address);
    let connections = Connections::new(max, proxies.clone());
    loop {
        let accepted = async {
            let permit = connections.free().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(permit) = permit.and_then(|permit| connections.admit(permit, peer.ip())) else {
            debug!(%peer, "a connection is closed: its address has too many");
            continue;
        };
        let connection = Connection {
            builder: builder.clone(),
            router: router.clone(),
            peer: peer.ip(),
            proxies: proxies.clone(),
            permit,
            limits,
        };
        open.spawn(connection.serve(socket, tls.clone(), stop.clone()));
    }
    drop(listener);
    open.close();
    open.wait().await;
}

/// One accepted connection.
struct Connection {
    builder: Builder<TokioExecutor>,
    router: Router,
    peer: IpAddr,
    proxies: TrustedProxies,
    permit: ConnectionPermit,
    limits: ConnectionLimits,
}

impl Connection {
    async fn serve(
        self,
        mut socket: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        stop: CancellationToken,
    ) {
        net::nodelay(&mut socket);
        let Some(tls) = tls else { return self.serve_requests(socket, None, stop).await };
        let accepted = handshake::accept(socket, tls, self.peer, self.limits.head_timeout);
        let Some(Some((socket, client))) = stop.run_until_cancelled(accepted).await else { return };
        self.serve_requests(socket, client, stop).await;
    }

    /// Serves until the other side ends the connection, it is unused for too long, or `stop` is
    /// cancelled; then the requests in flight are finished.
    async fn serve_requests(
        self,
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        client: Option<VerifiedClient>,
        stop: CancellationToken,
    ) {
        let Self { builder, router, peer, proxies, permit, limits } = self;
        let socket = TokioIo::new(with_permit(socket, permit));
        let (service, in_flight) =
            CountedRequests::new(router, (PeerAddress(peer), proxies), client);
        let service = service_fn(move |request| service.clone().call(request));
        let mut connection = pin!(builder.serve_connection_with_upgrades(socket, service));
        let unused = requests::unused(in_flight.clone(), limits.head_timeout, limits.idle_timeout);
        tokio::select! {
            // A broken connection concerns its caller only.
            _ended = connection.as_mut() => return,
            () = unused => {}
            () = stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ended = connection => {}
            () = requests::unused(in_flight, GOODBYE_TIMEOUT, GOODBYE_TIMEOUT) => {}
        }
    }
}

/// The permit is kept as long as the socket is, even after the connection was upgraded to another
/// protocol.
fn with_permit<S: AsyncRead>(
    socket: S,
    permit: ConnectionPermit,
) -> InspectReader<S, impl FnMut(&[u8]) + Send> {
    InspectReader::new(socket, move |_read| {
        let _held = &permit;
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::{response::IntoResponse as _, routing::get};
    use holdfast_kit::Readiness;
    use hyper::{HeaderMap, StatusCode, header};
    use hyper_util::rt::TokioExecutor;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::{Instant, timeout},
    };

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    /// Serves with limits that are quickly reached.
    async fn limited(router: Router) -> std::io::Result<SocketAddr> {
        limited_behind(router, Proxies::default()).await
    }

    async fn limited_behind(router: Router, proxies: Proxies) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let limits = ConnectionLimits {
            head_timeout: LIMIT,
            idle_timeout: LIMIT * 3,
            connections: 2,
            connections_per_address: 2,
        };
        let router = (router, None, TrustedProxies(Arc::new(proxies)));
        tokio::spawn(serve_with(listener, router, CancellationToken::new(), limits));
        Ok(address)
    }

    /// Asks on a connection of its own, for which there must be room.
    async fn is_alive(address: SocketAddr) -> std::io::Result<bool> {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        timeout(LIMIT * 200, socket.read_to_string(&mut answer)).await??;
        Ok(answer.ends_with("ok\n"))
    }

    #[tokio::test]
    async fn who_does_not_send_a_request_in_time_makes_room_for_others() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        // The second one is a whole preface and empty settings, and then no request.
        let settled = [preface.as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        for sent in [b"".as_slice(), b"PRI * HT", preface, &settled, b"GET /healthz HTT"] {
            let address = limited(crate::health(
                Readiness::new(),
                &holdfast_kit::telemetry::Config::default(),
            ))
            .await
            .unwrap();
            let mut slow = Vec::new();
            for _ in 0..2 {
                let mut socket = TcpStream::connect(address).await.unwrap();
                socket.write_all(sent).await.unwrap();
                slow.push(socket);
            }

            assert!(is_alive(address).await.unwrap(), "{sent:?}");
            for mut socket in slow {
                let mut rest = Vec::new();
                drop(socket.read_to_end(&mut rest).await);
                assert!(!rest.starts_with(b"HTTP/1.1 200"));
            }
        }
    }

    #[tokio::test]
    async fn an_idle_http2_connection_is_told_to_end_and_makes_room() {
        let address =
            limited(crate::health(Readiness::new(), &holdfast_kit::telemetry::Config::default()))
                .await
                .unwrap();
        let mut ended = Vec::new();
        for _ in 0..2 {
            let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
            let (mut calls, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await.unwrap();
            ended.push((calls.clone(), tokio::spawn(connection)));
            let request = hyper::Request::get("http://x/healthz").body(axum::body::Body::empty());
            let answer = calls.send_request(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
        }

        assert!(is_alive(address).await.unwrap());
        for (_calls, ended) in ended {
            // No error: the server said goodbye.
            ended.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_slow_answer_is_not_an_idle_connection() {
        let slow = async || {
            sleep(LIMIT * 5).await;
            "at last"
        };
        let address = limited(Router::new().route("/slow", get(slow))).await.unwrap();
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"GET /slow HTTP/1.0\r\n\r\n").await.unwrap();

        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();

        assert!(answer.ends_with("at last"), "{answer}");
    }

    #[tokio::test]
    async fn a_peer_that_is_no_proxy_does_not_claim_tls() {
        let scheme = async |headers: HeaderMap| match headers.get("x-forwarded-proto") {
            Some(scheme) => scheme.to_str().unwrap_or("unreadable").to_owned(),
            None => "none".to_owned(),
        };
        for (trusted, expected) in [(Some(Vec::new()), "none"), (None, "https")] {
            let router = Router::new().route("/scheme", get(scheme));
            let address = limited_behind(router, Proxies { trusted }).await.unwrap();
            let mut socket = TcpStream::connect(address).await.unwrap();
            let request = b"GET /scheme HTTP/1.0\r\nX-Forwarded-Proto: https\r\n\r\n";
            socket.write_all(request).await.unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.unwrap();

            assert!(answer.ends_with(expected), "{answer}");
        }
    }

    #[tokio::test]
    async fn an_upgraded_connection_is_counted_until_it_ends() {
        let upgrade = async |mut request: axum::extract::Request| {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut socket = TokioIo::new(upgraded.await.unwrap());
                let _echoed = socket.read_u8().await;
            });
            let headers: HeaderMap = [(header::UPGRADE, "echo"), (header::CONNECTION, "upgrade")]
                .map(|(name, value)| (name, value.parse().unwrap()))
                .into_iter()
                .collect();
            (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
        };
        let router = crate::health(Readiness::new(), &holdfast_kit::telemetry::Config::default())
            .route("/upgrade", get(upgrade));
        let address = limited(router).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let head =
                b"GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
            socket.write_all(head).await.unwrap();
            let mut answer = [0; 12];
            socket.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 101");
            held.push(socket);
        }

        let began = Instant::now();
        let release = async {
            sleep(LIMIT * 4).await;
            held.clear();
        };
        let (alive, ()) = tokio::join!(is_alive(address), release);

        assert!(alive.unwrap());
        assert!(began.elapsed() >= LIMIT * 4);
    }
}
