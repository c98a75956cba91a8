//! Server settings on which the promises about acknowledged messages depend.

use tracing::{info, warn};

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
    const STANDBYS: &str =
        "select setting from pg_settings where name = 'synchronous_standby_names'";
    let mut once = pools.system_connection().await?;
    let standbys: Option<String> =
        crate::query_scalar(STANDBYS).fetch_optional(once.conn()).await?;
    once.done();
    if standbys.is_none_or(|names| names.is_empty()) {
        info!(
            "the database has no synchronous standby: if its disk is lost, so is what was \
             acknowledged since the last backup (see docs/operating.md)"
        );
    }
    Ok(())
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
