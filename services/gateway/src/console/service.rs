//! The service `Console`: sign-in links and sessions.

use holdfast_directory::{Approver, ConsoleRights, ConsoleSession};
use holdfast_grpc::{Caller, InvalidScope, Principal, Scope, Scopes};
use holdfast_kit::config::reload::Current;
use holdfast_proto::gateway::v1::{
    self as pb, CreateSignInLinkRequest, CreateSignInLinkResponse, EndConsoleSessionRequest,
    EndConsoleSessionResponse, ListConsoleSessionsRequest, ListConsoleSessionsResponse,
    console_server::{Console as Service, ConsoleServer},
};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status, service::Routes};
use uuid::Uuid;

use super::pages;
use crate::{
    Config, Error, audit,
    control::{State, actor, invalid, non_empty, timestamp},
    permissions::{Permission, require},
};

/// Implements `holdfast.gateway.v1.Console`.
#[derive(Debug)]
struct Handler {
    state: State,
    settings: Current<Config>,
    /// Beginning of links.
    address: String,
}

/// Adds the service to `routes`. Links begin with `address`.
pub fn add_service(
    routes: Routes,
    state: &State,
    (settings, address): (Current<Config>, String),
    body_limit: usize,
) -> Routes {
    let handler = Handler { state: state.clone(), settings, address };
    routes.add_service(ConsoleServer::new(handler).max_decoding_message_size(body_limit))
}

#[tonic::async_trait]
impl Service for Handler {
    async fn create_sign_in_link(
        &self,
        request: Request<CreateSignInLinkRequest>,
    ) -> Result<Response<CreateSignInLinkResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let name = non_empty(request.name).unwrap_or_else(|| caller.name.clone());
        audit::set_target(&name);
        let scopes = limit(&caller, request.scopes)?;
        let rights = ConsoleRights { holder: holder(&caller)?, scopes, name };

        let sessions = self.state.directory.console_sessions();
        let link = sessions.create_link(caller.tenant, &rights).await.map_err(Error::from)?;

        let token = link.token.expose_secret().to_owned();
        let url = format!("{}{}#link={token}", self.address, pages::ROOT);
        let expires_at = Some(timestamp(link.expires_at));
        Ok(Response::new(CreateSignInLinkResponse { url, token, expires_at }))
    }

    async fn list_console_sessions(
        &self,
        request: Request<ListConsoleSessionsRequest>,
    ) -> Result<Response<ListConsoleSessionsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;
        let idle = self.settings.get().gateway.console.idle_timeout;

        let listed = self.state.directory.console_sessions().list(caller.tenant, idle).await;

        let sessions = listed.map_err(Error::from)?.into_iter().map(session_of).collect();
        Ok(Response::new(ListConsoleSessionsResponse { sessions }))
    }

    async fn end_console_session(
        &self,
        request: Request<EndConsoleSessionRequest>,
    ) -> Result<Response<EndConsoleSessionResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let unknown = || holdfast_directory::Error::NotFound {
            what: "session of the console",
            name: request.id.chars().take(80).collect(),
        };
        let id = Uuid::try_parse(&request.id).map_err(|_| Error::from(unknown()))?;
        let sessions = self.state.directory.console_sessions();

        sessions.end(caller.tenant, actor(&caller), id).await.map_err(Error::from)?;

        Ok(Response::new(EndConsoleSessionResponse {}))
    }
}

/// Scopes that limit a new session: those asked for, of which the caller must have each, or else those
/// that limit the caller.
fn limit(caller: &Caller, asked: Vec<String>) -> Result<Option<Vec<String>>, Error> {
    for scope in &asked {
        let scope: Scope =
            scope.parse().map_err(|error: InvalidScope| invalid(error.to_string()))?;
        if matches!(caller.principal, Principal::Key(_)) && !caller.scopes.has(scope) {
            let needs = scope.as_str().to_owned();
            return Err(Error::Scope { needs, has: caller.scopes });
        }
        let permission = match scope {
            Scope::Guest => Permission::Begin,
            Scope::Chat => Permission::Chat,
            Scope::Read => Permission::Read,
            Scope::Events => Permission::ReadEvents,
            Scope::Approve => Permission::Approve,
            Scope::Admin => Permission::Manage,
            Scope::Owner => Permission::Own,
            Scope::Platform => Permission::Platform,
            Scope::Service => Permission::Service,
            Scope::Node => Permission::Node,
        };
        require(caller, permission)?;
    }
    if !asked.is_empty() {
        return Ok(Some(asked));
    }
    let own = caller.scopes;
    let names = own.iter().map(|scope| scope.as_str().to_owned()).collect();
    Ok((own != Scopes::EMPTY).then_some(names))
}

fn holder(caller: &Caller) -> Result<Approver, Error> {
    match caller.principal {
        Principal::Key(key) => Ok(Approver::Key(key)),
        Principal::Person { id, .. } => Ok(Approver::Person(id)),
        Principal::Service | Principal::Node => Err(Error::NoRule),
    }
}

fn session_of(session: ConsoleSession) -> pb::ConsoleSession {
    let ConsoleSession { id, rights, method, created_at, used_at, expires_at } = session;
    pb::ConsoleSession {
        id: id.simple().to_string(),
        name: rights.name,
        holder: match rights.holder {
            Approver::Key(key) => key.to_string(),
            Approver::Person(person) => person.to_string(),
        },
        scopes: rights.scopes.unwrap_or_default(),
        method: method.as_str().to_owned(),
        created_at: Some(timestamp(created_at)),
        used_at: Some(timestamp(used_at)),
        expires_at: Some(timestamp(expires_at)),
    }
}
