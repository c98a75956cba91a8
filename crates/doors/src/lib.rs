//! Operational HTTP endpoints of every service, and the HTTP server loop.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | `ok`: the process answers |
//! | `/readyz` | `ready`, or 503 and the failing checks: `not ready: database, draining` |
//! | `/metrics` | all metrics in the Prometheus text format |
//!
//! They need no API key and are the same in all services, so one probe fits all.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use holdfast_kit::{Readiness, metrics, net};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::warn;

/// Limits of a listener, so that callers who send nothing cannot use it up.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Time in which the head of a request must arrive; also how long an idle connection is kept.
    head_timeout: Duration,
    /// Open connections; further ones wait to be accepted.
    connections: usize,
}

const LIMITS: ConnectionLimits =
    ConnectionLimits { head_timeout: Duration::from_secs(30), connections: 10_000 };

/// Interval of HTTP/2 pings, which find connections whose other side is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Pause after the system refuses a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Routes `/healthz`, `/readyz` and `/metrics`, to be merged with a service's own routes.
pub fn health(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(metrics_text))
}

/// Serves until `stop` is cancelled, then finishes the calls in flight.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    serve_with(listener, router, stop, LIMITS).await;
    Ok(())
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    limits: ConnectionLimits,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL);
    let router = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let service = TowerToHyperService::new(router);
    let connections = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(limits.connections));
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
        };
        let mut socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                warn!(%error, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        net::nodelay(&mut socket);
        let connection =
            builder.serve_connection_with_upgrades(TokioIo::new(socket), service.clone());
        let connection = connections.watch(connection.into_owned());
        tokio::spawn(async move {
            // A broken connection concerns its caller only.
            drop(connection.await);
            drop(permit);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.failing().as_slice() {
        [] => (StatusCode::OK, "ready\n".to_owned()),
        failing => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", failing.join(", ")))
        }
    }
}

async fn metrics_text() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    async fn ask(readiness: &Readiness, door: &str) -> anyhow::Result<(u16, String, String)> {
        let request = Request::get(door).body(Body::empty())?;
        let answer = health(readiness.clone()).oneshot(request).await?;
        let status = answer.status().as_u16();
        let kind = answer.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().map(str::to_owned));
        let body = to_bytes(answer.into_body(), 1 << 20).await?;
        let text = String::from_utf8(body.to_vec())?;
        Ok((status, kind.transpose()?.unwrap_or_default(), text))
    }

    #[tokio::test]
    async fn what_is_missing_is_said_by_name() {
        let readiness = Readiness::new();
        let (database, _accounts) = (readiness.check("database"), readiness.check("accounts"));

        let (status, _, missing) = ask(&readiness, "/readyz").await.unwrap();
        assert_eq!((status, missing.as_str()), (503, "not ready: accounts, database\n"));

        database.pass();
        let (status, _, missing) = ask(&readiness, "/readyz").await.unwrap();
        assert_eq!((status, missing.as_str()), (503, "not ready: accounts\n"));
    }

    #[tokio::test]
    async fn who_drains_is_alive_and_not_ready() {
        let readiness = Readiness::new();
        let (before, _, text) = ask(&readiness, "/readyz").await.unwrap();
        assert_eq!((before, text.as_str()), (200, "ready\n"));

        readiness.drain();

        let (ready, _, why) = ask(&readiness, "/readyz").await.unwrap();
        let (alive, _, ok) = ask(&readiness, "/healthz").await.unwrap();
        assert_eq!((ready, why.as_str()), (503, "not ready: draining\n"));
        assert_eq!((alive, ok.as_str()), (200, "ok\n"));
    }

    /// Serves with limits that are quickly reached.
    async fn limited() -> std::io::Result<std::net::SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let limits = ConnectionLimits { head_timeout: Duration::from_millis(300), connections: 2 };
        let router = health(Readiness::new());
        tokio::spawn(serve_with(listener, router, CancellationToken::new(), limits));
        Ok(address)
    }

    #[tokio::test]
    async fn who_does_not_send_a_request_in_time_makes_room_for_others() {
        let address = limited().await.unwrap();
        let mut slow = Vec::new();
        for _ in 0..2 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET /healthz HTT").await.unwrap();
            slow.push(socket);
        }

        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();

        assert!(answer.ends_with("ok\n"), "{answer}");
        for mut socket in slow {
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            assert!(!rest.starts_with(b"HTTP/1.1 200"));
        }
    }

    #[tokio::test]
    async fn numbers_come_as_prometheus_reads_them() {
        let (status, kind, _) = ask(&Readiness::new(), "/metrics").await.unwrap();

        assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4"));
    }
}
