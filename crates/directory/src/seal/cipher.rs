//! The cipher of sealed values: XChaCha20-Poly1305 with a random nonce, after a byte with the number
//! of the format.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

use crate::Error;

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;

pub(super) struct Key(SecretBox<[u8; 32]>);

impl Key {
    pub(super) fn generate() -> Self {
        Self::new(rand::random())
    }

    pub(super) fn new(bytes: [u8; 32]) -> Self {
        Self(SecretBox::new(Box::new(bytes)))
    }

    /// Reads a key-encryption key.
    pub(super) fn parse(text: &SecretString) -> Result<Self, Error> {
        let bytes = STANDARD.decode(text.expose_secret().trim()).map_err(|_| Error::InvalidKek)?;
        Ok(Self::new(bytes.try_into().map_err(|_| Error::InvalidKek)?))
    }

    pub(super) fn expose(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }

    /// Encrypts a value, which opens only with the same associated data.
    pub(super) fn encrypt(&self, context: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = XChaCha20Poly1305::new(&(*self.expose()).into())
            .encrypt(&XNonce::from(nonce), Payload { msg: value, aad: context })
            .map_err(|_| Error::Unsealable("a secret"))?;
        Ok([&[FORMAT], nonce.as_slice(), &sealed].concat())
    }

    pub(super) fn decrypt(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (format, rest) = sealed.split_first()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        if *format != FORMAT {
            return None;
        }
        XChaCha20Poly1305::new(&(*self.expose()).into())
            .decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: context })
            .ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}
