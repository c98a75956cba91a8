//! The `web_fetch` tool: text of a web page.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use holdfast_egress::{Guard, Lookup, SystemResolver};
use holdfast_types::Effect;
use reqwest::{StatusCode, Url, header::LOCATION};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::body::{Body, MAX_BODY_BYTES, PageText};
use crate::{AllowedHosts, Call, Output, Tool, ToolError, untrusted};

/// Timeout of a fetch, redirects included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

const MAX_REDIRECTS: usize = 5;

/// Maximum length of a text that the model gets, in characters.
const MAX_SHOWN_CHARS: usize = 50_000;

/// Fetch a page or a file from the web, and read its text. HTML is turned into Markdown.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebFetchInput {
    /// Its address, as in `https://example.com/page`.
    url: String,
}

/// Fetches pages of the public Internet, and from addresses that the operator listed.
#[derive(Debug)]
pub struct WebFetch {
    guard: Guard,
    patience: Duration,
}

impl WebFetch {
    /// Builds the tool. `allow` lists additional addresses: `host:port`, or `host` for any port.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn new(allow: Vec<String>) -> anyhow::Result<Self> {
        Self::with(allow, Arc::new(SystemResolver))
    }

    pub(super) fn with(allow: Vec<String>, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        Ok(Self { guard: Guard::new(allow, lookup)?, patience: FETCH_TIMEOUT })
    }

    #[cfg(test)]
    pub(super) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Fetches an address; returns the final URL, the status and the body.
    async fn fetch(
        &self,
        hosts: &AllowedHosts,
        said: &str,
    ) -> Result<(Url, StatusCode, Body), String> {
        let mut url = Guard::parse(said).map_err(|refused| refused.to_string())?;
        for _ in 0..=MAX_REDIRECTS {
            hosts.check(&url)?;
            let client = self.guard.client(&url).map_err(|refused| refused.to_string())?;
            let sent = client.get(url.clone()).header("accept", ACCEPT_HEADER).send().await;
            let response = sent.map_err(|error| Guard::told(&error))?;
            let status = response.status();
            if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let next = to.and_then(|to| url.join(to).ok());
                url =
                    next.ok_or_else(|| "it leads elsewhere, and does not say where".to_owned())?;
                continue;
            }
            if !status.is_success() {
                return Err(format!("the server answered {}", status.as_u16()));
            }
            return Ok((url, status, Body::read(response).await?));
        }
        Err(format!("it leads elsewhere more than {MAX_REDIRECTS} times"))
    }
}

const ACCEPT_HEADER: &str =
    "text/html, text/plain, application/json, application/xml, text/*;q=0.8";

impl Tool<Output> for WebFetch {
    const NAME: &'static str = "web_fetch";
    const EFFECT: Effect = Effect::Reads;
    // Longer than its own timeout, whose error message is better.
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(35));
    type Input = WebFetchInput;

    async fn call(&self, call: Call, input: WebFetchInput) -> Result<Output, ToolError> {
        let fetched =
            tokio::time::timeout(self.patience, self.fetch(&call.hosts, &input.url)).await;
        let fetched = fetched
            .unwrap_or_else(|_| Err(format!("it took longer than {} s", self.patience.as_secs())));
        let shown = || crate::untrusted::one_line(&input.url).chars().take(200).collect::<String>();
        let cannot = |why| ToolError::Tell(format!("`{}` cannot be fetched: {why}", shown()));
        let (url, status, body) = fetched.map_err(cannot)?;
        let details = json!({
            "url": url.as_str(),
            "status": status.as_u16(),
            "media_type": body.media_type,
            "bytes": body.len(),
        });
        let is_cut = body.is_cut;
        let address = url.clone();
        // Parsing two megabytes would block an async thread.
        let told = tokio::task::spawn_blocking(move || body.decode(&url)).await;
        let PageText { title, text } =
            told.map_err(|error| ToolError::Broken(error.into()))?.map_err(cannot)?;
        let mut page = String::new();
        if !title.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(page, "Title: {title}\n");
        }
        page.push_str(if text.trim().is_empty() { "(there is no text)" } else { &text });
        let mut told = untrusted(&call.key, address.as_str(), &page, MAX_SHOWN_CHARS);
        if is_cut {
            let _ = writeln!(told, "[only the first {MAX_BODY_BYTES} bytes were read]");
        }
        Ok(Output::from(told).record(details))
    }
}

#[cfg(test)]
mod tests;
