//! Time zone of a conversation: the one that its user has set (`/timezone`), else the agent's.
//!
//! A user's setting applies to all their conversations with the agent; in a conversation without a
//! single user it applies to that conversation only. It is looked up at the beginning of a turn and
//! cached for some seconds, after which other runners see a change.
//!
//! Hours in a policy and the days of notes always use the agent's time zone: users cannot change
//! those.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_agent::person::person;
use holdfast_schedule::Zone;
use holdfast_session::Sessions;
use holdfast_types::{AgentId, DmScope, SessionKind, TenantId, TimeZoneCommand};
use jiff::{Timestamp, tz::TimeZone};

use crate::{agents::AgentSnapshot, error::Error, turn::Turn};

/// Time for which a user's zone is cached.
const ZONE_TTL: Duration = Duration::from_secs(20);

/// Users whose zones are cached. When full, all are cleared.
const MAX_CACHED_USERS: usize = 20_000;

/// Tenant, agent and user.
type UserKey = (TenantId, AgentId, String);

/// Cache of the time zones that users have set.
#[derive(Debug, Default)]
pub(crate) struct UserZones {
    cache: Mutex<HashMap<UserKey, (Instant, Option<Zone>)>>,
}

impl UserZones {
    async fn of(&self, sessions: &Sessions, whose: UserKey) -> Result<Option<Zone>, Error> {
        if let Some((read, zone)) = self.known().get(&whose)
            && read.elapsed() < ZONE_TTL
        {
            return Ok(zone.clone());
        }
        let (tenant, agent, person) = &whose;
        let said = sessions.persons_zone(*tenant, *agent, person).await?;
        let zone = said.and_then(|name| name.parse().ok());
        self.store(whose, zone.clone());
        Ok(zone)
    }

    fn store(&self, whose: UserKey, zone: Option<Zone>) {
        let mut known = self.known();
        if known.len() >= MAX_CACHED_USERS {
            known.clear();
        }
        known.insert(whose, (Instant::now(), zone));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<UserKey, (Instant, Option<Zone>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Time zone set by the user or for the conversation.
    pub(crate) fn user_zone(&self) -> Option<Zone> {
        self.conversation_zone().or_else(|| self.zone.clone())
    }

    /// Time zone set for this conversation only.
    fn conversation_zone(&self) -> Option<Zone> {
        self.settings.time_zone.as_deref()?.parse().ok()
    }

    /// Loads the user's time zone.
    pub(crate) async fn load_zone(&mut self, scope: DmScope) -> Result<(), Error> {
        self.zone = match self.zone_owner(scope) {
            Some(whose) if self.conversation_zone().is_none() => {
                self.worker.user_zones.of(&self.worker.sessions, whose).await?
            }
            Some(_) | None => None,
        };
        Ok(())
    }

    /// User whose time zone applies. A group has none: its members may be in different zones.
    fn zone_owner(&self, scope: DmScope) -> Option<UserKey> {
        if matches!(self.kind, SessionKind::Group | SessionKind::Topic) {
            return None;
        }
        let who = person(self.kind, &self.key, self.audience_for_scope(scope))?;
        Some((self.hold.claim.tenant, self.agent, who))
    }

    /// Current local time and the name of the time zone.
    pub(crate) fn local_time(&self, brief: &AgentSnapshot) -> (String, String) {
        let own = self.user_zone();
        let (zone, name) = match &own {
            Some(own) => (own.rules(), own.name()),
            None => (&brief.zone, brief.zone_name.as_str()),
        };
        (format_time(Timestamp::now(), zone), name.to_owned())
    }

    /// Executes `/timezone` and returns the resulting setting.
    pub(crate) async fn run_timezone_command(
        &mut self,
        wish: TimeZoneCommand,
    ) -> Result<String, Error> {
        // The owner's roles decide whose conversation this is.
        self.load_policy().await?;
        let agent = self.agent().await?.settings;
        self.load_zone(agent.dm_scope).await?;
        let zone = match wish {
            TimeZoneCommand::Show => return Ok(self.zone_text(&agent.time_zone)),
            TimeZoneCommand::Default => None,
            TimeZoneCommand::Use(name) => match name.parse::<Zone>() {
                Ok(zone) => Some(zone),
                Err(error) => return Ok(format!("{error}.")),
            },
        };
        let (sessions, claim) = (&self.worker.sessions, &self.hold.claim);
        let name = zone.as_ref().map(Zone::name);
        match self.zone_owner(agent.dm_scope) {
            Some(whose) => {
                // A setting of the conversation would take precedence.
                self.settings.time_zone = None;
                let person = (whose.1, whose.2.as_str());
                sessions.set_persons_zone(claim, &self.settings, person, name).await?;
                self.zone.clone_from(&zone);
                self.worker.user_zones.store(whose, zone);
            }
            None => {
                self.settings.time_zone = name.map(str::to_owned);
                sessions.set_settings(claim, &self.settings).await?;
            }
        }
        Ok(self.zone_text(&agent.time_zone))
    }

    fn zone_text(&self, agents: &str) -> String {
        let (zone, whose) = match (self.conversation_zone(), &self.zone) {
            (Some(here), _) => (here, "set for this conversation"),
            (None, Some(yours)) => (yours.clone(), "yours, in all our conversations"),
            (None, None) => (agents.parse().unwrap_or_default(), "the assistant's"),
        };
        let now = format_time(Timestamp::now(), zone.rules());
        format!("Time zone: {} ({whose}). It is {now} there.", zone.name())
    }
}

fn format_time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M").to_string()
}
