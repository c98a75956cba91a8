//! Operations on devices: pairing, tokens, authentication.

use std::time::Instant;

use holdfast_types::{PersonId, TenantId};
use secrecy::SecretString;
use tracing::debug;
use uuid::Uuid;

use crate::{
    Actor, Approver, Device, DevicePrincipal, DeviceProfile, DeviceRequest, DeviceUser, Directory,
    Error,
    key::device::CachedDevice,
    store,
    store::keys::devices as table,
    token::{self, DigestPepper},
    verbs::check_limit,
};

/// Maximum number of paired devices of a tenant.
const MAX_DEVICES: i64 = 1_000;

/// Maximum number of requests of a tenant's devices that wait for a decision, or were rejected.
const MAX_REQUESTS: i64 = 200;

/// Lifetime of a request, in minutes.
const REQUEST_MINUTES: i32 = 60;

/// Days since a person's last sign-in after which the devices that they approved are refused.
const MAX_PERSON_ABSENCE_DAYS: i32 = 30;

/// Devices.
#[derive(Debug, Clone, Copy)]
pub struct Devices<'d>(&'d Directory);

impl Directory {
    /// Whether a text has the form of a device token.
    #[must_use]
    pub fn is_device_token(text: &str) -> bool {
        token::read_device(text).is_some()
    }

    #[must_use]
    pub const fn devices(&self) -> Devices<'_> {
        Devices(self)
    }
}

impl Devices<'_> {
    /// Returns the device of a token, with the rights of its approver as they are now. The caller has
    /// to verify that the connection has the device's key.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownKey`], [`Error::KeyNotActive`] if the token was revoked or its approver may
    /// not sign in any more, or [`Error::TenantSuspended`].
    pub async fn authenticate(self, text: &str) -> Result<DevicePrincipal, Error> {
        let (id, secret) = token::read_device(text).ok_or(Error::UnknownKey)?;
        let known = match self.0.devices.get(&id) {
            Some(known) => known,
            None if self.0.unknown.get(&id).is_some() => return Err(Error::UnknownKey),
            None => {
                let _slot = self.0.lookup_slot(id, &secret).await?;
                self.look_up(id).await?
            }
        };
        let digest = known.digest.as_deref().ok_or(Error::UnknownKey)?;
        let pepper = self.0.peppers.pepper_of(digest, &secret)?.ok_or(Error::UnknownKey)?;
        if !known.live {
            return Err(Error::KeyNotActive);
        }
        if !known.active {
            return Err(Error::TenantSuspended);
        }
        if pepper == DigestPepper::Previous
            && let Err(error) = self.rehash(id, (&known.who, digest), &secret).await
        {
            // The token is valid, and the next use tries again.
            debug!(
                error = &error as &dyn std::error::Error,
                "a device's token was not hashed again"
            );
        }
        Ok(known.who)
    }

    /// Replaces a digest of the previous pepper.
    async fn rehash(
        self,
        id: Uuid,
        (who, old): (&DevicePrincipal, &[u8]),
        secret: &token::Secret,
    ) -> Result<(), Error> {
        let digest = self.0.peppers.digest(secret)?;
        let mut tx = self.0.pools.tenant(who.tenant).await?;
        table::replace_digest(&mut tx, &who.device, old, &digest).await?;
        tx.commit().await?;
        self.0.devices.forget(&id);
        Ok(())
    }

    async fn look_up(self, id: Uuid) -> Result<CachedDevice, Error> {
        let begun = Instant::now();
        let mut tx = self.0.pools.system().await?;
        let tenant = table::find(&mut tx, id).await?;
        tx.commit().await?;
        let found = match tenant {
            Some(tenant) => {
                let mut tx = self.0.pools.tenant(tenant).await?;
                let found = table::look_up(&mut tx, id, MAX_PERSON_ABSENCE_DAYS).await?;
                tx.commit().await?;
                found.map(|found| (tenant, found))
            }
            None => None,
        };
        let Some((tenant, found)) = found else {
            self.0.unknown.put(id, (), begun);
            return Err(Error::UnknownKey);
        };
        let (rights, may_sign_in) = found.approver.rights()?.ok_or(Error::KeyNotActive)?;
        let known = CachedDevice {
            digest: found.digest,
            live: found.live && may_sign_in,
            active: found.approver.is_tenant_active()?,
            who: DevicePrincipal {
                tenant,
                device: found.device_id,
                name: found.name,
                scopes: found.scopes,
                approver: rights,
                person: found.person_id.map(PersonId::from),
                rate: found.approver.rate(),
                concurrent_calls: found.approver.concurrent_calls(),
            },
        };
        self.0.devices.put(id, known.clone(), begun);
        Ok(known)
    }

    /// Returns the tenant's paired devices and the requests that wait for a decision, the oldest
    /// first.
    pub async fn list(self, tenant: TenantId) -> Result<(Vec<Device>, Vec<DeviceRequest>), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let devices = table::all(&mut tx).await?;
        let requests = table::requests(&mut tx).await?;
        tx.commit().await?;
        Ok((devices, requests))
    }

    /// Returns a paired device; `None` if the tenant has no such device.
    pub async fn find(self, tenant: TenantId, device: &str) -> Result<Option<Device>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = table::one(&mut tx, device).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Returns a request that waits for a decision.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such request.
    pub async fn request(self, tenant: TenantId, id: Uuid) -> Result<DeviceRequest, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let found = table::request(&mut tx, id).await?;
        tx.commit().await?;
        found.ok_or_else(|| request_not_found(id))
    }

    /// Stores a request of a device. Returns it, and whether it is new; `None` if an earlier one was
    /// rejected and has not expired.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at the limit of requests.
    pub async fn ask(
        self,
        tenant: TenantId,
        profile: DeviceProfile,
        asked: (&[String], &DeviceUser),
    ) -> Result<Option<(DeviceRequest, bool)>, Error> {
        let profile = profile.truncate();
        let mut tx = self.0.begin_change(tenant).await?;
        let others = table::prune_requests(&mut tx).await?;
        check_limit("requests of devices", others, MAX_REQUESTS)?;
        let stored = table::put_request(&mut tx, &profile, asked, REQUEST_MINUTES).await?;
        let asked = match stored {
            Some((id, is_new)) => {
                table::request(&mut tx, id).await?.map(|request| (request, is_new))
            }
            None => None,
        };
        tx.commit().await?;
        Ok(asked)
    }

    /// Approves a request: pairs the device with the scopes that it asks for. Its token is issued when
    /// it connects next.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such request, [`Error::TooMany`] at the limit of
    /// devices.
    pub async fn approve(
        self,
        tenant: TenantId,
        (actor, approver): (Actor, Approver),
        id: Uuid,
    ) -> Result<Device, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let request = table::request(&mut tx, id).await?.ok_or_else(|| request_not_found(id))?;
        if !request.is_paired {
            check_limit("devices", table::count(&mut tx).await?, MAX_DEVICES)?;
        }
        let parties = (approver, request.asked_by.as_ref());
        let device = table::put(&mut tx, &request.profile, &request.scopes, parties).await?;
        table::delete_request(&mut tx, &device.profile.id).await?;
        store::audit::record(&mut tx, actor, "device.approve", &device.profile.id).await?;
        tx.commit().await?;
        self.0.devices.forget(&device.token);
        Ok(device)
    }

    /// Rejects a request. The device cannot ask again until the request would have expired.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such request.
    pub async fn reject(
        self,
        tenant: TenantId,
        actor: Actor,
        id: Uuid,
    ) -> Result<DeviceRequest, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let request = table::request(&mut tx, id).await?.ok_or_else(|| request_not_found(id))?;
        table::reject_request(&mut tx, id).await?;
        store::audit::record(&mut tx, actor, "device.reject", &request.profile.id).await?;
        tx.commit().await?;
        Ok(request)
    }

    /// Pairs the device of a caller who has all of the scopes, without a request.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at the limit of devices.
    pub async fn pair(
        self,
        tenant: TenantId,
        (approver, user): (Approver, &DeviceUser),
        profile: DeviceProfile,
        scopes: &[String],
    ) -> Result<Device, Error> {
        let profile = profile.truncate();
        let mut tx = self.0.begin_change(tenant).await?;
        let device = match table::one(&mut tx, &profile.id).await? {
            // Another connection of the device came first.
            Some(known) => known,
            None => {
                check_limit("devices", table::count(&mut tx).await?, MAX_DEVICES)?;
                let parties = (approver, Some(user));
                let device = table::put(&mut tx, &profile, scopes, parties).await?;
                table::delete_request(&mut tx, &profile.id).await?;
                let actor = match (user.person, approver) {
                    (Some(person), _) | (None, Approver::Person(person)) => Actor::Person(person),
                    (None, Approver::Key(key)) => Actor::Key(key),
                };
                store::audit::record(&mut tx, actor, "device.pair", &profile.id).await?;
                device
            }
        };
        tx.commit().await?;
        Ok(device)
    }

    /// Gives a device further scopes, which its approver asks for.
    pub async fn widen(
        self,
        tenant: TenantId,
        actor: Actor,
        device: &Device,
        scopes: &[String],
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        table::set_scopes(&mut tx, &device.profile.id, scopes).await?;
        store::audit::record(&mut tx, actor, "device.widen", &device.profile.id).await?;
        tx.commit().await?;
        self.0.devices.forget(&device.token);
        Ok(())
    }

    /// Issues the token of a device that has none. The returned token cannot be read again; `None` if
    /// it was issued or revoked before.
    pub async fn issue(
        self,
        tenant: TenantId,
        device: &str,
    ) -> Result<Option<SecretString>, Error> {
        let id = Uuid::now_v7();
        let (secret, digest) = self.0.peppers.generate(id)?;
        let mut tx = self.0.pools.tenant(tenant).await?;
        let is_issued = table::issue(&mut tx, device, id, &digest).await?;
        tx.commit().await?;
        Ok(is_issued.then(|| token::write_device(id, &secret)))
    }

    /// Ends a device's token. Another one is issued when the device connects next with another
    /// credential.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such device.
    pub async fn rotate(
        self,
        tenant: TenantId,
        actor: Actor,
        device: &str,
        scopes: Option<&[String]>,
    ) -> Result<Device, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let before = table::one(&mut tx, device).await?.ok_or_else(|| not_found(device))?;
        let scopes = scopes.unwrap_or(&before.scopes);
        let rotated = table::rotate(&mut tx, device, scopes).await?;
        store::audit::record(&mut tx, actor, "device.rotate", device).await?;
        tx.commit().await?;
        self.0.devices.forget(&before.token);
        rotated.ok_or_else(|| not_found(device))
    }

    /// Revokes a device's token: in this process at once, in others within 5 s. The device stays, and
    /// gets another token only after [`rotate`](Self::rotate).
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such device.
    pub async fn revoke(
        self,
        tenant: TenantId,
        actor: Actor,
        device: &str,
    ) -> Result<Device, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let revoked = table::revoke(&mut tx, device).await?.ok_or_else(|| not_found(device))?;
        store::audit::record(&mut tx, actor, "device.revoke", device).await?;
        tx.commit().await?;
        self.0.devices.forget(&revoked.token);
        Ok(revoked)
    }

    /// Removes a device, its token and its request.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such device.
    pub async fn remove(self, tenant: TenantId, actor: Actor, device: &str) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let known = table::one(&mut tx, device).await?.ok_or_else(|| not_found(device))?;
        table::remove(&mut tx, device).await?;
        table::delete_request(&mut tx, device).await?;
        store::audit::record(&mut tx, actor, "device.remove", device).await?;
        tx.commit().await?;
        self.0.devices.forget(&known.token);
        Ok(())
    }
}

fn not_found(device: &str) -> Error {
    Error::not_found("device", device)
}

fn request_not_found(id: Uuid) -> Error {
    Error::not_found("request of a device", id)
}
