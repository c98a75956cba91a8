//! The schema's migrations, which the binary carries.
//!
//! Forward only. They run under an advisory lock, so that any number of
//! processes may try at once.

use sqlx::{Connection as _, PgConnection, migrate::Migrator};

use crate::Pools;

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database did not let us in.
    #[error("cannot connect as the schema's owner: check `database.admin_url`")]
    Connect(#[source] sqlx::Error),
    /// A migration failed.
    #[error("a migration failed")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Brings the schema up to date, and returns its version.
///
/// # Errors
///
/// If the owner cannot connect, or a migration fails; it is then undone.
pub async fn migrate(admin_url: &str) -> Result<i64, MigrateError> {
    let mut connection = PgConnection::connect(admin_url).await.map_err(MigrateError::Connect)?;
    MIGRATIONS.run(&mut connection).await?;
    // The services' login may read the version, and nothing else of the owner's.
    sqlx::query("grant select on _sqlx_migrations to holdfast_system")
        .execute(&mut connection)
        .await
        .map_err(MigrateError::Connect)?;
    connection.close().await.map_err(MigrateError::Connect)?;
    Ok(newest())
}

/// What keeps this binary from using the database, in words; `None` if nothing does.
///
/// # Errors
///
/// If the database does not answer.
pub async fn pending(pools: &Pools) -> sqlx::Result<Option<String>> {
    const SQL: &str = "select coalesce(max(version), 0) from _sqlx_migrations where success";
    let mut once = pools.once().await?;
    let newest_there = sqlx::query_scalar::<_, i64>(SQL).fetch_one(once.conn()).await;
    if newest_there.is_ok() {
        once.done();
    }
    match newest_there {
        Ok(have) if have < newest() => {
            Ok(Some(format!("its schema is version {have}, and this binary needs {}", newest())))
        }
        // A newer schema is fine: migrations expand before they contract.
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

/// A text that is another for every other set of migrations: what a prepared database is named by.
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
