//! Schema migrations, embedded in the binary.
//!
//! Forward only. They run under an advisory lock, so any number of processes may try at once.

use sqlx::{Connection as _, PgConnection, migrate::Migrator};

use crate::Pools;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Reason why the schema could not be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("cannot connect as the schema's owner: check `database.admin_url`")]
    Connect(#[source] sqlx::Error),
    #[error("a migration failed")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Migrates the schema to the newest version, and returns that version.
///
/// # Errors
///
/// If the owner cannot connect, or a migration fails; the failed migration is rolled back.
pub async fn migrate(admin_url: &str) -> Result<i64, MigrateError> {
    let mut connection = PgConnection::connect(admin_url).await.map_err(MigrateError::Connect)?;
    MIGRATIONS.run(&mut connection).await?;
    // The services' login may read the version, and nothing else that the owner has.
    sqlx::query("grant select on _sqlx_migrations to holdfast_system")
        .execute(&mut connection)
        .await
        .map_err(MigrateError::Connect)?;
    connection.close().await.map_err(MigrateError::Connect)?;
    Ok(newest())
}

/// Returns the reason why this binary cannot use the database, as text; `None` if it can.
pub async fn pending(pools: &Pools) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select coalesce(max(version), 0) from _sqlx_migrations where success";
    let mut once = pools.system_connection().await?;
    let newest_there = crate::query_scalar::<i64>(SQL).fetch_one(once.conn()).await;
    if newest_there.is_ok() {
        once.done();
    }
    match newest_there {
        Ok(have) if have < newest() => {
            Ok(Some(format!("its schema is version {have}, and this binary needs {}", newest())))
        }
        // A newer schema is compatible: migrations expand before they contract.
        Ok(_) => Ok(None),
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

/// Returns a text that differs for every set of migrations. Prepared databases are named by it.
#[must_use]
pub fn fingerprint() -> String {
    // FNV-1a: a database's name has no room for every checksum.
    let sum = MIGRATIONS.iter().flat_map(|migration| migration.checksum.iter()).fold(
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
