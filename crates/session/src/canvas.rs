//! Canvas surfaces: pages that an agent shows beside a conversation, stored with the session until
//! it is deleted.
//!
//! The content is stored as text; clients render it.

use holdfast_pg::Pools;
use holdfast_types::{SessionId, TenantId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::{Error, Sessions, sessions::session_not_found};

/// Maximum number of surfaces of a session.
pub const MAX_SURFACES: usize = 16;

/// A surface to store; it replaces the surface of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSurface {
    /// 1 to 64 characters.
    pub name: String,
    /// At most 200 characters; may be empty.
    pub title: String,
    /// Format of the content: `a2ui`, `markdown` or `html`.
    pub kind: String,
    pub content: String,
    /// Whether clients show the surface.
    pub shown: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    pub properties: NewSurface,
    /// Version number, increased by each change.
    pub version: i64,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

#[derive(FromRow)]
struct Row {
    surface: String,
    title: String,
    kind: String,
    content: String,
    shown: bool,
    version: i64,
    updated_at: jiff_sqlx::Timestamp,
}

/// Canvas surfaces of sessions, from [`Sessions::canvas`].
#[derive(Debug, Clone, Copy)]
pub struct Canvas<'a> {
    pub(crate) pools: &'a Pools,
}

impl Sessions {
    #[must_use]
    pub const fn canvas(&self) -> Canvas<'_> {
        Canvas { pools: &self.pools }
    }
}

impl Canvas<'_> {
    /// Returns a session's surfaces, ordered by name.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session.
    pub async fn surfaces(
        self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Vec<Surface>, Error> {
        const SQL: &str = "
            select surface, title, kind, content, shown, version, updated_at
            from session.surfaces where tenant_id = $1 and session_id = $2 order by surface";
        const SESSION_EXISTS: &str = "
            select exists (select from session.sessions where tenant_id = $1 and session_id = $2)";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        let is_there = !rows.is_empty()
            || holdfast_pg::query_scalar(SESSION_EXISTS)
                .bind(tenant.as_uuid())
                .bind(session.as_uuid())
                .fetch_one(tx.conn())
                .await?;
        tx.finish_reading();
        if !is_there {
            return Err(session_not_found(session));
        }
        Ok(rows.into_iter().map(Surface::from).collect())
    }

    /// Stores the surfaces in `put` and deletes those in `gone`, all or nothing. An unchanged
    /// surface keeps its version.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if there would be more than [`MAX_SURFACES`], [`Error::NotFound`] if
    /// there is no such session. Nothing is changed then.
    pub async fn change(
        self,
        tenant: TenantId,
        session: SessionId,
        put: &[NewSurface],
        gone: &[String],
    ) -> Result<(), Error> {
        const DELETE_SURFACES: &str = "
            delete from session.surfaces
            where tenant_id = $1 and session_id = $2 and surface = any($3)";
        const UPSERT_SURFACE: &str = "
            insert into session.surfaces as s
                (tenant_id, session_id, surface, title, kind, content, shown)
            values ($1, $2, $3, $4, $5, $6, $7)
            on conflict (session_id, surface, tenant_id) do update
                set title = excluded.title, kind = excluded.kind, content = excluded.content,
                    shown = excluded.shown, version = s.version + 1,
                    updated_at = clock_timestamp()
                where (s.title, s.kind, s.content, s.shown)
                    is distinct from (excluded.title, excluded.kind, excluded.content,
                                      excluded.shown)";
        const COUNT: &str =
            "select count(*) from session.surfaces where tenant_id = $1 and session_id = $2";

        let mut tx = self.pools.tenant(tenant).await?;
        // Serialises concurrent changes, and keeps the session from being deleted meanwhile.
        crate::sessions::lock(&mut tx, session).await?.ok_or_else(|| session_not_found(session))?;
        holdfast_pg::query(DELETE_SURFACES)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(gone)
            .execute(tx.conn())
            .await?;
        for new in put {
            holdfast_pg::query(UPSERT_SURFACE)
                .bind(tenant.as_uuid())
                .bind(session.as_uuid())
                .bind(&new.name)
                .bind(&new.title)
                .bind(&new.kind)
                .bind(&new.content)
                .bind(new.shown)
                .execute(tx.conn())
                .await?;
        }
        let count: i64 = holdfast_pg::query_scalar(COUNT)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        if usize::try_from(count).is_ok_and(|count| count > MAX_SURFACES) {
            tx.rollback().await?;
            return Err(Error::Conflict(format!(
                "there would be {count} surfaces, and {MAX_SURFACES} are the most: reset or \
                 replace some"
            )));
        }
        Ok(tx.commit().await?)
    }
}

impl From<Row> for Surface {
    fn from(row: Row) -> Self {
        let Row { surface, title, kind, content, shown, version, updated_at } = row;
        let is = NewSurface { name: surface, title, kind, content, shown };
        Self { properties: is, version, updated_at: updated_at.to_jiff() }
    }
}
