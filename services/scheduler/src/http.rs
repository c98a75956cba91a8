//! Health and numbers.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
    serve::ListenerExt as _,
};
use holdfast_kit::{Readiness, metrics, net};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves `/healthz`, `/readyz` and `/metrics` until `stop`.
pub async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(numbers))
        .with_state(readiness);
    axum::serve(listener.tap_io(net::nodelay), router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await?;
    Ok(())
}

async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    match readiness.failing().as_slice() {
        [] => (StatusCode::OK, "ready\n".to_owned()),
        failing => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", failing.join(", ")))
        }
    }
}

async fn numbers() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}
