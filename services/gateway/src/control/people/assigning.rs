//! Conversations of the console from before people had their own: each was a user of its own.

use std::collections::HashMap;

use holdfast_agent::person;
use holdfast_directory::Person;
use holdfast_grpc::Caller;
use holdfast_people::JoinedPeople;
use holdfast_proto::gateway::v1::{
    AssignConversationsRequest, AssignConversationsResponse, AssignedConversation,
};
use holdfast_session::KeyChanges;
use holdfast_types::{KeyId, NameSpace, SessionId, SessionKey, TenantRole};

use super::one_person::mover;
use crate::{
    Error,
    control::{State, non_empty},
    ingest::PROGRAMS,
};

/// Conversations that one call looks at.
const PER_CALL: i64 = 200;

/// What the names of the console's conversations began with. Other names are of users of programs.
const CONSOLE_PREFIX: &str = "c-";

/// Authors of a page of conversations, by their ids; `None` for one who is no person.
type Authors = HashMap<String, Option<Person>>;

/// Returns the person whom each author is: themselves, the one whose the key is, or the one into whom
/// they were merged.
async fn read_authors(
    state: &State,
    caller: &Caller,
    ids: impl Iterator<Item = &String>,
) -> Result<Authors, Error> {
    let people = state.directory.people();
    let keys = state.directory.keys().list(caller.tenant).await?;
    let person_of_key = |author: &str| {
        let id: KeyId = author.strip_prefix("api:")?.parse().ok()?;
        keys.iter().find(|key| key.id == id)?.person
    };
    let mut authors = Authors::new();
    for author in ids {
        if authors.contains_key(author) {
            continue;
        }
        let found = match person::id_of(author).or_else(|| person_of_key(author)) {
            Some(id) => people.find_merged(caller.tenant, id).await?,
            None => None,
        };
        authors.insert(author.clone(), found);
    }
    Ok(authors)
}

/// Returns the person who alone wrote; otherwise why there is none.
fn only_author<'a>(authors: &'a Authors, wrote: &[String]) -> Result<&'a Person, String> {
    let of = |author: &String| authors.get(author).and_then(Option::as_ref);
    let [first, others @ ..] = wrote else { return Err("nobody wrote in it".to_owned()) };
    let Some(person) = of(first) else {
        return Err(format!("{first} is no person of the tenant"));
    };
    let is_alone = others.iter().all(|other| of(other).is_some_and(|one| one.id == person.id));
    if is_alone { Ok(person) } else { Err("several wrote in it".to_owned()) }
}

/// Gives a page of the console's former conversations to the people who wrote in them.
pub(super) async fn assign(
    state: &State,
    caller: &Caller,
    request: AssignConversationsRequest,
) -> Result<AssignConversationsResponse, Error> {
    let after = non_empty(request.page_token).map(|id| id.parse::<SessionId>()).transpose()?;
    let settings = state.sessions.settings();
    let page = settings.conversations_of_nobody(caller.tenant, after, PER_CALL).await?;
    let is_last = page.len() < usize::try_from(PER_CALL).unwrap_or(usize::MAX);
    let next = page.last().filter(|_| !is_last).map(|(id, ..)| id.to_string());
    let authors = read_authors(state, caller, page.iter().flat_map(|(.., wrote)| wrote)).await?;
    let mut conversations = Vec::new();
    for (session, key, wrote) in page {
        let parsed: SessionKey = key.parse()?;
        let Some(name) = parsed.api_name().filter(|name| name.starts_with(CONSOLE_PREFIX)) else {
            continue;
        };
        let session = session.to_string();
        let mut listed = AssignedConversation { session, key, ..AssignedConversation::default() };
        match only_author(&authors, &wrote) {
            Err(reason) => listed.reason = reason,
            Ok(owner) => {
                listed.person = owner.id.to_string();
                if !request.dry_run {
                    give(state, caller, (&parsed, &name), owner).await?;
                }
            }
        }
        conversations.push(listed);
    }
    let next_page_token = next.unwrap_or_default();
    Ok(AssignConversationsResponse { conversations, next_page_token })
}

/// Makes a conversation a person's, and what was remembered of its user.
async fn give(
    state: &State,
    caller: &Caller,
    (key, name): (&SessionKey, &str),
    owner: &Person,
) -> Result<(), Error> {
    let Some(agent) = key.agent() else { return Ok(()) };
    let new = SessionKey::api(agent, &NameSpace::Person(owner.id).qualify(name))?;
    let keys = vec![(key.to_string(), new.to_string())];
    let user = name.split_once('/').map_or(name, |(user, _)| user);
    let joined = JoinedPeople {
        former: &[format!("{PROGRAMS}:{user}")],
        person: &person::of_id(owner.id),
        is_owner: owner.role == TenantRole::Owner,
        conversations: &[KeyChanges { channel: None, keys }],
        asked_in: None,
        folder: "console",
    };
    mover(state).join(caller.tenant, joined).await?;
    Ok(())
}
