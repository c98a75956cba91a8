//! Keys that sign tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use serde_json::{Value, json};

/// A key of tests, which protects nothing. ring makes no RSA keys.
const RSA_KEY: &[u8] = include_bytes!("rsa.pk8");

#[derive(Debug)]
pub struct SigningKey {
    kid: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl SigningKey {
    /// The one RSA key of this kit.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test without keys cannot go on")]
    pub fn rs256(kid: &str) -> Self {
        let key = RsaKeyPair::from_pkcs8(RSA_KEY).expect("the key in the repository is valid");
        Self { kid: kid.to_owned(), kind: Kind::Rs256(key) }
    }

    /// A new key.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test without keys cannot go on")]
    pub fn es256(kid: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let new = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random numbers");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, new.as_ref(), &random).expect("a new key");
        Self { kid: kid.to_owned(), kind: Kind::Es256(key) }
    }

    /// A new key.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test without keys cannot go on")]
    pub fn eddsa(kid: &str) -> Self {
        let new = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random numbers");
        let key = Ed25519KeyPair::from_pkcs8(new.as_ref()).expect("a new key");
        Self { kid: kid.to_owned(), kind: Kind::EdDsa(key) }
    }

    /// A token with these claims.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with_header(&json!({"alg": self.alg(), "typ": "JWT", "kid": self.kid}), claims)
    }

    /// A token with this header, whatever it says.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test without signatures cannot go on")]
    pub fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.kind {
            Kind::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
                    .expect("RSA signs");
                signature
            }
            Kind::Es256(key) => {
                key.sign(&random, message.as_bytes()).expect("ECDSA signs").as_ref().to_vec()
            }
            Kind::EdDsa(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A token whose HMAC has the public key as its secret, as an attacker would make it.
    #[must_use]
    pub fn sign_by_hmac(&self, claims: &Value) -> String {
        let message = message(&json!({"alg": "HS256", "typ": "JWT", "kid": self.kid}), claims);
        let public = match &self.kind {
            Kind::Rs256(key) => key.public().as_ref(),
            Kind::Es256(key) => key.public_key().as_ref(),
            Kind::EdDsa(key) => key.public_key().as_ref(),
        };
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public), message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// A token without a signature.
    #[must_use]
    pub fn unsigned(claims: &Value) -> String {
        format!("{}.", message(&json!({"alg": "none", "typ": "JWT"}), claims))
    }

    /// The public key, as in a key set.
    #[must_use]
    pub fn public_jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.kind {
            Kind::Rs256(key) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e)})
            }
            Kind::Es256(key) => {
                // 4, x, y.
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..])})
            }
            Kind::EdDsa(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": text(key.public_key().as_ref())})
            }
        };
        jwk["kid"] = self.kid.clone().into();
        jwk["alg"] = self.alg().into();
        jwk["use"] = "sig".into();
        jwk
    }

    const fn alg(&self) -> &'static str {
        match self.kind {
            Kind::Rs256(_) => "RS256",
            Kind::Es256(_) => "ES256",
            Kind::EdDsa(_) => "EdDSA",
        }
    }
}

fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}
