//! Schema migrations, embedded in the binary.
//!
//! Forward only, and safe for the version before, which runs meanwhile. A migration is one
//! transaction, unless its file begins with `-- no-transaction`: then its statements run one by
//! one, separated by lines `-- next statement`, and each may be run again. That is for concurrent
//! indexes and for backfills in batches. Any number of processes may migrate at once.
//!
//! ## What can go wrong
//!
//! A statement that waits for a table lock makes all later ones of the services wait behind it, so
//! each gives up soon and is tried again. A concurrent index waits for the transactions of others
//! and blocks nobody; if it fails it leaves an invalid index, which is dropped before the next attempt.

use std::{collections::BTreeSet, time::Duration};

use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection,
    migrate::{Migrate as _, MigrateError as ApplyError, Migration, Migrator},
};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::Pools;

/// Rights of the roles that each service has of its own.
const SERVICE_RIGHTS: &str = include_str!("service_rights.sql");

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Table in which sqlx records the applied migrations.
const APPLIED_TABLE: &str = "_sqlx_migrations";

/// Line between two statements of a migration without a transaction.
const STATEMENT_SEPARATOR: &str = "\n-- next statement\n";

/// Number that only migrations lock. It is tried, not waited for: a process that waits in a
/// statement would hold up concurrent indexes.
const MIGRATION_LOCK: i64 = 0x686f_6c64_0003;
const MIGRATION_LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum wait for a table lock, in the syntax of Postgres.
const LOCK_TIMEOUT: &str = "2s";
/// Maximum wait of a concurrent index for a transaction of another session. Longer than any
/// transaction of a service.
const CONCURRENT_LOCK_TIMEOUT: &str = "120s";

/// Number of attempts of a statement, or of a migration's transaction, that gets no lock.
const MAX_LOCK_ATTEMPTS: u32 = 30;
/// Delay before the first retry; grows to ten times that.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Reason why the schema could not be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("cannot connect as the schema's owner: check `database.admin_url`")]
    Connect(#[source] sqlx::Error),
    #[error("the migrations that were applied cannot be read or recorded")]
    Records(#[from] sqlx::Error),
    #[error("migration {0} was applied with another content than this binary has")]
    Changed(i64),
    #[error("a migration failed")]
    Migrate(#[from] ApplyError),
}

/// Migrates the schema to the newest version, and returns that version.
///
/// # Errors
///
/// If the owner cannot connect, or a migration fails. A failed migration is rolled back; of one
/// without a transaction, the statements that succeeded stay, and are run again.
pub async fn migrate(admin_url: &str) -> Result<i64, MigrateError> {
    let mut connection = PgConnection::connect(admin_url).await.map_err(MigrateError::Connect)?;
    lock_migrations(&mut connection).await?;
    apply_missing(&mut connection, MIGRATIONS.iter()).await?;
    // The services' login may read the version, and nothing else that the owner has.
    sqlx::query("grant select on _sqlx_migrations to holdfast_system")
        .execute(&mut connection)
        .await?;
    grant_service_rights(&mut connection).await?;
    // Frees the lock as well.
    connection.close().await.map_err(MigrateError::Connect)?;
    Ok(newest())
}

async fn grant_service_rights(connection: &mut PgConnection) -> sqlx::Result<()> {
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    let mut attempt = 1;
    loop {
        match sqlx::raw_sql(SERVICE_RIGHTS).execute(&mut *connection).await {
            Ok(_) => return Ok(()),
            Err(error) if can_retry(&error, attempt) => {
                sleep(LOCK_RETRY_DELAY * attempt.min(10)).await;
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
    }
}

async fn lock_migrations(connection: &mut PgConnection) -> sqlx::Result<()> {
    const SQL: &str = "select pg_try_advisory_lock($1)";
    loop {
        let is_ours: bool =
            sqlx::query_scalar(SQL).bind(MIGRATION_LOCK).fetch_one(&mut *connection).await?;
        if is_ours {
            return Ok(());
        }
        sleep(MIGRATION_LOCK_RETRY_DELAY).await;
    }
}

/// Applies the migrations that were not applied yet, in their order. Those of a newer binary are
/// left alone.
async fn apply_missing(
    connection: &mut PgConnection,
    migrations: impl Iterator<Item = &Migration>,
) -> Result<(), MigrateError> {
    connection.ensure_migrations_table(APPLIED_TABLE).await?;
    let applied = connection.list_applied_migrations(APPLIED_TABLE).await?;
    for migration in migrations {
        match applied.iter().find(|applied| applied.version == migration.version) {
            Some(applied) if applied.checksum == migration.checksum => {}
            Some(applied) => return Err(MigrateError::Changed(applied.version)),
            None if migration.no_tx => apply_statements(connection, migration).await?,
            None => apply_transaction(connection, migration).await?,
        }
    }
    Ok(())
}

async fn apply_transaction(
    connection: &mut PgConnection,
    migration: &Migration,
) -> Result<(), MigrateError> {
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    let mut attempt = 1;
    loop {
        match connection.apply(APPLIED_TABLE, migration).await {
            Ok(_elapsed) => return Ok(()),
            Err(ApplyError::ExecuteMigration(error, _)) if can_retry(&error, attempt) => {
                wait_for_locks(migration, attempt).await;
            }
            Err(error) => return Err(error.into()),
        }
        attempt += 1;
    }
}

async fn apply_statements(
    connection: &mut PgConnection,
    migration: &Migration,
) -> Result<(), MigrateError> {
    info!(version = migration.version, "migrating while rows are written");
    let failed = |error| ApplyError::ExecuteMigration(error, migration.version);
    for sql in migration.sql.as_str().split(STATEMENT_SEPARATOR) {
        let is_concurrent = sql.contains(" concurrently ");
        let timeout = if is_concurrent { CONCURRENT_LOCK_TIMEOUT } else { LOCK_TIMEOUT };
        set_lock_timeout(connection, timeout).await?;
        let mut attempt = 1;
        loop {
            if is_concurrent {
                drop_invalid_index(connection, sql).await.map_err(failed)?;
            }
            // The text is a constant of this binary.
            match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection).await {
                Ok(_) => break,
                Err(error) if can_retry(&error, attempt) => {
                    wait_for_locks(migration, attempt).await;
                }
                Err(error) => return Err(failed(error).into()),
            }
            attempt += 1;
        }
    }
    connection.skip(APPLIED_TABLE, migration).await?;
    Ok(())
}

/// Drops the index that a failed attempt of this statement left: `if not exists` would find it.
async fn drop_invalid_index(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    const SQL: &str = "
        select 'drop index concurrently ' || i.indexrelid::regclass
        from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisvalid and c.relkind = 'i' and pg_has_role(c.relowner, 'usage')
          and $1 ~ ('\\m' || c.relname || '\\M')";
    let drops: Vec<String> = sqlx::query_scalar(SQL).bind(sql).fetch_all(&mut *connection).await?;
    for drop in drops {
        // `regclass` is a quoted identifier.
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn set_lock_timeout(connection: &mut PgConnection, timeout: &str) -> sqlx::Result<()> {
    const SQL: &str = "select set_config('lock_timeout', $1, false)";
    sqlx::query(SQL).bind(timeout).execute(connection).await.map(drop)
}

/// Whether a statement failed because of others at the same time: a lock timeout, a deadlock, or a
/// change of the same row.
fn can_retry(error: &sqlx::Error, attempt: u32) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    attempt < MAX_LOCK_ATTEMPTS && matches!(code.as_deref(), Some("55P03" | "40P01" | "40001"))
}

async fn wait_for_locks(migration: &Migration, attempt: u32) {
    if attempt == 1 {
        warn!(version = migration.version, "a migration waits for locks; it is tried again");
    }
    sleep(LOCK_RETRY_DELAY * attempt.min(10)).await;
}

/// Returns the reason why this binary cannot use the database, as text; `None` if it can.
pub async fn pending(pools: &Pools) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select version from _sqlx_migrations where success";
    const ROLE: &str = "select current_user <> session_user";
    let mut once = pools.system_connection().await?;
    if let Ok(false) = crate::query_scalar::<bool>(ROLE).fetch_one(once.conn()).await {
        let text = "a pooler drops the settings of its connections: set \
                    `database.transaction_pooling`";
        return Ok(Some(text.to_owned()));
    }
    let applied = crate::query_scalar::<i64>(SQL).fetch_all(once.conn()).await;
    if applied.is_ok() {
        once.done();
    }
    match applied {
        // A newer schema is compatible: migrations expand before they contract.
        Ok(applied) => Ok(missing(&applied.into_iter().collect())),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => {
            Ok(Some("its schema is empty".to_owned()))
        }
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("22023") => {
            // `role "holdfast_app" does not exist`
            Ok(Some("its roles are missing".to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// Describes the migrations of this binary that are not among the applied ones.
fn missing(applied: &BTreeSet<i64>) -> Option<String> {
    let versions = MIGRATIONS.iter().map(|migration| migration.version);
    let missing: Vec<String> =
        versions.filter(|version| !applied.contains(version)).map(|v| v.to_string()).collect();
    (!missing.is_empty()).then(|| format!("its schema lacks the migrations {}", missing.join(", ")))
}

/// Returns a text that differs for every set of migrations. Prepared databases are named by it.
#[must_use]
pub fn fingerprint() -> String {
    // FNV-1a: a database's name has no room for every checksum.
    let migrations = MIGRATIONS.iter().flat_map(|migration| migration.checksum.iter());
    let sum = migrations.chain(SERVICE_RIGHTS.as_bytes()).fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |sum, byte| {
            (sum ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    format!("{sum:032x}")
}

fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
