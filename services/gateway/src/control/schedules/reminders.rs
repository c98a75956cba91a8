//! Reminders of users, and waking an agent with a text.

use std::time::Duration;

use holdfast_agent::person::{self, OWNER};
use holdfast_directory::{Agent, Routing};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, AddReminderRequest, AddReminderResponse, CancelReminderRequest,
    CancelReminderResponse, ListRemindersRequest, ListRemindersResponse,
};
use holdfast_schedule::store::{NewReminder, PendingReminder};
use holdfast_schedule::{
    Zone,
    reminder::{Locale, ReminderItem},
};
use holdfast_session::NewMessage;
use holdfast_types::{
    AgentId, AgentName, Author, Body, NameSpace, QueueMode, SessionKey, SessionKind, Source,
    TenantId,
};
use tonic::{Request, Response, Status};

use super::{Schedules, id_for_request, invalid_schedule};
use crate::{
    Error,
    control::{invalid, non_empty, timestamp},
    ingest::{access_of, agent_in_call, named_session_key, of_caller, person_of_user, speak_for},
    permissions::rights::{self, ConversationRight},
};

/// Event name and source of a message that wakes an agent.
const WAKE_EVENT: &str = "wake";

impl Schedules {
    pub(super) async fn reminders_of_user(
        &self,
        request: Request<ListRemindersRequest>,
    ) -> Result<Response<ListRemindersResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let user = user_of(&caller, request.user, ConversationRight::Read)?;
        let routing = self.state.directory.routing().get(caller.tenant).await;
        let routing = routing.map_err(Error::from)?;
        let user = person_of(&routing, user);

        let own = self.jobs.reminders(caller.tenant, &user).await.map_err(Error::from)?;

        let reminders = own.into_iter().map(reminder_of).collect();
        Ok(Response::new(ListRemindersResponse { reminders }))
    }

    pub(super) async fn create_reminder(
        &self,
        request: Request<AddReminderRequest>,
    ) -> Result<Response<AddReminderResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let AddReminderRequest {
            user: named,
            time,
            content,
            auto_continue,
            agent,
            session,
            time_zone,
            locale,
            request_id,
        } = request;
        let user = user_of(&caller, named, ConversationRight::Write)?;
        let routing = self.state.directory.routing().get(caller.tenant).await;
        let routing = routing.map_err(Error::from)?;
        let session: Option<SessionKey> = match non_empty(session) {
            Some(key) => Some(key.parse().map_err(Error::from)?),
            None => None,
        };
        let of_session = session.as_ref().and_then(|key| key.agent()).map(ToString::to_string);
        let named = non_empty(agent).or(of_session).unwrap_or_default();
        let agent = self.agent(caller.tenant, agent_in_call(&caller, &named)).await?;
        let session = match session {
            Some(key) if key.agent() == Some(&agent.name) => key,
            Some(_) => {
                return Err(invalid("the session is another agent's: leave one out".into()).into());
            }
            None => session_key_of_user(&routing, &agent.name, &user)?,
        };
        rights::check(&caller, &session, ConversationRight::Write)?;
        let zone = match non_empty(time_zone) {
            Some(zone) => zone,
            // The user's own time zone, if set, otherwise that of their record, or the agent's.
            None => {
                let person =
                    self.person(caller.tenant, &agent, (&*routing, &user), &session).await?;
                let own = self
                    .zone_of_conversation(&caller, &session, agent.id, person.as_deref())
                    .await?;
                own.unwrap_or(agent.settings.time_zone)
            }
        };
        let zone: Zone = zone.parse().map_err(invalid_schedule)?;
        let locale =
            non_empty(locale).map_or_else(|| Locale::detect(&content), |tag| Locale::of(&tag));

        let remind = NewReminder {
            id: id_for_request(caller.tenant, "AddReminder", &request_id),
            agent: agent.id,
            user: &person_of(&routing, user.clone()),
            session: &session,
            target: None,
            content: &content,
            time: &time,
            zone: &zone,
            locale,
            auto_continue,
            author: author_in(&routing, &caller, &session),
            renewal: None,
            outside: false,
        };
        let set = self.jobs.set_reminder(caller.tenant, remind, self.rules.reminders()).await;
        let set = set.map_err(Error::from)?.map_err(|why| Error::NoReminder {
            told: why.user_message(locale),
            is_full: why.is_full(),
        })?;

        self.state.bus.wake_schedule();
        let item = ReminderItem {
            id: &set.job.external_id,
            auto_continue: set.what.auto_continue,
            at: set.at,
            content: &set.what.content,
        };
        let text = locale.added(item, &zone);
        Ok(Response::new(AddReminderResponse { reminder: Some(reminder_of(set)), text }))
    }

    /// Person behind a user id: the owner has one, whichever of their ids is given. `None` in a
    /// The time zone of a conversation, or of its user.
    async fn zone_of_conversation(
        &self,
        caller: &Caller,
        session: &SessionKey,
        agent: AgentId,
        user: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let settings = self.state.sessions.settings();
        match settings.zone_of(caller.tenant, session, agent, user).await? {
            Some(zone) => Ok(Some(zone)),
            None => self.zone_of_record(caller, user).await,
        }
    }

    /// The time zone that a person's record says. What owners tell is kept under one name, and each has a
    /// record.
    async fn zone_of_record(
        &self,
        caller: &Caller,
        user: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let named = user.and_then(person::id_of);
        let own = caller.person.filter(|_| user == Some(person::OWNER));
        let Some(id) = named.or(own) else { return Ok(None) };
        let record = self.state.directory.people().find_merged(caller.tenant, id).await?;
        Ok(record.and_then(|record| record.zone))
    }

    /// group.
    async fn person(
        &self,
        tenant: TenantId,
        agent: &Agent,
        (routing, user): (&Routing, &str),
        session: &SessionKey,
    ) -> Result<Option<String>, Error> {
        if matches!(session.kind(), SessionKind::Group | SessionKind::Topic) {
            return Ok(None);
        }
        let Ok(key) = session_key_of_user(routing, &agent.name, user) else { return Ok(None) };
        if user == OWNER {
            return Ok(Some(OWNER.to_owned()));
        }
        // For a channel account, or a person with several identities, the session key does not tell
        // which id they write with.
        let mut speakers = self.state.sessions.views().speakers(tenant, &key).await?;
        if speakers.is_empty() {
            speakers.push(Author { id: user.to_owned(), roles: Vec::new() });
        }
        let of_agent = (agent.id, agent.settings.dm_scope);
        let access = access_of(&self.state.directory, tenant, of_agent, &key, &speakers).await?;
        Ok(access.person)
    }

    pub(super) async fn delete_reminder(
        &self,
        request: Request<CancelReminderRequest>,
    ) -> Result<Response<CancelReminderResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let user = user_of(&caller, request.user, ConversationRight::Write)?;

        let id = match non_empty(request.id) {
            Some(id) => id,
            None => return Err(Error::MissingField("id").into()),
        };
        let cancelled = self.jobs.cancel_reminder(caller.tenant, &user, &id).await;

        let cancelled = cancelled.map_err(Error::from)?.map_err(|named| {
            let shown: String = id.chars().take(80).collect();
            Error::NoJob(Locale::En.no_single_match(named, &shown).unwrap_or_default())
        })?;
        Ok(Response::new(CancelReminderResponse { id: cancelled }))
    }

    /// Sends a text to an agent's main session, which starts a turn with the caller's rights. Returns
    /// whether it was sent before.
    pub(super) async fn wake_now(
        &self,
        caller: &Caller,
        agent: AgentId,
        key: SessionKey,
        idem_key: String,
        text: String,
    ) -> Result<bool, Error> {
        let tenant = caller.tenant;
        let target = self.state.owner_conversation(tenant, agent).await?.map(|place| place.target);
        let message = NewMessage {
            key,
            agent,
            label: None,
            source: Source::Internal(WAKE_EVENT.to_owned()),
            idem_key,
            body: Body {
                event: Some(WAKE_EVENT.to_owned()),
                author: of_caller(caller),
                ..Body::text(text)
            },
            target,
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: holdfast_kit::trace::current(),
        };
        let accepted = self.state.sessions.ingest(tenant, message).await?;
        if accepted.wake.is_some() {
            self.state.bus.wake_run(0);
        }
        Ok(accepted.duplicate)
    }
}

/// Person whose reminders a request is about: the caller, or anybody for callers who have the right to
/// what is everybody's.
fn user_of(caller: &Caller, named: String, right: ConversationRight) -> Result<String, Error> {
    let own = caller.person.map(person::of_id);
    let Some(named) = non_empty(named) else { return own.ok_or(Error::MissingField("user")) };
    if rights::is_own_user(caller, &named) || rights::reaches_all(caller, right) {
        return Ok(named);
    }
    Err(Error::OtherPerson(named.chars().take(80).collect()))
}

/// Key of an agent's session with a user.
fn session_key_of_user(
    routing: &Routing,
    agent: &AgentName,
    user: &str,
) -> Result<SessionKey, Error> {
    if user == OWNER {
        return Ok(SessionKey::main(agent));
    }
    if let Some(user) = user.strip_prefix("api:") {
        return match NameSpace::split(user) {
            Some((NameSpace::Shared, name)) => {
                named_session_key(routing, agent, NameSpace::Shared, name)
            }
            Some(_) | None => Ok(SessionKey::api(agent, user)?),
        };
    }
    if let Some(person) = person::id_of(user) {
        return Ok(SessionKey::main_of_person(agent, person)?);
    }
    let key: Result<SessionKey, _> = format!("agent:{agent}:dm:{user}").parse();
    match key {
        Ok(key) if key.kind() == SessionKind::Dm => Ok(key),
        Ok(_) | Err(_) => Err(invalid(format!(
            "`{}` is no user: write `owner`, or a person as `telegram:42` or `api:anna`",
            user.chars().take(80).collect::<String>()
        ))),
    }
}

/// Author of a reminder: the person for whom a program sets it, or the caller.
fn author_in(routing: &Routing, caller: &Caller, session: &SessionKey) -> Option<Author> {
    let mut author = of_caller(caller);
    if let (Some(NameSpace::ProgramUser(person)), Some(author)) =
        (session.name_space(), &mut author)
    {
        speak_for(author, person, routing.role_of(person));
    }
    author
}

/// The person who a user of programs is; other users as they are.
fn person_of(routing: &Routing, user: String) -> String {
    let name = user.strip_prefix("api:").map(|name| name.split('/').next().unwrap_or(name));
    name.and_then(|name| person_of_user(routing, name)).map_or(user, person::of_id)
}

fn reminder_of(one: PendingReminder) -> pb::Reminder {
    pb::Reminder {
        id: one.job.external_id,
        user: one.job.owner.unwrap_or_default(),
        content: one.what.content,
        at: Some(timestamp(one.at)),
        auto_continue: one.what.auto_continue,
        session: one.what.session,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_directory::{AgentSettings, AgentState, RoutedAgent};

    use super::*;

    #[test]
    fn a_user_is_met_in_their_own_conversation() {
        let agent = AgentName::new("main");
        let card = RoutedAgent {
            id: AgentId::generate(),
            name: agent.clone(),
            is_default: true,
            settings: AgentSettings::default(),
            state: AgentState::Enabled,
        };
        let routing = Routing::new(vec![card], Vec::new(), Vec::new(), Vec::new()).unwrap();
        let key =
            |user: &str| session_key_of_user(&routing, &agent, user).map(|key| key.to_string());

        assert_eq!(key("owner").unwrap(), "agent:main:main");
        assert_eq!(key("api:anna").unwrap(), "agent:main:api:anna");
        let person = holdfast_types::PersonId::generate();
        let own = format!("agent:main:api:={person}/main");
        assert_eq!(key(&format!("person:{person}")).unwrap(), own);
        assert_eq!(key("telegram:42").unwrap(), "agent:main:dm:telegram:42");
        assert!(key("anna").unwrap_err().to_string().contains("is no user"));
        assert!(key(":").is_err());
    }
}
