//! The one crypto provider of the process, and what its HTTPS clients trust.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

/// Makes ring the crypto provider of every TLS connection. Call it first in `main`; again is fine.
///
/// Without it the HTTP client, which brings no provider of its own, cannot be built.
pub fn install_crypto() {
    // Fails only if there is one already, which is then ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How HTTPS clients connect: they trust the machine's root certificates, which are read once for
/// all of them, and offer HTTP/2.
///
/// # Errors
///
/// If the machine's certificates cannot be read: `ca-certificates` is not installed.
pub fn https() -> Result<ClientConfig, rustls::Error> {
    static ONE: OnceLock<ClientConfig> = OnceLock::new();

    install_crypto();
    if let Some(config) = ONE.get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        // As dangerous as the platform's own judgement, which this verifier is.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    Ok(ONE.get_or_init(|| config).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_trust_the_machines_roots_and_offer_http_2_first() {
        let (one, other) = (https().unwrap(), https().unwrap());

        assert_eq!(one.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        // Sessions are resumed by whichever client meets a server again: they share a store.
        assert!(Arc::ptr_eq(one.crypto_provider(), other.crypto_provider()));
    }
}
