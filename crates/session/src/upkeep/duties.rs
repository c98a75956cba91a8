//! Duties: work for the whole installation that one runner does at a time.
//!
//! A duty is held under a lease, which its owner renews. If the owner dies, another runner takes
//! the duty when the lease expires.
//!
//! A runner whose login reaches the tenants of one pool holds a duty of its pool, for these tenants,
//! and only while no runner whose login reaches all tenants holds the duty for all.
//!
//! ## What can go wrong
//!
//! An owner that is delayed for longer than its lease works beside the new owner. So the lease only
//! avoids repeated work: two sweeps or two prunings at once are safe.

use std::time::Duration;

use holdfast_pg::LoginScope;
use holdfast_types::RunnerId;

use super::Upkeep;
use crate::Error;

/// Name of the duty to sweep, to measure queues, and to prune, for all tenants.
const UPKEEP: &str = "upkeep";

/// Returns the name of the duty for the tenants whose rows a login reaches. A policy of
/// `service_rights.sql` lets the login of a pool write no other name.
fn duty_name(scope: &LoginScope) -> String {
    match scope {
        LoginScope::AllTenants => UPKEEP.to_owned(),
        LoginScope::Pool(pool) => format!("{UPKEEP}:{pool}"),
        LoginScope::DefaultPool => format!("{UPKEEP}:"),
    }
}

impl Upkeep<'_> {
    /// Takes or renews the duty of upkeep for `lease`, and returns whether this runner holds it.
    ///
    /// Writes only when the duty is taken, or the second half of the lease has begun.
    ///
    /// # Errors
    ///
    /// After an error the runner may hold the duty.
    pub async fn hold(self, runner: RunnerId, lease: Duration) -> Result<bool, Error> {
        const SQL: &str = "
            with holder as (
                select owner, until > clock_timestamp() as is_valid,
                       until > clock_timestamp() + $3 * interval '0.5 second' as is_fresh
                from session.duties where name = $1),
            of_all as (
                select from session.duties
                where name = $4 and name <> $1 and until > clock_timestamp()),
            taken as (
                insert into session.duties as d (name, owner, until)
                select $1, $2, clock_timestamp() + $3 * interval '1 second'
                where not exists (select from holder where is_valid and (owner <> $2 or is_fresh))
                  and not exists (select from of_all)
                on conflict (name) do update set owner = excluded.owner, until = excluded.until
                    where d.owner = excluded.owner or d.until <= clock_timestamp()
                returning 1)
            select exists (select from taken)
                or exists (select from holder where owner = $2 and is_fresh)";
        let mut once = self.pools.system_connection().await?;
        let is_held = holdfast_pg::query_scalar(SQL)
            .bind(duty_name(self.pools.login_scope()))
            .bind(runner.as_uuid())
            .bind(lease.as_secs_f64())
            .bind(UPKEEP)
            .fetch_one(once.conn())
            .await?;
        once.done();
        Ok(is_held)
    }

    /// Gives the duty of upkeep up, so that another runner takes it at once.
    ///
    /// # Errors
    ///
    /// After an error the runner may hold the duty until its lease expires.
    pub async fn leave(self, runner: RunnerId) -> Result<(), Error> {
        const SQL: &str = "
            update session.duties set until = clock_timestamp() where name = $1 and owner = $2";
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(SQL)
            .bind(duty_name(self.pools.login_scope()))
            .bind(runner.as_uuid())
            .execute(once.conn())
            .await?;
        once.done();
        Ok(())
    }
}
