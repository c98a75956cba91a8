//! Client certificates of calls between services.
//!
//! They keep others from calling in the name of a service even if they have its key, and from trying
//! keys. Which service calls is said by the signed context alone.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use holdfast_kit::tls::VerifiedClient;
use http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use crate::CONTEXT_HEADER;

/// Layer that refuses calls in the name of a service whose connection showed no certificate of a
/// trusted authority.
#[derive(Debug, Clone, Copy)]
pub struct ClientCertificateLayer {
    is_required: bool,
}

impl ClientCertificateLayer {
    /// Without `is_required` it refuses nothing.
    #[must_use]
    pub const fn new(is_required: bool) -> Self {
        Self { is_required }
    }
}

impl<S> Layer<S> for ClientCertificateLayer {
    type Service = ClientCertificateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClientCertificateService { is_required: self.is_required, inner }
    }
}

/// Service made by [`ClientCertificateLayer`].
#[derive(Debug, Clone)]
pub struct ClientCertificateService<S> {
    is_required: bool,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ClientCertificateService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: Default + Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_refused = self.is_required
            && request.headers().contains_key(CONTEXT_HEADER)
            && request.extensions().get::<VerifiedClient>().is_none();
        if is_refused {
            let refusal = Status::unauthenticated(
                "services must show a certificate here: set `tls.certificate`, `tls.private_key` \
                 and `tls.authorities` of the calling service, and call it by `https://`",
            );
            return Box::pin(async move { Ok(refusal.into_http()) });
        }
        Box::pin(self.inner.call(request))
    }
}
