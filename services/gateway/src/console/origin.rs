//! Origin of a request: whether the console's own page sent it, and how its browser reaches the gateway.

use http::{
    HeaderMap, Uri,
    header::{HOST, ORIGIN},
    uri::Authority,
};

use super::Console;
use crate::Error;

const FETCH_SITE: &str = "sec-fetch-site";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// Site that a request asks for, as its browser sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Host and port.
    authority: String,
    pub is_secure: bool,
}

impl Site {
    /// Site of a request. A proxy must pass `Host` on, or `configured` be the site's address.
    pub fn of(configured: Option<&str>, has_tls: bool, uri: &Uri, headers: &HeaderMap) -> Self {
        let has = |name, value: &str| headers.get(name).is_some_and(|given| given == value);
        let asked = uri
            .authority()
            .map(Authority::as_str)
            .or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
        // Browsers leave usual ports out, and some proxies write them.
        let asked = asked.unwrap_or_default();
        let asked = asked.strip_suffix(":443").or(asked.strip_suffix(":80")).unwrap_or(asked);
        let configured = configured.and_then(split);
        let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()).and_then(split);
        let is_secure = has_tls || has(FORWARDED_PROTO, "https");
        // The page's own address is better than what a proxy leaves of it.
        match (configured, origin) {
            (Some(own), Some(page)) if own == page => site(own),
            (Some(own), None) => site(own),
            (_, Some(page)) if page.1.eq_ignore_ascii_case(asked) => site(page),
            (Some(own), Some(_)) => site(own),
            (None, _) => Self { authority: asked.to_owned(), is_secure },
        }
    }

    /// Beginning of the addresses of the site.
    pub fn base(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

impl Console {
    /// Site of a request. A proxy must pass `Host` on, or `gateway.console.url` be set.
    pub fn site(&self, uri: &Uri, headers: &HeaderMap) -> Site {
        let settings = self.0.settings.get();
        let configured = settings.gateway.console.url.as_deref();
        Site::of(configured, self.0.has_tls, uri, headers)
    }

    /// Checks that the console's own page, or no page at all, sent a request.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignPage`] if another page did.
    pub fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
        let is_own = match headers.get(ORIGIN) {
            Some(origin) => {
                let origin = origin.to_str().ok().and_then(split);
                origin.is_some_and(|origin| site(origin) == self.site(uri, headers))
            }
            None => true,
        };
        let fetch = headers.get(FETCH_SITE).map(|site| site.to_str().unwrap_or("unreadable"));
        if is_own && matches!(fetch, None | Some("same-origin" | "none")) {
            return Ok(());
        }
        Err(Error::ForeignPage(
            "the request came from another web page than the console; if it is the console, its \
             proxy must pass `Host` on, or `gateway.console.url` be its address",
        ))
    }
}

/// Whether a page's address is one of HTTPS, and its host and port.
fn split(url: &str) -> Option<(bool, &str)> {
    let secure = url.strip_prefix("https://").map(|authority| (true, authority));
    secure.or_else(|| url.strip_prefix("http://").map(|authority| (false, authority)))
}

fn site((is_secure, authority): (bool, &str)) -> Site {
    Site { authority: authority.to_ascii_lowercase(), is_secure }
}
