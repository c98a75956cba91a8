//! Clients of other services: channels and signed requests.

use std::{
    task::{Context, Poll},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_kit::tls::{Connector, PlainUrl, Tls};
use holdfast_types::TenantId;
use tonic::{
    Request,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::Service;

use crate::{CONTEXT_HEADER, CallTarget, Signer, trace};

/// Error for a URL at which no service can be called.
#[derive(Debug, thiserror::Error)]
pub enum InvalidUrl {
    #[error("`{url}` is no address of a service: write `https://host:port` or `http://host:port`")]
    Malformed {
        url: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error(transparent)]
    Plain(#[from] PlainUrl),
}

/// Creates a channel to a service. It connects on first use and reconnects when the connection is
/// lost. Servers at `https://` are verified by the machine's authorities; see [`channel_by`].
///
/// `timeout` bounds each call until its response begins; a stream may go on after that.
///
/// # Errors
///
/// If `url` cannot be parsed.
pub fn channel(url: &str, timeout: Duration) -> Result<Channel, InvalidUrl> {
    channel_by(Tls::default().connector(), url, timeout)
}

/// Creates a channel to a service, as [`channel`], whose connections are made by `connector`.
///
/// # Errors
///
/// If `url` cannot be parsed.
pub fn channel_by(
    connector: Connector,
    url: &str,
    timeout: Duration,
) -> Result<Channel, InvalidUrl> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|source| InvalidUrl::Malformed { url: url.to_owned(), source })?;
    Ok(endpoint
        .timeout(timeout)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        // A stream that waits for a model is not idle; a channel without calls is.
        .keep_alive_while_idle(false)
        .connect_with_connector_lazy(connector))
}

/// Tenant of a request; in the request's extensions until it is signed.
#[derive(Debug, Clone, Copy)]
struct CallTenant(TenantId);

/// Builder of requests to other services, each for a tenant.
#[derive(Debug, Clone)]
pub struct Mesh {
    signer: Signer,
    service: &'static str,
    tls: Tls,
}

impl Mesh {
    /// `service` is the name of the calling service.
    #[must_use]
    pub fn new(signer: Signer, service: &'static str) -> Self {
        Self { signer, service, tls: Tls::default() }
    }

    /// Sets the certificate that is shown to services at `https://`, and the authorities by which
    /// they are verified.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Connects lazily to the service `audience` at `url`; see [`channel`].
    ///
    /// # Errors
    ///
    /// If `url` cannot be parsed, or calls to it would not be encrypted and must be.
    pub fn connect(
        &self,
        url: &str,
        audience: &'static str,
        timeout: Duration,
    ) -> Result<SignedChannel, InvalidUrl> {
        self.tls.check_url(url)?;
        let channel = channel_by(self.tls.connector(), url, timeout)?;
        Ok(SignedChannel { channel, mesh: self.clone(), audience })
    }

    /// Request for a tenant, with the current trace and a timeout. A [`SignedChannel`] signs it.
    #[must_use]
    pub fn request<T>(&self, tenant: TenantId, message: T, timeout: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        request.extensions_mut().insert(CallTenant(tenant));
        trace::inject(request.metadata_mut());
        request
    }
}

/// Connection to a service that signs each request of [`Mesh::request`] as it is sent: only then the
/// method is known, and a repeated request gets a context of its own.
#[derive(Debug, Clone)]
pub struct SignedChannel {
    channel: Channel,
    mesh: Mesh,
    audience: &'static str,
}

impl SignedChannel {
    fn sign<B>(&self, request: &mut http::Request<B>) {
        let Some(CallTenant(tenant)) = request.extensions_mut().remove() else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let target = CallTarget { audience: self.audience, method: request.uri().path() };
        let context = self.mesh.signer.sign(tenant, self.mesh.service, target, now);
        if let Ok(context) = context.parse() {
            request.headers_mut().insert(CONTEXT_HEADER, context);
        }
    }
}

impl Service<http::Request<Body>> for SignedChannel {
    type Response = <Channel as Service<http::Request<Body>>>::Response;
    type Error = <Channel as Service<http::Request<Body>>>::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.channel, cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        self.sign(&mut request);
        self.channel.call(request)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kit::config;

    use super::*;

    #[tokio::test]
    async fn a_request_says_in_whose_name_it_is_made_and_is_signed_as_it_is_sent() {
        let secret = "0123456789abcdef".into();
        let mesh = config::Mesh { secret, ..config::Mesh::default() };
        let (signer, tenant) = (Signer::new(&mesh).unwrap(), TenantId::generate());
        let target =
            CallTarget { audience: "memory-service", method: "/holdfast.memory.v1.Memory/Search" };

        let mesh = Mesh::new(signer.clone(), "scheduler");
        let request = mesh.request(tenant, (), Duration::from_secs(5));
        let timeout = crate::deadline::caller_timeout(request.metadata());
        let channel =
            mesh.connect("http://127.0.0.1:1", target.audience, Duration::from_secs(5)).unwrap();
        let sent = || {
            let mut sent = http::Request::post(target.method).body(()).unwrap();
            *sent.extensions_mut() = request.extensions().clone();
            channel.sign(&mut sent);
            sent.headers()[CONTEXT_HEADER].to_str().unwrap().to_owned()
        };

        assert_eq!(timeout, Some(Duration::from_secs(5)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        for context in [sent(), sent()] {
            let read = signer.verify(&context, target, now);
            assert_eq!(read, Ok((tenant, "scheduler".to_owned())));
        }
    }

    #[tokio::test]
    async fn what_is_no_address_is_refused_at_once() {
        assert!(channel("not a url", Duration::from_secs(1)).is_err());
        assert!(channel("http://127.0.0.1:1", Duration::from_secs(1)).is_ok());
    }
}
