//! Hit points of a turn: checked before it begins, and charged with each of its writes.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use holdfast_pg::TenantTx;
use holdfast_session::{Claim, EffectFuture, LoadedSession, NewDelivery, StepEffects};
use holdfast_types::{Effect, Entry, HitPointSettings, RunId, WorkAmounts};
use holdfast_work::{HitPoints, Place, charge_hit_points};
use tracing::info;

use crate::{
    agents::snapshots::AgentSnapshot, error::Error, tools::mesh::delivery_id,
    turn::behavior::session_error, worker::Worker,
};

/// Longest rest until the hit points are read again: the settings may have changed.
pub(super) const MAX_REST: Duration = Duration::from_mins(10);

/// Text for people whose message an agent without hit points does not answer.
pub(crate) const DISABLED: &str = "this assistant has no hit points left and is disabled. Whoever set it up can \
                        enable it again: `holdfast hp enable`.";

/// Hit points after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HitPointLevel {
    Enough,
    BelowFloor,
    Disabled,
}

impl HitPointLevel {
    fn of(points: &HitPoints, settings: &HitPointSettings) -> Self {
        if points.disabled_at.is_some() {
            Self::Disabled
        } else if points.level_milli < settings.floor_milli() {
            Self::BelowFloor
        } else {
            Self::Enough
        }
    }
}

/// What the work of a turn costs, and what is left.
#[derive(Clone)]
pub(crate) struct HitPointMeter {
    settings: HitPointSettings,
    place: Place,
    level: Arc<Mutex<HitPointLevel>>,
}

impl fmt::Debug for HitPointMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HitPointMeter").field("place", &self.place).finish_non_exhaustive()
    }
}

impl HitPointMeter {
    /// Hit points after the last write.
    pub(crate) fn level(&self) -> HitPointLevel {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the cost of entries and tokens to the effects of a write.
    pub(crate) fn charge(
        &self,
        effects: Option<Arc<dyn StepEffects>>,
        entries: &[Entry],
        tokens: u64,
    ) -> Option<Arc<dyn StepEffects>> {
        let cost = self.settings.cost_milli(&WorkAmounts { tokens, ..amounts(entries) });
        if cost == 0 {
            return effects;
        }
        Some(Arc::new(ChargedEffects { effects, meter: self.clone(), cost }))
    }
}

/// Tool calls in entries, and their texts.
fn amounts(entries: &[Entry]) -> WorkAmounts {
    let mut sum = WorkAmounts::default();
    for entry in entries {
        match entry {
            Entry::Thought { calls, .. } => {
                sum.io_bytes += calls.iter().map(|call| call.input.len() as u64).sum::<u64>();
            }
            Entry::Called { effect: Effect::Acts, .. } => sum.actions += 1,
            Entry::Returned { output, .. } => {
                sum.tool_results += 1;
                sum.io_bytes += output.len() as u64;
            }
            Entry::Heard { .. } | Entry::Called { .. } | Entry::Noted { .. } => {}
        }
    }
    sum
}

/// What a write stores besides the journal, and the hit points that it costs.
#[derive(Debug)]
struct ChargedEffects {
    effects: Option<Arc<dyn StepEffects>>,
    meter: HitPointMeter,
    cost: u64,
}

impl StepEffects for ChargedEffects {
    fn apply<'a>(&'a self, tx: &'a mut TenantTx) -> EffectFuture<'a> {
        Box::pin(async move {
            if let Some(effects) = &self.effects {
                effects.apply(tx).await?;
            }
            let HitPointMeter { settings, place, level } = &self.meter;
            let charged = charge_hit_points(tx, place, settings, self.cost).await;
            let left = HitPointLevel::of(&charged.map_err(session_error)?, settings);
            *level.lock().unwrap_or_else(PoisonError::into_inner) = left;
            Ok(())
        })
    }
}

/// Begins to measure what the turn costs; `None` if work costs the agent no hit points.
///
/// An agent with too few hit points rests first: its session is released, and is ready again when
/// enough has recovered. People on a channel are told once for the message that waits.
///
/// # Errors
///
/// [`Error::Resting`] if the session was released.
pub(crate) async fn begin(
    worker: &Worker,
    claim: &Claim,
    (run, loaded): (RunId, &LoadedSession),
    snapshot: &AgentSnapshot,
) -> Result<Option<HitPointMeter>, Error> {
    let Some(settings) = snapshot.hit_points else { return Ok(None) };
    let found = worker.work.hit_points(claim.tenant, snapshot.agent, &settings).await;
    let found = found.map_err(|error| Error::from(session_error(error)))?;
    let level = HitPointLevel::of(&found, &settings);
    if level == HitPointLevel::BelowFloor {
        let time = settings.rest(found.level_milli);
        rest(worker, claim, loaded, (time, &rest_text(time))).await?;
        return Err(Error::Resting);
    }
    let place = Place { run: Some(run), ..Place::outside(claim.session, snapshot.agent) };
    Ok(Some(HitPointMeter { settings, place, level: Arc::new(Mutex::new(level)) }))
}

/// Releases a session for some time, ten minutes at most. People on a channel are told the text once
/// for the message that waits.
pub(super) async fn rest(
    worker: &Worker,
    claim: &Claim,
    loaded: &LoadedSession,
    (rest, text): (Duration, &str),
) -> Result<(), Error> {
    let notice = rest_notice(loaded, text);
    let channel = notice.as_ref().map(|(_, delivery)| delivery.target.channel.clone());
    worker.sessions.release_to_rest(claim, rest.min(MAX_REST), notice).await?;
    if let Some(channel) = channel {
        worker.bus.wake_deliver(&channel);
    }
    info!(rest_s = rest.as_secs(), "an agent rests");
    Ok(())
}

/// Message that tells people on a channel that their message waits.
fn rest_notice(loaded: &LoadedSession, text: &str) -> Option<(RunId, NewDelivery)> {
    let first = loaded.waiting.iter().find(|row| !row.body.silent && row.target.is_some())?;
    let delivery = NewDelivery {
        target: first.target.clone()?,
        text: text.to_owned(),
        act: None,
        id: delivery_id(&format!("rest:{}", first.message)),
        delay: Duration::ZERO,
    };
    Some((RunId::from(first.message), delivery))
}

fn rest_text(rest: Duration) -> String {
    let minutes = rest.as_secs().div_ceil(60).max(1);
    let unit = if minutes == 1 { "minute" } else { "minutes" };
    format!(
        "I have used up my hit points and rest for about {minutes} {unit}. I keep your message \
         and answer by myself after that."
    )
}
