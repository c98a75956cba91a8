//! Access tokens of Google Cloud, as its token endpoint and metadata servers give them.
//!
//! A grant is checked as <https://developers.google.com/identity/protocols/oauth2/service-account#authorizingrequests>
//! says, but for the signature: the key of a service account is the test's.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// Token that both servers give, and that Vertex AI takes.
pub(super) const TOKEN: &str = "ya29.token-of-the-fake";

/// Path of the tokens of the machine's service account.
pub(super) const METADATA_PATH: &str =
    "/computeMetadata/v1/instance/service-accounts/default/token";

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Lifetime of a grant at most, in seconds.
const MAX_LIFETIME: u64 = 3_600;

pub(super) fn token() -> Value {
    json!({"access_token": TOKEN, "expires_in": 3_599, "token_type": "Bearer"})
}

/// Checks a request for a token of a service account; fails with what is wrong with it.
pub(super) fn check_grant(headers: &HeaderMap, form: &str) -> Result<(), String> {
    let field = |name: &str| {
        let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        percent_decode_str(value.unwrap_or_default()).decode_utf8_lossy().into_owned()
    };
    if field("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
        return Err("the grant type is not that of a JWT".to_owned());
    }
    let assertion = field("assertion");
    let parts: Vec<&str> = assertion.split('.').collect();
    let [head, claims, signature] = parts.as_slice() else {
        return Err("a JWT has three parts".to_owned());
    };
    let json = |part: &str| -> Value {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    };
    let (head, claims) = (json(head), json(claims));
    if head["alg"] != "RS256" || signature.is_empty() {
        return Err("the JWT is not signed with RS256".to_owned());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if claims["aud"] != format!("http://{host}/token") {
        return Err(format!("the audience is not this endpoint: {}", claims["aud"]));
    }
    if !claims["scope"].as_str().is_some_and(|scopes| scopes.split(' ').any(|one| one == SCOPE)) {
        return Err(format!("the scope is not that of the cloud: {}", claims["scope"]));
    }
    if !claims["iss"].as_str().is_some_and(|account| account.ends_with(".iam.gserviceaccount.com"))
    {
        return Err("the issuer is no service account".to_owned());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (begin, end) = (claims["iat"].as_u64(), claims["exp"].as_u64());
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err("the JWT has no times".to_owned());
    };
    // A clock may differ by some minutes.
    if begin > now + 300 || end <= now || end.saturating_sub(begin) > MAX_LIFETIME {
        return Err("the JWT is not valid now, or for more than an hour".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl Fn(&mut Value)) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": "bot@p.iam.gserviceaccount.com", "scope": SCOPE,
            "aud": "http://127.0.0.1:1/token", "iat": now, "exp": now + 3_600,
        });
        change(&mut claims);
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let jwt = format!("{}.{}.c2ln", part(&json!({"alg": "RS256"})), part(&claims));
        let form = format!(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={jwt}"
        );
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1:1".parse().unwrap());
        check_grant(&headers, &form)
    }

    #[test]
    fn a_grant_has_its_audience_scope_issuer_and_times() {
        assert_eq!(checked(|_| {}), Ok(()));
        for (name, value) in [
            ("aud", json!("https://oauth2.googleapis.com/token")),
            ("scope", json!("https://www.googleapis.com/auth/drive")),
            ("iss", json!("me@example.com")),
            ("exp", json!(1)),
            ("exp", json!(u64::MAX)),
            ("iat", Value::Null),
        ] {
            assert!(checked(|claims| claims[name] = value.clone()).is_err(), "{name} {value}");
        }
    }
}
