//! The service `Console`: sign-in links and sessions.

use std::time::Duration;

use holdfast_directory::{Approver, ConsoleRights, ConsoleSession, Invitation, LinkOrigin};
use holdfast_grpc::{Caller, InvalidScope, Principal, Scope, Scopes};
use holdfast_kit::config::reload::Current;
use holdfast_proto::gateway::v1::{
    self as pb, CreateSignInLinkRequest, CreateSignInLinkResponse, EndConsoleSessionRequest,
    EndConsoleSessionResponse, InvitePersonRequest, InvitePersonResponse,
    ListConsoleSessionsRequest, ListConsoleSessionsResponse, ListInvitationsRequest,
    ListInvitationsResponse, RevokeInvitationRequest, RevokeInvitationResponse,
    console_server::{Console as Service, ConsoleServer},
};
use holdfast_types::{InvalidTenantRole, TenantRole};
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
        if !request.role.is_empty() {
            if !request.scopes.is_empty() {
                let why = "an invitation has a role, and no scopes: give one of them";
                return Err(invalid(why.to_owned()).into());
            }
            require(&caller, Permission::Manage)?;
            let (invitation, token) = self.invite(&caller, &request.name, &request.role).await?;
            let (url, expires_at) = (self.url(&token), Some(timestamp(invitation.expires_at)));
            return Ok(Response::new(CreateSignInLinkResponse { url, token, expires_at }));
        }
        let name = non_empty(request.name).unwrap_or_else(|| caller.name.clone());
        audit::set_target(&name);
        let origin = self.origin(&caller).await?;
        let scopes = limit(&caller, request.scopes)?;
        let rights = ConsoleRights { holder: holder(&caller)?, scopes, name };

        let sessions = self.state.directory.console_sessions();
        let link = sessions.create_link(caller.tenant, &rights, origin).await;

        let link = link.map_err(Error::from)?;
        let token = link.token.expose_secret().to_owned();
        let (url, expires_at) = (self.url(&token), Some(timestamp(link.expires_at)));
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

    async fn invite_person(
        &self,
        request: Request<InvitePersonRequest>,
    ) -> Result<Response<InvitePersonResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let (invitation, token) = self.invite(&caller, &request.name, &request.role).await?;

        let (url, invitation) = (self.url(&token), Some(invitation_of(invitation)));
        Ok(Response::new(InvitePersonResponse { invitation, url, token }))
    }

    async fn list_invitations(
        &self,
        request: Request<ListInvitationsRequest>,
    ) -> Result<Response<ListInvitationsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let listed = self.state.directory.people().invitations(caller.tenant).await;

        let invitations = listed.map_err(Error::from)?.into_iter().map(invitation_of).collect();
        Ok(Response::new(ListInvitationsResponse { invitations }))
    }

    async fn revoke_invitation(
        &self,
        request: Request<RevokeInvitationRequest>,
    ) -> Result<Response<RevokeInvitationResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;
        let people = self.state.directory.people();

        let revoked = people.revoke_invitation(caller.tenant, actor(&caller), id).await;

        revoked.map_err(Error::from)?;
        Ok(Response::new(RevokeInvitationResponse {}))
    }
}

impl Handler {
    fn url(&self, token: &str) -> String {
        format!("{}{}#link={token}", self.address, pages::ROOT)
    }

    /// Invites a person, and returns the token of the link.
    async fn invite(
        &self,
        caller: &Caller,
        name: &str,
        role: &str,
    ) -> Result<(Invitation, String), Error> {
        audit::set_target(name);
        let role: TenantRole =
            role.parse().map_err(|error: InvalidTenantRole| invalid(error.to_string()))?;
        if !may_give(caller, role) {
            return Err(Error::RoleNotGiven { role });
        }
        // A session that was taken over must not make people.
        self.origin(caller).await?;
        let people = self.state.directory.people();
        let (mut invitation, token) =
            people.invite(caller.tenant, actor(caller), (name, role)).await?;
        invitation.inviter.clone_from(&caller.name);
        Ok((invitation, token.expose_secret().to_owned()))
    }

    /// What the session of a link inherits from the session that makes it. Credentials that are checked
    /// with each call prove the caller at this moment.
    ///
    /// # Errors
    ///
    /// [`Error::SignInTooOld`] if the session's sign-in was too long ago.
    async fn origin(&self, caller: &Caller) -> Result<LinkOrigin, Error> {
        let console = &self.settings.get().gateway.console;
        let (max_age, unchecked) = (console.link_sign_in_age, console.unchecked_lifetime);
        let now = jiff::Timestamp::now();
        let Some(session) = caller.session() else {
            // Nobody asks the provider of a token about its person again.
            let is_token = matches!(caller.principal, Principal::Person { .. });
            let expires_at = is_token.then(|| now.checked_add(unchecked).unwrap_or(now));
            let via_key = match caller.principal {
                Principal::Key(key) => caller.person.map(|_| key),
                Principal::Person { .. } | Principal::Service | Principal::Node => None,
            };
            return Ok(LinkOrigin { signed_in_at: None, expires_at, via_key });
        };
        let sessions = self.state.directory.console_sessions();
        let origin = sessions.origin(caller.tenant, session).await?;
        let age = origin.signed_in_at.map(|at| now.duration_since(at));
        match age.map(|age| Duration::try_from(age).unwrap_or_default()) {
            Some(age) if age > max_age => Err(Error::SignInTooOld { max_age }),
            _ => Ok(origin),
        }
    }
}

/// Whether a caller may invite somebody with a role: an owner anybody, an operator those below.
fn may_give(caller: &Caller, role: TenantRole) -> bool {
    require(caller, Permission::Own).is_ok()
        || (role < TenantRole::Operator && require(caller, Permission::Manage).is_ok())
}

fn invitation_of(invitation: Invitation) -> pb::Invitation {
    let Invitation { id, name, role, invited_by, inviter, created_at, expires_at } = invitation;
    pb::Invitation {
        id: id.to_string(),
        name,
        role: role.to_string(),
        invited_by,
        inviter,
        created_at: Some(timestamp(created_at)),
        expires_at: Some(timestamp(expires_at)),
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

/// Whose the session of a link is.
fn holder(caller: &Caller) -> Result<Approver, Error> {
    match caller.principal {
        Principal::Key(key) => Ok(caller.person.map_or(Approver::Key(key), Approver::Person)),
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
