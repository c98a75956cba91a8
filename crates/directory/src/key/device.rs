//! Devices: programs with an Ed25519 key of their own, and their requests to be paired.

use holdfast_types::{KeyId, PersonId, TenantId, TenantRole};
use jiff::Timestamp;
use uuid::Uuid;

/// Maximum length of each text that a device says about itself, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// What a device says about itself. Its signature was verified with the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProfile {
    /// SHA-256 of the public key, in hex.
    pub id: String,
    pub public_key: [u8; 32],
    pub name: String,
    pub platform: String,
    pub family: String,
    pub client_id: String,
    pub client_mode: String,
}

impl DeviceProfile {
    /// Truncates the texts and removes control characters, because people read them.
    pub(crate) fn truncate(self) -> Self {
        let short = |text: String| -> String {
            text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect()
        };
        Self {
            id: self.id,
            public_key: self.public_key,
            name: short(self.name),
            platform: short(self.platform),
            family: short(self.family),
            client_id: short(self.client_id),
            client_mode: short(self.client_mode),
        }
    }
}

/// Holder of the rights that a device was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approver {
    Key(KeyId),
    Person(PersonId),
}

/// With whose credential a device asks to be paired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceUser {
    /// Id of the key or the person.
    pub id: String,
    /// Person whose the device is: it ends with them.
    pub person: Option<PersonId>,
}

/// A paired device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub profile: DeviceProfile,
    /// Scopes that it was approved for.
    pub scopes: Vec<String>,
    pub approver: Approver,
    /// With whose credential it asked to be paired; `None` if that is not known.
    pub asked_by: Option<DeviceUser>,
    /// Public part of its token.
    pub(crate) token: Uuid,
    /// When its token was issued; `None` if it has none yet.
    pub issued_at: Option<Timestamp>,
    /// When its token was revoked; `None` if it was not.
    pub revoked_at: Option<Timestamp>,
    pub approved_at: Timestamp,
}

/// A request of a device, which waits for a person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    pub id: Uuid,
    pub profile: DeviceProfile,
    /// Scopes that it asks for.
    pub scopes: Vec<String>,
    /// With whose credential it asks; `None` if that is not known.
    pub asked_by: Option<DeviceUser>,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
    /// Whether the device is paired already, and asks for more.
    pub is_paired: bool,
}

/// Rights of the holder who approved a device, as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApproverRights {
    Key {
        key: KeyId,
        scopes: Vec<String>,
        /// Person whose the key is, with their role.
        person: Option<(PersonId, TenantRole)>,
    },
    Person {
        person: PersonId,
        role: TenantRole,
        /// Whether they operate the installation.
        operates: bool,
    },
}

/// A device that has authenticated by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePrincipal {
    pub tenant: TenantId,
    /// SHA-256 of its public key, in hex. The caller has to verify that the connection has the key.
    pub device: String,
    pub name: String,
    /// Scopes that it was approved for.
    pub scopes: Vec<String>,
    /// It may do what its approver may do, and of that what its scopes include.
    pub approver: ApproverRights,
    /// Person whose it is.
    pub person: Option<PersonId>,
    /// Requests per minute that all keys of the tenant share.
    pub rate: u32,
    /// Calls that the tenant may have open at once in one process, if its plan limits them.
    pub concurrent_calls: Option<u32>,
}

/// Cached lookup of a device; the secret is not verified yet.
#[derive(Debug, Clone)]
pub(crate) struct CachedDevice {
    /// `None` until the token is issued.
    pub digest: Option<Vec<u8>>,
    /// Whether neither the token was revoked nor the approver's right to sign in.
    pub live: bool,
    pub active: bool,
    pub who: DevicePrincipal,
}
