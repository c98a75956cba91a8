//! State of a session among the behaviours of its agent, and what a step writes beside the journal.
//!
//! The state is JSON of the runner. It changes only in a transaction that stores a step or ends a
//! turn, so it always fits the journal. A reset of the conversation deletes it.

use std::sync::Arc;

use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{Entry, Note, SessionId, TenantId};
use serde_json::Value;
use sqlx::types::Json;

use crate::{Error, Sessions, StepEffects};

/// Maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// Sessions for work that a router is shown.
const MAX_LISTED_SESSIONS: i64 = 16;

/// States of behaviours, from [`Sessions::behaviors`].
#[derive(Debug, Clone, Copy)]
pub struct Behaviors<'a> {
    pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn behaviors(&self) -> Behaviors<'_> {
        Behaviors { pools: &self.pools }
    }
}

impl Behaviors<'_> {
    /// Returns the state of a session; `None` if no step has stored one.
    pub async fn get(self, tenant: TenantId, session: SessionId) -> Result<Option<Value>, Error> {
        const SQL: &str = "
            select state from session.behaviors where tenant_id = $1 and session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Json<Value>> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found.map(|state| state.0))
    }

    /// Begins a transaction in which the rows of a tenant are read, for the input of a step.
    pub async fn read(self, tenant: TenantId) -> Result<TenantTx, Error> {
        Ok(self.pools.tenant(tenant).await?)
    }
}

/// Stores the state of a session, within [`StepEffects::apply`].
pub async fn store_behavior(
    tx: &mut TenantTx,
    session: SessionId,
    state: &Value,
) -> Result<(), Error> {
    const SQL: &str = "
        insert into session.behaviors (tenant_id, session_id, state) values ($1, $2, $3)
        on conflict (session_id, tenant_id) do update
            set state = excluded.state, updated_at = clock_timestamp()";

    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(Json(state))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Sets the title of a session, within [`StepEffects::apply`]. A label that a person has given
/// stays.
pub async fn store_title(tx: &mut TenantTx, session: SessionId, title: &str) -> Result<(), Error> {
    const SQL: &str = "
        with behavior as (
            update session.behaviors b set title = $3
            from (select title from session.behaviors
                  where tenant_id = $1 and session_id = $2) before
            where b.tenant_id = $1 and b.session_id = $2
            returning before.title)
        update session.sessions s set given_label = $3
        where s.tenant_id = $1 and s.session_id = $2
          and (s.given_label is null or s.given_label in (select title from behavior))";

    let title: String = title.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
    if title.trim().is_empty() {
        return Ok(());
    }
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .bind(title.trim())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// A session for work.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkSession {
    pub key: String,
    pub title: String,
    /// Whether it has read text from outside, so that its title may repeat it.
    pub has_outside_text: bool,
}

/// Returns the newest sessions for work whose keys begin with `prefix`.
pub async fn work_sessions(tx: &mut TenantTx, prefix: &str) -> Result<Vec<WorkSession>, Error> {
    const SQL: &str = "
        select key, coalesce(given_label, label, '') as title,
               outside_since is not null as has_outside_text
        from session.sessions
        where tenant_id = $1 and kind = 'work' and starts_with(key, $2)
        order by updated_at desc limit $3";

    let tenant = tx.tenant();
    Ok(holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(prefix)
        .bind(MAX_LISTED_SESSIONS)
        .fetch_all(tx.conn())
        .await?)
}

/// Applies what a step writes beside the journal.
pub(crate) async fn apply_effects(
    tx: &mut TenantTx,
    effects: Option<&Arc<dyn StepEffects>>,
) -> Result<(), Error> {
    match effects {
        Some(effects) => effects.apply(tx).await,
        None => Ok(()),
    }
}

/// Forgets the state and the steps of a session whose conversation begins anew with these entries.
pub(crate) async fn reset_behavior(
    tx: &mut TenantTx,
    session: SessionId,
    entries: &[Entry],
) -> Result<(), Error> {
    const SQL: &str = "
        with steps as (
            delete from session.behavior_steps where tenant_id = $1 and session_id = $2)
        delete from session.behaviors where tenant_id = $1 and session_id = $2";

    let is_reset = |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset, .. });
    if !entries.iter().any(is_reset) {
        return Ok(());
    }
    let tenant = tx.tenant();
    holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session.as_uuid())
        .execute(tx.conn())
        .await?;
    Ok(())
}
