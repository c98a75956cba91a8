//! The one crypto provider of the process.

/// Makes ring the crypto provider of every TLS connection. Call it first in `main`; again is fine.
///
/// Without it the HTTP client, which brings no provider of its own, cannot be built.
pub fn install_crypto() {
    // Fails only if there is one already, which is then ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
