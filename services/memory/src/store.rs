//! SQL queries: functions over a transaction that sees one tenant's rows.
//!
//! Each query also names the tenant, for the indexes. Visibility always has the same three
//! conditions: agent, user, and whether the conversation is a group.

pub mod articles;
pub mod documents;
pub mod erasures;
pub mod forget;
pub mod items;
pub mod queue;
pub mod search;
pub mod second_pass;
pub mod sources;
pub mod spaces;
pub mod units;
pub mod vectors;

use holdfast_pg::QueryAs;
use sqlx::{FromRow, postgres::PgRow};
use uuid::Uuid;

use crate::viewer::Viewer;

/// Appends the visibility condition for `who`: `$1` tenant, `$2` everything, `$3` agents, `$4`
/// users, `$5` group.
macro_rules! seen {
    ($select:literal, $rest:literal) => {
        concat!(
            $select,
            " where tenant_id = $1
                and ($2 or (agent_id = any ($3) and user_id = any ($4) and (group_safe or not $5)))",
            $rest
        )
    };
}
pub(crate) use seen;

/// Binds the first five parameters of a [`seen!`] query; the caller's own begin at `$6`.
pub(crate) fn visible_query<T>(sql: &'static str, tenant: Uuid, who: &Viewer) -> QueryAs<T>
where
    T: for<'r> FromRow<'r, PgRow>,
{
    holdfast_pg::query_as(sql)
        .bind(tenant)
        .bind(who.everything)
        .bind(who.agents())
        .bind(who.users())
        .bind(who.group)
}
