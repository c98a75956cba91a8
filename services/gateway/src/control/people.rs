//! The service `People`: people who signed in, and the caller itself.

mod assigning;
pub mod audit_log;
mod one_person;

use crate::permissions::{self, Permission, rights};
use holdfast_agent::{file_view::FileSpace, person};
use holdfast_directory::{Person, PersonChanges};
use holdfast_grpc::{Caller, Principal};
use holdfast_proto::gateway::v1::{
    self as pb, AssignConversationsRequest, AssignConversationsResponse, CreateLinkCodeRequest,
    CreateLinkCodeResponse, ErasePersonRequest, ErasePersonResponse, GetCallerRequest,
    GetCallerResponse, GetPersonRequest, GetPersonResponse, LinkProgramUserRequest,
    LinkProgramUserResponse, ListPeopleRequest, ListPeopleResponse, MergePeopleRequest,
    MergePeopleResponse, SetPersonStateRequest, SetPersonStateResponse, SplitPersonRequest,
    SplitPersonResponse, UpdatePersonRequest, UpdatePersonResponse,
    people_server::People as Service,
};
use holdfast_schedule::Zone;
use holdfast_types::{PersonId, TenantRole};
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, non_empty, page_size, timestamp};
use crate::{Error, audit};

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;

/// Implements `holdfast.gateway.v1.People`.
#[derive(Debug)]
pub struct People(pub State);

#[tonic::async_trait]
impl Service for People {
    async fn get_caller(
        &self,
        request: Request<GetCallerRequest>,
    ) -> Result<Response<GetCallerResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let tenant = self.0.directory.tenants().get(&caller.tenant.to_string()).await;

        let role = match caller.principal {
            Principal::Person { role, .. } => role.to_string(),
            Principal::Key(_) | Principal::Service | Principal::Node => String::new(),
        };
        Ok(Response::new(GetCallerResponse {
            id: caller.id(),
            tenant_id: caller.tenant.to_string(),
            tenant: tenant.map_err(Error::from)?.name,
            role,
            name_space: rights::name_space(&caller).to_string(),
            scopes: caller.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
            person: caller.person.map(|person| person.to_string()).unwrap_or_default(),
            name: caller.name,
        }))
    }

    async fn list_people(
        &self,
        request: Request<ListPeopleRequest>,
    ) -> Result<Response<ListPeopleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
        let after = non_empty(request.page_token).map(|id| id.parse::<PersonId>()).transpose();
        let after = after.map_err(Error::from)?;

        let people = self.0.directory.people().list(caller.tenant, after, limit + 1).await;

        let mut people = people.map_err(Error::from)?;
        let is_last = people.len() <= usize::try_from(limit).unwrap_or(usize::MAX);
        if !is_last {
            people.pop();
        }
        let next = people.last().filter(|_| !is_last).map(|person| person.id.to_string());
        Ok(Response::new(ListPeopleResponse {
            people: people.into_iter().map(person_of).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn set_person_state(
        &self,
        request: Request<SetPersonStateRequest>,
    ) -> Result<Response<SetPersonStateResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;

        let people = self.0.directory.people();
        let person = people.set_disabled(caller.tenant, actor(&caller), id, request.disabled).await;

        let person = Some(person_of(person.map_err(Error::from)?));
        Ok(Response::new(SetPersonStateResponse { person }))
    }

    async fn update_person(
        &self,
        request: Request<UpdatePersonRequest>,
    ) -> Result<Response<UpdatePersonResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = one_person::named(&caller, &request.id)?;
        audit::set_target(id.to_string());
        let changes = changes_of(&caller, id, request)?;

        let people = self.0.directory.people();
        let person = people.update(caller.tenant, actor(&caller), id, &changes).await;

        let person = Some(person_of(person.map_err(Error::from)?));
        Ok(Response::new(UpdatePersonResponse { person }))
    }

    async fn get_person(
        &self,
        request: Request<GetPersonRequest>,
    ) -> Result<Response<GetPersonResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let id = one_person::named(&caller, &request.id)?;

        let person = self.0.directory.people().get(caller.tenant, id).await.map_err(Error::from)?;
        let identities = self.0.directory.people().identities(caller.tenant, id).await;

        let user = match person.role {
            TenantRole::Owner => person::OWNER.to_owned(),
            _ => person::of_id(id),
        };
        let identities =
            identities.map_err(Error::from)?.into_iter().map(|one| pb::PersonIdentity {
                kind: one.kind,
                value: one.value,
                proven_at: one.proven_at.map(timestamp),
            });
        Ok(Response::new(GetPersonResponse {
            identities: identities.collect(),
            folder: FileSpace::of_person(&user).folder().unwrap_or_default().to_owned(),
            user,
            merged_into: person.merged_into.map(|into| into.to_string()).unwrap_or_default(),
            person: Some(person_of(person)),
        }))
    }

    async fn create_link_code(
        &self,
        request: Request<CreateLinkCodeRequest>,
    ) -> Result<Response<CreateLinkCodeResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;
        let (code, expires_at) = one_person::create_code(&self.0, &caller).await?;
        let expires_at = Some(timestamp(expires_at));
        Ok(Response::new(CreateLinkCodeResponse { code, expires_at }))
    }

    async fn link_program_user(
        &self,
        request: Request<LinkProgramUserRequest>,
    ) -> Result<Response<LinkProgramUserResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.person);
        let person = request.person.parse().map_err(Error::from)?;
        let all = one_person::link_user(&self.0, &caller, (person, &request.user)).await?;
        Ok(Response::new(LinkProgramUserResponse { files_stay: !all }))
    }

    async fn merge_people(
        &self,
        request: Request<MergePeopleRequest>,
    ) -> Result<Response<MergePeopleResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.from);
        let from = request.from.parse().map_err(Error::from)?;
        let into = one_person::named(&caller, &request.into)?;
        let (person, all) = one_person::merge(&self.0, &caller, (from, into)).await?;
        let person = Some(person_of(person));
        Ok(Response::new(MergePeopleResponse { person, files_stay: !all }))
    }

    async fn split_person(
        &self,
        request: Request<SplitPersonRequest>,
    ) -> Result<Response<SplitPersonResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let person = one_person::named(&caller, &request.person)?;
        audit::set_target(person.to_string());
        one_person::split(&self.0, &caller, (person, &request.identity)).await?;
        Ok(Response::new(SplitPersonResponse {}))
    }

    async fn assign_conversations(
        &self,
        request: Request<AssignConversationsRequest>,
    ) -> Result<Response<AssignConversationsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(assigning::assign(&self.0, &caller, request).await?))
    }

    async fn erase_person(
        &self,
        request: Request<ErasePersonRequest>,
    ) -> Result<Response<ErasePersonResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;
        Ok(Response::new(one_person::erase(&self.0, &caller, id).await?))
    }
}

/// The changes of a request, if the caller may make them.
fn changes_of(
    caller: &Caller,
    id: PersonId,
    request: UpdatePersonRequest,
) -> Result<PersonChanges, Error> {
    let UpdatePersonRequest { id: _, name, time_zone, language, role } = request;
    if let Some(zone) = time_zone.as_deref().filter(|zone| !zone.is_empty()) {
        zone.parse::<Zone>().map_err(|error| invalid(error.to_string()))?;
    }
    let role = role.map(|role| role.parse::<TenantRole>()).transpose();
    let role = role.map_err(|error| invalid(error.to_string()))?;
    if role.is_some() {
        permissions::require(caller, Permission::Own)?;
        if caller.person == Some(id) {
            return Err(invalid("nobody changes their own role: ask another owner".to_owned()));
        }
    }
    Ok(PersonChanges { name, zone: time_zone, language, role })
}

fn person_of(person: Person) -> pb::Person {
    pb::Person {
        id: person.id.to_string(),
        name: person.name,
        role: person.role.to_string(),
        issuer: person.issuer,
        subject: person.subject,
        created_at: Some(timestamp(person.created_at)),
        seen_at: Some(timestamp(person.seen_at)),
        disabled_at: person.disabled_at.map(timestamp),
        invited_by: person.invited_by.unwrap_or_default(),
        time_zone: person.zone.unwrap_or_default(),
        language: person.language.unwrap_or_default(),
    }
}
