//! Time zone of a conversation: the one that its user has set (`/timezone`), else that of the user's
//! record, else the agent's. The language of the record is read with it.
//!
//! A user's setting applies to all their conversations with the agent; in a conversation without a
//! single user it applies to that conversation only. It is looked up at the beginning of a turn and
//! cached for some seconds, after which other runners see a change.
//!
//! Hours in a policy always use the agent's time zone: users cannot change those.

use holdfast_agent::person;
use holdfast_schedule::Zone;
use holdfast_types::{DmScope, TimeZoneCommand};
use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::{
    agents::{
        preferences::{UserKey, UserPreferences},
        snapshots::AgentSnapshot,
    },
    error::Error,
    turn::{commands, participants, state::TurnState},
};

impl TurnState<'_> {
    /// Time zone set by the user or for the conversation.
    pub(crate) fn user_zone(&self) -> Option<Zone> {
        self.conversation_zone().or_else(|| self.preferences.zone.clone())
    }

    /// Day on the user's calendar, which daily notes follow.
    pub(crate) fn local_date(&self, snapshot: &AgentSnapshot) -> Date {
        let own = self.user_zone();
        let zone = own.as_ref().map_or(&snapshot.zone, Zone::rules);
        Timestamp::now().to_zoned(zone.clone()).date()
    }

    /// Time zone set for this conversation only.
    fn conversation_zone(&self) -> Option<Zone> {
        self.settings.time_zone.as_deref()?.parse().ok()
    }
}

/// Loads the user's time zone and language.
pub(crate) async fn load_preferences(
    turn: &mut TurnState<'_>,
    scope: DmScope,
) -> Result<(), Error> {
    turn.preferences = match zone_owner(turn, scope) {
        Some(whose) => preferences_of(turn, whose).await?,
        None => UserPreferences::default(),
    };
    Ok(())
}

/// Preferences of the user. Those that owners tell an agent are kept under one name, and each owner has a
/// record.
async fn preferences_of(turn: &TurnState<'_>, whose: UserKey) -> Result<UserPreferences, Error> {
    let (tenant, agent, _) = whose;
    let is_owner = whose.2 == person::OWNER;
    let (cache, sessions) = (&turn.worker.preferences, &turn.worker.sessions);
    let own = cache.of(sessions, whose).await?;
    let author = turn.participants().user.filter(|_| is_owner);
    let Some(author) = author.filter(|author| person::id_of(author).is_some()) else {
        return Ok(own);
    };
    let record = cache.of(sessions, (tenant, agent, author)).await?;
    Ok(UserPreferences {
        zone: own.zone.or(record.zone),
        language: own.language.or(record.language),
    })
}

/// User whose time zone applies. A group has none: its members may be in different zones.
fn zone_owner(turn: &TurnState<'_>, scope: DmScope) -> Option<UserKey> {
    let access = turn.access_for_scope(scope);
    let is_group = access.is_group();
    let person = access.person.filter(|_| !is_group)?;
    Some((turn.lease.claim.tenant, turn.agent, person))
}

/// Current local time and the name of the time zone.
pub(crate) fn local_time(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> (String, String) {
    let own = turn.user_zone();
    let (zone, name) = match &own {
        Some(own) => (own.rules(), own.name()),
        None => (&snapshot.zone, snapshot.zone_name.as_str()),
    };
    (format_time(Timestamp::now(), zone), name.to_owned())
}

/// Executes `/timezone` and returns the resulting setting.
pub(crate) async fn run_timezone_command(
    turn: &mut TurnState<'_>,
    wish: TimeZoneCommand,
) -> Result<String, Error> {
    // The owner's roles decide whose conversation this is.
    participants::load_policy(turn).await?;
    let agent = commands::agent(turn).await?.settings;
    load_preferences(turn, agent.dm_scope).await?;
    let zone = match wish {
        TimeZoneCommand::Show => return Ok(zone_text(turn, &agent.time_zone)),
        TimeZoneCommand::Default => None,
        TimeZoneCommand::Use(name) => match name.parse::<Zone>() {
            Ok(zone) => Some(zone),
            Err(error) => return Ok(format!("{error}.")),
        },
    };
    let (sessions, claim) = (&turn.worker.sessions, &turn.lease.claim);
    let name = zone.as_ref().map(Zone::name);
    match zone_owner(turn, agent.dm_scope) {
        Some(whose) => {
            // A setting of the conversation would take precedence.
            turn.settings.time_zone = None;
            let person = (whose.1, whose.2.as_str());
            sessions.settings().set_persons_zone(claim, &turn.settings, person, name).await?;
            turn.worker.preferences.forget(whose.0, &whose.2);
            load_preferences(turn, agent.dm_scope).await?;
        }
        None => {
            turn.settings.time_zone = name.map(str::to_owned);
            sessions.settings().set(claim, &turn.settings).await?;
        }
    }
    Ok(zone_text(turn, &agent.time_zone))
}

fn zone_text(turn: &TurnState<'_>, agents: &str) -> String {
    let (zone, whose) = match (turn.conversation_zone(), &turn.preferences.zone) {
        (Some(here), _) => (here, "set for this conversation"),
        (None, Some(yours)) => (yours.clone(), "yours, in all our conversations"),
        (None, None) => (agents.parse().unwrap_or_default(), "the assistant's"),
    };
    let now = format_time(Timestamp::now(), zone.rules());
    format!("Time zone: {} ({whose}). It is {now} there.", zone.name())
}

fn format_time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M").to_string()
}
