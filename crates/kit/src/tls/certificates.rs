//! Certificate of this process, and authorities that it trusts, as rustls asks for them.

use std::{fmt, sync::Arc};

use anyhow::{Context as _, anyhow, ensure};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, InconsistentKeys, RootCertStore,
    SignatureScheme,
    client::{
        ResolvesClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use super::{TlsProblem, provider};
use crate::watched::{Content, Watched};

/// Certificate of this process, with its private key.
pub(super) struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// Parses a file with a chain of certificates, and one with the first one's key.
    pub fn parse(contents: &[Content]) -> anyhow::Result<Self> {
        let [chain, key] = contents else { return Err(anyhow!("needs two files")) };
        let chain = (certificates(chain)?, key.path.display());
        let key = PrivateKeyDer::from_pem_slice(&key.bytes)
            .with_context(|| format!("`{}` holds no private key in PEM", chain.1))?;
        let certified =
            CertifiedKey::from_der(chain.0, key, &provider()).map_err(|error| match error {
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    anyhow!("the private key in `{}` is of another certificate", chain.1)
                }
                error => anyhow!(error)
                    .context(format!("the certificate or the key in `{}` is damaged", chain.1)),
            })?;
        Ok(Self(Arc::new(certified)))
    }
}

/// Authorities, as verifiers of what servers and clients show.
pub(super) struct Authorities {
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Authorities {
    pub fn parse(contents: &[Content]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for content in contents {
            for certificate in certificates(content)? {
                roots.add(certificate).with_context(|| {
                    format!("`{}` holds a certificate of no authority", content.path.display())
                })?;
            }
        }
        let roots = Arc::new(roots);
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build()?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?;
        Ok(Self { servers, clients })
    }

    /// Why other services that trust these authorities refuse the certificate, if they do.
    pub fn verify_identity(&self, identity: &Identity) -> Option<TlsProblem> {
        let (first, rest) = identity.0.cert.split_first()?;
        let error = self.clients.verify_client_cert(first, rest, UnixTime::now()).err()?;
        Some(TlsProblem::from(&error))
    }
}

fn certificates(content: &Content) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let path = content.path.display();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&content.bytes)
        .collect::<Result<_, _>>()
        .with_context(|| format!("`{path}` is no PEM"))?;
    ensure!(!certificates.is_empty(), "`{path}` holds no certificate in PEM");
    Ok(certificates)
}

/// Shows the newest certificate in each handshake.
#[derive(Debug)]
pub(super) struct CurrentIdentity(Arc<Watched<Identity>>);

impl CurrentIdentity {
    pub const fn new(identity: Arc<Watched<Identity>>) -> Self {
        Self(identity)
    }
}

impl ResolvesServerCert for CurrentIdentity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.current().0))
    }
}

impl ResolvesClientCert for CurrentIdentity {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.current().0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Verifies each handshake with the newest authorities.
pub(super) struct CurrentAuthorities {
    authorities: Arc<Watched<Authorities>>,
    schemes: Vec<SignatureScheme>,
}

impl CurrentAuthorities {
    pub fn new(authorities: Arc<Watched<Authorities>>) -> Self {
        let schemes = authorities.current().servers.supported_verify_schemes();
        Self { authorities, schemes }
    }
}

impl fmt::Debug for CurrentAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentAuthorities").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for CurrentAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = &self.authorities.current().servers;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.current().servers.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.current().servers.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl ClientCertVerifier for CurrentAuthorities {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // The names would be those of the authorities before a rotation.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.authorities.current().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.current().clients.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.current().clients.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
