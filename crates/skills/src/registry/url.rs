//! Registry of a single archive at a URL.
//!
//! A person or a model chooses the URL, so requests pass the tools' guard: only public addresses
//! are allowed, and each redirect is checked again. There is no verdict on the skill.

use futures::future::BoxFuture;
use holdfast_egress::Guard;
use reqwest::Url;

use super::{
    Registry, SkillHit, SkillVersionMeta, Verdict, http,
    http::{MAX_ARCHIVE_BYTES, unavailable, with_timeout},
};
use crate::{Download, Error, SkillName};

const MAX_REDIRECTS: usize = 5;

/// Archive of one skill at a URL.
#[derive(Debug, Clone)]
pub struct UrlRegistry {
    slug: SkillName,
    url: Url,
    guard: Guard,
}

impl UrlRegistry {
    /// Name of this registry in policies and origins.
    pub const NAME: &str = "url";

    /// # Errors
    ///
    /// [`Error::Invalid`] if the URL is invalid, [`Error::Forbidden`] if its address is not public.
    pub fn new(slug: SkillName, url: &str, guard: Guard) -> Result<Self, Error> {
        let url = Guard::parse(url).map_err(|refused| Error::Invalid(refused.to_string()))?;
        guard.client(&url).map_err(|refused| Error::Forbidden(refused.to_string()))?;
        Ok(Self { slug, url, guard })
    }

    fn check(&self, slug: &SkillName) -> Result<(), Error> {
        if *slug == self.slug {
            return Ok(());
        }
        Err(Error::NotFound { registry: Self::NAME.to_owned(), what: format!("skill `{slug}`") })
    }

    async fn fetch(&self) -> Result<Vec<u8>, Error> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let client = self.guard.client(&url);
            let client = client.map_err(|refused| Error::Forbidden(refused.to_string()))?;
            let response = http::send(Self::NAME, client.get(url.clone())).await?;
            if let Some(next) = http::redirect_target(&response, &url) {
                url = next;
                continue;
            }
            let response = http::check_status(Self::NAME, response, "archive at this address")?;
            return http::read_body(Self::NAME, response, MAX_ARCHIVE_BYTES).await;
        }
        let why = format!("it leads elsewhere more than {MAX_REDIRECTS} times");
        Err(unavailable(Self::NAME, why))
    }
}

impl Registry for UrlRegistry {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn search<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<Vec<SkillHit>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SkillVersionMeta, Error>> {
        Box::pin(async move {
            self.check(slug)?;
            if version.is_some() {
                return Err(Error::Invalid(
                    "an archive at an address has no versions: leave `version` out".to_owned(),
                ));
            }
            let why = "nobody judges what is at an address".to_owned();
            Ok(SkillVersionMeta { version: None, verdict: Verdict::Unavailable(why) })
        })
    }

    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>> {
        Box::pin(async move {
            self.check(slug)?;
            Ok(Download::Zip(with_timeout(Self::NAME, self.fetch()).await?))
        })
    }
}
