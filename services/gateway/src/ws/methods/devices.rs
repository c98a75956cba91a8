//! `device.pair.*`, `device.token.*`: devices, their requests to be paired, and their tokens.

use std::time::Duration;

use holdfast_directory::{Device, DeviceProfile, DeviceRequest};
use holdfast_proto::gateway::v1::{self as pb, devices_server::Devices as _};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    super::{
        call::{Call, rpc},
        connection::now_ms,
        error::MethodError,
        events::{Audience, Event},
        openclaw::pairing::user_of,
        queue::CloseReason,
        snapshot::{device_profile, device_request, millis, pairing_requested},
    },
    Method, Reply, method,
    sessions::NoParams,
};
use crate::{
    control::{actor, keys::devices::Devices},
    permissions::operator_scopes::{Grants, OperatorScope},
};

const PAIRING: Option<OperatorScope> = Some(OperatorScope::Pairing);

pub const METHODS: &[Method] = &[
    method!("device.pair.list", PAIRING, list),
    method!("device.pair.approve", PAIRING, approve),
    method!("device.pair.reject", PAIRING, reject),
    method!("device.pair.remove", PAIRING, remove),
    method!("device.token.rotate", PAIRING, rotate),
    method!("device.token.revoke", PAIRING, revoke),
    method!("device.scopes.requestUpgrade", None, request_upgrade),
    method!("device.scopes.waitUpgrade", None, wait_for_upgrade),
];

/// Interval at which the decision about a request is looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

async fn list(call: Call, NoParams {}: NoParams) -> Reply {
    let handler = Devices(call.state().clone());
    let listed =
        rpc!(call, "Devices/ListDevices", handler, list_devices, pb::ListDevicesRequest {})?;
    let may_see = |device: &pb::Device| call.connection.may_manage_device(&device.id);
    let pending = listed.requests.iter();
    let pending = pending.filter(|request| request.device.as_ref().is_some_and(may_see));
    let paired = listed.devices.iter().filter(|device| may_see(device));
    Ok(json!({
        "pending": pending.map(device_request).collect::<Vec<_>>(),
        "paired": paired.map(|device| paired_device(&call, device)).collect::<Vec<_>>(),
    }))
}

fn paired_device(call: &Call, device: &pb::Device) -> Value {
    let mut row = device_profile(device);
    let mut connections = call.hub.connections().into_iter();
    row["connected"] = connections.any(|other| other.device_id() == Some(&device.id)).into();
    row["approvedAtMs"] = millis(device.approved_at.as_ref()).into();
    row["createdAtMs"] = millis(device.approved_at.as_ref()).into();
    row["approvedBy"] = device.approved_by.as_str().into();
    row["tokens"] = json!([]);
    if device.issued_at.is_some() || device.revoked_at.is_some() {
        let mut token = json!({
            "role": "operator",
            "scopes": device.scopes,
            "createdAtMs": millis(device.issued_at.as_ref().or(device.approved_at.as_ref())),
        });
        if device.revoked_at.is_some() {
            token["revokedAtMs"] = millis(device.revoked_at.as_ref()).into();
        }
        row["tokens"] = json!([token]);
    }
    row
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequestParams {
    request_id: String,
}

/// Finds the request that a connection may decide upon.
async fn find_request(call: &Call, id: &str) -> Result<DeviceRequest, MethodError> {
    let unknown =
        || MethodError::invalid("unknown requestId: `device.pair.list` has the requests that wait");
    let id = Uuid::try_parse(id.trim()).map_err(|_| unknown())?;
    let found = call.state().directory.devices().request(call.tenant(), id).await;
    match found {
        Ok(request) if call.connection.may_manage_device(&request.profile.id) => Ok(request),
        Ok(_) | Err(holdfast_directory::Error::NotFound { .. }) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

async fn approve(call: Call, params: RequestParams) -> Reply {
    let request = find_request(&call, &params.request_id).await?;
    // The handler compares with what the credential permits, and the connection may have less.
    if let Some(missing) = call.grants.lacks(Grants::asked_by(&request.scopes)) {
        return Err(MethodError::missing_scope("device.pair.approve", missing.as_str()));
    }
    let handler = Devices(call.state().clone());
    let message = pb::ApproveDeviceRequest { request: request.id.to_string() };
    let approved = rpc!(call, "Devices/ApproveDevice", handler, approve_device, message)?;
    let device = approved.device.unwrap_or_default();
    tell_decision(&call, &request, "approved");
    Ok(json!({ "requestId": params.request_id, "device": paired_device(&call, &device) }))
}

async fn reject(call: Call, params: RequestParams) -> Reply {
    let request = find_request(&call, &params.request_id).await?;
    let handler = Devices(call.state().clone());
    let message = pb::RejectDeviceRequest { request: request.id.to_string() };
    rpc!(call, "Devices/RejectDevice", handler, reject_device, message)?;
    tell_decision(&call, &request, "rejected");
    Ok(json!({ "requestId": params.request_id, "deviceId": request.profile.id }))
}

fn tell_decision(call: &Call, request: &DeviceRequest, decision: &str) {
    let device = request.profile.id.clone();
    let payload = json!({
        "requestId": request.id.to_string(),
        "deviceId": device,
        "decision": decision,
        "ts": now_ms(),
    });
    let audience = Audience::Pairing { device };
    call.hub.publish(&Event::new(("device.pair.resolved", ""), &payload, audience));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DeviceParams {
    device_id: String,
}

/// Refuses a device that a connection may not manage, as one that is not there. A connection of the
/// device itself stays open until it has its answer.
fn check_device(call: &Call, device: &str) -> Result<(), MethodError> {
    if call.connection.may_manage_device(device) {
        if call.connection.device_id() == Some(device) {
            call.connection.keep_until(call.answered.clone());
        }
        return Ok(());
    }
    let device: String = device.chars().take(80).collect();
    Err(MethodError::invalid(format!("there is no device `{device}`")))
}

async fn remove(call: Call, params: DeviceParams) -> Reply {
    let device = params.device_id;
    check_device(&call, &device)?;
    let handler = Devices(call.state().clone());
    let message = pb::RemoveDeviceRequest { device: device.clone() };
    rpc!(call, "Devices/RemoveDevice", handler, remove_device, message)?;
    end_connections(&call, &device);
    Ok(json!({ "deviceId": device }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RotateParams {
    device_id: String,
    role: String,
    #[serde(default)]
    scopes: Vec<String>,
}

fn check_role(role: &str) -> Result<(), MethodError> {
    match role.trim() {
        "operator" => Ok(()),
        _ => Err(MethodError::invalid("invalid params: role: devices have the role `operator`")),
    }
}

async fn rotate(call: Call, params: RotateParams) -> Reply {
    let RotateParams { device_id: device, role, scopes } = params;
    check_role(&role)?;
    check_device(&call, &device)?;
    let handler = Devices(call.state().clone());
    let message = pb::RotateDeviceTokenRequest { device: device.clone(), scopes };
    let rotated = rpc!(call, "Devices/RotateDeviceToken", handler, rotate_device_token, message)?;
    let mut reply = json!({
        "deviceId": device,
        "role": "operator",
        "scopes": rotated.device.unwrap_or_default().scopes,
        "rotatedAtMs": now_ms(),
        "tokenDelivery": "withheld-cross-device",
    });
    // Only the device itself is told: it has signed the handshake of this connection.
    if call.connection.device_id() == Some(&device)
        && let Some(token) = call.state().directory.devices().issue(call.tenant(), &device).await?
    {
        reply["token"] = token.expose_secret().into();
        reply["tokenDelivery"] = "in-band".into();
    }
    end_connections(&call, &device);
    Ok(reply)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RevokeParams {
    device_id: String,
    role: String,
}

async fn revoke(call: Call, params: RevokeParams) -> Reply {
    let RevokeParams { device_id: device, role } = params;
    check_role(&role)?;
    check_device(&call, &device)?;
    let handler = Devices(call.state().clone());
    let message = pb::RevokeDeviceTokenRequest { device: device.clone() };
    let revoked = rpc!(call, "Devices/RevokeDeviceToken", handler, revoke_device_token, message)?;
    end_connections(&call, &device);
    let at = millis(revoked.device.unwrap_or_default().revoked_at.as_ref());
    Ok(json!({ "deviceId": device, "role": "operator", "revokedAtMs": at }))
}

/// Ends the connections that were made with the device's token. The calling one gets its answer, and
/// ends with its next request or tick; those of other gateways too.
fn end_connections(call: &Call, device: &str) {
    for other in call.hub.connections() {
        if other.id != call.connection.id
            && other.device_id() == Some(device)
            && other.has_device_token()
        {
            other.queue.close(CloseReason::INVALID_CREDENTIAL);
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UpgradeParams {
    scopes: Vec<String>,
}

/// The device of the connection, which has to be paired to ask for more.
async fn own_device(call: &Call) -> Result<(DeviceProfile, Device), MethodError> {
    let unpaired = || {
        let details = json!({ "code": "DEVICE_IDENTITY_REQUIRED" });
        MethodError::invalid("only a paired device can ask for further scopes: connect with a key")
            .with_details(details)
    };
    let profile = call.connection.client.device.as_ref().ok_or_else(unpaired)?;
    let found = call.state().directory.devices().find(call.tenant(), &profile.id).await?;
    Ok((DeviceProfile::clone(profile), found.ok_or_else(unpaired)?))
}

/// Asks for further scopes, while the connection goes on with those that it has.
async fn request_upgrade(call: Call, params: UpgradeParams) -> Reply {
    let (profile, device) = own_device(&call).await?;
    let wanted = Grants::asked_by(&device.scopes).or(Grants::asked_by(&params.scopes));
    let scopes: Vec<String> = wanted.names().into_iter().map(str::to_owned).collect();
    let (devices, user) = (call.state().directory.devices(), user_of(&call.caller));
    let asked = devices.ask(call.tenant(), profile, (&scopes, &user)).await?;
    let Some((request, is_new)) = asked else {
        return Err(MethodError::invalid("the request was rejected: ask again in an hour"));
    };
    let id = request.id.to_string();
    call.connection.set_upgrade(request.clone());
    if is_new {
        call.hub.publish(&pairing_requested(request));
    }
    Ok(json!({ "requestId": id }))
}

/// Waits for the decision about a request of this device, until the request expires.
async fn wait_for_upgrade(call: Call, params: RequestParams) -> Reply {
    let (profile, _) = own_device(&call).await?;
    let unknown = || MethodError::invalid("scope upgrade expired or not found");
    let id = Uuid::try_parse(&params.request_id).map_err(|_| unknown())?;
    let devices = call.state().directory.devices();
    // A request that is decided is gone, and may be so before the first look.
    let mut pending = call.connection.take_upgrade(id);
    loop {
        match devices.request(call.tenant(), id).await {
            Ok(request) if request.profile.id == profile.id => pending = Some(request),
            Ok(_) | Err(holdfast_directory::Error::NotFound { .. }) => break,
            Err(error) => return Err(error.into()),
        }
        sleep(POLL_INTERVAL).await;
    }
    let request = pending.ok_or_else(unknown)?;
    let (_, device) = own_device(&call).await?;
    if Grants::asked_by(&device.scopes).lacks(Grants::asked_by(&request.scopes)).is_some() {
        let is_over = request.expires_at <= jiff::Timestamp::now();
        let status = if is_over { "expired" } else { "rejected" };
        return Ok(json!({ "status": status, "requestId": params.request_id }));
    }
    let token = match call.connection.has_device_token() {
        true => call.connection.credential().to_owned(),
        // A token that was issued before cannot be read again.
        false => {
            let by = actor(&call.caller);
            devices.rotate(call.tenant(), by, &profile.id, None).await?;
            let issued = devices.issue(call.tenant(), &profile.id).await?.ok_or_else(unknown)?;
            issued.expose_secret().to_owned()
        }
    };
    Ok(json!({
        "status": "approved",
        "requestId": params.request_id,
        "deviceToken": token,
        "scopes": device.scopes,
    }))
}
