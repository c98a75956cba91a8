//! One signed request, as Standard Webhooks describes it.
//!
//! `webhook-signature` is `v1,` and the base64 of HMAC-SHA-256(secret, id `.` timestamp `.` body),
//! with the bytes that `whsec_` encodes as the secret; during a rotation one for each secret,
//! separated by a space.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_egress::{Guard, describe_failure, refusal};
use reqwest::header::CONTENT_TYPE;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Outcome of a request.
pub(super) enum PostResult {
    Accepted,
    /// Why it was not accepted; contains no address.
    Refused(String),
}

/// Posts an event. Any status of success accepts it.
pub(super) async fn post(
    guard: &Guard,
    url: &str,
    (id, body): (&str, &str),
    secrets: &[SecretString],
) -> PostResult {
    let (client, url) = match Guard::parse(url).and_then(|url| Ok((guard.client(&url)?, url))) {
        Ok(found) => found,
        Err(refused) => return PostResult::Refused(refused.to_string()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let timestamp = now.to_string();
    let signatures: Vec<String> =
        secrets.iter().map(|secret| sign(secret, id, &timestamp, body)).collect();
    let request = client
        .post(url)
        .timeout(TIMEOUT)
        .header(CONTENT_TYPE, "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", &timestamp)
        .header("webhook-signature", signatures.join(" "))
        .body(body.to_owned());
    match request.send().await {
        Ok(response) if response.status().is_success() => PostResult::Accepted,
        Ok(response) if response.status().is_redirection() => PostResult::Refused(format!(
            "the receiver answered {}: redirects are not followed, set `url` to where it leads",
            response.status().as_u16()
        )),
        Ok(response) => {
            PostResult::Refused(format!("the receiver answered {}", response.status().as_u16()))
        }
        Err(error) => PostResult::Refused(match refusal(&error) {
            Some(refused) => refused.to_string(),
            None => describe_failure(&error).to_owned(),
        }),
    }
}

fn sign(secret: &SecretString, id: &str, timestamp: &str, body: &str) -> String {
    let text = secret.expose_secret();
    let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).unwrap_or_default();
    // A key of any length can be used.
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(&key) else { return String::new() };
    let mac = mac.chain_update(format!("{id}.{timestamp}.{body}"));
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        // The example of the specification's reference libraries.
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let body = r#"{"test": 2432232314}"#;

        assert_eq!(
            sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }
}
