//! The service `Devices`: pairing of devices, and their tokens.

use holdfast_directory::{Approver, Device, DeviceRequest, DeviceUser};
use holdfast_grpc::{Caller, Principal};
use holdfast_proto::gateway::v1::{
    self as pb, ApproveDeviceRequest, ApproveDeviceResponse, ListDevicesRequest,
    ListDevicesResponse, RejectDeviceRequest, RejectDeviceResponse, RemoveDeviceRequest,
    RemoveDeviceResponse, RevokeDeviceTokenRequest, RevokeDeviceTokenResponse,
    RotateDeviceTokenRequest, RotateDeviceTokenResponse, devices_server::Devices as Service,
};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::super::{State, actor, invalid, timestamp};
use crate::{Error, audit, permissions::operator_scopes::Grants};

/// Implements `holdfast.gateway.v1.Devices`.
#[derive(Debug)]
pub struct Devices(pub State);

#[tonic::async_trait]
impl Service for Devices {
    async fn list_devices(
        &self,
        request: Request<ListDevicesRequest>,
    ) -> Result<Response<ListDevicesResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let listed = self.0.directory.devices().list(caller.tenant).await;

        let (devices, requests) = listed.map_err(Error::from)?;
        Ok(Response::new(ListDevicesResponse {
            devices: devices.into_iter().map(device_of).collect(),
            requests: requests.into_iter().map(request_of).collect(),
        }))
    }

    async fn approve_device(
        &self,
        request: Request<ApproveDeviceRequest>,
    ) -> Result<Response<ApproveDeviceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.request);
        let id = parse_request(&request.request)?;
        let devices = self.0.directory.devices();

        let asked = devices.request(caller.tenant, id).await.map_err(Error::from)?;
        check_grants(&caller, &asked.scopes)?;
        let by = (actor(&caller), approver_of(&caller)?);
        let approved = devices.approve(caller.tenant, by, id).await;

        let device = Some(device_of(approved.map_err(Error::from)?));
        Ok(Response::new(ApproveDeviceResponse { device }))
    }

    async fn reject_device(
        &self,
        request: Request<RejectDeviceRequest>,
    ) -> Result<Response<RejectDeviceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.request);
        let id = parse_request(&request.request)?;

        let rejected = self.0.directory.devices().reject(caller.tenant, actor(&caller), id).await;

        let device = rejected.map_err(Error::from)?.profile.id;
        Ok(Response::new(RejectDeviceResponse { device }))
    }

    async fn remove_device(
        &self,
        request: Request<RemoveDeviceRequest>,
    ) -> Result<Response<RemoveDeviceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.device);
        let (devices, by) = (self.0.directory.devices(), actor(&caller));

        devices.remove(caller.tenant, by, &request.device).await.map_err(Error::from)?;

        Ok(Response::new(RemoveDeviceResponse {}))
    }

    async fn rotate_device_token(
        &self,
        request: Request<RotateDeviceTokenRequest>,
    ) -> Result<Response<RotateDeviceTokenResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.device);
        let RotateDeviceTokenRequest { device, scopes } = request;
        let devices = self.0.directory.devices();
        if !scopes.is_empty() {
            let known = devices.find(caller.tenant, &device).await.map_err(Error::from)?;
            let known = known.map(|known| Grants::asked_by(&known.scopes)).unwrap_or_default();
            if let Some(missing) = known.lacks(Grants::asked_by(&scopes)) {
                return Err(invalid(format!(
                    "the device was not approved for `{}`: a rotation can leave scopes out, and \
                     further ones need an approval",
                    missing.as_str()
                ))
                .into());
            }
        }
        let scopes = Some(scopes).filter(|scopes| !scopes.is_empty());

        let rotated =
            devices.rotate(caller.tenant, actor(&caller), &device, scopes.as_deref()).await;

        let device = Some(device_of(rotated.map_err(Error::from)?));
        Ok(Response::new(RotateDeviceTokenResponse { device }))
    }

    async fn revoke_device_token(
        &self,
        request: Request<RevokeDeviceTokenRequest>,
    ) -> Result<Response<RevokeDeviceTokenResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.device);
        let (devices, by) = (self.0.directory.devices(), actor(&caller));

        let revoked = devices.revoke(caller.tenant, by, &request.device).await;

        let device = Some(device_of(revoked.map_err(Error::from)?));
        Ok(Response::new(RevokeDeviceTokenResponse { device }))
    }
}

/// Nobody gives a device more than they may do themselves.
fn check_grants(caller: &Caller, scopes: &[String]) -> Result<(), Error> {
    match Grants::of(caller).lacks(Grants::asked_by(scopes)) {
        Some(missing) => Err(Error::ScopeOfDevice(missing.as_str())),
        None => Ok(()),
    }
}

fn parse_request(id: &str) -> Result<Uuid, Error> {
    let unknown = || holdfast_directory::Error::NotFound {
        what: "request of a device",
        name: id.chars().take(80).collect(),
    };
    Ok(Uuid::try_parse(id).map_err(|_| unknown())?)
}

/// Converts a paired device.
fn device_of(device: Device) -> pb::Device {
    let Device { profile, scopes, approver, issued_at, revoked_at, approved_at, .. } = device;
    let (paired_by, person) = user_of(device.asked_by);
    pb::Device {
        id: profile.id,
        name: profile.name,
        platform: profile.platform,
        family: profile.family,
        client_id: profile.client_id,
        client_mode: profile.client_mode,
        scopes,
        approved_by: match approver {
            Approver::Key(key) => key.to_string(),
            Approver::Person(person) => person.to_string(),
        },
        approved_at: Some(timestamp(approved_at)),
        issued_at: issued_at.map(timestamp),
        revoked_at: revoked_at.map(timestamp),
        public_key: profile.public_key.to_vec(),
        paired_by,
        person,
    }
}

/// Ids of with whose credential a device asked, and of whose it is.
fn user_of(user: Option<DeviceUser>) -> (String, String) {
    let person = user.as_ref().and_then(|user| user.person);
    let id = user.map(|user| user.id).unwrap_or_default();
    (id, person.map(|person| person.to_string()).unwrap_or_default())
}

/// Whose rights a device shares that a caller approves.
///
/// # Errors
///
/// [`Error::NoRule`] for a service or a node.
pub fn approver_of(caller: &Caller) -> Result<Approver, Error> {
    match caller.principal {
        Principal::Key(key) => Ok(Approver::Key(key)),
        Principal::Person { id, .. } => Ok(Approver::Person(id)),
        Principal::Service | Principal::Node => Err(Error::NoRule),
    }
}

/// Converts a request.
pub fn request_of(request: DeviceRequest) -> pb::DeviceRequest {
    let DeviceRequest { id, profile, scopes, requested_at, expires_at, is_paired, .. } = request;
    let (paired_by, person) = user_of(request.asked_by);
    pb::DeviceRequest {
        id: id.to_string(),
        device: Some(pb::Device {
            id: profile.id,
            name: profile.name,
            platform: profile.platform,
            family: profile.family,
            client_id: profile.client_id,
            client_mode: profile.client_mode,
            paired_by,
            person,
            scopes,
            public_key: profile.public_key.to_vec(),
            ..pb::Device::default()
        }),
        paired: is_paired,
        requested_at: Some(timestamp(requested_at)),
        expires_at: Some(timestamp(expires_at)),
    }
}
