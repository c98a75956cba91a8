//! Access to clouds: credentials, versions and paths.

use super::{Asked, sigv4};
use crate::model::google;

/// Key that the fake clouds take: of Azure, and as an API key of Bedrock.
pub const KEY: &str = "key";

fn bearer<'a>(asked: &Asked<'a>) -> Option<&'a str> {
    asked.arrival.header("authorization")?.strip_prefix("Bearer ")
}

/// Azure: a key in its own header, or a token of Entra ID.
pub(super) fn azure_key(asked: &Asked<'_>) -> Option<String> {
    let key = asked.arrival.header("api-key");
    let is_given = match (key, bearer(asked)) {
        (Some(key), None) => key == KEY,
        // A key is no token.
        (None, Some(token)) => !token.is_empty() && token != KEY,
        (Some(_), Some(_)) | (None, None) => false,
    };
    (!is_given).then(|| {
        "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide \
         a valid key for an active subscription and use a correct regional API endpoint for your \
         resource."
            .to_owned()
    })
}

/// Azure: deployments have a dated version, the path with `v1` has none.
pub(super) fn azure_version(asked: &Asked<'_>) -> Option<String> {
    let uri = &asked.arrival.uri;
    let pairs = uri.query().unwrap_or_default().split('&');
    let version = pairs.filter_map(|pair| pair.strip_prefix("api-version=")).next();
    let is_dated = |version: &str| version.starts_with(|c: char| c.is_ascii_digit());
    let is_fit = match uri.path().contains("/deployments/") {
        true => version.is_some_and(is_dated),
        false => !version.is_some_and(is_dated),
    };
    (!is_fit).then(|| "Resource not found".to_owned())
}

pub(super) fn azure_deployment(asked: &Asked<'_>) -> Option<String> {
    asked.model.is_empty().then(|| {
        "The API deployment for this resource does not exist. If you created the deployment within \
         the last 5 minutes, please wait a moment and try again."
            .to_owned()
    })
}

/// Azure: a dated version knows the fields of its day.
pub(super) fn azure_newer_field(asked: &Asked<'_>) -> Option<String> {
    const NEWER: [&str; 3] = ["prompt_cache_key", "safety_identifier", "verbosity"];
    let is_dated = asked.arrival.uri.path().contains("/deployments/");
    let field = NEWER.into_iter().find(|name| is_dated && !asked.body[*name].is_null())?;
    Some(format!("Unrecognized request argument supplied: {field}"))
}

/// Vertex AI: a token that Google gave.
pub(super) fn google_token(asked: &Asked<'_>) -> Option<String> {
    (bearer(asked) != Some(google::TOKEN)).then(|| {
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login \
         cookie or other valid authentication credential."
            .to_owned()
    })
}

/// Vertex AI: the method and the form of the stream are in the address.
pub(super) fn vertex_gemini_method(asked: &Asked<'_>) -> Option<String> {
    let uri = &asked.arrival.uri;
    // Without this a stream is one array.
    let is_fit = uri.path().ends_with(":streamGenerateContent") && uri.query() == Some("alt=sse");
    (!is_fit).then(|| format!("no such method: {uri}"))
}

/// Vertex AI: the method of Anthropic's models.
pub(super) fn vertex_claude_method(asked: &Asked<'_>) -> Option<String> {
    let uri = &asked.arrival.uri;
    (!uri.path().ends_with(":streamRawPredict")).then(|| format!("no such method: {uri}"))
}

/// Region of a host: the label after `bedrock-runtime`; us-east-1 for an address.
fn region<'a>(asked: &Asked<'a>) -> &'a str {
    let host = asked.arrival.header("host").unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    let mut labels = host.split('.').skip_while(|label| !label.starts_with("bedrock-runtime"));
    labels.nth(1).unwrap_or("us-east-1")
}

pub(super) fn aws_no_credentials(asked: &Asked<'_>) -> Option<String> {
    asked
        .arrival
        .header("authorization")
        .is_none()
        .then(|| "Missing Authentication Token".to_owned())
}

/// Bedrock: an API key, or a signature.
pub(super) fn aws_signature(asked: &Asked<'_>) -> Option<String> {
    match bearer(asked) {
        Some(key) => (key != KEY).then(|| "Authentication failed: invalid API key.".to_owned()),
        None => sigv4::fault(asked.arrival, region(asked), "bedrock"),
    }
}
