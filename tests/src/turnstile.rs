//! Tests that measure times, fill disks or load the machine have it for themselves, across
//! processes.
//!
//! Each test is a process of its own, and most may run beside others.

use std::fs::File;

use anyhow::Context as _;

/// Lock on the machine; the next test waits until it is dropped.
#[derive(Debug)]
pub struct TestLock {
    _held: File,
}

/// Waits until no other test has the machine for itself, and then keeps it.
pub async fn lock_exclusive() -> anyhow::Result<TestLock> {
    wait(File::lock).await
}

/// Waits until no test has the machine for itself; others that share it may run beside.
pub async fn lock_shared() -> anyhow::Result<TestLock> {
    wait(File::lock_shared).await
}

async fn wait(lock: fn(&File) -> std::io::Result<()>) -> anyhow::Result<TestLock> {
    let path = std::env::temp_dir().join("holdfast-chaos.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open `{}`", path.display()))?;
    let held = tokio::task::spawn_blocking(move || lock(&file).map(|()| file)).await??;
    Ok(TestLock { _held: held })
}
