//! Server settings on which the promises about acknowledged messages depend.

use tracing::{error, info, warn};

use crate::Pools;

/// Settings that lose acknowledged data in a crash: name, value, consequence.
const UNSAFE_SETTINGS: [(&str, &str, &str); 3] = [
    ("fsync", "off", "a crash of the machine can lose and damage all data"),
    ("full_page_writes", "off", "a crash of the machine can damage data"),
    ("synchronous_commit", "off", "a crash can lose messages that were acknowledged"),
];

/// Logs what the database server may lose of acknowledged data, and how to change that.
///
/// # Errors
///
/// If the database does not answer.
pub async fn log_durability(pools: &Pools) -> sqlx::Result<()> {
    for problem in durability_problems(pools).await? {
        warn!("{problem}");
    }
    let standbys = standbys(pools).await?;
    match standbys.problem() {
        Some(problem) => warn!("{problem}"),
        None => info!(?standbys, "the database's standbys"),
    }
    Ok(())
}

/// Replication of the database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standbys {
    /// The server is reached over loopback: an installation on one machine, such as `holdfast up`.
    is_local: bool,
    /// A commit waits for a standby (`synchronous_standby_names` is not empty).
    is_awaited: bool,
    /// Standbys that are connected and for which commits wait.
    connected: i64,
}

impl Standbys {
    /// Returns what may be lost or will hang; `None` if nothing is wrong.
    const fn problem(self) -> Option<&'static str> {
        match self {
            Self { is_awaited: true, connected: 0, .. } => Some(
                "`synchronous_standby_names` of the database is set and no such standby is \
                 connected: each commit waits until one is (see docs/operating.md)",
            ),
            Self { is_awaited: false, is_local: false, .. } => Some(
                "the database has no synchronous standby: if its disk is lost, so is what was \
                 acknowledged since the last backup, and a standby that takes its place may lack \
                 the last moments (see docs/operating.md)",
            ),
            Self { .. } => None,
        }
    }
}

async fn standbys(pools: &Pools) -> sqlx::Result<Standbys> {
    const SQL: &str = "
        select coalesce(inet_server_addr() << '127.0.0.0/8' or inet_server_addr() = '::1', true),
               current_setting('synchronous_standby_names') <> '',
               (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))";
    let mut once = pools.system_connection().await?;
    let (is_local, is_awaited, connected) = crate::query_as(SQL).fetch_one(once.conn()).await?;
    once.done();
    Ok(Standbys { is_local, is_awaited, connected })
}

/// Logs and counts whether a standby has taken the database's place since `known` was returned.
///
/// A restored backup counts too. Returns the server's timeline, whose number both increase.
///
/// # Errors
///
/// If the database does not answer, or is a standby.
pub async fn detect_failover(pools: &Pools, known: Option<i64>) -> sqlx::Result<i64> {
    const SQL: &str = "
        select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint";
    let mut once = pools.system_connection().await?;
    let timeline: i64 = crate::query_scalar(SQL).fetch_one(once.conn()).await?;
    once.done();
    if let Some(before) = known.filter(|before| *before != timeline) {
        metrics::counter!("holdfast_database_failovers_total").increment(1);
        error!(
            before,
            timeline,
            "another server took the place of the database: where replication is asynchronous, \
             what was acknowledged in the moments before may be lost (see docs/operating.md)"
        );
    }
    Ok(timeline)
}

/// Returns the unsafe settings of the server, each with its consequence.
///
/// # Errors
///
/// If the database does not answer.
pub async fn durability_problems(pools: &Pools) -> sqlx::Result<Vec<String>> {
    const SQL: &str = "select name, setting from pg_settings where name = any($1)";
    let names: Vec<&str> = UNSAFE_SETTINGS.iter().map(|(name, ..)| *name).collect();
    let mut once = pools.system_connection().await?;
    let settings: Vec<(String, String)> =
        crate::query_as(SQL).bind(names).fetch_all(once.conn()).await?;
    once.done();
    let problems = UNSAFE_SETTINGS.iter().filter(|(name, value, _)| {
        settings.iter().any(|(known, current)| known == name && current == value)
    });
    Ok(problems
        .map(|(name, value, consequence)| {
            format!("`{name}` of the database is `{value}`: {consequence}; set it to `on`")
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_standby_is_warned_of_unless_the_database_is_on_this_machine() {
        let problem = |is_local, is_awaited, connected| {
            Standbys { is_local, is_awaited, connected }.problem().unwrap_or_default()
        };

        assert!(problem(false, false, 0).contains("no synchronous standby"));
        assert!(problem(false, true, 0).contains("each commit waits"));
        assert!(problem(true, true, 0).contains("each commit waits"));
        assert_eq!(problem(true, false, 0), "");
        assert_eq!(problem(false, true, 1), "");
    }
}
