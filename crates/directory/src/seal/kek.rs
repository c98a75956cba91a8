//! Key-encryption key: seals data keys and keys of the installation.

use std::{fmt, pin::Pin};

use holdfast_kit::config::Secrets;
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use super::{
    cipher::Key,
    request_key::{self, KeyPurpose},
};
use crate::Error;

const FORMAT_WITH_KEY_ID: u8 = 2;
const KEY_ID_BYTES: usize = 4;

/// Public name of a key: a part of its hash.
type KeyId = [u8; KEY_ID_BYTES];

pub(super) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Source of the key-encryption key. It gives the key to nobody, so it can be another service: it is
/// asked for each value.
pub(super) trait KeyEncryption: fmt::Debug + Send + Sync {
    /// Seals a value, which opens only with the same context.
    fn seal<'a>(&'a self, context: &'a [u8], value: &'a [u8]) -> Answer<'a, Vec<u8>>;

    /// Opens a value; `None` if it was sealed with another context or key, or is damaged.
    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> Answer<'a, Option<Vec<u8>>>;

    /// Derives the keys of a purpose from a secret: of the current key first, and of the previous one
    /// during a rotation.
    fn signing_keys<'a>(
        &'a self,
        purpose: KeyPurpose,
        secret: &'a [u8],
    ) -> Answer<'a, Vec<[u8; 32]>>;

    /// Whether a value was sealed with the current key, as far as the value tells.
    fn is_current(&self, sealed: &[u8]) -> bool;
}

/// Key-encryption key from the settings, and during a rotation another one.
#[derive(Debug)]
pub(super) struct ConfiguredKek {
    current: Key,
    previous: Option<Key>,
}

impl ConfiguredKek {
    /// Reads `secrets.kek`, and `secrets.previous_kek` unless it is empty: 32 bytes in base64.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKek`] if a text is anything else.
    pub(super) fn new(secrets: &Secrets) -> Result<Self, Error> {
        let previous = match secrets.previous_kek.expose_secret() {
            "" => None,
            _ => Some(Key::parse(&secrets.previous_kek)?),
        };
        Ok(Self { current: Key::parse(&secrets.kek)?, previous })
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        [&self.current].into_iter().chain(&self.previous)
    }

    fn encrypt(&self, context: &[u8], value: &[u8]) -> Result<Vec<u8>, Error> {
        if self.previous.is_none() {
            return self.current.encrypt(context, value);
        }
        let id = key_id(&self.current);
        let sealed = self.current.encrypt(&context_with_key(context, id), value)?;
        Ok([&[FORMAT_WITH_KEY_ID], id.as_slice(), &sealed].concat())
    }

    fn decrypt(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        match key_id_of(sealed) {
            Some((id, sealed)) => self
                .keys()
                .find(|key| key_id(key) == id)
                .and_then(|key| key.decrypt(&context_with_key(context, id), sealed)),
            None => self.keys().find_map(|key| key.decrypt(context, sealed)),
        }
    }
}

impl KeyEncryption for ConfiguredKek {
    fn seal<'a>(&'a self, context: &'a [u8], value: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async move { self.encrypt(context, value) })
    }

    fn open<'a>(&'a self, context: &'a [u8], sealed: &'a [u8]) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.decrypt(context, sealed)) })
    }

    fn signing_keys<'a>(
        &'a self,
        purpose: KeyPurpose,
        secret: &'a [u8],
    ) -> Answer<'a, Vec<[u8; 32]>> {
        let keys: Vec<_> =
            self.keys().map(|key| request_key::derive(key.expose(), purpose, secret)).collect();
        Box::pin(async move { Ok(keys) })
    }

    fn is_current(&self, sealed: &[u8]) -> bool {
        key_id_of(sealed).is_some_and(|(id, _)| id == key_id(&self.current))
    }
}

fn key_id(key: &Key) -> KeyId {
    let hash = Sha256::new().chain_update(b"holdfast key id\0").chain_update(key.expose());
    let hash: [u8; 32] = hash.finalize().into();
    let mut id = KeyId::default();
    id.copy_from_slice(&hash[..KEY_ID_BYTES]);
    id
}

/// Splits a value of format 2 into the id of its key and the rest, which has the form of format 1.
fn key_id_of(sealed: &[u8]) -> Option<(KeyId, &[u8])> {
    let (id, rest) = sealed.strip_prefix(&[FORMAT_WITH_KEY_ID])?.split_first_chunk()?;
    Some((*id, rest))
}

fn context_with_key(context: &[u8], id: KeyId) -> Vec<u8> {
    [context, b"\0key\0", id.as_slice()].concat()
}
