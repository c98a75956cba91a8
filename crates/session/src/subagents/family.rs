//! A root session with the sessions of its subagents: which is the root, and who is told of an event.

use holdfast_pg::TenantTx;
use holdfast_types::{Body, SessionId, SessionState, TenantId, Wait, wakes};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Acceptance, Error, Sessions, erase::family, sessions::session_not_found};

/// An event that the sessions of a family may wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyEvent {
    /// Name of the event, such as `todo.changed`.
    pub name: &'static str,
    /// Root session.
    pub root: SessionId,
    /// Session that caused the event, which is not told.
    pub cause: Option<SessionId>,
    /// Unique in the tenant; each session is told once.
    pub idem_key: String,
    pub text: String,
    /// The text may repeat text from outside.
    pub outside: bool,
}

/// Sessions of a family that an event was told to.
#[derive(Debug, Clone, Default)]
pub struct FamilyResult {
    /// Messages to the sessions that waited for the event.
    pub told: Vec<Acceptance>,
    /// Whether another session runs, which may wait for the event when it has ended: to be told
    /// again.
    pub is_any_running: bool,
}

type MemberRow = (Uuid, String, Option<Json<Wait>>);

impl Sessions {
    /// Returns the root session of a session: itself, unless it is a subagent's.
    pub async fn root_of(&self, tenant: TenantId, session: SessionId) -> Result<SessionId, Error> {
        const SQL: &str = "
            with recursive ancestors as (
                select s.session_id, s.parent_id, 0 as distance from session.sessions s
                where s.tenant_id = $1 and s.session_id = $2
                union all
                select s.session_id, s.parent_id, a.distance + 1 from ancestors a
                join session.sessions s on s.tenant_id = $1 and s.session_id = a.parent_id
                where a.distance < 100)
            select session_id from ancestors order by distance desc limit 1";
        let mut tx = self.pools.tenant(tenant).await?;
        let found: Option<Uuid> = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        found.map(SessionId::from).ok_or_else(|| session_not_found(session))
    }

    /// Tells an event to the sessions of a family that wait for it. A repetition tells no session
    /// twice.
    pub async fn tell_family(
        &self,
        tenant: TenantId,
        event: &FamilyEvent,
    ) -> Result<FamilyResult, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let members = family(&mut tx, event.root).await?;
        self.tell_members(tx, members, event).await
    }

    /// Tells an event to the root session alone, if it waits for it.
    pub async fn tell_session(
        &self,
        tenant: TenantId,
        event: &FamilyEvent,
    ) -> Result<FamilyResult, Error> {
        let tx = self.pools.tenant(tenant).await?;
        self.tell_members(tx, vec![event.root.as_uuid()], event).await
    }

    async fn tell_members(
        &self,
        mut tx: TenantTx,
        members: Vec<Uuid>,
        event: &FamilyEvent,
    ) -> Result<FamilyResult, Error> {
        const SQL: &str = "
            select session_id, state, wait from session.session_lease
            where tenant_id = $1 and session_id = any($2)
              and (state in ('READY', 'RUNNING') or wait->>'for' = 'event')";
        let tenant = tx.tenant();
        let members: Vec<MemberRow> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(members)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        let body = Body {
            event: Some(event.name.to_owned()),
            outside: event.outside,
            ..Body::text(event.text.clone())
        };
        let mut result = FamilyResult::default();
        for (session, state, wait) in members {
            let session = SessionId::from(session);
            if event.cause == Some(session) {
                continue;
            }
            if matches!(
                SessionState::parse(&state),
                Some(SessionState::Ready | SessionState::Running)
            ) {
                result.is_any_running = true;
            } else if wait.is_some_and(|Json(wait)| wakes(&wait, &body)) {
                let (key, text) = (format!("{}:{session}", event.idem_key), event.text.clone());
                let subagents = self.subagents();
                let message =
                    subagents.event_message(tenant, session, event.name, key, text).await?;
                result.told.extend(subagents.tell_once(tenant, message).await?);
            }
        }
        Ok(result)
    }
}
