//! Identity of a device: an Ed25519 key, and its signature over the handshake.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::super::error::MethodError;

/// Difference between the clocks of a device and the gateway that is accepted, in milliseconds.
const MAX_SKEW_MS: i64 = 120_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// SHA-256 of the public key, in hex.
    pub id: String,
    /// 32 bytes in URL-safe base64.
    public_key: String,
    signature: String,
    /// Unix milliseconds.
    signed_at: i64,
    nonce: String,
}

/// Fields of the handshake that the signature covers.
#[derive(Debug)]
pub struct SignedFields<'a> {
    pub client: &'a str,
    pub mode: &'a str,
    pub role: &'a str,
    pub scopes: &'a [String],
    pub token: &'a str,
    pub platform: &'a str,
    pub family: &'a str,
}

type DeviceRefusal = (MethodError, &'static str);

impl DeviceIdentity {
    /// Verifies that the device has signed this handshake.
    ///
    /// # Errors
    ///
    /// With the code of what is wrong.
    pub fn verify(
        &self,
        signed: &SignedFields<'_>,
        nonce: &str,
        now: i64,
    ) -> Result<(), DeviceRefusal> {
        let key = self.key().ok_or_else(|| {
            refused("DEVICE_AUTH_PUBLIC_KEY_INVALID", "device public key invalid")
        })?;
        if self.id != hex(&Sha256::digest(key)) {
            return Err(refused("DEVICE_AUTH_DEVICE_ID_MISMATCH", "device identity mismatch"));
        }
        if (now - self.signed_at).abs() > MAX_SKEW_MS {
            return Err(refused("DEVICE_AUTH_SIGNATURE_EXPIRED", "device signature expired"));
        }
        if self.nonce.is_empty() {
            return Err(refused("DEVICE_AUTH_NONCE_REQUIRED", "device nonce required"));
        }
        if self.nonce != nonce {
            return Err(refused("DEVICE_AUTH_NONCE_MISMATCH", "device nonce mismatch"));
        }
        let invalid = || refused("DEVICE_AUTH_SIGNATURE_INVALID", "device signature invalid");
        let signature = decode(&self.signature).ok_or_else(invalid)?;
        let key = UnparsedPublicKey::new(&ED25519, &key);
        let is_signed = |payload: String| key.verify(payload.as_bytes(), &signature).is_ok();
        let v2 = self.payload("v2", signed);
        let v3 = format!(
            "{}|{}|{}",
            self.payload("v3", signed),
            normalize(signed.platform),
            normalize(signed.family)
        );
        if is_signed(v3) || is_signed(v2) { Ok(()) } else { Err(invalid()) }
    }

    /// The key; `None` if it is malformed.
    pub fn key(&self) -> Option<[u8; 32]> {
        decode(&self.public_key)?.try_into().ok()
    }

    fn payload(&self, version: &str, signed: &SignedFields<'_>) -> String {
        let SignedFields { client, mode, role, scopes, token, .. } = signed;
        let Self { id, signed_at, nonce, .. } = self;
        let scopes = scopes.join(",");
        format!("{version}|{id}|{client}|{mode}|{role}|{scopes}|{signed_at}|{token}|{nonce}")
    }
}

fn normalize(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refused(code: &'static str, why: &'static str) -> DeviceRefusal {
    (MethodError::invalid(why).with_details(json!({ "code": code })), why)
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, KeyPair as _},
    };

    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn fields(scopes: &[String]) -> SignedFields<'_> {
        SignedFields {
            client: "cli",
            mode: "cli",
            role: "operator",
            scopes,
            token: "hf_x",
            platform: "Linux ",
            family: "",
        }
    }

    fn device(version: &str, signed: &SignedFields<'_>) -> DeviceIdentity {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let key = pair.public_key().as_ref();
        let mut device = DeviceIdentity {
            id: hex(&Sha256::digest(key)),
            public_key: URL_SAFE_NO_PAD.encode(key),
            signature: String::new(),
            signed_at: NOW,
            nonce: "nonce".to_owned(),
        };
        let mut payload = device.payload(version, signed);
        if version == "v3" {
            payload.push_str("|linux|");
        }
        device.signature = URL_SAFE_NO_PAD.encode(pair.sign(payload.as_bytes()));
        device
    }

    #[test]
    fn a_signature_of_either_version_is_accepted() {
        let scopes = ["operator.read".to_owned(), "operator.write".to_owned()];
        let signed = fields(&scopes);
        for version in ["v2", "v3"] {
            device(version, &signed).verify(&signed, "nonce", NOW + 1_000).unwrap();
        }
    }

    #[test]
    fn a_device_that_did_not_sign_this_handshake_is_refused() {
        let scopes = ["operator.read".to_owned()];
        let signed = fields(&scopes);
        let code = |device: DeviceIdentity, nonce: &str, now| {
            let (error, _) = device.verify(&signed, nonce, now).unwrap_err();
            error.details.unwrap()["code"].as_str().unwrap().to_owned()
        };
        let device = |change: fn(&mut DeviceIdentity)| {
            let mut device = device("v2", &signed);
            change(&mut device);
            device
        };

        assert_eq!(code(device(|_| {}), "other", NOW), "DEVICE_AUTH_NONCE_MISMATCH");
        assert_eq!(code(device(|_| {}), "nonce", NOW + 200_000), "DEVICE_AUTH_SIGNATURE_EXPIRED");
        let expected = "DEVICE_AUTH_DEVICE_ID_MISMATCH";
        assert_eq!(code(device(|device| device.id.push('0')), "nonce", NOW), expected);
        let expected = "DEVICE_AUTH_PUBLIC_KEY_INVALID";
        assert_eq!(code(device(|device| device.public_key.truncate(9)), "nonce", NOW), expected);
        let expected = "DEVICE_AUTH_SIGNATURE_INVALID";
        assert_eq!(code(device(|device| device.signed_at += 1), "nonce", NOW), expected);
        let (error, _) = device(|_| {}).verify(&fields(&[]), "nonce", NOW).unwrap_err();
        assert_eq!(error.details.unwrap()["code"], expected);
    }
}
