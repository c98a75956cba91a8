//! `holdfast devices`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    ApproveDeviceRequest, Device, DeviceRequest, ListDevicesRequest, RejectDeviceRequest,
    RemoveDeviceRequest, RevokeDeviceTokenRequest, RotateDeviceTokenRequest,
};
use serde_json::{Value, json};

use crate::{
    client::{self, Client},
    error::Error,
    screen::Screen,
    view::time,
};

const COLUMNS: [&str; 6] = ["id", "name", "platform", "scopes", "approved_by", "state"];
const REQUEST_COLUMNS: [&str; 6] = ["request", "name", "platform", "scopes", "id", "expires_at"];

#[derive(Debug, Subcommand)]
pub enum Devices {
    /// List the paired devices
    List,
    /// List the devices that ask to be paired
    Requests,
    /// Approve a request: the device may do what it asks for, as far as you may yourself
    Approve {
        /// Id of the request, as `requests` shows it
        request: String,
    },
    /// Reject a request; the device cannot ask again for an hour
    Reject {
        /// Id of the request, as `requests` shows it
        request: String,
    },
    /// Remove a device and end its token
    Remove {
        /// Id of the device, as `list` shows it
        device: String,
    },
    /// End a device's token; it gets another one when it connects with a key
    Rotate {
        /// Id of the device, as `list` shows it
        device: String,
        /// Scopes that it keeps, such as `operator.read`; without any it keeps all
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// Revoke a device's token; takes effect everywhere within 5 s
    Revoke {
        /// Id of the device, as `list` shows it
        device: String,
    },
}

impl Devices {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let mut devices = client::devices(client);
        match self {
            Self::List => {
                let request = client.request(ListDevicesRequest {});
                let listed = client.answer(devices.list_devices(request).await)?;
                screen.list(&COLUMNS, listed.devices.iter().map(view).collect())
            }
            Self::Requests => {
                let request = client.request(ListDevicesRequest {});
                let listed = client.answer(devices.list_devices(request).await)?;
                screen.list(&REQUEST_COLUMNS, listed.requests.iter().map(request_view).collect())
            }
            Self::Approve { request } => {
                let request = client.request(ApproveDeviceRequest { request });
                let approved = client.answer(devices.approve_device(request).await)?;
                screen.done("approved", &view(&approved.device.unwrap_or_default()))
            }
            Self::Reject { request } => {
                let request = client.request(RejectDeviceRequest { request });
                let rejected = client.answer(devices.reject_device(request).await)?;
                screen.done("rejected", &json!({ "rejected": rejected.device }))
            }
            Self::Remove { device } => {
                let request = client.request(RemoveDeviceRequest { device: device.clone() });
                client.answer(devices.remove_device(request).await)?;
                screen.done("removed", &json!({ "removed": device }))
            }
            Self::Rotate { device, scopes } => {
                let request = client.request(RotateDeviceTokenRequest { device, scopes });
                let rotated = client.answer(devices.rotate_device_token(request).await)?;
                screen.done("rotated", &view(&rotated.device.unwrap_or_default()))
            }
            Self::Revoke { device } => {
                let request = client.request(RevokeDeviceTokenRequest { device });
                let revoked = client.answer(devices.revoke_device_token(request).await)?;
                screen.done("revoked", &view(&revoked.device.unwrap_or_default()))
            }
        }
    }
}

fn view(device: &Device) -> Value {
    let state = match (&device.issued_at, &device.revoked_at) {
        (_, Some(_)) => "revoked",
        (Some(_), None) => "active",
        (None, None) => "approved",
    };
    json!({
        "id": device.id,
        "name": device.name,
        "platform": device.platform,
        "family": device.family,
        "client": device.client_id,
        "scopes": device.scopes,
        "approved_by": device.approved_by,
        "approved_at": time(device.approved_at.as_ref()),
        "issued_at": time(device.issued_at.as_ref()),
        "revoked_at": time(device.revoked_at.as_ref()),
        "state": state,
    })
}

fn request_view(request: &DeviceRequest) -> Value {
    let device = request.device.clone().unwrap_or_default();
    json!({
        "request": request.id,
        "id": device.id,
        "name": device.name,
        "platform": device.platform,
        "client": device.client_id,
        "scopes": device.scopes,
        "paired": request.paired,
        "requested_at": time(request.requested_at.as_ref()),
        "expires_at": time(request.expires_at.as_ref()),
    })
}
