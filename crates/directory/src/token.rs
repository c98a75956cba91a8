//! Text form of API keys, `hf_<id>_<secret>`, of node tokens, `hfn_<id>_<secret>`, of device tokens,
//! `hfd_<id>_<secret>`, and of sessions and links of the console, `hfs_<id>_<secret>` and
//! `hfl_<id>_<secret>`.
//!
//! The id is the key's UUID without dashes, the secret is 32 bytes in base64url: a mark of 8 bytes
//! that follows from the id and the pepper, and 24 random bytes. Only an HMAC of the secret is
//! stored, with a pepper that is not in the database: a person who steals the table cannot use its
//! rows, and a person who writes to it cannot add working keys.
//!
//! The mark tells a token that was never issued from one that was, without the database. Secrets of
//! earlier versions have none.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_kit::config::Secrets;
use holdfast_types::{KeyId, NodeId};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{Error, error::MIN_SECRET_BYTES};

const PREFIX: &str = "hf_";
const NODE_PREFIX: &str = "hfn_";
const DEVICE_PREFIX: &str = "hfd_";
const CONSOLE_SESSION_PREFIX: &str = "hfs_";
const CONSOLE_LINK_PREFIX: &str = "hfl_";
const ID_LENGTH: usize = 32;
const HMAC_BLOCK_BYTES: usize = 64;

/// Bytes of a secret that follow from its id.
const MARK_BYTES: usize = 8;

pub(crate) type Secret = SecretBox<[u8; 32]>;

/// Peppers of the installation: the current one, and during a rotation another one.
#[derive(Clone, Default)]
pub(crate) struct Peppers {
    current: Option<SecretString>,
    previous: Option<SecretString>,
}

/// Pepper with which a stored digest was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DigestPepper {
    Current,
    /// The digest should be replaced.
    Previous,
}

impl Peppers {
    pub(crate) fn new(secrets: &Secrets) -> Result<Self, Error> {
        let read = |setting, pepper: &SecretString| match pepper.expose_secret().len() {
            0 => Ok(None),
            bytes @ 1..MIN_SECRET_BYTES => Err(Error::WeakSecret(setting, bytes)),
            MIN_SECRET_BYTES.. => Ok(Some(pepper.clone())),
        };
        Ok(Self {
            current: read("secrets.pepper", &secrets.pepper)?,
            previous: read("secrets.previous_pepper", &secrets.previous_pepper)?,
        })
    }

    fn current(&self) -> Result<&SecretString, Error> {
        self.current.as_ref().ok_or(Error::MissingSecret("secrets.pepper"))
    }

    /// Generates the secret of a new key or node, and its digest.
    pub(crate) fn generate(&self, id: Uuid) -> Result<(Secret, [u8; 32]), Error> {
        let pepper = self.current()?;
        let secret = generate(pepper, id);
        let digest = digest(pepper, &secret);
        Ok((secret, digest))
    }

    pub(crate) fn digest(&self, secret: &Secret) -> Result<[u8; 32], Error> {
        Ok(digest(self.current()?, secret))
    }

    /// Returns the pepper with which `stored` was made from this secret; `None` if it was made from
    /// another secret.
    pub(crate) fn pepper_of(
        &self,
        stored: &[u8],
        secret: &Secret,
    ) -> Result<Option<DigestPepper>, Error> {
        let is =
            |pepper: &SecretString| bool::from(digest(pepper, secret).as_slice().ct_eq(stored));
        if is(self.current()?) {
            return Ok(Some(DigestPepper::Current));
        }
        let is_previous = self.previous.as_ref().is_some_and(is);
        Ok(is_previous.then_some(DigestPepper::Previous))
    }

    /// Whether a secret has the mark of its id. If not, it was issued by an earlier version, under
    /// an earlier pepper, or never.
    pub(crate) fn have_mark(&self, id: Uuid, secret: &Secret) -> bool {
        self.current.iter().chain(&self.previous).any(|pepper| has_mark(pepper, id, secret))
    }
}

fn generate(pepper: &SecretString, id: Uuid) -> Secret {
    let mut secret: [u8; 32] = rand::random();
    secret[..MARK_BYTES].copy_from_slice(&mark(pepper, id));
    SecretBox::new(Box::new(secret))
}

fn has_mark(pepper: &SecretString, id: Uuid, secret: &Secret) -> bool {
    secret.expose_secret()[..MARK_BYTES].ct_eq(&mark(pepper, id)).into()
}

fn mark(pepper: &SecretString, id: Uuid) -> [u8; MARK_BYTES] {
    let mut text = *b"holdfast token: 0123456789abcdef";
    text[16..].copy_from_slice(id.as_bytes());
    let digest = digest(pepper, &SecretBox::new(Box::new(text)));
    let mut mark = [0; MARK_BYTES];
    mark.copy_from_slice(&digest[..MARK_BYTES]);
    mark
}

/// Formats an API key, which is shown to its owner once.
pub(crate) fn write(key: KeyId, secret: &Secret) -> SecretString {
    text(PREFIX, key.as_uuid(), secret)
}

/// Formats a node token, which is shown to its owner once.
pub(crate) fn write_node(node: NodeId, secret: &Secret) -> SecretString {
    text(NODE_PREFIX, node.as_uuid(), secret)
}

/// Formats a device token, which is sent to its device once.
pub(crate) fn write_device(token: Uuid, secret: &Secret) -> SecretString {
    text(DEVICE_PREFIX, token, secret)
}

/// Formats the token of a console session, which its browser gets as a cookie.
pub(crate) fn write_console_session(session: Uuid, secret: &Secret) -> SecretString {
    text(CONSOLE_SESSION_PREFIX, session, secret)
}

/// Formats the token of a sign-in link, which is shown once.
pub(crate) fn write_console_link(link: Uuid, secret: &Secret) -> SecretString {
    text(CONSOLE_LINK_PREFIX, link, secret)
}

fn text(prefix: &str, id: Uuid, secret: &Secret) -> SecretString {
    let secret = URL_SAFE_NO_PAD.encode(secret.expose_secret());
    format!("{prefix}{}_{secret}", id.simple()).into()
}

/// Parses an API key into its id and secret.
pub(crate) fn read(text: &str) -> Option<(KeyId, Secret)> {
    parse(PREFIX, text).map(|(id, secret)| (KeyId::from(id), secret))
}

/// Parses a node token into its id and secret.
pub(crate) fn read_node(text: &str) -> Option<(NodeId, Secret)> {
    parse(NODE_PREFIX, text).map(|(id, secret)| (NodeId::from(id), secret))
}

/// Parses a device token into its id and secret.
pub(crate) fn read_device(text: &str) -> Option<(Uuid, Secret)> {
    parse(DEVICE_PREFIX, text)
}

/// Parses the token of a console session into its id and secret.
pub(crate) fn read_console_session(text: &str) -> Option<(Uuid, Secret)> {
    parse(CONSOLE_SESSION_PREFIX, text)
}

/// Parses the token of a sign-in link into its id and secret.
pub(crate) fn read_console_link(text: &str) -> Option<(Uuid, Secret)> {
    parse(CONSOLE_LINK_PREFIX, text)
}

fn parse(prefix: &str, text: &str) -> Option<(Uuid, Secret)> {
    let (id, secret) = text.trim().strip_prefix(prefix)?.split_once('_')?;
    // `try_parse` accepts more forms, but a key has only one.
    let id = (id.len() == ID_LENGTH).then(|| Uuid::try_parse(id).ok())??;
    let secret = URL_SAFE_NO_PAD.decode(secret).ok()?;
    let secret: [u8; 32] = secret.try_into().ok()?;
    Some((id, SecretBox::new(Box::new(secret))))
}

fn digest(pepper: &SecretString, secret: &Secret) -> [u8; 32] {
    // HMAC's key preparation: a longer key is hashed, a shorter one is padded with zeros.
    let pepper = pepper.expose_secret().as_bytes();
    let mut block = [0; HMAC_BLOCK_BYTES];
    if pepper.len() > HMAC_BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(pepper));
    } else {
        block[..pepper.len()].copy_from_slice(pepper);
    }
    Hmac::<Sha256>::new(&block.into())
        .chain_update(secret.expose_secret())
        .finalize()
        .into_bytes()
        .into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret() -> Secret {
        generate(&"pepper".into(), Uuid::now_v7())
    }

    #[test]
    fn a_mark_is_of_one_id_and_one_pepper() {
        let (id, pepper) = (Uuid::now_v7(), "pepper".into());
        let secret = generate(&pepper, id);

        assert!(has_mark(&pepper, id, &secret));
        assert!(!has_mark(&pepper, Uuid::now_v7(), &secret));
        assert!(!has_mark(&"other".into(), id, &secret));
        assert_ne!(secret.expose_secret(), generate(&pepper, id).expose_secret());
    }

    #[test]
    fn a_pepper_that_could_be_guessed_is_refused() {
        for (pepper, previous_pepper) in [("fifteen--bytes-", ""), ("sixteen--bytes--", "short")] {
            let (pepper, previous_pepper) = (pepper.into(), previous_pepper.into());
            let secrets = Secrets { pepper, previous_pepper, ..Secrets::default() };

            assert!(matches!(Peppers::new(&secrets), Err(Error::WeakSecret(_, 5 | 15))));
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_key_reads_back_as_it_was_written() {
        let id = KeyId::generate();
        let secret = generate(&"pepper".into(), id.as_uuid());

        let text = write(id, &secret);
        let (read_id, read_secret) = read(text.expose_secret()).unwrap();

        assert_eq!(read_id, id);
        assert_eq!(read_secret.expose_secret(), secret.expose_secret());
        assert_eq!(text.expose_secret().len(), 3 + 32 + 1 + 43);
    }

    #[test]
    fn a_node_s_token_is_no_key_and_a_key_is_no_node_s_token() {
        let node = write_node(NodeId::generate(), &secret());
        let key = write(KeyId::generate(), &secret());

        assert!(read(node.expose_secret()).is_none() && read_node(node.expose_secret()).is_some());
        assert!(read_node(key.expose_secret()).is_none());
        let device = write_device(Uuid::now_v7(), &secret());
        assert!(read_device(device.expose_secret()).is_some());
        assert!(
            read(device.expose_secret()).is_none() && read_device(key.expose_secret()).is_none()
        );
    }

    #[test]
    fn what_is_no_key_is_not_read() {
        let good = write(KeyId::generate(), &secret()).expose_secret().to_owned();
        let dashed = format!("hf_{}_{}", Uuid::now_v7(), &good[36..]);
        let short = &good[..good.len() - 1];

        for text in ["", "hf_", "hf__", "sk-1234", short, &good[3..], &dashed, &format!("{good}A")]
        {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_digest_is_hmac_sha_256() {
        // Computed with Python's `hmac`, for peppers below and above a block's length.
        let secret = SecretBox::new(Box::new([7; 32]));

        let short = digest(&"pepper".into(), &secret);
        let long = digest(&"p".repeat(65).into(), &secret);

        assert_eq!(hex(&short), "b6d9e86cf235b7f7602898493e24da6765fb877a5ba33eb066b2de8b80bdf81f");
        assert_eq!(hex(&long), "f5ca2051debc25bf88c5ddf159f87c8c1ea13f38bc2ec491e644207bc00d1658");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in ".{0,120}", tail in "[A-Za-z0-9_-]{0,60}") {
            let _ = read(&text);
            let _ = read(&format!("hf_{}_{tail}", Uuid::nil().simple()));
        }
    }
}
