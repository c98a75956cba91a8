//! Operational HTTP endpoints of every service, and the HTTP server loop.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | `ok`: the process answers |
//! | `/readyz` | `ready`, or 503 and the failing checks: `not ready: database, draining` |
//! | `/metrics` | all metrics in the Prometheus text format |
//!
//! They need no API key and are the same in all services, so one probe fits all. Metrics are of all
//! tenants together: only callers on this machine and in private networks get them, and not through
//! a proxy. With `telemetry.metrics_listen` they have a port of their own.

mod client_address;
mod client_network;
mod connections;
mod handshake;
mod headers;
mod requests;
mod server;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use holdfast_kit::{Readiness, config, is_public, metrics, net, telemetry, tls::Tls};
use tokio_util::sync::CancellationToken;

pub use client_address::{PeerAddress, client_address, counted_client};
pub use client_network::{CLIENTS_PER_SITE, ClientNetwork, NetworkBudget, NetworkShare};
pub use server::{serve, serve_behind_proxies};

/// Routes `/healthz`, `/readyz` and, unless they have a port of their own, `/metrics`, to be merged
/// with a service's own routes.
pub fn health(readiness: Readiness, telemetry: &telemetry::Config) -> Router {
    let health = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness));
    match telemetry.metrics_listen {
        Some(_) => health,
        None => health.merge(metrics_router()),
    }
}

fn metrics_router() -> Router {
    Router::new().route("/metrics", get(metrics_text))
}

/// Serves `/metrics` on `telemetry.metrics_listen`, if it is set, in the background until `stop` is
/// cancelled.
///
/// # Errors
///
/// If the address cannot be listened on, or needs a certificate and there is none.
pub async fn serve_metrics(
    telemetry: &telemetry::Config,
    tls: &config::Tls,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    const NAME: &str = "telemetry.metrics_listen";
    if let Some(address) = telemetry.metrics_listen {
        tls.check_listener(NAME, address)?;
        let listener = net::listen(address, NAME).await?;
        let tls = Tls::load(tls)?.server()?;
        tokio::spawn(serve(listener, metrics_router(), tls, stop));
    }
    Ok(())
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.failing().as_slice() {
        [] => (StatusCode::OK, "ready\n".to_owned()),
        failing => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", failing.join(", ")))
        }
    }
}

/// Headers of requests that came through a proxy.
const PROXY_HEADERS: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

async fn metrics_text(request: Request) -> Response {
    let peer = request.extensions().get::<PeerAddress>().copied();
    if !may_see_metrics(peer, request.headers()) {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render()).into_response()
}

fn may_see_metrics(peer: Option<PeerAddress>, headers: &HeaderMap) -> bool {
    peer.is_some_and(|PeerAddress(peer)| !is_public(peer))
        && !PROXY_HEADERS.iter().any(|header| headers.contains_key(*header))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(readiness: &Readiness, door: &str) -> anyhow::Result<(u16, String, String)> {
        let local = PeerAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let request = Request::get(door).extension(local).body(Body::empty())?;
        let answer =
            health(readiness.clone(), &telemetry::Config::default()).oneshot(request).await?;
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

    #[tokio::test]
    async fn numbers_come_as_prometheus_reads_them() {
        let (status, kind, _) = ask(&Readiness::new(), "/metrics").await.unwrap();

        assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4"));
    }

    #[test]
    fn metrics_are_not_for_the_internet() {
        let direct = HeaderMap::new();
        let proxied = HeaderMap::from_iter([(
            "x-forwarded-for".parse().unwrap(),
            "8.8.8.8".parse().unwrap(),
        )]);
        let peer = |address: &str| Some(PeerAddress(address.parse().unwrap()));

        for near in ["127.0.0.1", "::1", "10.0.0.7", "fd00::7"] {
            assert!(may_see_metrics(peer(near), &direct), "{near}");
            assert!(!may_see_metrics(peer(near), &proxied), "{near}");
        }
        assert!(!may_see_metrics(peer("8.8.8.8"), &direct));
        assert!(!may_see_metrics(None, &direct));
    }
}
