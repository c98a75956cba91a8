//! What makes two identities one person, and separates them again.

use holdfast_agent::person;
use holdfast_directory::{CodeOrigin, IssuedLink, Person, PersonAccount};
use holdfast_grpc::Caller;
use holdfast_people::{JoinedPeople, PersonMover, keys};
use holdfast_proto::gateway::v1::{ErasePersonResponse, MemoryCount};
use holdfast_session::KeyChanges;
use holdfast_types::{
    AgentId, AgentName, Author, NameSpace, PersonId, SessionKey, TenantId, TenantRole,
};
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
    let agents = agents(state, caller.tenant).await?;
    let spaces = (NameSpace::Shared, NameSpace::ProgramUser(person));
    let conversations = [user_keys(state, caller.tenant, &agents, user, spaces).await?];
    let former = [format!("{PROGRAMS}:{user}")];
    let joined = JoinedPeople {
        former: &former,
        person: &person::of_id(person),
        is_owner: record.role == TenantRole::Owner,
        agents: &agents,
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
    let mut taken: Vec<String> = Vec::new();
    for (_, key) in settings.conversations_of_person(tenant, into).await? {
        taken.push(key);
    }
    let mut conversations = KeyChanges::default();
    for (id, key) in settings.conversations_of_person(tenant, from).await? {
        let is_taken = |wanted: &str| taken.iter().any(|key| key == wanted);
        let Some(new) = keys::for_other_person(&key, &id.to_string(), (from, into), is_taken)
        else {
            continue;
        };
        taken.push(new.clone());
        conversations.keys.push((key, new));
    }
    let joined = JoinedPeople {
        former: &[person::of_id(from)],
        person: &person::of_id(into),
        is_owner: person.role == TenantRole::Owner,
        agents: &agents(state, tenant).await?,
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
    let agents = agents(state, tenant).await?;
    let changes = if identity.channel == PROGRAMS {
        let spaces = (NameSpace::ProgramUser(person), NameSpace::Shared);
        vec![user_keys(state, tenant, &agents, &identity.peer, spaces).await?]
    } else {
        let name = person::of_id(person);
        let accounts = accounts(state, tenant, &identity.channel, &identity.peer).await?;
        let of = |account: &PersonAccount| {
            let own = person::of_account(&account.channel, &account.account, &account.peer);
            let mut changes = keys::reversed(keys::of_account(&agents, account, &name, &own));
            // A conversation that all accounts share stays with the person.
            changes.keys.retain(|(key, _)| !key.contains(":dm:any:"));
            changes
        };
        accounts.iter().map(of).collect()
    };
    for changes in &changes {
        state.sessions.settings().rename_sessions(tenant, changes).await?;
        state.jobs.follow_people(tenant, &changes.keys, &[]).await?;
    }
    Ok(())
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
    let merged = identities.into_iter().filter(|one| one.kind == "person").map(|one| one.value);
    let mut response = ErasePersonResponse::default();
    for name in merged.chain([id.to_string()]) {
        let user = format!("person:{name}");
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

/// New keys of the conversations of a user of programs.
async fn user_keys(
    state: &State,
    tenant: TenantId,
    agents: &[(AgentId, AgentName)],
    user: &str,
    (from, to): (NameSpace, NameSpace),
) -> Result<KeyChanges, Error> {
    let key = |agent: &AgentName, space: NameSpace| {
        SessionKey::api(agent, &space.qualify(user)).map(|key| key.to_string())
    };
    let mut changes = KeyChanges { channel: PROGRAMS.to_owned(), keys: Vec::new() };
    for (_, agent) in agents {
        let (old, new) = (key(agent, from)?, key(agent, to)?);
        let names = [old.clone()];
        for found in state.sessions.settings().conversations_named(tenant, &names).await? {
            let rest = found.strip_prefix(&old).unwrap_or_default().to_owned();
            changes.keys.push((found, format!("{new}{rest}")));
        }
    }
    Ok(changes)
}

/// The tenant's accounts of a channel through which somebody writes.
async fn accounts(
    state: &State,
    tenant: TenantId,
    channel: &str,
    peer: &str,
) -> Result<Vec<PersonAccount>, Error> {
    let (channel, only) = match channel.split_once('/') {
        Some((channel, account)) => (channel, Some(account)),
        None => (channel, None),
    };
    let accounts = state.directory.accounts().list(tenant, None).await?;
    let accounts = accounts.into_iter().filter(|account| {
        account.channel == channel && only.is_none_or(|only| account.name == only)
    });
    Ok(accounts
        .map(|account| PersonAccount {
            channel: account.channel,
            account: account.name,
            peer: peer.to_owned(),
        })
        .collect())
}

pub(super) async fn agents(
    state: &State,
    tenant: TenantId,
) -> Result<Vec<(AgentId, AgentName)>, Error> {
    let agents = state.directory.agents().list(tenant).await?;
    Ok(agents.into_iter().map(|agent| (agent.id, agent.name)).collect())
}

pub(super) const fn mover(state: &State) -> PersonMover<'_> {
    PersonMover {
        sessions: &state.sessions,
        jobs: &state.jobs,
        files: &state.workspaces,
        memory: state.memory.as_ref(),
    }
}
