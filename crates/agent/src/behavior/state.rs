//! State machine of behaviours: which behaviour and step come next (spec STM-012 to STM-014, BHV).
//!
//! | `next_behavior` of a result | next |
//! |---|---|
//! | none, or the same behaviour | the next step; beyond the step limit see below |
//! | another behaviour, or the same one with other parameters | its step 0, which is a hop |
//! | `WAIT`, `WAIT_FOR_MSG`, `WAIT_FOR_EVENT` | the session waits; the same step follows |
//! | `END`, `DONE` | the session waits; the next input begins with the default behaviour |
//! | unknown, the first time | the next step, which is told so |
//! | unknown again, or beyond the step limit | the fallback; without one the default, and the session waits |
//!
//! Steps are numbered from 0, so a behaviour with a step limit of 16 has 17 steps (C-27).

use std::fmt;

use holdfast_types::{BehaviorName, RunId, Usage, Wait, WaitDetails};
use serde::{Deserialize, Serialize};

/// Maximum length of a session's tag, in characters.
pub const MAX_TAG_CHARS: usize = 64;

/// Place of a session among its behaviours. Stored as JSON: fields are only ever added, with a
/// default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BehaviorState {
    /// Behaviour of the next step, with its parameters.
    pub behavior: BehaviorName,
    /// Number of the next step in the behaviour, from 0.
    #[serde(default)]
    pub step: u32,
    /// The work has ended: the next input begins with the default behaviour.
    #[serde(default)]
    pub ended: bool,
    /// Summary of the step before, for the next one.
    #[serde(default)]
    pub last_step: String,
    /// The step before led to the next one without a wait.
    #[serde(default)]
    pub continues: bool,
    /// The step before only passed its messages on: they are new to the next one.
    #[serde(default)]
    pub forwards: bool,
    /// Mistake of the step before that the next one is told; usually empty.
    #[serde(default)]
    pub observation: String,
    /// Results in a row that named a behaviour that does not exist.
    #[serde(default)]
    pub unknown_names: u32,
    /// Tags that the results have given the session.
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub run: RunCounts,
    /// Answers of the current step that could not be used, for its record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<UnusableAnswer>,
}

/// An answer of a model that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableAnswer {
    pub model: String,
    pub usage: Usage,
    /// What was wrong with it.
    pub error: String,
}

/// Steps and changes of behaviour in one turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunCounts {
    pub run: Option<RunId>,
    pub steps: u32,
    pub hops: u32,
}

impl BehaviorState {
    #[must_use]
    pub fn new(behavior: BehaviorName) -> Self {
        Self {
            behavior,
            step: 0,
            ended: false,
            last_step: String::new(),
            continues: false,
            forwards: false,
            observation: String::new(),
            unknown_names: 0,
            tags: Vec::new(),
            run: RunCounts::default(),
            unusable: Vec::new(),
        }
    }

    /// State in which a turn goes on: a new turn counts anew, and after an end it begins with the
    /// default behaviour.
    #[must_use]
    pub fn in_run(mut self, run: RunId, default: &BehaviorName) -> Self {
        if self.run.run != Some(run) {
            self.run = RunCounts { run: Some(run), ..RunCounts::default() };
            if self.ended {
                let (tags, run) = (self.tags, self.run);
                self = Self { tags, run, ..Self::new(default.clone()) };
            }
        }
        self
    }

    /// Replaces the tags: without control characters, cut at their maximum length, each once.
    pub fn set_tags(&mut self, tags: &[String]) {
        self.tags.clear();
        for tag in tags {
            let tag: String = tag.chars().filter(|c| !c.is_control()).take(MAX_TAG_CHARS).collect();
            let tag = tag.trim();
            if !tag.is_empty() && !self.tags.iter().any(|known| known == tag) {
                self.tags.push(tag.to_owned());
            }
        }
    }

    fn switch_to(&mut self, behavior: BehaviorName) {
        self.behavior = behavior;
        self.step = 0;
        self.run.hops = self.run.hops.saturating_add(1);
    }
}

/// What decides about the next step besides its result.
#[derive(Clone, Copy)]
pub struct BehaviorRules<'a> {
    /// Highest number of a step of the current behaviour; 0 sets no limit.
    pub step_limit: u32,
    /// Behaviour that follows beyond the limit, if it exists.
    pub fallback: Option<&'a str>,
    pub default: &'a BehaviorName,
    /// Whether a behaviour exists.
    pub exists: &'a dyn Fn(&BehaviorName) -> bool,
}

impl fmt::Debug for BehaviorRules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BehaviorRules")
            .field("step_limit", &self.step_limit)
            .field("fallback", &self.fallback)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

/// What the session does after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAction {
    /// It runs the next step.
    Continue,
    Wait(WaitKind),
    /// The work has ended.
    End,
}

/// What a session waits for after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    Anything,
    Message,
    Event,
}

impl WaitKind {
    /// Wait of the session, with the details that the result has given.
    #[must_use]
    pub fn wait(self, details: Option<&WaitDetails>) -> Wait {
        let WaitDetails { filter, deadline_ms, note } = details.cloned().unwrap_or_default();
        let has_details = details.is_some_and(|details| *details != WaitDetails::default());
        match self {
            Self::Event => Wait::Event { filter, deadline_ms, note },
            Self::Message => Wait::Message { filter, deadline_ms, note },
            Self::Anything if filter.event.is_some() => Wait::Event { filter, deadline_ms, note },
            Self::Anything if has_details => Wait::Message { filter, deadline_ms, note },
            Self::Anything => Wait::Anything,
        }
    }
}

/// State after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub state: BehaviorState,
    pub action: NextAction,
}

/// What a word in `next_behavior` asks for.
enum Request {
    Step,
    Wait(WaitKind),
    End,
    Switch(BehaviorName),
    Unknown(String),
}

/// Returns the state after a step whose result names `next`. `summary` is what the next step is
/// told of this one.
#[must_use]
pub fn advance(
    state: &BehaviorState,
    rules: &BehaviorRules<'_>,
    next: Option<&str>,
    summary: String,
) -> Transition {
    let mut after = follow(state, rules, next, summary);
    after.state.continues = after.action == NextAction::Continue;
    after
}

fn follow(
    state: &BehaviorState,
    rules: &BehaviorRules<'_>,
    next: Option<&str>,
    summary: String,
) -> Transition {
    let mut state = state.clone();
    state.run.steps = state.run.steps.saturating_add(1);
    state.last_step = summary;
    state.forwards = false;
    state.observation.clear();
    state.unusable.clear();
    let request = read_request(&state, rules, next);
    if !matches!(request, Request::Unknown(_)) {
        state.unknown_names = 0;
    }
    match request {
        Request::Step => next_step(state, rules),
        Request::Wait(kind) => Transition { state, action: NextAction::Wait(kind) },
        Request::End => {
            let (tags, run) = (state.tags, state.run);
            let start = BehaviorState::new(rules.default.clone());
            Transition {
                state: BehaviorState { ended: true, tags, run, ..start },
                action: NextAction::End,
            }
        }
        Request::Switch(behavior) => {
            state.switch_to(behavior);
            Transition { state, action: NextAction::Continue }
        }
        Request::Unknown(name) => {
            state.observation =
                format!("`next_behavior` named `{name}`, and there is no such behaviour");
            state.unknown_names = state.unknown_names.saturating_add(1);
            match state.unknown_names {
                1 => next_step(state, rules),
                _ => {
                    state.unknown_names = 0;
                    leave(state, rules)
                }
            }
        }
    }
}

/// Returns the state after a step whose result could not be used: the same step follows, and is
/// told why.
#[must_use]
pub fn advance_after_failure(state: &BehaviorState, reason: &str) -> BehaviorState {
    let mut state = state.clone();
    state.run.steps = state.run.steps.saturating_add(1);
    state.observation = reason.to_owned();
    state.continues = false;
    state.unusable.clear();
    state
}

fn read_request(state: &BehaviorState, rules: &BehaviorRules<'_>, next: Option<&str>) -> Request {
    let Some(next) = next.map(str::trim).filter(|next| !next.is_empty()) else {
        return Request::Step;
    };
    let word = next.to_ascii_uppercase();
    match word.as_str() {
        "END" | "DONE" => return Request::End,
        "WAIT" => return Request::Wait(WaitKind::Anything),
        word if word.starts_with("WAIT_FOR_MSG") => return Request::Wait(WaitKind::Message),
        word if word.starts_with("WAIT_FOR_EVENT") => return Request::Wait(WaitKind::Event),
        _ => {}
    }
    let Some(named) = next.parse::<BehaviorName>().ok().filter(|named| (rules.exists)(named))
    else {
        return Request::Unknown(next.chars().filter(|c| !c.is_control()).take(80).collect());
    };
    let is_same = named.is_same_behavior(&state.behavior)
        && (named.params().is_empty() || named.params() == state.behavior.params());
    if is_same { Request::Step } else { Request::Switch(named) }
}

fn next_step(mut state: BehaviorState, rules: &BehaviorRules<'_>) -> Transition {
    let step = state.step.saturating_add(1);
    if rules.step_limit > 0 && step > rules.step_limit {
        return leave(state, rules);
    }
    state.step = step;
    Transition { state, action: NextAction::Continue }
}

/// Leaves a behaviour that does not end by itself.
fn leave(mut state: BehaviorState, rules: &BehaviorRules<'_>) -> Transition {
    let fallback = rules.fallback.and_then(|name| name.parse::<BehaviorName>().ok());
    let fallback =
        fallback.filter(|name| (rules.exists)(name) && !name.is_same_behavior(&state.behavior));
    match fallback {
        Some(fallback) => {
            state.switch_to(fallback);
            Transition { state, action: NextAction::Continue }
        }
        None => {
            state.switch_to(rules.default.clone());
            Transition { state, action: NextAction::Wait(WaitKind::Anything) }
        }
    }
}

#[cfg(test)]
mod tests;
