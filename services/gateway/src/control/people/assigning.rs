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
use holdfast_types::{KeyId, NameSpace, PersonId, SessionId, SessionKey, TenantRole};

use super::one_person::{agents, mover};
use crate::{
    Error,
    control::{State, non_empty},
    ingest::PROGRAMS,
};

/// Conversations that one call looks at.
const PER_CALL: i64 = 200;

/// What the names of the console's conversations began with. Other names are of users of programs.
const CONSOLE_PREFIX: &str = "c-";

/// People by what messages bear as their author.
struct Authors {
    people: HashMap<PersonId, Person>,
    keys: HashMap<KeyId, PersonId>,
}

impl Authors {
    async fn read(state: &State, caller: &Caller) -> Result<Self, Error> {
        let (mut people, mut after) = (HashMap::new(), None);
        loop {
            let page = state.directory.people().list(caller.tenant, after, PER_CALL).await?;
            after = page.last().map(|person| person.id);
            if page.is_empty() {
                break;
            }
            people.extend(page.into_iter().map(|person| (person.id, person)));
        }
        let keys = state.directory.keys().list(caller.tenant).await?;
        let keys = keys.into_iter().filter_map(|key| Some((key.id, key.person?))).collect();
        Ok(Self { people, keys })
    }

    /// The person who alone wrote; otherwise why there is none.
    fn only(&self, authors: &[String]) -> Result<&Person, String> {
        let of = |author: &String| {
            let key = || {
                let key = author.strip_prefix("api:")?.parse().ok()?;
                self.keys.get(&key).copied()
            };
            person::id_of(author).or_else(key).and_then(|id| self.people.get(&id))
        };
        let [first, others @ ..] = authors else { return Err("nobody wrote in it".to_owned()) };
        let Some(person) = of(first) else {
            return Err(format!("{first} is no person of the tenant"));
        };
        let is_alone = others.iter().all(|other| of(other).is_some_and(|one| one.id == person.id));
        if is_alone { Ok(person) } else { Err("several wrote in it".to_owned()) }
    }
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
    let authors = Authors::read(state, caller).await?;
    let mut conversations = Vec::new();
    for (session, key, wrote) in page {
        let parsed: SessionKey = key.parse()?;
        let Some(name) = parsed.api_name().filter(|name| name.starts_with(CONSOLE_PREFIX)) else {
            continue;
        };
        let session = session.to_string();
        let mut listed = AssignedConversation { session, key, ..AssignedConversation::default() };
        match authors.only(&wrote) {
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
        agents: &agents(state, caller.tenant).await?,
        conversations: &[KeyChanges { channel: PROGRAMS.to_owned(), keys }],
        asked_in: None,
        folder: "console",
    };
    mover(state).join(caller.tenant, joined).await?;
    Ok(())
}
