//! Path of the `holdfast` binary.
//!
//! `make test` builds it first. Whoever runs one test by hand gets it built here, if it is missing
//! or older than the sources.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// The folders whose files the binary is made of.
const SOURCE_FOLDERS: [&str; 5] = ["crates", "services", "cli/src", "proto/holdfast", "migrations"];

/// The binary beside this test's own, built if it is missing or out of date.
pub async fn holdfast() -> anyhow::Result<&'static Path> {
    static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
    BUILT.get_or_try_init(find).await.map(PathBuf::as_path)
}

async fn find() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    // target/<profile>/deps/<test>, or target/<profile>/<binary>
    let mut ancestors = exe.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    let profile = ancestors.next().context("this program is not in a target directory")?;
    let binary = profile.join("holdfast");
    let built = modified(&binary);
    if built.is_some_and(|built| newest_source_change().is_none_or(|source| source <= built)) {
        return Ok(binary);
    }
    build(profile).await?;
    ensure!(binary.exists(), "cargo built no `{}`", binary.display());
    Ok(binary)
}

async fn build(profile: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Of the workspace, as `make test` does: a package alone has other features, and all of its
    // dependencies would be compiled again.
    command.args(["build", "--workspace", "--bin", "holdfast"]).current_dir(root());
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    // The folder of the profile `dev` is `debug`.
    if let Some(name) = profile.file_name().filter(|name| *name != "debug") {
        command.arg("--profile").arg(name);
    }
    let output = command.output().await.context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "`cargo build --workspace --bin holdfast` failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// When the newest source was changed; tests of the crates are no part of the binary.
fn newest_source_change() -> Option<SystemTime> {
    let mut folders: Vec<PathBuf> =
        SOURCE_FOLDERS.iter().map(|folder| root().join(folder)).collect();
    let mut newest = None;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if !path.is_dir() {
                newest = newest.max(modified(&path));
            } else if !path.ends_with("tests") {
                folders.push(path);
            }
        }
    }
    newest
}
