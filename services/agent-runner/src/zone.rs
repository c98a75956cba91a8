//! On whose clock a conversation goes: on that of whoever it is with, if they said where they are
//! (`/timezone`), else on its agent's.
//!
//! It is read with the session's other settings, and costs no question of its own. What a policy
//! says of hours, and the days of an agent's notes, stay on the agent's clock: no user moves those.

use holdfast_schedule::Zone;
use holdfast_types::ZoneWish;
use jiff::{Timestamp, tz::TimeZone};

use crate::{agents::Brief, error::Error, turn::Turn};

impl Turn<'_> {
    /// The zone that was set for this conversation, if one was.
    pub(crate) fn own_zone(&self) -> Option<Zone> {
        self.settings.time_zone.as_deref()?.parse().ok()
    }

    /// What its clock shows, and what its zone is called.
    pub(crate) fn clock_of(&self, brief: &Brief) -> (String, String) {
        let own = self.own_zone();
        let (zone, name) = match &own {
            Some(own) => (own.rules(), own.name()),
            None => (&brief.zone, brief.zone_name.as_str()),
        };
        (shown(Timestamp::now(), zone), name.to_owned())
    }

    /// Does what somebody wants of it, and says how it stands then.
    pub(crate) async fn set_zone(&mut self, wish: ZoneWish) -> Result<String, Error> {
        let zone = match wish {
            ZoneWish::Show => return self.show_zone().await,
            ZoneWish::Default => None,
            ZoneWish::Use(name) => match name.parse::<Zone>() {
                Ok(zone) => Some(zone.name().to_owned()),
                Err(error) => return Ok(format!("{error}.")),
            },
        };
        self.settings.time_zone = zone;
        self.worker.sessions.set_settings(&self.hold.claim, &self.settings).await?;
        self.show_zone().await
    }

    async fn show_zone(&self) -> Result<String, Error> {
        let (zone, whose) = match self.own_zone() {
            Some(own) => (own, "set for this conversation"),
            None => {
                let named = self.agent().await?.settings.time_zone;
                (named.parse().unwrap_or_default(), "the assistant's")
            }
        };
        let now = shown(Timestamp::now(), zone.rules());
        Ok(format!("Time zone: {} ({whose}). It is {now} there.", zone.name()))
    }
}

fn shown(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%A, %Y-%m-%d %H:%M").to_string()
}
