//! Budgets of a turn's model requests, and its agent's hit points.

mod disabled;
pub(crate) mod hit_points;

use std::{sync::Arc, time::Duration};

use holdfast_llm::{ModelCard, Request};
use holdfast_lock::Amount;
use holdfast_session::{Claim, LoadedSession};
use holdfast_types::RunId;

use crate::{
    agents::{
        budget::{BudgetCheck, Ledger, RequestCost, ReservationRequest},
        snapshots::{AgentLookup, AgentSnapshot},
    },
    error::Error,
    turn::{
        budget::hit_points::{HitPointLevel, HitPointMeter},
        state::TurnState,
    },
    worker::Worker,
};

/// Time by which a reservation outlives the request's timeout.
const RESERVATION_GRACE: Duration = Duration::from_secs(30);

/// Begins to measure what the turn costs; see [`hit_points::begin`]. The session of a disabled agent
/// rests instead.
pub(crate) async fn begin(
    worker: &Worker,
    claim: &Claim,
    (run, loaded): (RunId, &LoadedSession),
    agent: &AgentLookup,
) -> Result<Option<HitPointMeter>, Error> {
    let AgentLookup::Ready(snapshot) = agent else { return Ok(None) };
    disabled::rest_if_disabled(worker, claim, loaded, snapshot).await?;
    hit_points::begin(worker, claim, (run, loaded), snapshot).await
}

/// Returns a message for the user if a budget is exhausted, or the agent is disabled.
pub(crate) async fn spent_budget(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<String>, Error> {
    if turn.journal.hit_points() == HitPointLevel::Disabled {
        return Ok(Some(hit_points::DISABLED.to_owned()));
    }
    spent_reason(turn, &snapshot.ledger, &snapshot.card).await
}

/// Whether a budget is exhausted, or the agent is disabled, so that nothing may be spent before a model
/// is asked.
pub(crate) async fn is_spent(turn: &TurnState<'_>) -> Result<bool, Error> {
    if turn.journal.hit_points() == HitPointLevel::Disabled {
        return Ok(true);
    }
    let Some(ledger) = turn.journal.ledger() else { return Ok(false) };
    Ok(spent_reason(turn, ledger, &ModelCard::default()).await?.is_some())
}

/// Why nothing more may be asked of a model.
async fn spent_reason(
    turn: &TurnState<'_>,
    ledger: &Ledger,
    card: &ModelCard,
) -> Result<Option<String>, Error> {
    if ledger.budgets.is_empty() {
        return Ok(None);
    }
    let tenant = turn.lease.claim.tenant;
    let spending = turn.worker.sessions.usage().today(tenant, &ledger.owners()).await?;
    let asks = RequestCost { card, input: 1, output: 0 };
    let none = vec![Amount::default(); ledger.budgets.len()];
    Ok(match asks.check(ledger, &spending, &none) {
        BudgetCheck::Fits(_) => None,
        BudgetCheck::Spent(text) | BudgetCheck::Reserved(text) => Some(text),
    })
}

/// Reserves the cost of an answer. May lower `max_output`. Returns the reason if not enough is
/// left.
pub(crate) async fn reserve(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    request: &mut Request,
) -> Result<Option<String>, Error> {
    let ledger = Arc::clone(&snapshot.ledger);
    if ledger.budgets.is_empty() {
        return Ok(None);
    }
    let id = format!("{}:{}", turn.lease.claim.session, turn.run);
    let lasts = turn.worker.config.model_timeout + RESERVATION_GRACE;
    let tenant = turn.lease.claim.tenant;
    let aside = ReservationRequest {
        tenant,
        id,
        expires_after: lasts,
        card: &snapshot.card,
        ledger: &ledger,
    };
    match turn.worker.budgets().reserve(aside, request).await? {
        Ok(reserved) => {
            turn.reservation = Some(reserved);
            Ok(None)
        }
        Err(why) => Ok(Some(why)),
    }
}

/// Releases the reservation: the usage is stored by now, or there was none.
pub(crate) async fn release_reservation(turn: &mut TurnState<'_>) {
    if let Some(reserved) = turn.reservation.take() {
        turn.worker.budgets().release(reserved).await;
    }
}

/// Charges the input of an answer that was abandoned.
pub(crate) fn charge_read(turn: &TurnState<'_>) {
    if let Some(reserved) = &turn.reservation {
        turn.journal.charge(reserved.input_charge);
    }
}
