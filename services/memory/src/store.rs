//! Every query: functions over a transaction that sees one tenant's rows.
//!
//! Each names the tenant as well, which is what the indexes want. What may be seen is always told
//! in the same three terms: whose agent's, whose user's, and whether a group listens.

pub mod articles;
pub mod documents;
pub mod erasures;
pub mod forget;
pub mod items;
pub mod late;
pub mod queue;
pub mod search;
pub mod sources;
pub mod spaces;
pub mod units;
pub mod vectors;

use sqlx::{
    FromRow, Postgres,
    postgres::{PgArguments, PgRow},
    query::QueryAs,
};
use uuid::Uuid;

use crate::who::Who;

/// Which rows `who` sees: `$2` everything, `$3` agents, `$4` users, `$5` in a group; `$1` is the
/// tenant.
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

/// A query that [`seen!`] made, with its first five parameters: what follows is bound from `$6` on.
pub(crate) fn seen_by<T>(sql: &'static str, tenant: Uuid, who: &Who) -> Seen<T>
where
    T: for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_as(sql)
        .bind(tenant)
        .bind(who.everything)
        .bind(who.agents())
        .bind(who.users())
        .bind(who.group)
}

type Seen<T> = QueryAs<'static, Postgres, T, PgArguments>;
