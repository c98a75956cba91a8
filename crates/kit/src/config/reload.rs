//! Settings that are read again when their files change, or at SIGHUP.
//!
//! A running process takes over the settings in [`RELOADED_SETTINGS`]; others are named in the log, and need
//! a restart. A file that cannot be used changes nothing. The environment of a process cannot
//! change, so the files are the one that `HOLDFAST_CONFIG` names, and those that `HOLDFAST_…_FILE`
//! do.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use figment::value::Value;
use serde::de::DeserializeOwned;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};

use super::{extract, given, values, variables};
use crate::watched::{POLL_INTERVAL, Watched};

/// Settings that a running process takes over. docs/configuration.md marks them.
pub const RELOADED_SETTINGS: [&str; 9] = [
    "gateway.answer_timeout",
    "gateway.body_bytes",
    "gateway.body_bytes_per_tenant",
    "gateway.body_timeout",
    "gateway.calls",
    "gateway.calls_per_tenant",
    "gateway.heartbeat",
    "gateway.rate_window",
    "telemetry.log",
];

/// Settings of a process, as they are now. Clones show the same.
pub struct Current<T>(watch::Receiver<Arc<T>>);

/// Settings, and what the files and variables set.
struct SettingsFiles<T> {
    settings: Arc<T>,
    given: BTreeMap<String, Value>,
}

impl<T> Current<T> {
    /// The settings of this moment. Do not keep them.
    #[must_use]
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.borrow())
    }
}

/// Settings that never change.
impl<T> From<T> for Current<T> {
    fn from(settings: T) -> Self {
        Self(watch::channel(Arc::new(settings)).1)
    }
}

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Current<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

/// Starts to read the settings of a service again when they change; `check` refuses settings that
/// cannot be used, and `apply` is told of new ones. Call it inside a runtime.
///
/// # Errors
///
/// If the settings of now cannot be used.
pub fn watch<T>(
    section: &'static str,
    check: impl Fn(&T) -> anyhow::Result<()> + Send + Sync + 'static,
    apply: impl Fn(&T) + Send + 'static,
) -> anyhow::Result<Current<T>>
where
    T: DeserializeOwned + Send + Sync + 'static,
{
    let files = Watched::load(files(), move |_| {
        let loaded = load::<T>(section)?;
        check(&loaded.settings)?;
        Ok(loaded)
    })?;
    let hangups = signal(SignalKind::hangup()).context("SIGHUP cannot be listened for")?;
    let (sender, receiver) = watch::channel(Arc::clone(&files.current().settings));
    tokio::spawn(follow(files, hangups, sender, apply));
    Ok(Current(receiver))
}

/// The files from which settings are read.
fn files() -> Vec<PathBuf> {
    let names_file = |name: &str| {
        name == "HOLDFAST_CONFIG"
            || (name.starts_with(super::PREFIX) && name.contains("__") && name.ends_with("_FILE"))
    };
    let files = variables().filter(|(name, value)| names_file(name) && !value.is_empty());
    files.map(|(_, path)| path.into()).collect()
}

fn load<T: DeserializeOwned>(section: &str) -> anyhow::Result<SettingsFiles<T>> {
    let (figment, settings) = given::<T>(section, variables())?;
    let given = values(&figment);
    Ok(SettingsFiles { settings: Arc::new(extract(figment, settings)?), given })
}

async fn follow<T: Send + Sync + 'static>(
    files: Arc<Watched<SettingsFiles<T>>>,
    mut hangups: Signal,
    sender: watch::Sender<Arc<T>>,
    apply: impl Fn(&T) + Send + 'static,
) {
    let mut known = files.current();
    loop {
        let is_asked = tokio::select! {
            hangup = hangups.recv() => hangup.is_some(),
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let refreshed = Arc::clone(&files);
        if tokio::task::spawn_blocking(move || refreshed.refresh()).await.is_err() {
            return;
        }
        let now = files.current();
        if Arc::ptr_eq(&known, &now) {
            if is_asked {
                info!(files = files.names(), "SIGHUP: no new settings are in use");
            }
            continue;
        }
        apply(&now.settings);
        // Nobody may be left to be told.
        let _ = sender.send(Arc::clone(&now.settings));
        report(&changed(&known.given, &now.given));
        known = now;
    }
}

/// Names of the settings that are not the same.
fn changed(before: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>) -> Vec<String> {
    let differs = |name: &&String| before.get(*name) != now.get(*name);
    let mut names: Vec<String> = now.keys().filter(differs).cloned().collect();
    names.extend(before.keys().filter(|name| !now.contains_key(*name)).cloned());
    names.sort();
    names
}

fn report(changed: &[String]) {
    let (taken, left): (Vec<&str>, Vec<&str>) =
        changed.iter().map(String::as_str).partition(|name| RELOADED_SETTINGS.contains(name));
    if !taken.is_empty() {
        info!("new settings are in use: {}", taken.join(", "));
    }
    if !left.is_empty() {
        warn!("needs a restart: {}", left.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_added_and_removed_settings_are_named() {
        let given = |settings: &[(&str, u8)]| {
            settings.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
        };
        let before = given(&[("a.same", 1), ("a.changed", 1), ("a.removed", 1)]);
        let now = given(&[("a.same", 1), ("a.changed", 2), ("a.added", 1)]);

        assert_eq!(changed(&before, &now), ["a.added", "a.changed", "a.removed"]);
    }
}
