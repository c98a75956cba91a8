//! Verification of JWT signatures by ring, which the product uses for TLS already.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{ErrorKind, Result},
    signature::{Error, Verifier},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// Makes this the process's provider. The gateway signs no tokens.
pub fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: refuse_to_sign,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    // Another gateway in the same process has installed the same one.
    PROVIDER.install_default().ok();
}

fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    match (algorithm, key.family()) {
        (Algorithm::RS256, AlgorithmFamily::Rsa)
        | (Algorithm::ES256, AlgorithmFamily::Ec)
        | (Algorithm::EdDSA, AlgorithmFamily::Ed) => {
            Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
        }
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified =
            match self.key.kind() {
                DecodingKeyKind::RsaModulusExponent { n, e } => RsaPublicKeyComponents { n, e }
                    .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
                DecodingKeyKind::SecretOrDer(key) => {
                    let algorithm: &'static dyn VerificationAlgorithm = match self.algorithm {
                        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
                        Algorithm::EdDSA => &ED25519,
                        _ => return Err(Error::new()),
                    };
                    UnparsedPublicKey::new(algorithm, key).verify(message, signature)
                }
            };
        verified.map_err(|_| Error::new())
    }
}
