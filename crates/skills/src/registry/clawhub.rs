//! Client of ClawHub and of servers with the same protocol (ClawHub's `docs/http-api.md`).
//!
//! | request | result |
//! |---|---|
//! | `GET /api/v1/search?q=&limit=` | search hits |
//! | `GET /api/v1/skills/{slug}` | the newest version and its moderation verdict |
//! | `GET /api/v1/skills/{slug}/scan?version=` | the scanners' verdict on a version |
//! | `GET /api/v1/download?slug=&version=` | the ZIP of a version |
//!
//! The moderation verdict is about the newest version, and may be missing. So a version is clean
//! only if moderation says so about this version, or the scanners do. Without either there is no
//! verdict.

use futures::future::BoxFuture;
use holdfast_egress::Guard;
use reqwest::{Client, RequestBuilder, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Registry, SkillHit, SkillVersionMeta, Verdict, check_version, http,
    http::{MAX_ARCHIVE_BYTES, MAX_JSON_BYTES, unavailable},
    one_line,
};
use crate::{Download, Error, SkillName};

/// Maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 400;

#[derive(Debug)]
pub struct ClawHub {
    name: String,
    base: Url,
    client: Client,
    token: Option<SecretString>,
}

impl ClawHub {
    /// The operator chose the address, so it may be private.
    ///
    /// # Errors
    ///
    /// If the address is invalid, a token would be sent without TLS, or this machine has no root
    /// certificates.
    pub fn new(name: &str, base_url: &str, token: Option<SecretString>) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Invalid(format!("the registry `{name}`: {why}"));
        let base = format!("{}/", base_url.trim_end_matches('/'));
        let base = Url::parse(&base)
            .map_err(|_| wrong("its `base_url` is no address: write `https://host`"))?;
        let Some(host) = base.host_str().map(str::to_owned) else {
            return Err(wrong("its `base_url` has no host: write `https://host`"));
        };
        let is_here = matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        if token.is_some() && base.scheme() != "https" && !is_here {
            return Err(wrong("its `token` goes by TLS only: write `https://host`"));
        }
        let port = base.port_or_known_default().unwrap_or_default();
        let guard =
            Guard::with_system_resolver([format!("{host}:{port}")]).map_err(Error::Broken)?;
        let client = guard.client(&base).map_err(|refused| wrong(&refused.to_string()))?.clone();
        Ok(Self { name: name.to_owned(), base, client, token })
    }

    fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<RequestBuilder, Error> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| unavailable(&self.name, "its address has no path".to_owned()))?
            .pop_if_empty()
            .extend(["api", "v1"])
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.client.get(url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        })
    }

    async fn json<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        what: &str,
    ) -> Result<T, Error> {
        let request = self.get(path, query)?.header("accept", "application/json");
        let bytes = http::fetch_bytes(&self.name, request, what, MAX_JSON_BYTES).await?;
        serde_json::from_slice(&bytes)
            .map_err(|_| unavailable(&self.name, "its answer was not understood".to_owned()))
    }

    async fn find(&self, query: &str, limit: usize) -> Result<Vec<SkillHit>, Error> {
        let limit = limit.to_string();
        let found: SearchResponse =
            self.json(&["search"], &[("q", query), ("limit", &limit)], "search").await?;
        let hits = found.results.into_iter().filter_map(|result| {
            // A skill with an invalid name could not be installed.
            let slug: SkillName = result.slug?.parse().ok()?;
            let summary = one_line(&result.summary?, MAX_SUMMARY_CHARS);
            let title = result.display_name.map(|title| one_line(&title, 80));
            Some(SkillHit {
                score: result.score,
                title: title.filter(|title| !title.is_empty()).unwrap_or_else(|| slug.to_string()),
                slug,
                summary,
                version: result.version.filter(|version| check_version(version).is_ok()),
                registry: self.name.clone(),
            })
        });
        Ok(hits.filter(|hit| !hit.summary.is_empty()).collect())
    }

    async fn load_meta(
        &self,
        slug: &SkillName,
        version: Option<&str>,
    ) -> Result<SkillVersionMeta, Error> {
        let what = format!("skill `{slug}`");
        let told: SkillResponse = self.json(&["skills", slug.as_str()], &[], &what).await?;
        let called = told.skill.map_or(told.slug, |skill| skill.slug);
        if let Some(called) = called.filter(|called| !slug.is_same(called)) {
            return Err(Error::Invalid(format!(
                "`{slug}` of the registry `{}` is now called `{}`: ask for that",
                self.name,
                crate::name::escape_untrusted(&called)
            )));
        }
        let newest = told.latest_version.map(|newest| newest.version);
        let version = version.map(str::to_owned).or_else(|| newest.clone());
        let Some(version) = version else {
            return Err(Error::NotFound {
                registry: self.name.clone(),
                what: format!("version of `{slug}`"),
            });
        };
        check_version(&version)?;
        let of_newest = told.moderation.map(Moderation::verdict);
        let verdict = match of_newest {
            // Moderation blocks all versions of a skill.
            Some(verdict @ Verdict::Malicious(_)) => verdict,
            Some(Verdict::Clean) if newest.as_deref() == Some(&version) => Verdict::Clean,
            Some(verdict @ Verdict::Suspicious(_)) => {
                self.scan_verdict(slug, &version).await.max(verdict)
            }
            Some(Verdict::Clean | Verdict::Unavailable(_)) | None => {
                self.scan_verdict(slug, &version).await
            }
        };
        Ok(SkillVersionMeta { version: Some(version), verdict })
    }

    /// Verdict of the scanners on a version. A missing result is [`Verdict::Unavailable`].
    async fn scan_verdict(&self, slug: &SkillName, version: &str) -> Verdict {
        let query = [("version", version)];
        let told =
            self.json::<ScanResponse>(&["skills", slug.as_str(), "scan"], &query, "scan").await;
        match told {
            Ok(scan) => scan.verdict(),
            Err(error) => Verdict::Unavailable(one_line(&error.to_string(), 200)),
        }
    }
}

impl Registry for ClawHub {
    fn name(&self) -> &str {
        &self.name
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SkillHit>, Error>> {
        Box::pin(self.find(query, limit))
    }

    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SkillVersionMeta, Error>> {
        Box::pin(self.load_meta(slug, version))
    }

    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>> {
        Box::pin(async move {
            let mut query = vec![("slug", slug.as_str())];
            query.extend(version.map(|version| ("version", version)));
            let what = match version {
                Some(version) => format!("version `{version}` of `{slug}`"),
                None => format!("skill `{slug}`"),
            };
            let request = self.get(&["download"], &query)?;
            let bytes = http::fetch_bytes(&self.name, request, &what, MAX_ARCHIVE_BYTES).await?;
            Ok(Download::Zip(bytes))
        })
    }
}

#[derive(Debug, Deserialize)]
struct SearchResponse {
    results: Vec<SearchEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SearchEntry {
    #[serde(default)]
    score: f64,
    slug: Option<String>,
    display_name: Option<String>,
    summary: Option<String>,
    version: Option<String>,
}

/// Response for a skill; older servers have the fields of `skill` at the top level.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkillResponse {
    skill: Option<SkillIdentity>,
    slug: Option<String>,
    latest_version: Option<Version>,
    moderation: Option<Moderation>,
}

#[derive(Debug, Deserialize)]
struct SkillIdentity {
    slug: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Moderation {
    is_malware_blocked: Option<bool>,
    is_suspicious: Option<bool>,
    summary: Option<String>,
}

impl Moderation {
    fn verdict(self) -> Verdict {
        let said = |otherwise: &str| {
            let said = self.summary.as_deref().map(|said| one_line(said, MAX_SUMMARY_CHARS));
            said.filter(|said| !said.is_empty()).unwrap_or_else(|| otherwise.to_owned())
        };
        match (self.is_malware_blocked, self.is_suspicious) {
            (Some(true), _) => Verdict::Malicious(said("its moderation blocks it")),
            (_, Some(true)) => Verdict::Suspicious(said("its moderation flags it")),
            (Some(false), Some(false)) => Verdict::Clean,
            // An incomplete verdict does not count.
            _ => Verdict::Unavailable("its moderation says nothing".to_owned()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct ScanResponse {
    security: Option<ScanVerdict>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScanVerdict {
    #[serde(default)]
    has_scan_result: bool,
    status: Option<String>,
}

impl ScanResponse {
    fn verdict(self) -> Verdict {
        let none = || Verdict::Unavailable("no scanner has come to a verdict".to_owned());
        let Some(security) = self.security.filter(|security| security.has_scan_result) else {
            return none();
        };
        match security.status.as_deref() {
            Some("clean") => Verdict::Clean,
            Some("suspicious") => Verdict::Suspicious("its scanners flag it".to_owned()),
            Some("malicious") => Verdict::Malicious("its scanners find it malicious".to_owned()),
            _ => none(),
        }
    }
}
