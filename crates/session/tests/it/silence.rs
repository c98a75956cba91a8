//! No statement causes a warning of Postgres.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_pg::{Config, Pools, migrate, wait_until_ready};
use holdfast_testkit::Database;
use tokio::time::{sleep, timeout};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn who_waits_for_a_schema_leaves_no_warning_behind() -> anyhow::Result<()> {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("debug"))
        .with_writer(lines.clone())
        .finish();
    // Only for this thread, which runs the whole test.
    let _listening = tracing::subscriber::set_default(subscriber);
    let database = Database::create().await?;
    let config = Config { url: database.url().into(), ..Config::default() };
    let pools = Pools::lazy(&config, "test")?;

    let waits = wait_until_ready(&pools, std::future::pending());
    let early = timeout(Duration::from_secs(2), waits).await;
    assert!(early.is_err(), "the schema is not there");
    migrate(&database.admin_url()).await?;
    wait_until_ready(&pools, std::future::pending()).await?;
    // Rollbacks in the background are finished here: a lent connection has been returned.
    for _ in 0..3 {
        drop(pools.system_connection().await?);
        sleep(Duration::from_millis(100)).await;
        pools.ping().await?;
    }

    let told = lines.text();
    assert!(told.contains("waiting for the database"), "nothing is heard: {told}");
    assert!(!told.contains("no transaction in progress"), "{told}");
    Ok(())
}
