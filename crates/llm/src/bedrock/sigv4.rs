//! Signatures of AWS requests, version 4.
//!
//! The algorithm is documented at
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.
//! The signed headers are the host, the date and the session token.

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use ring::{digest, hmac};
use secrecy::{ExposeSecret as _, SecretString};

use crate::Error;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Keys of an AWS identity.
#[derive(Debug, Clone)]
pub(crate) struct AwsKeys {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: SecretString,
    /// Part of keys that expire.
    pub(crate) session_token: Option<SecretString>,
}

/// Service and region that a signature is for.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) region: String,
    pub(crate) service: &'static str,
}

/// Returns the headers that sign a request. `date` has the form `20150830T123600Z`.
pub(crate) fn sign(
    (method, url, body): (&str, &Url, &[u8]),
    keys: &AwsKeys,
    scope: &Scope,
    date: &str,
) -> Result<HeaderMap, Error> {
    let day = date.get(..8).unwrap_or_default();
    let mut signed = vec![("host", host(url)), ("x-amz-date", date.to_owned())];
    if let Some(token) = &keys.session_token {
        signed.push(("x-amz-security-token", token.expose_secret().to_owned()));
    }
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!(
        "{method}\n{}\n{}\n{lines}\n{names}\n{}",
        encode(url.path(), "/"),
        canonical_query(url),
        sha256_hex(body)
    );
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!("{ALGORITHM}\n{date}\n{place}\n{}", sha256_hex(canonical.as_bytes()));
    let mut key = format!("AWS4{}", keys.secret_access_key.expose_secret()).into_bytes();
    for part in [day, scope.region.as_str(), scope.service, "aws4_request"] {
        key = hmac_sha256(&key, part);
    }
    let signature = hex(&hmac_sha256(&key, &text));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{place}, SignedHeaders={names}, Signature={signature}",
        keys.access_key_id
    );
    signed.push((AUTHORIZATION.as_str(), authorization));
    let mut headers = HeaderMap::new();
    // The HTTP client sends the host itself.
    for (name, value) in signed.into_iter().skip(1) {
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| Error::Setup("the aws keys have characters that no key has"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Host as the HTTP client sends it: with a port that is not the usual one.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Parameters in their order, each encoded again.
fn canonical_query(url: &Url) -> String {
    let mut pairs: Vec<String> = url
        .query_pairs()
        .map(|(name, value)| format!("{}={}", encode(&name, ""), encode(&value, "")))
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// Encodes all but unreserved characters and `safe`.
pub(super) fn encode(text: &str, safe: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || safe.contains(c) {
            encoded.push(c);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn sha256_hex(data: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, data).as_ref())
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs a request of AWS's published test suite, and returns the signature.
    fn signature(method: &str, url: &str, session_token: Option<&str>) -> String {
        let keys = AwsKeys {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: session_token.map(Into::into),
        };
        let scope = Scope { region: "us-east-1".into(), service: "service" };
        let url = Url::parse(url).unwrap();
        let headers = sign((method, &url, b""), &keys, &scope, "20150830T123600Z").unwrap();
        assert_eq!(headers["x-amz-date"], "20150830T123600Z");
        let authorization = headers[AUTHORIZATION].to_str().unwrap().to_owned();
        assert!(authorization.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        ));
        authorization.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    // <https://github.com/awslabs/aws-c-auth/tree/main/tests/aws-signing-test-suite/v4>
    #[test]
    fn requests_of_the_published_test_suite_have_its_signatures() {
        let url = "https://example.amazonaws.com/";
        let ordered = "https://example.amazonaws.com/?Param2=value2&Param1=value1";

        assert_eq!(
            signature("GET", url, None),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        assert_eq!(
            signature("POST", url, None),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
        assert_eq!(
            signature("GET", ordered, None),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let with = signature("GET", "https://example.amazonaws.com/", Some("token"));

        assert_ne!(with, signature("GET", "https://example.amazonaws.com/", None));
        assert_ne!(with, signature("GET", "https://example.amazonaws.com/", Some("other")));
    }

    #[test]
    fn a_name_is_encoded_so_that_it_leads_nowhere_else() {
        assert_eq!(encode("a.b-v1:0", ""), "a.b-v1%3A0");
        assert_eq!(encode("../x?y#z", ""), "..%2Fx%3Fy%23z");
        assert_eq!(encode("/model/a%3A0/x", "/"), "/model/a%253A0/x");
    }
}
