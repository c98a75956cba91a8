//! Operational HTTP endpoints of every service, and the HTTP server loop.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | `ok`: the process answers |
//! | `/readyz` | `ready`, or 503 and the failing checks: `not ready: database, draining` |
//! | `/metrics` | all metrics in the Prometheus text format |
//!
//! They need no API key and are the same in all services, so one probe fits all.

mod connections;
mod requests;
mod server;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use holdfast_kit::{Readiness, metrics};

pub use server::serve;

/// Routes `/healthz`, `/readyz` and `/metrics`, to be merged with a service's own routes.
pub fn health(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(metrics_text))
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
    use tower::ServiceExt as _;

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

    #[tokio::test]
    async fn numbers_come_as_prometheus_reads_them() {
        let (status, kind, _) = ask(&Readiness::new(), "/metrics").await.unwrap();

        assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4"));
    }
}
