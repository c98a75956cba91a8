//! Clients of other services: channels and signed requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_types::TenantId;
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use crate::{CONTEXT_HEADER, Signer, trace};

/// Error for a URL that is not the address of a service.
#[derive(Debug, thiserror::Error)]
#[error("`{url}` is no address of a service: write `http://host:port`")]
pub struct InvalidUrl {
    url: String,
    #[source]
    source: tonic::transport::Error,
}

/// Creates a channel to a service. It connects on first use and reconnects when the connection is
/// lost.
///
/// `timeout` bounds each call until its response begins; a stream may go on after that.
///
/// # Errors
///
/// If `url` cannot be parsed.
pub fn channel(url: &str, timeout: Duration) -> Result<Channel, InvalidUrl> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|source| InvalidUrl { url: url.to_owned(), source })?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(2))
        .timeout(timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        // A stream that waits for a model is not idle; a channel without calls is.
        .keep_alive_while_idle(false)
        .connect_lazy())
}

/// Builder of requests to other services, each signed for a tenant.
#[derive(Debug, Clone)]
pub struct Mesh {
    signer: Signer,
    service: &'static str,
}

impl Mesh {
    /// `service` is the name of the calling service.
    #[must_use]
    pub const fn new(signer: Signer, service: &'static str) -> Self {
        Self { signer, service }
    }

    /// Request for a tenant, with the signed context, the current trace and a timeout.
    #[must_use]
    pub fn request<T>(&self, tenant: TenantId, message: T, timeout: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if let Ok(context) = self.signer.sign(tenant, self.service, now).parse() {
            request.metadata_mut().insert(CONTEXT_HEADER, context);
        }
        trace::inject(request.metadata_mut());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_in_whose_name_it_is_made() {
        let (signer, tenant) =
            (Signer::new(&"0123456789abcdef".into()).unwrap(), TenantId::generate());

        let mesh = Mesh::new(signer.clone(), "scheduler");
        let request = mesh.request(tenant, (), Duration::from_secs(5));

        let timeout = crate::deadline::caller_timeout(request.metadata());
        assert_eq!(timeout, Some(Duration::from_secs(5)));
        let context = request.metadata().get(CONTEXT_HEADER).unwrap().to_str().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(signer.verify(context, now), Ok((tenant, "scheduler".to_owned())));
    }

    #[tokio::test]
    async fn what_is_no_address_is_refused_at_once() {
        assert!(channel("not a url", Duration::from_secs(1)).is_err());
        assert!(channel("http://127.0.0.1:1", Duration::from_secs(1)).is_ok());
    }
}
