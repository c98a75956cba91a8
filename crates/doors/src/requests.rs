//! Requests in flight on one connection, to find connections that nobody uses.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use holdfast_kit::tls::VerifiedClient;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::{sync::watch, time::timeout};
use tower::ServiceExt as _;

use crate::{
    client_address::{PeerAddress, TrustedProxies},
    headers,
};

/// Number of requests whose response has not been sent whole.
type InFlight = watch::Sender<usize>;

/// Service of one connection, which counts its requests.
#[derive(Debug, Clone)]
pub(crate) struct CountedRequests {
    router: Router,
    peer: PeerAddress,
    proxies: TrustedProxies,
    client: Option<VerifiedClient>,
    in_flight: InFlight,
}

impl CountedRequests {
    pub fn new(
        router: Router,
        (peer, proxies): (PeerAddress, TrustedProxies),
        client: Option<VerifiedClient>,
    ) -> (Self, watch::Receiver<usize>) {
        let (in_flight, watched) = watch::channel(0);
        (Self { router, peer, proxies, client, in_flight }, watched)
    }

    pub async fn call(self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        let in_flight = InFlightGuard::new(self.in_flight);
        self.proxies.remove_untrusted(self.peer, request.headers_mut());
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.proxies);
        if let Some(client) = self.client {
            request.extensions_mut().insert(client);
        }
        let mut response = self.router.oneshot(request.map(Body::new)).await?;
        headers::add_missing(&mut response);
        Ok(response.map(|body| Body::new(CountedBody { body, _in_flight: in_flight })))
    }
}

/// Waits until no request arrived for `first_request`, or later none was in flight for `idle`.
pub(crate) async fn unused(
    mut in_flight: watch::Receiver<usize>,
    first_request: Duration,
    idle: Duration,
) {
    let mut limit = first_request;
    loop {
        let is_idle = *in_flight.borrow_and_update() == 0;
        let changed = if is_idle {
            timeout(limit, in_flight.changed()).await.ok()
        } else {
            Some(in_flight.changed().await)
        };
        match changed {
            Some(Ok(())) => limit = idle,
            Some(Err(_)) | None => return,
        }
    }
}

struct InFlightGuard(InFlight);

impl InFlightGuard {
    fn new(in_flight: InFlight) -> Self {
        in_flight.send_modify(|count| *count += 1);
        Self(in_flight)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Response body whose request is in flight until it is dropped.
struct CountedBody {
    body: Body,
    _in_flight: InFlightGuard,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
