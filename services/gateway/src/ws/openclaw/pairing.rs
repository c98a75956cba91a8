//! Pairing of a device when it connects.
//!
//! A device that asks for no more than its key may do is paired at once, with that key as its
//! approver. Any other one has to be approved by somebody who may do what it asks for. Either way its
//! credential lets it in with what that may do.

use holdfast_directory::{Approver, Device, DeviceProfile, DeviceUser};
use holdfast_grpc::{Caller, Principal};
use secrecy::SecretString;
use tracing::debug;

use super::{
    super::{Service, snapshot::pairing_requested},
    Client,
    device::DeviceIdentity,
};
use crate::{
    Error,
    auth::CredentialHolder,
    control::{actor, keys::devices::approver_of},
    permissions::operator_scopes::Grants,
};

/// A device, and the scopes that it asks for.
#[derive(Debug)]
pub struct Pairing {
    pub(super) profile: DeviceProfile,
    asked: Option<Grants>,
}

impl Pairing {
    /// `None` if the key is malformed, which its signature rules out.
    pub(super) fn new(
        device: &DeviceIdentity,
        client: &Client,
        scopes: Option<&[String]>,
    ) -> Option<Self> {
        let profile = DeviceProfile {
            id: device.id.clone(),
            public_key: device.key()?,
            name: client.display_name.clone().unwrap_or_else(|| client.id.clone()),
            platform: client.platform.clone(),
            family: client.device_family.clone().unwrap_or_default(),
            client_id: client.id.clone(),
            client_mode: client.mode.clone(),
        };
        Some(Self { profile, asked: scopes.map(Grants::asked_by) })
    }

    /// Pairs the device, or stores its request. Returns its token if it is issued now.
    pub async fn settle(
        self,
        service: &Service,
        identity: &CredentialHolder,
    ) -> Option<SecretString> {
        match self.pair(service, identity).await {
            Ok(token) => token,
            // The client has a valid credential, and the next connection tries again.
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "a device was not paired");
                None
            }
        }
    }

    async fn pair(
        self,
        service: &Service,
        identity: &CredentialHolder,
    ) -> Result<Option<SecretString>, Error> {
        let (devices, caller) = (service.state.directory.devices(), &identity.caller);
        let Self { profile, asked } = self;
        let asked = asked.unwrap_or(identity.grants);
        let is_covered = identity.grants.lacks(asked).is_none();
        let has_token = identity.device.is_some();
        let id = profile.id.clone();
        let Some(device) = devices.find(caller.tenant, &id).await? else {
            if !is_covered || !matches!(caller.principal, Principal::Key(_)) {
                ask(service, identity, profile, asked).await?;
                return Ok(None);
            }
            let parties = (approver_of(caller)?, &user_of(caller));
            devices.pair(caller.tenant, parties, profile, &names(asked)).await?;
            return Ok(devices.issue(caller.tenant, &id).await?);
        };
        let known = Grants::asked_by(&device.scopes);
        if known.lacks(asked).is_some() {
            let wanted = known.or(asked);
            if !is_covered {
                ask(service, identity, profile, wanted).await?;
            } else if is_own(&device, identity) {
                devices.widen(caller.tenant, actor(caller), &device, &names(wanted)).await?;
            }
        }
        if has_token || device.issued_at.is_some() || device.revoked_at.is_some() {
            return Ok(None);
        }
        Ok(devices.issue(caller.tenant, &id).await?)
    }
}

/// Stores a request, and tells it if it is new.
async fn ask(
    service: &Service,
    identity: &CredentialHolder,
    profile: DeviceProfile,
    wanted: Grants,
) -> Result<(), Error> {
    let (tenant, user) = (identity.caller.tenant, user_of(&identity.caller));
    let devices = service.state.directory.devices();
    let asked = devices.ask(tenant, profile, (&names(wanted), &user)).await?;
    if let Some((request, true)) = asked {
        let event = pairing_requested(request);
        for connection in service.hubs().connections_of(tenant) {
            connection.tell(&event);
        }
    }
    Ok(())
}

/// With whose credential a device asks.
pub fn user_of(caller: &Caller) -> DeviceUser {
    DeviceUser { id: caller.id(), person: caller.person }
}

/// Whether the caller's key is the one that approved the device.
fn is_own(device: &Device, identity: &CredentialHolder) -> bool {
    match (device.approver, &identity.caller.principal) {
        (Approver::Key(approver), Principal::Key(key)) => approver == *key,
        (Approver::Key(_) | Approver::Person(_), _) => false,
    }
}

fn names(grants: Grants) -> Vec<String> {
    grants.names().into_iter().map(str::to_owned).collect()
}
