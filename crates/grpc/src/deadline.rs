//! Deadline of a call, from the `grpc-timeout` metadata.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, Request, Response};
use tokio::time::timeout;
use tonic::{Status, metadata::MetadataMap};
use tower::{Layer, Service};

const TIMEOUT_HEADER: &str = "grpc-timeout";

/// Timeout set by the caller; `None` if there is none or it cannot be parsed.
#[must_use]
pub fn caller_timeout(metadata: &MetadataMap) -> Option<Duration> {
    parse(metadata.get(TIMEOUT_HEADER)?.to_str().ok()?)
}

/// Layer that ends a call with `DEADLINE_EXCEEDED` when its caller's timeout, or `longest`, has
/// passed. tonic's own server does so by itself; a service under axum needs the layer.
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLayer {
    longest: Duration,
}

impl DeadlineLayer {
    #[must_use]
    pub const fn new(longest: Duration) -> Self {
        Self { longest }
    }

    /// Returns the shorter of the caller's timeout and the longest one.
    fn timeout(self, headers: &HeaderMap) -> Duration {
        let theirs = headers.get(TIMEOUT_HEADER).and_then(|value| parse(value.to_str().ok()?));
        theirs.map_or(self.longest, |theirs| theirs.min(self.longest))
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService { layer: *self, inner }
    }
}

#[derive(Debug, Clone)]
pub struct DeadlineService<S> {
    layer: DeadlineLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = self.layer.timeout(request.headers());
        let called = self.inner.call(request);
        Box::pin(async move {
            timeout(limit, called).await.unwrap_or_else(|_| {
                Ok(Status::deadline_exceeded(format!("not done within {limit:?}")).into_http())
            })
        })
    }
}

/// Parses at most eight digits and a unit, as in the gRPC specification.
fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().next_back()?;
    let digits = &text[..at];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(n * 3600),
        'M' => Duration::from_secs(n * 60),
        'S' => Duration::from_secs(n),
        'm' => Duration::from_millis(n),
        'u' => Duration::from_micros(n),
        'n' => Duration::from_nanos(n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[test]
    fn every_unit_is_read() {
        let read = ["2H", "3M", "4S", "5m", "6u", "7n"].map(|text| parse(text).unwrap());

        assert_eq!(
            read,
            [
                Duration::from_secs(7200),
                Duration::from_secs(180),
                Duration::from_secs(4),
                Duration::from_millis(5),
                Duration::from_micros(6),
                Duration::from_nanos(7),
            ]
        );
        for text in ["", "5", "m", "-1m", "123456789m", "5é", "5x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_the_shorter_of_both_times() {
        let slow = service_fn(|_: Request<()>| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok::<_, std::convert::Infallible>(Response::new(tonic::body::Body::default()))
        });
        let layer = DeadlineLayer::new(Duration::from_secs(30));
        let call = async |theirs: &str| {
            let request = Request::builder().header(TIMEOUT_HEADER, theirs).body(()).unwrap();
            let answer = layer.layer(slow).oneshot(request).await.unwrap();
            Status::from_header_map(answer.headers()).map(|status| status.code())
        };

        assert_eq!(call("250m").await, Some(Code::DeadlineExceeded));
        assert_eq!(call("20S").await, None);
        let short = DeadlineLayer::new(Duration::from_secs(1));
        let answer = short.layer(slow).oneshot(Request::new(())).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.message(), "not done within 1s");
    }
}
