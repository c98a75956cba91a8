//! Workload identity: credentials that the cloud gives to this installation's machines or pods.
//!
//! **What can go wrong.** A tenant that could use this identity would spend the installation's money
//! and reach whatever it reaches. So it is off unless the operator's configuration names the tenant;
//! its addresses come from the configuration alone; and it is sent to the cloud's own hosts only,
//! whatever address a tenant sets.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, ensure};
use holdfast_types::TenantId;
use reqwest::Url;
use serde::{Deserialize, Serialize};

#[cfg(feature = "bedrock")]
use crate::bedrock::AwsIdentity;
use crate::{Error, authorize::Authorize, google::MetadataServer};

/// Entry of the list of tenants that means all.
const ALL_TENANTS: &str = "*";

/// Configuration of the identities that the cloud gives to this installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadIdentityConfig {
    /// Ids of the tenants whose providers of kind `vertex` and `bedrock` may use the identity
    /// instead of a key; `*` for all tenants. Empty: none.
    pub tenants: Vec<String>,

    /// Metadata server of Google Cloud, such as `http://metadata.google.internal`; empty: no
    /// identity of Google's.
    pub google_metadata: String,

    pub aws: AwsIdentityConfig,

    /// Hosts besides the clouds' own to which the identity is sent, as `host:port`: private
    /// endpoints of this installation.
    pub hosts: Vec<String>,
}

/// The installation's identity in AWS; none by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AwsIdentityConfig {
    /// Role of the pod's service account (IRSA), as `AWS_ROLE_ARN` of a pod.
    pub role_arn: String,

    /// Agent of EKS Pod Identity or ECS, as `AWS_CONTAINER_CREDENTIALS_FULL_URI` of a pod; used
    /// without a role.
    pub credentials_url: String,

    /// File with the pod's token, as `AWS_WEB_IDENTITY_TOKEN_FILE` or
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE` of a pod.
    pub token_file: PathBuf,

    /// Address of AWS's Security Token Service.
    pub sts_url: String,
}

impl Default for AwsIdentityConfig {
    fn default() -> Self {
        Self {
            role_arn: String::new(),
            credentials_url: String::new(),
            token_file: "/var/run/secrets/eks.amazonaws.com/serviceaccount/token".into(),
            sts_url: "https://sts.amazonaws.com".to_owned(),
        }
    }
}

impl WorkloadIdentityConfig {
    /// Checks the combination of values.
    ///
    /// # Errors
    ///
    /// If a tenant is no id, or an address is no URL.
    pub fn check(&self) -> anyhow::Result<()> {
        for tenant in &self.tenants {
            let is_id = tenant == ALL_TENANTS || tenant.parse::<TenantId>().is_ok();
            ensure!(is_id, "`{tenant}` is no id of a tenant: write one, or `*` for all tenants");
        }
        let aws = &self.aws;
        for url in [&self.google_metadata, &aws.credentials_url, &aws.sts_url] {
            ensure!(url.is_empty() || Url::parse(url).is_ok(), "`{url}` is no URL");
        }
        Ok(())
    }
}

/// The identities that the cloud gives to this installation. Clones share the credentials.
/// The default is none.
#[derive(Debug, Clone, Default)]
pub struct WorkloadIdentity {
    is_for_all: bool,
    tenants: Arc<[TenantId]>,
    hosts: Arc<[String]>,
    google: Option<Arc<MetadataServer>>,
    #[cfg(feature = "bedrock")]
    aws: Option<Arc<AwsIdentity>>,
}

impl WorkloadIdentity {
    /// # Errors
    ///
    /// If a value of the configuration is invalid, or this machine has no root certificates.
    pub fn new(config: &WorkloadIdentityConfig) -> anyhow::Result<Self> {
        config.check()?;
        let google = match config.google_metadata.as_str() {
            "" => None,
            server => Some(MetadataServer::new(server).context("`google_metadata`")?),
        };
        Ok(Self {
            is_for_all: config.tenants.iter().any(|tenant| tenant == ALL_TENANTS),
            tenants: config.tenants.iter().filter_map(|tenant| tenant.parse().ok()).collect(),
            hosts: config.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            google: google.map(Arc::new),
            #[cfg(feature = "bedrock")]
            aws: AwsIdentity::new(&config.aws).context("`aws`")?.map(Arc::new),
        })
    }

    /// Returns the identity if a tenant may use it.
    #[must_use]
    pub fn of_tenant(&self, tenant: TenantId) -> Option<Self> {
        (self.is_for_all || self.tenants.contains(&tenant)).then(|| self.clone())
    }

    /// Tokens of Google for requests to a base URL.
    pub(crate) fn google(&self, base: &Url) -> Result<Arc<dyn Authorize>, Error> {
        let is_google = |host: &str| {
            host == "aiplatform.googleapis.com"
                || host.strip_suffix("-aiplatform.googleapis.com").is_some_and(is_word)
        };
        self.check_host(base, is_google)?;
        let Some(google) = &self.google else {
            return Err(Error::Setup("this installation has no identity of google's"));
        };
        let google: Arc<dyn Authorize> = Arc::clone(google) as _;
        Ok(google)
    }

    /// Keys of AWS for requests to a base URL.
    #[cfg(feature = "bedrock")]
    pub(crate) fn aws(&self, base: &Url) -> Result<Arc<AwsIdentity>, Error> {
        let is_bedrock = |host: &str| {
            let region = host
                .strip_suffix(".amazonaws.com.cn")
                .or_else(|| host.strip_suffix(".amazonaws.com"))
                .and_then(|host| {
                    host.strip_prefix("bedrock-runtime.")
                        .or_else(|| host.strip_prefix("bedrock-runtime-fips."))
                });
            region.is_some_and(is_word)
        };
        self.check_host(base, is_bedrock)?;
        self.aws.clone().ok_or(Error::Setup("this installation has no identity of aws"))
    }

    fn check_host(&self, url: &Url, is_own: impl Fn(&str) -> bool) -> Result<(), Error> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let is_usual = url.scheme() == "https" && url.port().is_none() && is_own(host);
        if is_usual || self.hosts.contains(&format!("{host}:{port}")) {
            return Ok(());
        }
        Err(Error::Setup(
            "the installation's identity is sent to the cloud's own address only: set a key, or have \
             the operator list the host in `runner.workload_identity.hosts`",
        ))
    }
}

/// Whether a part of a host is one label.
fn is_word(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
