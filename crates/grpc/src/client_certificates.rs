//! Client certificates of calls between services.
//!
//! They keep others from calling in the name of a service even if they have its key, and from trying
//! keys. Which service calls is said by the signed context; its certificate must have that name.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use holdfast_kit::tls::{CallerCertificates, VerifiedClient};
use http::{Request, Response};
use tonic::Status;
use tower::{Layer, Service};
use tracing::warn;

use crate::{CONTEXT_HEADER, context::claimed_service};

/// Layer that refuses calls in the name of a service whose connection did not show the certificate
/// that services must have.
#[derive(Debug, Clone, Copy)]
pub struct ClientCertificateLayer {
    required: CallerCertificates,
}

impl ClientCertificateLayer {
    #[must_use]
    pub const fn new(required: CallerCertificates) -> Self {
        Self { required }
    }
}

impl<S> Layer<S> for ClientCertificateLayer {
    type Service = ClientCertificateService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClientCertificateService { required: self.required, inner }
    }
}

/// Service made by [`ClientCertificateLayer`].
#[derive(Debug, Clone)]
pub struct ClientCertificateService<S> {
    required: CallerCertificates,
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
        if let Err(refusal) = check(self.required, &request) {
            return Box::pin(async move { Ok(refusal.into_http()) });
        }
        Box::pin(self.inner.call(request))
    }
}

fn check<B>(required: CallerCertificates, request: &Request<B>) -> Result<(), Status> {
    let Some(context) = request.headers().get(CONTEXT_HEADER) else { return Ok(()) };
    if required == CallerCertificates::NotRequired {
        return Ok(());
    }
    let client = request.extensions().get::<VerifiedClient>().ok_or_else(|| {
        Status::unauthenticated(
            "services must show a certificate here: set `tls.certificate`, `tls.private_key` and \
             `tls.authorities` of the calling service, and call it by `https://`",
        )
    })?;
    // Whether the call is of this service is verified later, by the signature.
    let service = context.to_str().ok().and_then(claimed_service).unwrap_or_default();
    if required == CallerCertificates::AnyName || client.is_of(service) {
        return Ok(());
    }
    let names = client.names().join(", ");
    warn!(service, names, "a caller is refused: its certificate has not the name of this service");
    Err(Status::unauthenticated(format!(
        "the certificate is not of the service `{service}`, its names are `{names}`: give it one \
         with the name `{service}`, or permit any by `tls.allow_any_name` of the called service"
    )))
}
