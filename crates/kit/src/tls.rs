//! TLS of servers and clients: certificates that are read again when their files change.
//!
//! | file | contents |
//! |---|---|
//! | `tls/certificates.rs` | the certificate of this process, and the authorities that it trusts |
//! | `tls/connector.rs` | connections to `http://` and `https://` addresses |
//! | `tls/problem.rs` | reasons for failed handshakes, in words |
//! | `tls/verified_client.rs` | names in the certificate of a caller |
//!
//! A server asks callers for a certificate and does not require it in the handshake, since probes
//! have none. It marks requests of callers that showed one with [`VerifiedClient`].

mod certificates;
mod connector;
mod problem;
mod verified_client;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock, Weak},
};

use anyhow::{Context as _, bail, ensure};
use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    crypto::CryptoProvider,
    server::{NoServerSessionStorage, ResolvesServerCert},
};

use self::certificates::{Authorities, CurrentAuthorities, CurrentIdentity, Identity};
use crate::{
    config::{self, variable},
    watched::{POLL_INTERVAL, Watched},
};

pub use self::{
    connector::Connector,
    problem::{TlsProblem, explain},
    verified_client::{CallerCertificates, VerifiedClient},
};

/// Makes ring the crypto provider of all TLS connections. Call it first in `main`; further calls
/// are harmless.
///
/// Without it the HTTP client, which brings no provider of its own, cannot be built.
pub fn install_crypto() {
    // An error means that a provider is installed already; it can only be ours.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
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
    let provider = provider();
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

/// Certificate and trusted authorities of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tls(Arc<Files>);

#[derive(Debug, Default)]
struct Files {
    identity: Option<Arc<Watched<Identity>>>,
    authorities: Option<Arc<Watched<Authorities>>>,
    allow_plain: bool,
    allow_any_name: bool,
}

impl Tls {
    /// Reads the files, and again when they change, as long as a server or client uses them. Call
    /// it inside a runtime.
    ///
    /// # Errors
    ///
    /// If a file cannot be used. The error says which one and why.
    pub fn load(config: &config::Tls) -> anyhow::Result<Self> {
        let identity = match (&config.certificate, &config.private_key) {
            (Some(certificate), Some(key)) => {
                let paths = vec![certificate.clone(), key.clone()];
                Some(Watched::load(paths, Identity::parse).context("`[tls]` cannot be used")?)
            }
            (None, None) => None,
            _ => bail!(
                "`tls.certificate` and `tls.private_key` belong together: name both files, or none"
            ),
        };
        let authorities = match &config.authorities {
            Some(path) => {
                let watched = Watched::load(vec![path.clone()], Authorities::parse);
                Some(watched.context("the file of trusted authorities cannot be used")?)
            }
            None => None,
        };
        if identity.is_some() || authorities.is_some() {
            let watched = (identity.as_ref().map(Arc::downgrade), authorities.as_ref());
            tokio::spawn(watch(watched.0, watched.1.map(Arc::downgrade)));
        }
        let (allow_plain, allow_any_name) = (config.allow_plain, config.allow_any_name);
        Ok(Self(Arc::new(Files { identity, authorities, allow_plain, allow_any_name })))
    }

    /// Configuration of a server for everybody; `None` if it speaks plain text.
    pub fn server(&self) -> anyhow::Result<Option<Arc<ServerConfig>>> {
        self.server_with(None)
    }

    /// Configuration of a server that services call; `None` if it speaks plain text. It asks for a
    /// certificate of a trusted authority, if there are any.
    pub fn mesh_server(&self) -> anyhow::Result<Option<Arc<ServerConfig>>> {
        self.server_with(self.0.authorities.as_ref())
    }

    /// Which certificates services must show to a [`mesh_server`](Self::mesh_server).
    #[must_use]
    pub fn caller_certificates(&self) -> CallerCertificates {
        match self.0.identity.is_some() && self.0.authorities.is_some() {
            true if self.0.allow_any_name => CallerCertificates::AnyName,
            true => CallerCertificates::ServiceName,
            false => CallerCertificates::NotRequired,
        }
    }

    fn server_with(
        &self,
        authorities: Option<&Arc<Watched<Authorities>>>,
    ) -> anyhow::Result<Option<Arc<ServerConfig>>> {
        let Some(identity) = &self.0.identity else { return Ok(None) };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match authorities {
            Some(authorities) => {
                let verifier = CurrentAuthorities::new(Arc::clone(authorities));
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
            None => builder.with_no_client_auth(),
        };
        let resolver: Arc<dyn ResolvesServerCert> =
            Arc::new(CurrentIdentity::new(Arc::clone(identity)));
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
        // A resumed session would not be verified with the authorities of now.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Some(Arc::new(config)))
    }

    /// Connections to other services. They show this process' certificate if it has one, and trust
    /// the authorities of the file, or else those of the machine.
    #[must_use]
    pub fn connector(&self) -> Connector {
        Connector::new(self.client_config().ok().map(Arc::new))
    }

    fn client_config(&self) -> Result<ClientConfig, rustls::Error> {
        let Some(authorities) = &self.0.authorities else {
            let mut config = https()?;
            config.alpn_protocols = vec!["h2".into()];
            return Ok(config);
        };
        let verifier = CurrentAuthorities::new(Arc::clone(authorities));
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            // "Dangerous" because the verifier is replaced. This one asks rustls' own, with the
            // authorities of now.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.0.identity {
            Some(identity) => {
                let resolver = CurrentIdentity::new(Arc::clone(identity));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec!["h2".into()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// Checks that calls to a service at `url` are encrypted, stay on this machine, or may be plain.
    ///
    /// # Errors
    ///
    /// Says what to change.
    pub fn check_url(&self, url: &str) -> Result<(), PlainUrl> {
        let Some(rest) = url.strip_prefix("http://") else { return Ok(()) };
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit_once(':').map_or(authority, |(host, _port)| host);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if self.0.allow_plain
            || host == "localhost"
            || address.is_ok_and(|address| address.is_loopback())
        {
            return Ok(());
        }
        Err(PlainUrl(url.to_owned()))
    }
}

/// Error for an address of another machine whose calls would not be encrypted.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is on another machine and has no TLS: write `https://host:port`, or permit plain text by \
     `tls.allow_plain` (`HOLDFAST_TLS__ALLOW_PLAIN=true`)"
)]
pub struct PlainUrl(String);

impl config::Tls {
    /// Checks that a listener speaks TLS, is on loopback, or may speak plain text. `setting` is
    /// the setting of its address, such as `gateway.http`.
    ///
    /// # Errors
    ///
    /// Says what to change.
    pub fn check_listener(&self, setting: &str, address: SocketAddr) -> anyhow::Result<()> {
        ensure!(
            self.certificate.is_some() || self.allow_plain || address.ip().is_loopback(),
            "`{setting}` is `{address}`, which other machines can reach, and there is no \
             certificate: set `tls.certificate` and `tls.private_key`, or permit plain text by \
             `tls.allow_plain` (`{}=true`)",
            variable("tls.allow_plain")
        );
        Ok(())
    }
}

/// Reads changed files again, and logs once when others will refuse the own certificate.
async fn watch(
    identity: Option<Weak<Watched<Identity>>>,
    authorities: Option<Weak<Watched<Authorities>>>,
) {
    let mut known_problem = None;
    loop {
        let identity = identity.as_ref().and_then(Weak::upgrade);
        let authorities = authorities.as_ref().and_then(Weak::upgrade);
        if identity.is_none() && authorities.is_none() {
            return;
        }
        let problem = tokio::task::spawn_blocking(move || {
            identity.iter().for_each(|identity| {
                identity.refresh();
            });
            authorities.iter().for_each(|authorities| {
                authorities.refresh();
            });
            let (identity, authorities) = (identity?, authorities?);
            let problem = authorities.current().verify_identity(&identity.current())?;
            Some((problem, identity.names()))
        });
        let problem = problem.await.ok().flatten();
        if problem != known_problem
            && let Some((problem, files)) = &problem
        {
            tracing::error!(
                %problem, files,
                "other services refuse this certificate: replace the files, a restart is not needed"
            );
        }
        known_problem = problem;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
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

    #[test]
    fn plain_text_stays_on_this_machine_unless_it_is_permitted() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.7:1".parse().unwrap());
        let mut config = config::Tls::default();

        config.check_listener("gateway.http", near).unwrap();
        let refused = config.check_listener("gateway.http", far).unwrap_err().to_string();
        assert!(refused.contains("`gateway.http` is `10.0.0.7:1`"), "{refused}");
        assert!(refused.contains("HOLDFAST_TLS__ALLOW_PLAIN=true"), "{refused}");
        config.allow_plain = true;
        config.check_listener("gateway.http", far).unwrap();
    }

    #[tokio::test]
    async fn calls_to_other_machines_are_encrypted_unless_plain_text_is_permitted() {
        let strict = Tls::default();
        let lax = Tls::load(&config::Tls { allow_plain: true, ..config::Tls::default() }).unwrap();

        for near in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://far:1"]
        {
            strict.check_url(near).unwrap();
        }
        for far in ["http://memory:18794", "http://10.0.0.7:1", "http://far"] {
            assert!(strict.check_url(far).is_err(), "{far}");
            lax.check_url(far).unwrap();
        }
    }

    #[tokio::test]
    async fn a_certificate_needs_its_key_and_files_that_exist() {
        let only = config::Tls { certificate: Some("/x".into()), ..config::Tls::default() };
        let both = config::Tls { private_key: Some("/y".into()), ..only.clone() };

        let error = Tls::load(&only).unwrap_err().to_string();
        assert!(error.contains("`tls.private_key`"), "{error}");
        let error = format!("{:#}", Tls::load(&both).unwrap_err());
        assert!(error.contains("cannot read `/x`"), "{error}");
    }
}
