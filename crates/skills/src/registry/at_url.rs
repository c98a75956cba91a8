//! Registry of a single archive at a URL.
//!
//! A person or a model chooses the URL, so requests pass the tools' guard: only public addresses
//! are allowed, and each redirect is checked again. There is no verdict on the skill.

use futures::future::BoxFuture;
use holdfast_tools::Guard;
use reqwest::Url;

use super::{
    Hit, Meta, Registry, Verdict, http,
    http::{MOST_ARCHIVE, in_time, unavailable},
};
use crate::{Download, Error, SkillName};

const MOST_REDIRECTS: usize = 5;

/// Archive of one skill at a URL.
#[derive(Debug, Clone)]
pub struct AtUrl {
    slug: SkillName,
    url: Url,
    guard: Guard,
}

impl AtUrl {
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
        for _ in 0..=MOST_REDIRECTS {
            let client = self.guard.client(&url);
            let client = client.map_err(|refused| Error::Forbidden(refused.to_string()))?;
            let response = http::send(Self::NAME, client.get(url.clone())).await?;
            if let Some(next) = http::onward(&response, &url) {
                url = next;
                continue;
            }
            let response = http::checked(Self::NAME, response, "archive at this address")?;
            return http::body(Self::NAME, response, MOST_ARCHIVE).await;
        }
        let why = format!("it leads elsewhere more than {MOST_REDIRECTS} times");
        Err(unavailable(Self::NAME, why))
    }
}

impl Registry for AtUrl {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn search<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<Vec<Hit>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn meta<'a>(
        &'a self,
        slug: &'a SkillName,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Meta, Error>> {
        Box::pin(async move {
            self.check(slug)?;
            if version.is_some() {
                return Err(Error::Invalid(
                    "an archive at an address has no versions: leave `version` out".to_owned(),
                ));
            }
            let why = "nobody judges what is at an address".to_owned();
            Ok(Meta { version: None, verdict: Verdict::Unavailable(why) })
        })
    }

    fn download<'a>(
        &'a self,
        slug: &'a SkillName,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Download, Error>> {
        Box::pin(async move {
            self.check(slug)?;
            Ok(Download::Zip(in_time(Self::NAME, self.fetch()).await?))
        })
    }
}
