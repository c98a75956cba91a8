//! Outgoing HTTP requests: every HTTP client of the product is built here.
//!
//! | item | purpose |
//! |---|---|
//! | [`client_builder`] | clients for addresses that the operator or an administrator chose |
//! | [`Guard`] | clients for addresses that tenants, models or pages chose: public ones only |
//! | [`describe_failure`] | text about a failed request, without its address |
//!
//! No client follows redirects by itself: a redirect may lead to another host, and a credential
//! belongs to one host only.

mod guard;

use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect::Policy};

pub use guard::{AddressRefusal, Guard, Lookup, LookupFuture, SystemResolver, refusal};

/// Interval of keep-alive probes on an idle connection.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the settings that all clients share: the machine's root certificates, no redirects, our
/// user agent.
///
/// # Errors
///
/// If this machine has no root certificates.
pub fn client_builder(connect_timeout: Duration) -> anyhow::Result<ClientBuilder> {
    Ok(Client::builder()
        .tls_backend_preconfigured(holdfast_kit::tls::https()?)
        .user_agent(concat!("holdfast/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEPALIVE_INTERVAL)
        .redirect(Policy::none()))
}

/// Describes a failed request; never its address, which may contain a key.
#[must_use]
pub fn describe_failure(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "it took too long"
    } else if error.is_connect() {
        "no connection could be made"
    } else {
        "the connection broke"
    }
}
