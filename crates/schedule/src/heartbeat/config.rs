//! Heartbeat settings of an agent (spec HBT-001, C-09).

use holdfast_types::{AgentName, SessionKey};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::hours::ActiveHours;
use crate::{
    error::{Error, bounds},
    interval::{interval_or_default, parse_interval},
    payload::text,
    schedule::Schedule,
    spread::phase,
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeartbeatTarget {
    Main,
    /// The channel that was used last.
    #[default]
    Last,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeartbeatConfig {
    pub enabled: bool,
    /// Interval: a number and `s`, `m` or `h`.
    pub every: String,
    /// Prompt instead of the default; `{content}` is replaced by the text of `HEARTBEAT.md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    pub target: HeartbeatTarget,
    /// Model instead of the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Maximum characters beside `HEARTBEAT_OK` that are not delivered.
    pub ack_max_chars: usize,
    /// Session instead of the heartbeat's own (C-13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Hours in which heartbeats run; `None` means always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_hours: Option<ActiveHours>,
    /// Whether the model's reasoning is delivered with the answer.
    pub include_reasoning: bool,
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            every: "5m".to_owned(),
            prompt: None,
            target: HeartbeatTarget::Last,
            model: None,
            ack_max_chars: 100,
            session: None,
            active_hours: None,
            include_reasoning: false,
        }
    }
}

impl HeartbeatConfig {
    /// Validates the settings. Invalid settings do not stop the heartbeat: an invalid interval
    /// becomes five minutes; with invalid active hours every heartbeat is skipped.
    ///
    /// # Errors
    ///
    /// What to write instead.
    pub fn check(&self) -> Result<(), Error> {
        parse_interval(&self.every)?;
        if let Some(hours) = &self.active_hours {
            hours.check()?;
        }
        if self.ack_max_chars > 10_000 {
            return Err(bounds("ack_max_chars", self.ack_max_chars, "10000 or less"));
        }
        if let Some(prompt) = &self.prompt {
            text("prompt", prompt, 16_000, "a text of 1 to 16000 characters")?;
        }
        for (field, value) in [("model", &self.model), ("session", &self.session)] {
            if let Some(value) = value {
                text(field, value, 256, "a name of 1 to 256 characters")?;
            }
        }
        Ok(())
    }

    /// Returns the session in which an agent of this name is asked (C-13).
    #[must_use]
    pub fn session_key(&self, agent: &AgentName) -> SessionKey {
        let own = || SessionKey::heartbeat(agent);
        match self.session.as_deref() {
            None => own(),
            Some("main") => SessionKey::main(agent),
            // The key of another agent's session would make that agent answer.
            Some(key) => key
                .parse::<SessionKey>()
                .ok()
                .filter(|key| key.agent() == Some(agent))
                .unwrap_or_else(own),
        }
    }

    /// Returns the interval, at least `floor`.
    #[must_use]
    pub fn interval(&self, floor: SignedDuration) -> SignedDuration {
        interval_or_default(&self.every).0.max(floor)
    }

    /// Returns the schedule: the interval with a phase that depends on the agent (spec HBT-020).
    ///
    /// # Errors
    ///
    /// If the floor is not a valid interval.
    pub fn schedule(&self, agent: &str, floor: SignedDuration) -> Result<Schedule, Error> {
        let interval = self.interval(floor);
        let ms = |of: SignedDuration| i64::try_from(of.as_millis()).unwrap_or(i64::MAX);
        Schedule::every(ms(interval), Some(ms(phase(agent, interval))))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::SessionKind;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_agent_is_asked_in_a_session_of_its_own_and_in_no_other_agents() {
        let (main, other) = (AgentName::default(), AgentName::new("other"));
        let of = |session: Option<&str>| {
            let session = session.map(str::to_owned);
            HeartbeatConfig { session, ..HeartbeatConfig::default() }.session_key(&main)
        };

        assert_eq!(of(None).as_str(), "agent:main:heartbeat");
        assert_eq!(of(Some("main")).as_str(), "agent:main:main");
        assert_eq!(of(Some("agent:main:dm:telegram:7")).kind(), SessionKind::Dm);
        assert_eq!(of(Some(SessionKey::main(&other).as_str())).as_str(), "agent:main:heartbeat");
    }

    #[test]
    fn a_heartbeat_of_which_nothing_is_said_is_the_seeds() {
        let config: HeartbeatConfig = serde_json::from_str("{}").unwrap();

        assert_eq!(config, HeartbeatConfig::default());
        assert_eq!(
            serde_json::to_string(&config).unwrap(),
            r#"{"enabled":true,"every":"5m","target":"last","ack_max_chars":100,"include_reasoning":false}"#
        );
        assert_eq!(config.check(), Ok(()));
        // As a later version may have stored it.
        assert_eq!(
            serde_json::from_str::<HeartbeatConfig>(r#"{"of_tomorrow":1}"#).unwrap(),
            HeartbeatConfig::default()
        );
    }

    #[test]
    fn a_bad_setting_is_told_and_the_heart_beats_on() {
        let config = HeartbeatConfig { every: "often".to_owned(), ..HeartbeatConfig::default() };

        assert_eq!(config.check(), Err(Error::Interval("often".to_owned())));
        assert_eq!(config.interval(SignedDuration::ZERO), SignedDuration::from_mins(5));
    }

    #[test]
    fn hearts_beat_at_points_of_their_own_and_no_more_often_than_the_floor() {
        let config = HeartbeatConfig { every: "1s".to_owned(), ..HeartbeatConfig::default() };
        let floor = SignedDuration::from_mins(1);
        let first = |agent: &str| {
            let schedule = config.schedule(agent, floor).unwrap();
            let now = Timestamp::from_second(1_767_225_600).unwrap();
            let beat = schedule.next_after(now).unwrap();
            assert_eq!(schedule.next_after(beat).unwrap().duration_since(beat), floor);
            beat
        };

        assert_eq!(first("agt_a"), first("agt_a"));
        assert_ne!(first("agt_a"), first("agt_b"));
    }
}
