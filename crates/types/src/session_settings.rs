//! Settings of one session.

use serde::{Deserialize, Serialize};

use crate::{
    AgentId, Directives, Elevated, QueueSettings, Reasoning, Thinking, Verbose, known_or_default,
};

/// Settings of one session that override its agent's. Stored as JSON: fields are only ever added,
/// with a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSettings {
    /// As `provider:id`; `None` is the agent's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `None` is the agent's level.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub thinking: Option<Thinking>,
    /// `None` is [`Verbose::Off`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub verbose: Option<Verbose>,
    /// `None` is [`Reasoning::Off`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub reasoning: Option<Reasoning>,
    /// `None` is [`Elevated::Ask`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_or_default")]
    pub elevated: Option<Elevated>,
    /// Provider key that was used last, as `provider/key`, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Agent that answered last, where a model chooses; `None` is the session's own agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<AgentId>,
    /// Channel for unasked messages; `None` is the one that was used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Queue settings that `/queue` has set.
    #[serde(skip_serializing_if = "QueueSettings::is_default")]
    pub queue: QueueSettings,
    /// Time zone of the user, as a name of the tz database; `None` is the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl SessionSettings {
    #[must_use]
    pub const fn directives(&self) -> Directives {
        Directives {
            thinking: self.thinking,
            verbose: self.verbose,
            reasoning: self.reasoning,
            elevated: self.elevated,
        }
    }

    /// Changes the levels that are set in `dials`.
    pub fn set_directives(&mut self, dials: Directives) {
        let Directives { thinking, verbose, reasoning, elevated } = dials.or(self.directives());
        (self.thinking, self.verbose) = (thinking, verbose);
        (self.reasoning, self.elevated) = (reasoning, elevated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinks() -> Directives {
        Directives { thinking: Some(Thinking::High), ..Directives::default() }
    }

    #[test]
    fn what_another_version_wrote_is_read() {
        let read = |text: &str| serde_json::from_str::<SessionSettings>(text).unwrap();

        assert_eq!(read("{}"), SessionSettings::default());
        assert_eq!(read(r#"{"model":"a:b","of_tomorrow":1}"#).model.as_deref(), Some("a:b"));
        assert_eq!(serde_json::to_string(&SessionSettings::default()).unwrap(), "{}");
        let newer = read(r#"{"model":"a:b","thinking":"galactic","elevated":{"by":7}}"#);
        assert_eq!((newer.model.as_deref(), newer.thinking), (Some("a:b"), None));
        assert_eq!(newer.elevated, None);
    }

    #[test]
    fn a_dial_that_is_not_named_stays_as_it_was() {
        let mut settings = SessionSettings::default();

        settings.set_directives(thinks());
        settings.set_directives(Directives { verbose: Some(Verbose::On), ..Directives::default() });

        assert_eq!(settings.directives(), Directives { verbose: Some(Verbose::On), ..thinks() });
    }
}
