//! Links and merges of identities that are one person, and their separation.

use std::collections::HashSet;

use holdfast_agent::person;
use holdfast_directory::{CodeOrigin, IssuedLink, Person};
use holdfast_grpc::Caller;
use holdfast_people::{JoinedPeople, PersonMover, keys};
use holdfast_proto::gateway::v1::{ErasePersonResponse, MemoryCount};
use holdfast_session::KeyChanges;
use holdfast_types::{AgentName, Author, NameSpace, PersonId, SessionKey, TenantId, TenantRole};
use jiff::Timestamp;

use crate::{
    Error,
    control::{State, actor, invalid, memories, non_empty},
    ingest::{PROGRAMS, of_caller},
    permissions::{self, Permission},
};

/// The person whom a request names; the caller's own if it names none. Others' are for owners.
///
/// # Errors
///
/// If the caller is nobody's key and names none, or the person is another and the caller no owner.
pub(super) fn named(caller: &Caller, id: &str) -> Result<PersonId, Error> {
    let Some(id) = non_empty(id.to_owned()) else {
        return caller.person.ok_or(Error::MissingField("person"));
    };
    let person = id.parse()?;
    if caller.person != Some(person) && permissions::require(caller, Permission::Own).is_err() {
        return Err(Error::OtherPerson(id));
    }
    Ok(person)
}

/// Creates a code with which an account on a channel becomes the caller's. It gives the account the
/// rights of the caller.
pub(super) async fn create_code(
    state: &State,
    caller: &Caller,
) -> Result<(String, Timestamp), Error> {
    let Some(own) = caller.person else {
        return Err(invalid("this key is nobody's: sign in as the person".to_owned()));
    };
    let roles = of_caller(caller).map(|Author { roles, .. }| roles).unwrap_or_default();
    let person = person::of_id(own);
    let link = IssuedLink { origin: CodeOrigin::Person(own), person, former: Vec::new(), roles };
    let code = state.directory.routing().issue_link_code(caller.tenant, link).await?;
    // Only accounts can be named by an administrator.
    code.ok_or_else(|| invalid("this person cannot be linked".to_owned()))
}

/// Makes a user of programs a person. Returns `false` if some files stay where they were.
pub(super) async fn link_user(
    state: &State,
    caller: &Caller,
    (person, user): (PersonId, &str),
) -> Result<bool, Error> {
    let people = state.directory.people();
    people.link_program_user(caller.tenant, actor(caller), (person, user)).await?;
    let record = people.get(caller.tenant, person).await?;
    let spaces = (NameSpace::Shared, NameSpace::ProgramUser(person));
    let conversations = [user_keys(state, caller.tenant, user, spaces).await?];
    let former = [format!("{PROGRAMS}:{user}")];
    let joined = JoinedPeople {
        former: &former,
        person: &person::of_id(person),
        is_owner: record.role == TenantRole::Owner,
        conversations: &conversations,
        asked_in: None,
        folder: PROGRAMS,
    };
    Ok(mover(state).join(caller.tenant, joined).await?)
}

/// Makes two people one. Returns `false` if some files stay where they were.
pub(super) async fn merge(
    state: &State,
    caller: &Caller,
    (from, into): (PersonId, PersonId),
) -> Result<(Person, bool), Error> {
    let tenant = caller.tenant;
    let (_, person) = state.directory.people().merge(tenant, actor(caller), (from, into)).await?;
    let settings = state.sessions.settings();
    let known = settings.conversations_of_person(tenant, into).await?;
    let mut taken: HashSet<String> = known.into_iter().map(|(_, key)| key).collect();
    let mut conversations = KeyChanges::default();
    for (id, key) in settings.conversations_of_person(tenant, from).await? {
        let is_taken = |wanted: &str| taken.contains(wanted);
        let Some(new) = keys::for_other_person(&key, &id.to_string(), (from, into), is_taken)
        else {
            continue;
        };
        taken.insert(new.clone());
        conversations.keys.push((key, new));
    }
    let joined = JoinedPeople {
        former: &[person::of_id(from)],
        person: &person::of_id(into),
        is_owner: person.role == TenantRole::Owner,
        conversations: &[conversations],
        asked_in: None,
        folder: &from.to_string(),
    };
    let all = mover(state).join(tenant, joined).await?;
    Ok((person, all))
}

/// Separates an account, a user of programs or a merged person from a person. Their conversations get
/// the keys that they had; what was learned stays with the person.
pub(super) async fn split(
    state: &State,
    caller: &Caller,
    (person, identity): (PersonId, &str),
) -> Result<(), Error> {
    let (tenant, people) = (caller.tenant, state.directory.people());
    if let Ok(merged) = identity.parse() {
        permissions::require(caller, Permission::Own)?;
        return Ok(people.separate(tenant, actor(caller), (merged, person)).await?);
    }
    let identity = people.unlink(tenant, actor(caller), (person, identity)).await?;
    if identity.channel != PROGRAMS {
        let name = person::of_id(person);
        return Ok(mover(state).separate(tenant, &identity, &name).await?);
    }
    let spaces = (NameSpace::ProgramUser(person), NameSpace::Shared);
    let changes = user_keys(state, tenant, &identity.peer, spaces).await?;
    Ok(mover(state).rename(tenant, &changes, &[]).await?)
}

/// Erases a person, and whoever was merged into them.
pub(super) async fn erase(
    state: &State,
    caller: &Caller,
    id: PersonId,
) -> Result<ErasePersonResponse, Error> {
    let people = state.directory.people();
    // Before anything is erased: whether the record can be deleted.
    people.check_deletion(caller.tenant, id).await?;
    let identities = people.identities(caller.tenant, id).await?;
    let merged = identities.into_iter().filter(|one| one.kind == "person");
    let merged = merged.map(|one| one.value.parse()).collect::<Result<Vec<PersonId>, _>>()?;
    let mut response = ErasePersonResponse::default();
    for one in merged.into_iter().chain([id]) {
        let user = person::of_id(one);
        let erased = memories::erase_user(state, caller, user, true).await?;
        add(&mut response.erased, erased.erased);
        add(&mut response.left, erased.left);
    }
    people.delete(caller.tenant, actor(caller), id).await?;
    add(&mut response.erased, vec![MemoryCount { what: "people".to_owned(), rows: 1 }]);
    Ok(response)
}

/// Adds counts by name.
fn add(sum: &mut Vec<MemoryCount>, counts: Vec<MemoryCount>) {
    for count in counts {
        match sum.iter_mut().find(|known| known.what == count.what) {
            Some(known) => known.rows += count.rows,
            None => sum.push(count),
        }
    }
}

/// New keys of the conversations of a user of programs, in all agents.
async fn user_keys(
    state: &State,
    tenant: TenantId,
    user: &str,
    (from, to): (NameSpace, NameSpace),
) -> Result<KeyChanges, Error> {
    let key = |agent: &AgentName, space: NameSpace| {
        SessionKey::api(agent, &space.qualify(user)).map(|key| key.to_string())
    };
    let mut names = Vec::new();
    for (_, agent) in mover(state).agents(tenant).await? {
        names.push((key(&agent, from)?, key(&agent, to)?));
    }
    let old: Vec<String> = names.iter().map(|(old, _)| old.clone()).collect();
    let found = state.sessions.settings().conversations_named(tenant, &old).await?;
    let renamed = |found: String| {
        let new = names.iter().find_map(|(old, new)| {
            // `anna/trip` is a conversation of `anna`.
            let rest = found.strip_prefix(old)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{new}{rest}"))
        })?;
        Some((found, new))
    };
    let keys = found.into_iter().filter_map(renamed).collect();
    Ok(KeyChanges { channel: None, keys })
}

pub(super) const fn mover(state: &State) -> PersonMover<'_> {
    PersonMover {
        directory: &state.directory,
        sessions: &state.sessions,
        jobs: &state.jobs,
        files: &state.workspaces,
        memory: state.memory.as_ref(),
    }
}
