//! `holdfast secrets rotate`: the last step of a change of the installation's keys.

use anyhow::Context as _;
use clap::Subcommand;
use holdfast_directory::Directory;
use holdfast_kit::config;
use holdfast_pg::Pools;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{bootstrap, error::Error, screen::Screen};

#[derive(Debug, Subcommand)]
pub enum Secrets {
    /// Encrypt all data keys with `secrets.kek`, as long as `secrets.previous_kek` still opens them;
    /// can be repeated, and needs the services' database settings
    Rotate,
}

impl Secrets {
    /// # Errors
    ///
    /// If a setting is missing, the database does not answer, or neither key opens a data key.
    pub async fn run(self, screen: &Screen) -> Result<(), Error> {
        let Self::Rotate = self;
        let config: bootstrap::Config =
            config::load("database").context("the configuration is not usable")?;
        if config.secrets.previous_kek.expose_secret().is_empty() {
            let needed = "set `secrets.kek` to the new key and `secrets.previous_kek` to the one \
                          before it, here and in all services";
            return Err(Error::Usage(needed.to_owned()));
        }
        let pools = Pools::lazy(&config.database, "rotation").context("`database.url`")?;
        let directory =
            Directory::new(pools.clone(), &config.secrets).context("the secrets cannot be used")?;
        let resealed = reseal_all(&directory).await;
        pools.close().await;
        let resealed = resealed.context(
            "not all data keys are encrypted with the new key yet: the same command goes on",
        )?;
        screen.done(
            &format!(
                "{resealed} data keys are encrypted with `secrets.kek` now, all others were before; \
                 `secrets.previous_kek` is not needed any more"
            ),
            &json!({"resealed": resealed}),
        )
    }
}

/// Returns the number of data keys that were sealed with another key.
async fn reseal_all(directory: &Directory) -> anyhow::Result<u64> {
    let (mut last, mut resealed) = (None, 0);
    loop {
        last = directory.tenants().reseal_batch(last, &mut resealed).await?;
        if last.is_none() {
            return Ok(resealed);
        }
    }
}
