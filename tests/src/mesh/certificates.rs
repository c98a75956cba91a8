//! Certificates of a mesh whose services speak TLS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_kit::config;
use holdfast_kit::tls::Tls;
use holdfast_testkit::certificates::write_whole;
use holdfast_testkit::{Authority, CertificateFiles};
use tempfile::TempDir;
use tokio::time::sleep;

/// Time after which all processes use a file that was changed.
pub const RELOAD_TIME: Duration = Duration::from_secs(5);

/// Names under which services are reached, and those of the services that call others.
const NAMES: [&str; 5] =
    ["127.0.0.1", "localhost", "gateway", "test-agent-runner", "channel-bridge.test.svc"];

/// Files of an authority and of the certificate that all services of the mesh share.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    authority: Mutex<Arc<Authority>>,
    pub files: CertificateFiles,
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Arc::new(Authority::new()?);
        let files = authority.issue(&NAMES)?.write(folder.path(), "service")?;
        let certificates = Self { folder, authority: Mutex::new(Arc::clone(&authority)), files };
        write_whole(&certificates.authorities(), &authority.pem())?;
        Ok(certificates)
    }

    /// The authority that issued the services' certificate.
    #[must_use]
    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The file with trusted authorities.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        self.folder.path().join("authorities.pem")
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Settings of a service.
    pub(super) fn env(&self) -> [(String, String); 3] {
        [
            ("CERTIFICATE", &self.files.certificate),
            ("PRIVATE_KEY", &self.files.private_key),
            ("AUTHORITIES", &self.authorities()),
        ]
        .map(|(name, path)| (format!("HOLDFAST_TLS__{name}"), path.display().to_string()))
    }

    /// TLS of a caller without a certificate.
    pub fn client(&self) -> anyhow::Result<Tls> {
        let authorities = Some(self.authorities());
        Tls::load(&config::Tls { authorities, ..config::Tls::default() })
    }

    /// TLS of a service that shows the certificate in these files.
    pub fn service(&self, files: &CertificateFiles) -> anyhow::Result<Tls> {
        Tls::load(&config::Tls {
            certificate: Some(files.certificate.clone()),
            private_key: Some(files.private_key.clone()),
            authorities: Some(self.authorities()),
            ..config::Tls::default()
        })
    }

    /// Gives all services a certificate of a new authority, as docs/operating.md says: first both
    /// authorities are trusted, then the certificate changes, then the old one is trusted no more.
    pub async fn rotate(&self) -> anyhow::Result<()> {
        let new = Authority::new()?;
        let both = format!("{}{}", self.authority().pem(), new.pem());
        write_whole(&self.authorities(), &both)?;
        sleep(RELOAD_TIME).await;
        new.issue(&NAMES)?.write(self.folder.path(), "service")?;
        sleep(RELOAD_TIME).await;
        write_whole(&self.authorities(), &new.pem())?;
        sleep(RELOAD_TIME).await;
        *self.authority.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(())
    }
}
