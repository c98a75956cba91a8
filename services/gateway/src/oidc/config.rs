//! The table `[oidc]`: identity providers whose people may sign in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{bail, ensure};
use holdfast_kit::config::masked;
use holdfast_types::TenantRole;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// The table `[oidc]`. Without issuers, only API keys are accepted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Oidc {
    /// Tolerated difference between the clocks of an issuer and the gateway.
    #[serde(with = "humantime_serde")]
    pub clock_skew: Duration,

    /// Age at which an issuer's keys are fetched again. A key that the issuer withdrew is refused
    /// after that.
    #[serde(with = "humantime_serde")]
    pub refresh_interval: Duration,

    /// Minimum time between two fetches of an issuer's keys, as for tokens with an unknown key.
    #[serde(with = "humantime_serde")]
    pub min_refresh_interval: Duration,

    /// Age at which keys that could not be fetched again are no longer used.
    #[serde(with = "humantime_serde")]
    pub max_key_age: Duration,

    pub issuers: Vec<Issuer>,
}

/// An identity provider, and what its tokens mean.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// Issuer URL, exactly as in the claim `iss`. `https://`, or an address of this machine.
    pub url: String,

    /// Accepted values of the claim `aud`: client ids.
    pub audiences: Vec<String>,

    /// Client as which the web console sends people to this issuer. Without it they cannot sign in to
    /// the console there.
    #[serde(default)]
    pub console: Option<ConsoleClient>,

    /// Tenant of all its people. Either this or `tenant_claim`.
    #[serde(default)]
    pub tenant: Option<String>,

    /// Claim that names the tenant.
    #[serde(default)]
    pub tenant_claim: Option<String>,

    /// Claim with the groups of a person: a list of texts, or one text.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,

    /// Role of people without a group that has one. Without it they are refused.
    #[serde(default)]
    pub default_role: Option<TenantRole>,

    /// Values of `tenant_claim` and the tenants that they stand for. If it is empty, the value is
    /// the tenant's name; otherwise other values are refused.
    #[serde(default)]
    pub tenants: BTreeMap<String, String>,

    /// Roles of groups, in all its tenants. The greatest role counts.
    #[serde(default)]
    pub roles: BTreeMap<String, TenantRole>,

    /// Roles of groups in one tenant, instead of `roles`.
    #[serde(default)]
    pub tenant_roles: BTreeMap<String, BTreeMap<String, TenantRole>>,
}

/// The web console as a client of an issuer. Its redirect address is `/console/oidc/callback` of the
/// gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleClient {
    /// Name on the button to sign in, different for each issuer.
    pub name: String,

    /// One of `audiences`.
    pub client_id: String,

    /// Empty for a client without a secret.
    #[serde(default, serialize_with = "masked")]
    pub client_secret: SecretString,

    /// Scopes that are asked for; `openid` must be one.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
}

fn default_scopes() -> Vec<String> {
    ["openid", "profile", "email"].map(str::to_owned).into()
}

fn default_groups_claim() -> String {
    "groups".to_owned()
}

impl Default for Oidc {
    fn default() -> Self {
        Self {
            clock_skew: Duration::from_secs(60),
            refresh_interval: Duration::from_secs(15 * 60),
            min_refresh_interval: Duration::from_secs(10),
            max_key_age: Duration::from_secs(24 * 3600),
            issuers: Vec::new(),
        }
    }
}

impl Oidc {
    /// Checks the issuers.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.min_refresh_interval <= self.refresh_interval
                && self.refresh_interval <= self.max_key_age,
            "`oidc.min_refresh_interval` is at most `oidc.refresh_interval`, and that at most \
             `oidc.max_key_age`: change one of them"
        );
        ensure!(
            self.clock_skew <= Duration::from_secs(600),
            "`oidc.clock_skew` is ten minutes at most: set the clocks right instead"
        );
        let (mut seen, mut names) = (BTreeSet::new(), BTreeSet::new());
        for issuer in &self.issuers {
            issuer.check()?;
            if let Some(client) = &issuer.console {
                client.check(issuer)?;
                ensure!(
                    names.insert(&client.name),
                    "`oidc.issuers.console.name` is `{}` twice: give each issuer a name of its own",
                    client.name
                );
            }
            for audience in &issuer.audiences {
                ensure!(
                    seen.insert((&issuer.url, audience)),
                    "`oidc.issuers` has `{}` with the audience `{audience}` twice: leave one out",
                    issuer.url
                );
            }
        }
        Ok(())
    }
}

impl ConsoleClient {
    fn check(&self, issuer: &Issuer) -> anyhow::Result<()> {
        let url = &issuer.url;
        ensure!(!self.name.trim().is_empty(), "`oidc.issuers.console.name` of `{url}` is empty");
        ensure!(
            issuer.audiences.contains(&self.client_id),
            "`oidc.issuers.console.client_id` of `{url}` is `{}`, which is not one of its \
             `audiences`: add it there",
            self.client_id
        );
        ensure!(
            self.scopes.iter().any(|scope| scope == "openid"),
            "`oidc.issuers.console.scopes` of `{url}` lacks `openid`: add it"
        );
        Ok(())
    }
}

impl Issuer {
    fn check(&self) -> anyhow::Result<()> {
        let url = &self.url;
        ensure!(
            is_trusted_address(url),
            "`oidc.issuers.url` is `{url}`: write an `https://` address, as tokens have it in `iss`"
        );
        ensure!(
            !self.audiences.is_empty() && self.audiences.iter().all(|one| !one.is_empty()),
            "`oidc.issuers.audiences` of `{url}` is empty: write the client id"
        );
        match (&self.tenant, &self.tenant_claim) {
            (Some(tenant), None) if !tenant.is_empty() => ensure!(
                self.tenants.is_empty(),
                "`oidc.issuers.tenants` of `{url}` needs `tenant_claim`, and there is `tenant`"
            ),
            (None, Some(claim)) if !claim.is_empty() => {}
            _ => bail!(
                "the issuer `{url}` needs either `tenant` (all its people are of one tenant) or \
                 `tenant_claim`"
            ),
        }
        ensure!(
            self.default_role.is_some()
                || !self.roles.is_empty()
                || self.tenant_roles.values().any(|roles| !roles.is_empty()),
            "nobody from `{url}` could sign in: set `roles`, `tenant_roles` or `default_role`"
        );
        Ok(())
    }
}

/// Whether an answer from this address can be trusted: by TLS, or since it never leaves the machine.
pub fn is_trusted_address(url: &str) -> bool {
    let is_local = || holdfast_egress::loopback_address(url).is_some();
    url.starts_with("https://") || (url.starts_with("http://") && is_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(change: impl FnOnce(&mut Issuer)) -> anyhow::Result<()> {
        let mut issuer = Issuer {
            url: "https://id.example.com".into(),
            audiences: vec!["holdfast".into()],
            console: None,
            tenant: Some("acme".into()),
            tenant_claim: None,
            groups_claim: default_groups_claim(),
            default_role: Some(TenantRole::Viewer),
            tenants: BTreeMap::new(),
            roles: BTreeMap::new(),
            tenant_roles: BTreeMap::new(),
        };
        change(&mut issuer);
        Oidc { issuers: vec![issuer], ..Oidc::default() }.check()
    }

    #[test]
    fn an_issuer_that_could_not_work_is_refused_with_the_setting_to_change() {
        issuer(|_| {}).unwrap();
        issuer(|one| one.url = "http://127.0.0.1:9000".into()).unwrap();
        let told = |change: fn(&mut Issuer)| issuer(change).unwrap_err().to_string();

        assert!(told(|one| one.url = "http://id.example.com".into()).contains("issuers.url"));
        assert!(told(|one| one.audiences.clear()).contains("audiences"));
        assert!(told(|one| one.tenant = None).contains("either `tenant`"));
        assert!(told(|one| one.tenant_claim = Some("org".into())).contains("either `tenant`"));
        assert!(told(|one| one.default_role = None).contains("nobody from"));
        assert!(told(|one| one.audiences.push("holdfast".into())).contains("twice"));
        let with_client = |one: &mut Issuer, id: &str, scopes: &[&str]| {
            one.console = Some(ConsoleClient {
                name: "id".into(),
                client_id: id.into(),
                client_secret: SecretString::default(),
                scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            });
        };
        issuer(|one| with_client(one, "holdfast", &["openid"])).unwrap();
        let other = issuer(|one| with_client(one, "other", &["openid"])).unwrap_err();
        assert!(other.to_string().contains("console.client_id"), "{other}");
        let scopes = issuer(|one| with_client(one, "holdfast", &["email"])).unwrap_err();
        assert!(scopes.to_string().contains("lacks `openid`"), "{scopes}");
    }
}
