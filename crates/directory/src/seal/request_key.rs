//! Keys with which gateways and runners sign: requests that they send over NATS, and jobs.
//!
//! A key follows from a secret in the database, which only the logins of those two services may read,
//! and from the key-encryption key. So neither a service that has the latter nor a person with a
//! backup, who has the former, can sign. The secrets service derives it for those two services only.

use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_proto::secrets::v1 as pb;
use sha2::Sha256;

/// Purpose of a key, in its derivation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPurpose {
    Requests,
    Jobs,
}

impl KeyPurpose {
    /// Parses the purpose in a call of the secrets service.
    #[must_use]
    pub fn from_message(message: pb::SigningPurpose) -> Option<Self> {
        match message {
            pb::SigningPurpose::Unspecified => None,
            pb::SigningPurpose::Requests => Some(Self::Requests),
            pb::SigningPurpose::Jobs => Some(Self::Jobs),
        }
    }

    pub(super) const fn to_message(self) -> pb::SigningPurpose {
        match self {
            Self::Requests => pb::SigningPurpose::Requests,
            Self::Jobs => pb::SigningPurpose::Jobs,
        }
    }

    const fn label(self) -> &'static [u8] {
        match self {
            Self::Requests => b"holdfast request key 1\0",
            Self::Jobs => b"holdfast job key 1\0",
        }
    }
}

pub(crate) fn derive(kek: &[u8; 32], purpose: KeyPurpose, secret: &[u8]) -> [u8; 32] {
    // HMAC's block size is larger than the key.
    let mut block = [0; 64];
    block[..32].copy_from_slice(kek);
    let key = Hmac::<Sha256>::new(&block.into()).chain_update(purpose.label()).chain_update(secret);
    key.finalize().into_bytes().into()
}
