//! What an agent shows beside a conversation: surfaces, kept with the session until it is deleted.
//!
//! What they say is for whoever draws them; here it is a text.

use holdfast_types::{SessionId, TenantId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::{Error, Sessions, sessions::no_session};

/// The most surfaces of a session.
pub const MOST_SURFACES: usize = 16;

/// The most that one says, in bytes.
pub const MOST_SURFACE: usize = 256 * 1024;

/// A surface to be, in the place of what there was of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSurface {
    /// Its name. 1 to 64 characters.
    pub name: String,
    /// What it is called; may be empty. 200 characters at most.
    pub title: String,
    /// What its content is: `a2ui`, `markdown` or `html`.
    pub kind: String,
    /// What it says. [`MOST_SURFACE`] bytes at most.
    pub content: String,
    /// It is to be seen.
    pub shown: bool,
}

/// A surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surface {
    /// What it is.
    pub is: NewSurface,
    /// Another one after each change.
    pub version: i64,
    /// When it was changed last.
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

impl Sessions {
    /// A session's surfaces, by their names.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such session; else if the database does not answer.
    pub async fn surfaces(
        &self,
        tenant: TenantId,
        session: SessionId,
    ) -> Result<Vec<Surface>, Error> {
        const SQL: &str = "
            select surface, title, kind, content, shown, version, updated_at
            from session.surfaces where tenant_id = $1 and session_id = $2 order by surface";
        const IS_THERE: &str = "
            select exists (select from session.sessions where tenant_id = $1 and session_id = $2)";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<Row> = sqlx::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        let is_there = !rows.is_empty()
            || sqlx::query_scalar(IS_THERE)
                .bind(tenant.as_uuid())
                .bind(session.as_uuid())
                .fetch_one(tx.conn())
                .await?;
        tx.finish_reading();
        if !is_there {
            return Err(no_session(session));
        }
        Ok(rows.into_iter().map(Surface::from).collect())
    }

    /// Changes a session's surfaces: these are put in their places, those are taken away, all or
    /// nothing. What is so already is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if there would be more than [`MOST_SURFACES`]; [`Error::NotFound`] if
    /// there is no such session; nothing was changed then. Else if the database does not answer.
    pub async fn change_surfaces(
        &self,
        tenant: TenantId,
        session: SessionId,
        put: &[NewSurface],
        gone: &[String],
    ) -> Result<(), Error> {
        const GONE: &str = "
            delete from session.surfaces
            where tenant_id = $1 and session_id = $2 and surface = any($3)";
        const PUT: &str = "
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
        // Nobody deletes the session meanwhile, or changes them too.
        crate::sessions::lock(&mut tx, session).await?.ok_or_else(|| no_session(session))?;
        sqlx::query(GONE)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .bind(gone)
            .execute(tx.conn())
            .await?;
        for new in put {
            sqlx::query(PUT)
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
        let count: i64 = sqlx::query_scalar(COUNT)
            .bind(tenant.as_uuid())
            .bind(session.as_uuid())
            .fetch_one(tx.conn())
            .await?;
        if usize::try_from(count).is_ok_and(|count| count > MOST_SURFACES) {
            tx.rollback().await?;
            return Err(Error::Conflict(format!(
                "there would be {count} surfaces, and {MOST_SURFACES} are the most: reset or \
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
        Self { is, version, updated_at: updated_at.to_jiff() }
    }
}
