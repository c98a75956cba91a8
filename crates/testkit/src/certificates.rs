//! Authorities and certificates for tests.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// An authority that issues certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its private key, in PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub certificate: String,
    pub private_key: String,
}

/// Files with a certificate and its private key.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub private_key: PathBuf,
}

impl Authority {
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// The authority's own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for servers and clients with these names and addresses.
    pub fn issue(&self, names: &[&str]) -> anyhow::Result<Certificate> {
        self.issue_until(names, 4000)
    }

    /// Issues a certificate that has expired.
    pub fn issue_expired(&self, names: &[&str]) -> anyhow::Result<Certificate> {
        self.issue_until(names, 2020)
    }

    fn issue_until(&self, names: &[&str], year: i32) -> anyhow::Result<Certificate> {
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names)?;
        params.not_after = date_time_ymd(year, 1, 1);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?.pem();
        Ok(Certificate { certificate, private_key: key.serialize_pem() })
    }
}

impl Certificate {
    /// Writes both files, as `name.crt` and `name.key`; each appears whole.
    pub fn write(&self, folder: &Path, name: &str) -> anyhow::Result<CertificateFiles> {
        let files = CertificateFiles {
            certificate: folder.join(format!("{name}.crt")),
            private_key: folder.join(format!("{name}.key")),
        };
        write_whole(&files.certificate, &self.certificate)?;
        write_whole(&files.private_key, &self.private_key)?;
        Ok(files)
    }
}

/// Writes a file that readers see before or after, but not half written.
pub fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text).with_context(|| format!("cannot write `{}`", new.display()))?;
    Ok(std::fs::rename(&new, path)?)
}
