//! Client of the gateway: with the platform's key for tenants, with a tenant's key for the rest.

use std::time::Duration;

use anyhow::Context as _;
use holdfast_kit::tls::Tls;
use holdfast_proto::gateway::v1::{
    agents_client::AgentsClient, behaviors_client::BehaviorsClient,
    channels_client::ChannelsClient, keys_client::KeysClient, providers_client::ProvidersClient,
    tenants_client::TenantsClient,
};
use holdfast_types::Kind;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::{
    Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::error::{Credential, Failure};

/// Maximum time until a call's answer begins.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// An API key, as calls carry it.
#[derive(Debug, Clone)]
pub struct ApiKey(MetadataValue<Ascii>);

impl ApiKey {
    /// `None` if the text cannot be a key.
    pub fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        let mut value: MetadataValue<Ascii> = format!("Bearer {key}").parse().ok()?;
        value.set_sensitive(true);
        (!key.is_empty()).then_some(Self(value))
    }

    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.0.clone());
        request
    }
}

#[derive(Debug, Clone)]
pub struct Gateway {
    channel: Channel,
    platform: ApiKey,
}

impl Gateway {
    /// Creates a client, which connects at the first call.
    ///
    /// # Errors
    ///
    /// If the address or the key is malformed.
    pub fn new(url: &str, key: &SecretString, tls: &Tls) -> anyhow::Result<Self> {
        let connector = tls.connector().named("tls.authorities");
        let channel = holdfast_grpc::channel_by(connector, url, ANSWER_TIMEOUT)
            .context("`operator.gateway_url` is no address")?;
        let platform = ApiKey::new(key.expose_secret())
            .context("`operator.key` holds characters that no key has: copy it anew")?;
        Ok(Self { channel, platform })
    }

    /// Returns a request with the platform's key.
    pub fn platform_request<T>(&self, message: T) -> Request<T> {
        self.platform.request(message)
    }

    pub fn tenants(&self) -> TenantsClient<Channel> {
        TenantsClient::new(self.channel.clone())
    }

    pub fn keys(&self) -> KeysClient<Channel> {
        KeysClient::new(self.channel.clone())
    }

    pub fn agents(&self) -> AgentsClient<Channel> {
        AgentsClient::new(self.channel.clone())
    }

    pub fn behaviors(&self) -> BehaviorsClient<Channel> {
        BehaviorsClient::new(self.channel.clone())
    }

    pub fn channels(&self) -> ChannelsClient<Channel> {
        ChannelsClient::new(self.channel.clone())
    }

    pub fn providers(&self) -> ProvidersClient<Channel> {
        ProvidersClient::new(self.channel.clone())
    }
}

/// The answer of a call with a tenant's key.
pub fn answer<T>(outcome: Result<Response<T>, Status>) -> Result<T, Failure> {
    let failed = |status: Status| Failure::of_call(&status, Credential::Tenant);
    outcome.map(Response::into_inner).map_err(failed)
}

/// The answer of a call with the platform's key.
pub fn platform_answer<T>(outcome: Result<Response<T>, Status>) -> Result<T, Failure> {
    let failed = |status: Status| Failure::of_call(&status, Credential::Platform);
    outcome.map(Response::into_inner).map_err(failed)
}

/// The outcome of a call, with `None` for what is not there.
pub fn found<T>(outcome: Result<Response<T>, Status>) -> Result<Option<Response<T>>, Status> {
    match outcome {
        Ok(response) => Ok(Some(response)),
        Err(status) if holdfast_grpc::kind(&status) == Kind::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
