//! Signatures of AWS requests, version 4, as the servers check them
//! (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>).

use axum::http::Uri;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use percent_encoding::percent_decode_str;
use ring::{digest, hmac};

use crate::model::Arrival;

/// Keys that the fake knows, as `aws configure export-credentials` prints them.
pub const AWS_KEYS: &str = r#"{
  "Version": 1, "AccessKeyId": "ASIAFAKE",
  "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "SessionToken": "session/of+fake=="
}"#;

const ACCESS_KEY_ID: &str = "ASIAFAKE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SESSION_TOKEN: &str = "session/of+fake==";

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Difference of clocks that AWS allows, in seconds.
const MAX_SKEW_SECONDS: i64 = 300;

/// Parts of the header `Authorization`.
struct Authorization<'a> {
    /// Key, day, region, service, `aws4_request`.
    scope: Vec<&'a str>,
    signed: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn parse(header: &'a str) -> Option<Self> {
        let fields = header.strip_prefix(ALGORITHM)?.split(',').map(str::trim);
        let fields: Vec<(&str, &str)> = fields.filter_map(|field| field.split_once('=')).collect();
        let field =
            |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        Some(Self {
            scope: field("Credential")?.split('/').collect(),
            signed: field("SignedHeaders")?.split(';').collect(),
            signature: field("Signature")?,
        })
    }
}

/// What is wrong with a signed request; `None` if nothing is.
pub(super) fn fault(arrival: &Arrival, region: &str, service: &str) -> Option<String> {
    check(arrival, region, service, Timestamp::now()).err()
}

fn check(arrival: &Arrival, region: &str, service: &str, now: Timestamp) -> Result<(), String> {
    let header = arrival.header("authorization").unwrap_or_default();
    let given = Authorization::parse(header).ok_or("Authorization header is malformed.")?;
    let date = arrival.header("x-amz-date").unwrap_or_default();
    let parsed = DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok();
    let parsed = parsed.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    let parsed = parsed.ok_or("Date in X-Amz-Date is missing or malformed.")?;
    let skew = now.as_second() - parsed.timestamp().as_second();
    if skew.abs() > MAX_SKEW_SECONDS {
        return Err(format!("Signature expired: {date} is too far from now."));
    }
    let day = date.get(..8).unwrap_or_default();
    if given.scope != [ACCESS_KEY_ID, day, region, service, "aws4_request"] {
        return Err(format!(
            "Credential should be scoped to a valid region, not {:?}.",
            given.scope
        ));
    }
    if arrival.header("x-amz-security-token") != Some(SESSION_TOKEN) {
        return Err("The security token included in the request is invalid.".to_owned());
    }
    for needed in ["host", "x-amz-date", "x-amz-security-token"] {
        if !given.signed.contains(&needed) {
            return Err(format!(
                "'{needed}' must be a 'SignedHeader' in the Authorization Header."
            ));
        }
    }
    if given.signature != signature(arrival, &given, date) {
        return Err("The request signature we calculated does not match the signature you \
                    provided."
            .to_owned());
    }
    Ok(())
}

fn signature(arrival: &Arrival, given: &Authorization<'_>, date: &str) -> String {
    let value = |name: &str| arrival.header(name).unwrap_or_default().trim();
    let lines: String =
        given.signed.iter().map(|name| format!("{name}:{}\n", value(name))).collect();
    // All services but S3 encode the path once more.
    let path: Vec<String> = arrival.uri.path().split('/').map(encode).collect();
    let canonical = format!(
        "POST\n{}\n{}\n{lines}\n{}\n{}",
        path.join("/"),
        canonical_query(&arrival.uri),
        given.signed.join(";"),
        sha256(&arrival.body)
    );
    let scope = given.scope[1..].join("/");
    let text = format!("{ALGORITHM}\n{date}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let first = format!("AWS4{SECRET}").into_bytes();
    let key = given.scope[1..].iter().fold(first, |key, part| hmac_sha256(&key, part));
    hex(&hmac_sha256(&key, &text))
}

fn canonical_query(uri: &Uri) -> String {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<String> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            format!("{}={}", encode(&decoded(name)), encode(&decoded(value)))
        })
        .collect();
    pairs.sort();
    pairs.join("&")
}

/// Encodes all but unreserved characters.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn sha256(data: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, data).as_ref())
}

fn hmac_sha256(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;

    /// Time at which the request was signed, by another program.
    const NOW: &str = "2026-11-29T12:00:00Z";

    fn arrival(path: &str, body: &'static str) -> Arrival {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "bedrock-runtime.us-east-1.amazonaws.com"),
            ("x-amz-date", "20261129T120000Z"),
            ("x-amz-security-token", SESSION_TOKEN),
            ("authorization", SIGNED),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        Arrival { uri: path.parse().unwrap(), headers, body: body.into() }
    }

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=ASIAFAKE/20261129/us-east-1/bedrock/aws4_request, \
        SignedHeaders=host;x-amz-date;x-amz-security-token, \
        Signature=2274fbea9a9bad18c374bc5d08b75c8d3c9fc7583947fed6353d531e3cc91d46";
    const PATH: &str = "/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/converse-stream";

    #[test]
    fn a_signature_is_of_this_path_body_region_and_time() {
        let at = |path, body, region, now: &str| {
            check(&arrival(path, body), region, "bedrock", now.parse().unwrap())
        };

        assert_eq!(at(PATH, "{}", "us-east-1", NOW), Ok(()));
        assert!(at("/model/x/converse-stream", "{}", "us-east-1", NOW).is_err());
        assert!(at(PATH, "{ }", "us-east-1", NOW).is_err());
        assert!(at(PATH, "{}", "eu-west-1", NOW).is_err());
        assert!(at(PATH, "{}", "us-east-1", "2026-11-29T12:10:00Z").is_err());
    }
}
