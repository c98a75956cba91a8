//! Author of a message and the roles that the gateway can verify.
//!
//! | source | id | roles |
//! |---|---|---|
//! | an API key | `api:key_…` | `member`; with the scope `admin` also `admin`, with `owner` also `admin` and `owner`; a guest's none |
//! | a person who signed in | `person:per_…` | `member`; an operator also `admin`, an owner also `admin` and `owner`; a guest none |
//! | a channel | `telegram:12345` | `member`, if the account's allow-list names the sender |
//! | a program, for a user who is a person | the person's, `person:per_…` | those that both have |
//! | a linked account | the person's, `person:per_…` | also those of the person's role |
//! | a channel that has not verified the sender | `email-unverified:a@example.com` | none |
//! | a service of the mesh | no author | |
//!
//! Roles from the tenant's policy are added where the policy is evaluated.

use holdfast_agent::{
    access::{ConversationAccess, SessionFacts},
    person,
    policy::{self, GUEST, OWNER, TurnAuthors},
};
use holdfast_directory::Directory;
use holdfast_grpc::{Caller, Principal, Scope, Scopes};
use holdfast_types::{AgentId, Author, DmScope, KeyId, PersonId, SessionKey, TenantId, TenantRole};

use crate::Error;

/// Id of a sender whom the platform does not name.
const UNKNOWN_SENDER: &str = "unknown";

/// Author of a call with an API key or of a person; `None` for a service of the mesh.
pub fn of_caller(caller: &Caller) -> Option<Author> {
    match caller.principal {
        Principal::Key(key) => Some(match caller.person {
            Some(person) => Author { id: person::of_id(person), ..of_key(key, caller.scopes) },
            None => of_key(key, caller.scopes),
        }),
        Principal::Person { id, role } => {
            // The scopes of a session of the console may limit the role.
            let has = |scope| caller.scopes == Scopes::EMPTY || caller.scopes.has(scope);
            let role = match role {
                TenantRole::Owner if has(Scope::Owner) => TenantRole::Owner,
                TenantRole::Owner | TenantRole::Operator if has(Scope::Admin) => {
                    TenantRole::Operator
                }
                TenantRole::Guest => TenantRole::Guest,
                TenantRole::Viewer
                | TenantRole::Member
                | TenantRole::Approver
                | TenantRole::Operator
                | TenantRole::Owner => TenantRole::Member,
            };
            Some(author(person::of_id(id), roles_of(role)))
        }
        Principal::Service | Principal::Node => None,
    }
}

/// Author for an API key.
pub fn of_key(key: KeyId, scopes: Scopes) -> Author {
    let role = if scopes.has(Scope::Owner) {
        TenantRole::Owner
    } else if scopes.has(Scope::Admin) {
        TenantRole::Operator
    } else if scopes.has(Scope::Guest) && !scopes.has(Scope::Chat) {
        TenantRole::Guest
    } else {
        TenantRole::Member
    };
    author(format!("api:{key}"), roles_of(role))
}

/// Roles in policies of somebody with this role in the tenant.
const fn roles_of(role: TenantRole) -> &'static [&'static str] {
    match role {
        TenantRole::Owner => &["admin", "member", "owner"],
        TenantRole::Operator => &["admin", "member"],
        TenantRole::Approver | TenantRole::Member | TenantRole::Viewer => &["member"],
        TenantRole::Guest => &[],
    }
}

/// Author of a message from a channel; `is_listed` if the account's allow-list names the sender.
pub fn of_sender(channel: &str, sender: Option<&str>, is_listed: bool) -> Author {
    let id = format!("{channel}:{}", sender.unwrap_or(UNKNOWN_SENDER));
    author(id, if is_listed && sender.is_some() { &["member"] } else { &[] })
}

/// Whether all authors own the agent; `false` if there are none.
///
/// # Errors
///
/// If the policies cannot be read now.
pub async fn are_owners(
    directory: &Directory,
    tenant: TenantId,
    agent: AgentId,
    speakers: &[Author],
) -> Result<bool, Error> {
    let says = directory.policies().for_agent(tenant, agent).await?;
    let (of_tenant, of_agent) = (&says.tenant.document, &says.agent.document);
    // A policy that cannot be parsed names no owners.
    Ok(policy::are_owners(of_tenant, of_agent, speakers).unwrap_or(false))
}

/// Whose a conversation is if these have written in it, as a runner decides it when it reads them.
///
/// # Errors
///
/// If the policies cannot be read now.
pub async fn access_of(
    directory: &Directory,
    tenant: TenantId,
    (agent, dm_scope): (AgentId, DmScope),
    key: &SessionKey,
    speakers: &[Author],
) -> Result<ConversationAccess, Error> {
    let mut authors = TurnAuthors::default();
    if !speakers.is_empty() {
        let are_owners = are_owners(directory, tenant, agent, speakers).await?;
        authors.roles.push(if are_owners { OWNER } else { GUEST }.to_owned());
    }
    let facts = SessionFacts { kind: key.kind(), key: key.as_str(), dm_scope };
    Ok(ConversationAccess::decide(&facts, authors.clone(), &authors))
}

/// Makes the person for whom a program speaks the author of its message: with the rights that both have.
pub fn speak_for(author: &mut Author, person: PersonId, role: Option<TenantRole>) {
    let id = person::of_id(person);
    if author.id == id {
        return;
    }
    author.id = id;
    let of_person = role.map(roles_of).unwrap_or_default();
    author.roles.retain(|role| of_person.contains(&role.as_str()));
}

/// Makes the person to whom a sender's account is linked the author. A person who signs in has the
/// rights of their role there too.
pub fn set_person(author: &mut Author, person: String, role: Option<TenantRole>) {
    author.id = person;
    for role in role.map(roles_of).unwrap_or_default() {
        if !author.roles.iter().any(|held| held == role) {
            author.roles.push((*role).to_owned());
        }
    }
}

fn author(id: String, roles: &[&str]) -> Author {
    Author { id, roles: roles.iter().map(|&role| role.to_owned()).collect() }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{PersonId, TenantId};

    use super::*;

    #[test]
    fn a_door_vouches_for_what_it_has_verified() {
        let key = KeyId::generate();
        let caller = |principal, scopes| {
            let name = String::new();
            let tenant = TenantId::generate();
            of_caller(&Caller {
                tenant,
                principal,
                person: None,
                agent: None,
                via: None,
                scopes,
                name,
            })
        };
        let person = |role| Principal::Person { id: PersonId::generate(), role };
        let chat = Scopes::EMPTY.with(Scope::Chat);

        let roles = |author: Option<Author>| author.unwrap().roles.join(" ");
        assert_eq!(roles(caller(Principal::Key(key), chat)), "member");
        let admin = chat.with(Scope::Admin);
        assert_eq!(roles(caller(Principal::Key(key), admin)), "admin member");
        let owner = admin.with(Scope::Owner);
        assert_eq!(roles(caller(Principal::Key(key), owner)), "admin member owner");
        let guest = Scopes::EMPTY.with(Scope::Guest);
        assert_eq!(roles(caller(Principal::Key(key), guest)), "");
        let by_role = TenantRole::ALL.map(|role| roles(caller(person(role), Scopes::EMPTY)));
        let expected = ["", "member", "member", "member", "admin member", "admin member owner"];
        assert_eq!(by_role, expected);
        assert_eq!(roles(caller(person(TenantRole::Owner), admin)), "admin member");
        assert_eq!(roles(caller(person(TenantRole::Owner), chat)), "member");
        assert_eq!(caller(Principal::Service, Scopes::EMPTY.with(Scope::Service)), None);
        assert_eq!(caller(Principal::Key(key), chat).unwrap().id, format!("api:{key}"));
        assert_eq!(
            of_sender("telegram", Some("7"), true),
            author("telegram:7".into(), &["member"])
        );
        assert_eq!(of_sender("telegram", Some("7"), false), author("telegram:7".into(), &[]));
        assert_eq!(of_sender("slack", None, true), author("slack:unknown".into(), &[]));
    }
}
