//! The service `Keys`: a tenant's API keys.

pub mod devices;

use std::time::Duration;

use holdfast_directory::{Key, NewKey};
use holdfast_grpc::Scope;
use holdfast_proto::gateway::v1::{
    self as pb, CreateKeyRequest, CreateKeyResponse, ListKeysRequest, ListKeysResponse,
    RevokeKeyRequest, RevokeKeyResponse, keys_server::Keys as Service,
};
use holdfast_types::{PersonId, TenantRole};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, non_empty, timestamp};
use crate::{
    Error, audit,
    permissions::{Permission, includes_scope, require},
};

/// Implements `holdfast.gateway.v1.Keys`.
#[derive(Debug)]
pub struct Keys(pub State);

#[tonic::async_trait]
impl Service for Keys {
    async fn list_keys(
        &self,
        request: Request<ListKeysRequest>,
    ) -> Result<Response<ListKeysResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let keys = self.0.directory.keys().list(caller.tenant).await.map_err(Error::from)?;

        Ok(Response::new(ListKeysResponse { keys: keys.into_iter().map(key_of).collect() }))
    }

    async fn create_key(
        &self,
        request: Request<CreateKeyRequest>,
    ) -> Result<Response<CreateKeyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        // Otherwise an admin of one tenant could make themselves an operator of the platform.
        if request.scopes.iter().any(|scope| scope == Scope::Platform.as_str()) {
            require(&caller, Permission::Platform)?;
        }
        let lifetime = match request.lifetime_seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds)),
        };
        let person = non_empty(request.person).map(|id| id.parse::<PersonId>()).transpose();
        let person = person.map_err(Error::from)?;
        if let Some(id) = person {
            let found = self.0.directory.people().get(caller.tenant, id).await;
            check_role(found.map_err(Error::from)?.role, &request.scopes)?;
        }
        let agent = match non_empty(request.agent) {
            None => None,
            Some(named) => {
                let found = self.0.directory.agents().get(caller.tenant, &named).await;
                Some(found.map_err(Error::from)?.id)
            }
        };
        let (name, scopes, origins) = (request.name, request.scopes, request.origins);
        let new = NewKey { name, scopes, lifetime, person, agent, origins };

        let made = self.0.directory.keys().create(caller.tenant, actor(&caller), new).await;

        let (key, secret) = made.map_err(Error::from)?;
        let secret = secret.expose_secret().to_owned();
        Ok(Response::new(CreateKeyResponse { key: Some(key_of(key)), secret }))
    }

    async fn revoke_key(
        &self,
        request: Request<RevokeKeyRequest>,
    ) -> Result<Response<RevokeKeyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;

        let revoked = self.0.directory.keys().revoke(caller.tenant, actor(&caller), id).await;

        revoked.map_err(Error::from)?;
        Ok(Response::new(RevokeKeyResponse {}))
    }
}

/// Checks that a role includes the scopes of a key.
fn check_role(role: TenantRole, scopes: &[String]) -> Result<(), Error> {
    for scope in scopes.iter().filter_map(|scope| scope.parse::<Scope>().ok()) {
        if !includes_scope(role, scope) {
            return Err(invalid(format!(
                "the person has the role `{role}`, which does not include what a key with the scope `{}` \
                 may do: leave the scope out",
                scope.as_str()
            )));
        }
    }
    Ok(())
}

pub(super) fn key_of(key: Key) -> pb::Key {
    pb::Key {
        id: key.id.to_string(),
        name: key.name,
        scopes: key.scopes,
        created_at: Some(timestamp(key.created_at)),
        expires_at: key.expires_at.map(timestamp),
        revoked_at: key.revoked_at.map(timestamp),
        person: key.person.map(|person| person.to_string()).unwrap_or_default(),
        agent: key.agent.map(|agent| agent.to_string()).unwrap_or_default(),
        origins: key.origins,
    }
}
