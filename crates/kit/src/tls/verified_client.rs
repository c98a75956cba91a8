//! Names in the certificate of a caller.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Certificates that services must show when they call a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerCertificates {
    NotRequired,
    /// One of a trusted authority.
    AnyName,
    /// One of a trusted authority with the name of the service.
    ServiceName,
}

/// Extension of requests whose caller showed a certificate of a trusted authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedClient {
    names: Arc<[String]>,
}

impl VerifiedClient {
    /// Reads the names of a verified chain of certificates.
    #[must_use]
    pub fn of(chain: &[CertificateDer<'_>]) -> Self {
        let certificate = chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
        let names = certificate.iter().flat_map(|certificate| certificate.valid_dns_names());
        Self { names: names.map(str::to_lowercase).collect() }
    }

    /// Names of machines in the certificate.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the certificate is of a service: a name begins with `<service>` or `…-<service>`,
    /// followed by nothing or by a domain.
    ///
    /// The server's name is checked by the handshake. A caller has no address that could be
    /// compared, and its domain is not known.
    #[must_use]
    pub fn is_of(&self, service: &str) -> bool {
        self.names.iter().any(|name| {
            let host = name.split('.').next().unwrap_or_default();
            let before = host.strip_suffix(service);
            before.is_some_and(|before| before.is_empty() || before.ends_with('-'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_of_the_services_that_its_names_begin_with() {
        let client = |name: &str| VerifiedClient { names: Arc::new([name.to_owned()]) };

        for name in ["gateway", "gateway.prod.svc", "acme-holdfast-gateway.prod.svc"] {
            assert!(client(name).is_of("gateway"), "{name}");
        }
        for name in ["", "agent-runner", "mygateway", "gateway-2", "prod.gateway", "*.gateway"] {
            assert!(!client(name).is_of("gateway"), "{name}");
        }
    }
}
