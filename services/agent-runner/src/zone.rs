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
use holdfast_types::{AgentId, DmScope, SessionKind, TenantId, ZoneWish};
use jiff::{Timestamp, tz::TimeZone};

use crate::{agents::Brief, error::Error, turn::Turn};

/// Time for which a user's zone is cached.
const FRESH: Duration = Duration::from_secs(20);

/// Users whose zones are cached. When full, all are cleared.
const MOST: usize = 20_000;

/// Tenant, agent and user.
type Whose = (TenantId, AgentId, String);

/// Cache of the time zones that users have set.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    known: Mutex<HashMap<Whose, (Instant, Option<Zone>)>>,
}

impl Zones {
    async fn of(&self, sessions: &Sessions, whose: Whose) -> Result<Option<Zone>, Error> {
        if let Some((read, zone)) = self.known().get(&whose)
            && read.elapsed() < FRESH
        {
            return Ok(zone.clone());
        }
        let (tenant, agent, person) = &whose;
        let said = sessions.persons_zone(*tenant, *agent, person).await?;
        let zone = said.and_then(|name| name.parse().ok());
        self.learn(whose, zone.clone());
        Ok(zone)
    }

    fn learn(&self, whose: Whose, zone: Option<Zone>) {
        let mut known = self.known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(whose, (Instant::now(), zone));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Whose, (Instant, Option<Zone>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Time zone set by the user or for the conversation.
    pub(crate) fn own_zone(&self) -> Option<Zone> {
        self.set_here().or_else(|| self.zone.clone())
    }

    /// Time zone set for this conversation only.
    fn set_here(&self) -> Option<Zone> {
        self.settings.time_zone.as_deref()?.parse().ok()
    }

    /// Loads the user's time zone.
    pub(crate) async fn look_at_clock(&mut self, scope: DmScope) -> Result<(), Error> {
        self.zone = match self.whose(scope) {
            Some(whose) if self.set_here().is_none() => {
                self.worker.zones.of(&self.worker.sessions, whose).await?
            }
            Some(_) | None => None,
        };
        Ok(())
    }

    /// User whose time zone applies. A group has none: its members may be in different zones.
    fn whose(&self, scope: DmScope) -> Option<Whose> {
        if matches!(self.kind, SessionKind::Group | SessionKind::Topic) {
            return None;
        }
        let who = person(self.kind, &self.key, self.audience_in(scope))?;
        Some((self.hold.claim.tenant, self.agent, who))
    }

    /// Current local time and the name of the time zone.
    pub(crate) fn clock_of(&self, brief: &Brief) -> (String, String) {
        let own = self.own_zone();
        let (zone, name) = match &own {
            Some(own) => (own.rules(), own.name()),
            None => (&brief.zone, brief.zone_name.as_str()),
        };
        (shown(Timestamp::now(), zone), name.to_owned())
    }

    /// Executes `/timezone` and returns the resulting setting.
    pub(crate) async fn set_zone(&mut self, wish: ZoneWish) -> Result<String, Error> {
        // The owner's roles decide whose conversation this is.
        self.look_up_policy().await?;
        let agent = self.agent().await?.settings;
        self.look_at_clock(agent.dm_scope).await?;
        let zone = match wish {
            ZoneWish::Show => return Ok(self.shown_zone(&agent.time_zone)),
            ZoneWish::Default => None,
            ZoneWish::Use(name) => match name.parse::<Zone>() {
                Ok(zone) => Some(zone),
                Err(error) => return Ok(format!("{error}.")),
            },
        };
        let (sessions, claim) = (&self.worker.sessions, &self.hold.claim);
        let name = zone.as_ref().map(Zone::name);
        match self.whose(agent.dm_scope) {
            Some(whose) => {
                // A setting of the conversation would take precedence.
                self.settings.time_zone = None;
                let person = (whose.1, whose.2.as_str());
                sessions.set_persons_zone(claim, &self.settings, person, name).await?;
                self.zone.clone_from(&zone);
                self.worker.zones.learn(whose, zone);
            }
            None => {
                self.settings.time_zone = name.map(str::to_owned);
                sessions.set_settings(claim, &self.settings).await?;
            }
        }
        Ok(self.shown_zone(&agent.time_zone))
    }

    fn shown_zone(&self, agents: &str) -> String {
        let (zone, whose) = match (self.set_here(), &self.zone) {
            (Some(here), _) => (here, "set for this conversation"),
            (None, Some(yours)) => (yours.clone(), "yours, in all our conversations"),
            (None, None) => (agents.parse().unwrap_or_default(), "the assistant's"),
        };
        let now = shown(Timestamp::now(), zone.rules());
        format!("Time zone: {} ({whose}). It is {now} there.", zone.name())
    }
}

fn shown(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M").to_string()
}
