//! Agents of a tenant: assistants, stored as data.

pub(crate) mod behavior;
pub(crate) mod state;

use std::{collections::BTreeMap, time::Duration};

use holdfast_schedule::heartbeat::HeartbeatConfig;
use holdfast_types::{
    AgentId, AgentKind, AgentName, BehaviorName, ChannelOptions, ContextOptions, DmScope,
    GroupScope, HitPointSettings, ModelId, QueueMode, Reactions, RecommendSkills,
    SelfImproveSettings, SessionKey, Thinking, known_or_default,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{AgentState, Error};

/// Time for which runners use what they have read of an agent, its models and its budgets: a change
/// takes effect after at most this long.
pub const AGENT_CACHE_TTL: Duration = Duration::from_secs(1);

const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_INSTRUCTIONS_CHARS: usize = 100_000;
const MAX_DEBOUNCE_MS: u32 = 60_000;
const MAX_APPROVAL_TIMEOUT_S: u32 = 7 * 24 * 3_600;
const MAX_TOOLS: usize = 200;
const MAX_FALLBACKS: usize = 5;
const MAX_BUNDLES: usize = 32;
const MAX_CHANNEL_OPTIONS: usize = 64;
const MAX_TOOL_NAME_BYTES: usize = 128;
const MAX_BEHAVIOR_LIMIT: u32 = 3_600;

/// Instructions of the agent that every new tenant gets (spec RTE-007, RTE-018).
const INSTRUCTIONS: &str = "\
You are a friendly, capable personal assistant. You talk with people over chat, so answer as a \
thoughtful person would write there.

- Answer in the language in which you are spoken to.
- If something could mean two things, make the sensible assumption and say which one you made; if \
it is essential, ask one short question.
- Say when you do not know. Never invent facts, quotes, links or numbers.
- Keep to yourself what was said in other conversations, and never reveal keys or passwords.";

/// Behaviour settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentSettings {
    /// What the agent's prompt is made of.
    #[serde(deserialize_with = "known_or_default")]
    pub kind: AgentKind,
    /// Treatment of messages that arrive while a turn runs.
    #[serde(deserialize_with = "known_or_default")]
    pub queue_mode: QueueMode,
    /// Set of direct messages that share one session.
    pub dm_scope: DmScope,
    /// Set of group members that share one session.
    pub group_scope: GroupScope,
    /// How long [`QueueMode::Collect`] waits for further messages, in milliseconds.
    pub debounce_ms: u32,
    /// IANA name of the time zone for dates in the prompt.
    pub time_zone: String,
    /// Tools that the agent may use; `None` allows all, an empty list none.
    pub tools: Option<Vec<String>>,
    /// Names of other agents that may be spawned as subagents; `*` allows all. The agent itself is
    /// always allowed.
    pub spawns: Vec<String>,
    /// Models that are tried in order if the agent's model fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Thinking level of turns for which no message and no conversation sets one. No effect for
    /// models that cannot be told.
    #[serde(deserialize_with = "known_or_default")]
    pub thinking: Thinking,
    pub context: ContextOptions,
    /// How often it reacts to messages, on channels with reactions.
    #[serde(deserialize_with = "known_or_default")]
    pub reactions: Reactions,
    /// Tool bundles for subagents by name, in addition to the built-in ones.
    pub bundles: BTreeMap<String, Vec<String>>,
    /// Time until an approval expires, in seconds; `None` uses the runner's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_timeout_s: Option<u32>,
    /// Options for channels: by `*`, a channel, or a channel account as `telegram/work`. Programs
    /// are the channel `api`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChannelOptions>,
    /// Schedule of the heartbeat, and delivery of its replies.
    #[serde(skip_serializing_if = "is_usual")]
    pub heartbeat: HeartbeatConfig,
    /// Set if the agent works by behaviours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviors: Option<BehaviorSettings>,
    /// Set if work costs the agent hit points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_points: Option<HitPointSettings>,
    /// Set if the agent looks after itself while nobody needs it. It has behaviours then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_improve: Option<SelfImproveSettings>,
}

/// How an agent works by behaviours. A turn that reaches a limit yields: it goes on after other
/// sessions had their turn (spec STM-015).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BehaviorSettings {
    /// Behaviour with which a conversation begins.
    pub default: String,
    /// Steps until a turn yields.
    pub max_steps: u32,
    /// Changes of behaviour until a turn yields.
    pub max_hops: u32,
    /// Seconds until a turn yields.
    pub max_seconds: u32,
}

impl Default for BehaviorSettings {
    fn default() -> Self {
        Self { default: "resolve_router".to_owned(), max_steps: 64, max_hops: 16, max_seconds: 600 }
    }
}

impl BehaviorSettings {
    fn check(&self) -> Result<(), Error> {
        self.default
            .parse::<BehaviorName>()
            .map_err(|error| Error::Invalid(format!("`behaviors.default`: {error}")))?;
        for (name, value) in [
            ("max_steps", self.max_steps),
            ("max_hops", self.max_hops),
            ("max_seconds", self.max_seconds),
        ] {
            if !(1..=MAX_BEHAVIOR_LIMIT).contains(&value) {
                return Err(Error::Invalid(format!(
                    "`behaviors.{name}` is 1 to {MAX_BEHAVIOR_LIMIT}, and this one is {value}"
                )));
            }
        }
        Ok(())
    }
}

fn is_usual(heartbeat: &HeartbeatConfig) -> bool {
    *heartbeat == HeartbeatConfig::default()
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            kind: AgentKind::default(),
            queue_mode: QueueMode::default(),
            dm_scope: DmScope::default(),
            group_scope: GroupScope::default(),
            debounce_ms: 500,
            time_zone: "UTC".to_owned(),
            tools: None,
            spawns: Vec::new(),
            fallbacks: Vec::new(),
            thinking: Thinking::default(),
            context: ContextOptions::default(),
            reactions: Reactions::default(),
            bundles: BTreeMap::new(),
            approval_timeout_s: None,
            channels: BTreeMap::new(),
            heartbeat: HeartbeatConfig::default(),
            behaviors: None,
            hit_points: None,
            self_improve: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: AgentId,
    /// Name; part of the agent's session keys.
    pub name: AgentName,
    /// Strengths of the agent, read when an agent is chosen.
    pub description: String,
    /// First part of the prompt.
    pub instructions: String,
    /// Model as `provider:id`; `None` uses the tenant's default.
    pub model: Option<String>,
    /// Whether the agent answers messages that no binding and no rule assigns.
    pub is_default: bool,
    pub settings: AgentSettings,
    pub state: AgentState,
    /// Grows with each change of settings, behaviours, role.md and self.md.
    pub definition_version: i64,
    /// Version of the settings, increased by each change.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Fields of an agent that routing needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutedAgent {
    pub id: AgentId,
    pub name: AgentName,
    /// Whether the agent answers messages that no binding and no rule assigns.
    pub is_default: bool,
    pub settings: AgentSettings,
    pub state: AgentState,
}

/// An agent to create, or the new values of one; an update replaces every field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewAgent {
    pub name: AgentName,
    pub description: String,
    pub instructions: String,
    pub model: Option<String>,
    /// Whether it is the default.
    pub is_default: bool,
    pub settings: AgentSettings,
}

impl NewAgent {
    /// Returns the agent that every new tenant gets.
    pub(crate) fn main() -> Self {
        Self {
            name: AgentName::default(),
            description: "A friendly general assistant.".to_owned(),
            instructions: INSTRUCTIONS.to_owned(),
            is_default: true,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let longest = |what: &str, text: &str, limit: usize| match text.chars().count() {
            got if got > limit => Err(Error::Invalid(format!(
                "an agent's {what} has {limit} characters at most, and this one {got}"
            ))),
            _ => Ok(()),
        };
        if self.description.contains('\0') || self.instructions.contains('\0') {
            return Err(Error::Invalid("a text has a NUL character in it: remove it".to_owned()));
        }
        longest("description", &self.description, MAX_DESCRIPTION_CHARS)?;
        longest("instructions", &self.instructions, MAX_INSTRUCTIONS_CHARS)?;
        if let Some(model) = &self.model {
            model.parse::<ModelId>().map_err(|error| Error::Invalid(error.to_string()))?;
        }
        self.settings.check()
    }
}

impl AgentSettings {
    /// Whether the agent may spawn another agent as a subagent.
    #[must_use]
    pub fn may_spawn(&self, agent: &str) -> bool {
        self.spawns.iter().any(|name| name == "*" || name == agent)
    }

    /// Options for a channel account. Those of the account take precedence over those of the
    /// channel, and these over those for any.
    #[must_use]
    pub fn options_for(&self, channel: &str, account: &str) -> ChannelOptions {
        if self.channels.is_empty() {
            return ChannelOptions::default();
        }
        let of = |key: &str| self.channels.get(key).copied().unwrap_or_default();
        of(&format!("{channel}/{account}")).or(of(channel)).or(of("*"))
    }

    fn check_self_improve(&self) -> Result<(), Error> {
        let Some(settings) = &self.self_improve else { return Ok(()) };
        if self.behaviors.is_none() {
            return Err(Error::Invalid(
                "`self_improve` needs behaviours: set `behaviors` too".to_owned(),
            ));
        }
        settings.check().map_err(|why| Error::Invalid(format!("`self_improve`: {why}")))
    }

    fn check(&self) -> Result<(), Error> {
        check_channel_options(&self.channels)?;
        if self.debounce_ms > MAX_DEBOUNCE_MS {
            return Err(Error::Invalid(format!(
                "`debounce_ms` is {MAX_DEBOUNCE_MS} at most, and this one is {}",
                self.debounce_ms
            )));
        }
        if jiff::tz::TimeZone::get(&self.time_zone).is_err() {
            let shown: String = self.time_zone.chars().take(80).collect();
            return Err(Error::Invalid(format!(
                "`{shown}` is not a time zone: write an IANA name, as in `Europe/Berlin`"
            )));
        }
        if let Some(given) = self.approval_timeout_s
            && !(1..=MAX_APPROVAL_TIMEOUT_S).contains(&given)
        {
            return Err(Error::Invalid(format!(
                "`approval_timeout` is 1 to {MAX_APPROVAL_TIMEOUT_S} seconds, and this one is {given}"
            )));
        }
        check_heartbeat(&self.heartbeat)?;
        self.behaviors.as_ref().map_or(Ok(()), BehaviorSettings::check)?;
        self.hit_points
            .map_or(Ok(()), |settings| settings.check())
            .map_err(|why| Error::Invalid(format!("`hit_points`: {why}")))?;
        self.check_self_improve()?;
        check_tools(Some(&self.spawns))?;
        if self.fallbacks.len() > MAX_FALLBACKS {
            return Err(Error::Invalid(format!(
                "an agent has {MAX_FALLBACKS} fallback models at most, and this one {}",
                self.fallbacks.len()
            )));
        }
        let context = &self.context;
        for list in [&context.include_tools, &context.exclude_tools] {
            check_tools(list.as_deref())?;
        }
        for list in [&context.include_skills, &context.exclude_skills] {
            check_tools(list.as_deref())?;
        }
        if let Some(recommend) = &context.recommend_skills {
            check_recommending(recommend)?;
        }
        if self.bundles.len() > MAX_BUNDLES {
            return Err(Error::Invalid(format!(
                "an agent has {MAX_BUNDLES} bundles at most, and this one {}",
                self.bundles.len()
            )));
        }
        for (name, tools) in &self.bundles {
            check_tools(Some(std::slice::from_ref(name)))?;
            check_tools(Some(tools))?;
        }
        check_tools(self.tools.as_deref())
    }
}

fn check_channel_options(channels: &BTreeMap<String, ChannelOptions>) -> Result<(), Error> {
    if channels.len() > MAX_CHANNEL_OPTIONS {
        return Err(Error::Invalid(format!(
            "an agent has options for {MAX_CHANNEL_OPTIONS} channels at most, and this one for {}",
            channels.len()
        )));
    }
    for (key, options) in channels {
        let (channel, account) = key.split_once('/').unwrap_or((key, "default"));
        let is_word = |word: &str| {
            let is_part =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
            (1..=64).contains(&word.len()) && word.chars().all(is_part)
        };
        if key != "*" && !(is_word(channel) && is_word(account)) {
            let shown: String = key.chars().take(80).collect();
            return Err(Error::Invalid(format!(
                "`{shown}` is no channel: write `*`, `telegram`, or `telegram/` and an account's name"
            )));
        }
        let wrong = |why: String| Error::Invalid(format!("`channels.{key}`: {why}"));
        options.queue.check().map_err(wrong)?;
        options.blocks.map_or(Ok(()), |blocks| blocks.check()).map_err(wrong)?;
    }
    Ok(())
}

fn check_heartbeat(heartbeat: &HeartbeatConfig) -> Result<(), Error> {
    let wrong = |why: String| Error::Invalid(format!("the heartbeat cannot be so: {why}"));
    heartbeat.check().map_err(|error| wrong(error.to_string()))?;
    if let Some(model) = &heartbeat.model {
        model.parse::<ModelId>().map_err(|error| wrong(error.to_string()))?;
    }
    match heartbeat.session.as_deref() {
        None | Some("main") => Ok(()),
        Some(key) if key.starts_with("agent:") && key.parse::<SessionKey>().is_ok() => Ok(()),
        Some(key) => {
            let shown: String = key.chars().take(80).collect();
            Err(wrong(format!("`{shown}` is no session: write `main`, or a key of the agent's")))
        }
    }
}

/// Checks the weights and the model of skill recommendations.
fn check_recommending(recommend: &RecommendSkills) -> Result<(), Error> {
    let sum = recommend.weights.map(|parts| parts.iter().map(|part| u32::from(*part)).sum::<u32>());
    if sum.is_some_and(|sum| sum != 100) {
        return Err(Error::Invalid(
            "the weights of recommended skills add up to 100, as in 40, 30, 20, 10".to_owned(),
        ));
    }
    let is_long = |model: &String| model.len() > 200 || model.contains(char::is_control);
    if recommend.model.as_ref().is_some_and(is_long) {
        return Err(Error::Invalid(
            "the model that recommends skills is no model: write its id or an alias".to_owned(),
        ));
    }
    Ok(())
}

/// Checks the length of a list of tools, and the form of each name.
pub(crate) fn check_tools(tools: Option<&[String]>) -> Result<(), Error> {
    let tools = tools.unwrap_or_default();
    if tools.len() > MAX_TOOLS {
        return Err(Error::Invalid(format!(
            "a list of tools has {MAX_TOOLS} names at most, and this one {}",
            tools.len()
        )));
    }
    let is_name = |tool: &&String| {
        let printable = |c: char| !c.is_control() && !c.is_whitespace();
        (1..=MAX_TOOL_NAME_BYTES).contains(&tool.len()) && tool.chars().all(printable)
    };
    match tools.iter().find(|tool| !is_name(tool)) {
        Some(wrong) => {
            let shown: String = wrong.chars().take(80).collect();
            Err(Error::Invalid(format!(
                "`{shown}` is not a tool's name: it has 1 to {MAX_TOOL_NAME_BYTES} characters and no space"
            )))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_agent_passes_its_own_check() {
        assert!(NewAgent::main().check().is_ok());
        assert_eq!(NewAgent::main().name.as_str(), "main");
    }

    #[test]
    fn settings_of_an_older_version_are_read_with_defaults() {
        let settings: AgentSettings =
            serde_json::from_str(r#"{"queue_mode": "followup", "of_tomorrow": 1}"#).unwrap();

        assert_eq!(settings.queue_mode, QueueMode::Followup);
        assert_eq!(settings.time_zone, "UTC");
        assert_eq!(settings.tools, None);
    }

    #[test]
    fn a_word_of_a_newer_version_shares_no_session_and_allows_no_tool() {
        let read = |text: &str| serde_json::from_str::<AgentSettings>(text);
        let settings = read(
            r#"{"kind": "swarm", "queue_mode": "braid", "dm_scope": "per-mood",
                "group_scope": "per-table", "reactions": "loud", "tools": ["files"],
                "thinking": "galactic", "context": {"strategy": "dense"}}"#,
        )
        .unwrap();

        assert_eq!(settings.queue_mode, QueueMode::default());
        assert_eq!(settings.dm_scope, DmScope::PerAccountChannelPeer);
        assert_eq!(settings.group_scope, GroupScope::GroupUser);
        assert_eq!(settings.tools, Some(vec!["files".to_owned()]));
        assert_eq!(settings.thinking, Thinking::Off);
        // A list of tools that cannot be read is not "all".
        assert!(read(r#"{"tools": {"allow": ["files"]}}"#).is_err());
    }

    #[test]
    fn an_empty_list_of_tools_is_none_and_an_absent_one_is_all() {
        let none = AgentSettings { tools: Some(Vec::new()), ..AgentSettings::default() };

        let stored = serde_json::to_string(&none).unwrap();

        assert_eq!(serde_json::from_str::<AgentSettings>(&stored).unwrap(), none);
    }

    #[test]
    fn options_of_an_account_go_before_those_of_its_channel() {
        let cap = |cap| ChannelOptions {
            queue: holdfast_types::QueueSettings { cap: Some(cap), ..Default::default() },
            ..Default::default()
        };
        let blocks = ChannelOptions { blocks: Some(Default::default()), ..Default::default() };
        let channels = [("*", cap(1)), ("telegram", blocks), ("telegram/work", cap(3))];
        let channels = channels.map(|(key, options)| (key.to_owned(), options)).into();
        let settings = AgentSettings { channels, ..AgentSettings::default() };

        let caps = [("telegram", "work"), ("telegram", "home"), ("irc", "net")];
        let found = caps.map(|(channel, account)| settings.options_for(channel, account));
        assert_eq!(found.map(|options| options.queue.cap), [Some(3), Some(1), Some(1)]);
        assert_eq!(found.map(|options| options.blocks.is_some()), [true, true, false]);
    }

    #[test]
    fn what_could_never_work_is_refused() {
        let settings = |settings| NewAgent { settings, ..NewAgent::main() };
        let tools = |tool: &str| {
            settings(AgentSettings {
                tools: Some(vec![tool.to_owned()]),
                ..AgentSettings::default()
            })
        };
        for wrong in [
            NewAgent { description: "x".repeat(2_001), ..NewAgent::main() },
            NewAgent { instructions: "x".repeat(100_001), ..NewAgent::main() },
            NewAgent { instructions: "a\0b".into(), ..NewAgent::main() },
            NewAgent { model: Some("gpt-5".into()), ..NewAgent::main() },
            settings(AgentSettings { debounce_ms: 60_001, ..AgentSettings::default() }),
            settings(AgentSettings {
                time_zone: "Mars/Olympus".into(),
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                bundles: [("two words".to_owned(), Vec::new())].into(),
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                heartbeat: HeartbeatConfig { every: "often".into(), ..Default::default() },
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                heartbeat: HeartbeatConfig {
                    session: Some("elsewhere".into()),
                    ..Default::default()
                },
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                channels: [("Tele gram".to_owned(), ChannelOptions::default())].into(),
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                behaviors: Some(BehaviorSettings {
                    default: "two words".into(),
                    ..Default::default()
                }),
                ..AgentSettings::default()
            }),
            settings(AgentSettings {
                behaviors: Some(BehaviorSettings { max_steps: 0, ..Default::default() }),
                ..AgentSettings::default()
            }),
            tools(""),
            tools("two words"),
        ] {
            assert!(matches!(wrong.check(), Err(Error::Invalid(_))), "{:?}", wrong.settings);
        }
    }
}
