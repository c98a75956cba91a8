//! The behaviours of a turn, and its state among them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_agent::behavior::{
    Behavior, BehaviorSet, FileAccessMode, RESULT_TOOL, Toolbox,
    state::{BehaviorRules, BehaviorState, RunCounts},
};
use holdfast_directory::BehaviorSettings;
use holdfast_types::{BehaviorName, BehaviorRole, Effect, SessionId, SessionKind, ToolCall};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    tools::{tool_context::BehaviorStep, tool_set::ToolSet},
    turn::state::TurnState,
};

/// Behaviour with which a session begins that was opened for work, if the agent has it.
const WORK_BEHAVIOR: &str = "plan";

/// Behaviour with which a session begins in which the agent looks after itself.
const UPKEEP_BEHAVIOR: &str = "self_improve";

/// A turn that has yielded this often without an end is given up.
const MAX_PERIODS: u32 = 8;

/// Part of a turn's time limit after which it yields at the latest.
const MAX_PERIOD_SHARE: f64 = 0.8;

/// State that the last write has stored, for the next step; empty if this runner has not written it.
pub(super) type StoredState = Arc<Mutex<Option<BehaviorState>>>;

/// Behaviours of a turn.
#[derive(Debug)]
pub(crate) struct BehaviorRun {
    set: Arc<BehaviorSet>,
    settings: BehaviorSettings,
    /// Behaviour with which the conversation begins.
    default: BehaviorName,
    pub(super) state: BehaviorState,
    /// Root session, whose todo list and worklog the turn uses.
    pub(super) list: SessionId,
    /// Counts of the turn when this runner took it.
    taken: RunCounts,
    taken_at: Instant,
    /// When this runner began the current step.
    pub(super) step_began: Timestamp,
}

/// Whether a turn may go on with a further step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeriodCheck {
    Continue,
    /// Other sessions have their turn first.
    Yield,
    /// The work does not end.
    GiveUp,
}

impl BehaviorRun {
    /// The current behaviour; `None` if it was deleted.
    pub(super) fn behavior(&self) -> Option<&Behavior> {
        self.set.find(&self.state.behavior)
    }

    pub(super) const fn set(&self) -> &Arc<BehaviorSet> {
        &self.set
    }

    pub(super) fn role(&self) -> BehaviorRole {
        self.behavior().map_or(BehaviorRole::Other, |behavior| behavior.role)
    }

    /// Tools of the current step.
    pub(crate) fn toolbox(&self) -> Option<&Toolbox> {
        self.behavior().map(|behavior| &behavior.toolbox)
    }

    /// Whether the current step may change no files.
    pub(crate) fn is_read_only(&self) -> bool {
        self.behavior().is_none_or(|behavior| behavior.files == FileAccessMode::ReadOnly)
    }

    /// Passes the rules of the current behaviour to a function.
    pub(super) fn with_rules<T>(&self, then: impl FnOnce(&BehaviorRules<'_>) -> T) -> T {
        let behavior = self.behavior();
        let exists = |name: &BehaviorName| self.set.find(name).is_some();
        then(&BehaviorRules {
            step_limit: behavior.map_or(0, |behavior| behavior.step_limit),
            fallback: behavior.and_then(|behavior| behavior.fallback.as_deref()),
            default: &self.default,
            exists: &exists,
        })
    }

    /// Checks the limits of a scheduling period after so many steps and hops.
    pub(super) fn check_period(&self, run: RunCounts, turn_deadline: Duration) -> PeriodCheck {
        let BehaviorSettings { max_steps, max_hops, max_seconds, .. } = self.settings;
        if run.steps >= max_steps.saturating_mul(MAX_PERIODS)
            || run.hops >= max_hops.saturating_mul(MAX_PERIODS)
        {
            return PeriodCheck::GiveUp;
        }
        let longest = turn_deadline.mul_f64(MAX_PERIOD_SHARE);
        let period = Duration::from_secs(max_seconds.into()).min(longest);
        let is_over = self.steps_of_period(run) >= max_steps
            || run.hops.saturating_sub(self.taken.hops) >= max_hops
            || self.taken_at.elapsed() >= period;
        if is_over { PeriodCheck::Yield } else { PeriodCheck::Continue }
    }

    /// Whether the current step may have another round of calls.
    pub(super) fn has_round_left(&self, behavior: &Behavior, rounds: usize) -> bool {
        let most = usize::try_from(behavior.limits.max_tool_rounds).unwrap_or(usize::MAX);
        let spent = Timestamp::now().duration_since(self.step_began);
        rounds < most && Duration::try_from(spent).unwrap_or_default() < behavior.limits.deadline
    }

    /// Steps since this runner took the turn.
    pub(super) const fn steps_of_period(&self, run: RunCounts) -> u32 {
        run.steps.saturating_sub(self.taken.steps)
    }

    /// Whether the turn has saved steps, none of them since this runner took it.
    pub(super) const fn was_interrupted(&self) -> bool {
        self.taken.steps > 0 && self.steps_of_period(self.state.run) == 0
    }

    /// Moves to the default behaviour: the current one does not exist any more.
    pub(super) fn restart(&mut self) {
        let run = self.state.run;
        self.state = BehaviorState { run, ..BehaviorState::new(self.default.clone()) };
    }
}

/// Loads the behaviours and the state of the turn, if its agent works by behaviours.
pub(crate) async fn load_behavior(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    let found = behaviors_of(turn.kind, snapshot).filter(|_| !turn.is_flushing());
    let Some((set, settings)) = found else {
        turn.behavior = None;
        return Ok(());
    };
    if turn.behavior.is_some() {
        return Ok(());
    }
    let first = first_behavior(turn);
    let Some(default) = default_behavior(first, &set, &settings) else {
        turn.behavior = None;
        return Ok(());
    };
    let state = read_state(turn).await?.unwrap_or_else(|| BehaviorState::new(default.clone()));
    let state = state.in_run(turn.run, &default);
    let (taken, taken_at) = (state.run, turn.timing.began);
    let step_began = Timestamp::now();
    let list = root_session(turn).await?;
    let run = BehaviorRun { set, settings, default, state, list, taken, taken_at, step_began };
    turn.behavior = Some(Box::new(run));
    Ok(())
}

/// A subagent works on the list of the session that its work is for.
async fn root_session(turn: &TurnState<'_>) -> Result<SessionId, Error> {
    let claim = &turn.lease.claim;
    match turn.task {
        Some(_) => Ok(turn.worker.sessions.root_of(claim.tenant, claim.session).await?),
        None => Ok(claim.session),
    }
}

impl TurnState<'_> {
    /// The current step, as tools record it.
    pub(crate) fn behavior_step(&self) -> Option<BehaviorStep> {
        let run = self.behavior.as_ref()?;
        Some(BehaviorStep {
            behavior: run.state.behavior.to_string(),
            role: run.role(),
            step: run.state.step,
            todo: run.state.behavior.params().get("todo").cloned(),
        })
    }
}

/// Moves to the state that the last step has stored. It is read if another runner has stored it.
pub(super) async fn go_on(turn: &mut TurnState<'_>, stored: &StoredState) -> Result<(), Error> {
    let stored = stored.lock().unwrap_or_else(PoisonError::into_inner).take();
    let stored = match stored {
        Some(state) => Some(state),
        None => read_state(turn).await?,
    };
    if let (Some(run), Some(state)) = (&mut turn.behavior, stored) {
        run.state = state.in_run(turn.run, &run.default);
        run.step_began = Timestamp::now();
    }
    Ok(())
}

async fn read_state(turn: &TurnState<'_>) -> Result<Option<BehaviorState>, Error> {
    let claim = &turn.lease.claim;
    let stored = turn.worker.sessions.behaviors().get(claim.tenant, claim.session).await?;
    Ok(stored.and_then(|stored| match serde_json::from_value(stored) {
        Ok(state) => Some(state),
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "a state of behaviours cannot be read");
            None
        }
    }))
}

fn behaviors_of(
    kind: SessionKind,
    snapshot: &AgentSnapshot,
) -> Option<(Arc<BehaviorSet>, BehaviorSettings)> {
    match kind {
        // A heartbeat has a prompt and an answer of its own.
        SessionKind::Heartbeat => None,
        SessionKind::Main
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Work
        | SessionKind::Api
        | SessionKind::Global
        | SessionKind::Subagent
        | SessionKind::Cron => {
            let behaviors = snapshot.behaviors.as_ref()?;
            Some((Arc::clone(&behaviors.set), snapshot.behavior_settings.clone()?))
        }
    }
}

/// Behaviour with which a session of this kind begins, if the agent has it.
fn first_behavior(turn: &TurnState<'_>) -> Option<&'static str> {
    let is_work = matches!(turn.kind, SessionKind::Work | SessionKind::Subagent);
    match turn.is_self_improvement() {
        true => Some(UPKEEP_BEHAVIOR),
        false => Some(WORK_BEHAVIOR).filter(|_| is_work),
    }
}

/// Behaviour with which a session begins: that of its kind, else its agent's.
fn default_behavior(
    first: Option<&str>,
    set: &BehaviorSet,
    settings: &BehaviorSettings,
) -> Option<BehaviorName> {
    let named = |name: &str| name.parse().ok().filter(|name| set.find(name).is_some());
    first.and_then(named).or_else(|| named(&settings.default)).or_else(|| named(set.default_name()))
}

/// Whether a call applies the result of a step.
pub(crate) fn is_result(call: &ToolCall) -> bool {
    holdfast_agent::behavior::is_result_call(call)
}

/// Effect of a call: that of its tool. The result of a step is written once, with its own result.
pub(crate) fn effect_of(tools: &ToolSet, name: &str) -> Effect {
    if name == RESULT_TOOL { Effect::Writes } else { tools.effect(name) }
}
