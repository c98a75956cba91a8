//! Conversation turns, stored for search.

use std::collections::BTreeSet;

use holdfast_types::TenantId;
use jiff::Timestamp;

use super::MemoryService;
use crate::{
    Error,
    store::units,
    unit::{Unit, UnitContent, kind, terms_of},
    validation::Provenance,
    viewer::Viewer,
};

/// Turn to store, with validated fields.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub reference: String,
    pub author: String,
    pub text: String,
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewTurns {
    pub session: String,
    pub turns: Vec<NewTurn>,
    pub group_safe: bool,
    pub provenance: Provenance,
}

impl MemoryService {
    /// Appends turns to those stored. Returns how many are new.
    ///
    /// Each turn is also found by the words of the one before it: an answer rarely repeats its
    /// question (docs/decisions/0029).
    pub async fn add_turns(
        &self,
        tenant: TenantId,
        who: &Viewer,
        told: &NewTurns,
    ) -> Result<usize, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let last = units::last_turn(&mut tx, who, &told.session).await?;
        let mut place = last.as_ref().map_or(0, |last| last.place);
        let mut before = last.map(|last| terms_of(&last.text)).unwrap_or_default();
        let mut new = Vec::with_capacity(told.turns.len());
        let now = Timestamp::now();
        for turn in &told.turns {
            place += 1;
            let terms = terms_of(&turn.text);
            let said = UnitContent {
                text: &turn.text,
                terms: &terms,
                context: &before,
                at: turn.at.unwrap_or(now),
                provenance: &told.provenance,
            };
            let mut unit = Unit::new(tenant, who, kind::TURN, said);
            unit.session.clone_from(&told.session);
            unit.reference.clone_from(&turn.reference);
            unit.author.clone_from(&turn.author);
            unit.place = place;
            unit.group_safe = told.group_safe;
            new.push(unit);
            before = terms;
        }
        let made = units::insert(&mut tx, &new).await?;
        let authors: BTreeSet<String> = told
            .turns
            .iter()
            .map(|turn| turn.author.clone())
            .filter(|author| !author.is_empty())
            .collect();
        let mut is_somebody_new = false;
        if !made.is_empty() && !authors.is_empty() {
            let authors: Vec<String> = authors.into_iter().collect();
            is_somebody_new = units::authors(&mut tx, who, &authors).await?;
        }
        tx.commit().await?;
        // Not for each turn: counting many units again takes longer than a search.
        if is_somebody_new {
            self.views.invalidate(tenant);
        }
        if !made.is_empty() {
            self.waiting.notify_one();
        }
        Ok(made.len())
    }
}
