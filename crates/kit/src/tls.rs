//! Process-wide crypto provider, and the certificates that HTTPS clients trust.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

/// Makes ring the crypto provider of all TLS connections. Call it first in `main`; further calls
/// are harmless.
///
/// Without it the HTTP client, which brings no provider of its own, cannot be built.
pub fn install_crypto() {
    // An error means that a provider is installed already; it can only be ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns the TLS configuration of HTTPS clients. They trust the machine's root certificates,
/// which are read once, and offer HTTP/2.
///
/// # Errors
///
/// If the machine's certificates cannot be read: `ca-certificates` is not installed.
pub fn https() -> Result<ClientConfig, rustls::Error> {
    static CLIENT_CONFIG: OnceLock<ClientConfig> = OnceLock::new();

    install_crypto();
    if let Some(config) = CLIENT_CONFIG.get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // "Dangerous" because the verifier is replaced. This one is the platform's own.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    Ok(CLIENT_CONFIG.get_or_init(|| config).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_trust_the_machines_roots_and_offer_http_2_first() {
        let (one, other) = (https().unwrap(), https().unwrap());

        assert_eq!(one.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        // A session can be resumed by another client only if the clients share a session store.
        assert!(Arc::ptr_eq(one.crypto_provider(), other.crypto_provider()));
    }
}
