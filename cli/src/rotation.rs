//! `holdfast secrets`: steps of a change of the installation's keys.

use std::sync::Arc;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Subcommand;
use holdfast_directory::Directory;
use holdfast_kit::config;
use holdfast_pg::Pools;
use holdfast_schedule::store::{Calendar, JobSigner, Jobs};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{bootstrap, error::Error, screen::Screen};

#[derive(Debug, Subcommand)]
pub enum Secrets {
    /// Encrypt all data keys with `secrets.kek`, and sign all jobs with it, as long as
    /// `secrets.previous_kek` still opens them; can be repeated, and needs the services' database
    /// settings
    Rotate,
    /// Print the `mesh.node_public_key` of gateways, which follows from `mesh.node_key` and, during a
    /// rotation, from `mesh.previous_node_key`
    NodeKey,
}

/// Settings for `node-key`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NodeKeyConfig {
    mesh: config::Mesh,
}

impl Secrets {
    /// # Errors
    ///
    /// If a setting is missing, the database does not answer, or neither key opens a data key.
    pub async fn run(self, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::Rotate => rotate(screen).await,
            Self::NodeKey => print_node_key(screen),
        }
    }
}

fn print_node_key(screen: &Screen) -> Result<(), Error> {
    let config: NodeKeyConfig = config::load("mesh").context("the configuration is not usable")?;
    let key = holdfast_grpc::node_public_key(&config.mesh).context("`[mesh]` cannot be used")?;
    if key.is_empty() {
        return Err(Error::Usage("set `mesh.node_key`, as in runners".to_owned()));
    }
    let key = STANDARD.encode(key);
    screen.done(&key, &json!({"node_public_key": key}))
}

async fn rotate(screen: &Screen) -> Result<(), Error> {
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
    let signer = JobSigner::default();
    let jobs = Jobs::new(pools.clone(), Arc::new(Calendar::default())).with_signer(signer.clone());
    let rotated = async {
        signer.set_keys(directory.job_keys().await?);
        let resealed = repeat_until_none(async || reseal_all(&directory).await).await?;
        let signed = repeat_until_none(async || sign_all(&jobs).await).await?;
        anyhow::Ok((resealed, signed))
    };
    let rotated = rotated.await;
    pools.close().await;
    let (resealed, signed) = rotated.context(
        "not all data keys are encrypted with the new key yet, or not all jobs signed with it: the \
         same command goes on",
    )?;
    screen.done(
        &format!(
            "{resealed} data keys are encrypted with `secrets.kek` now and {signed} jobs are signed \
             with it, all others were before; `secrets.previous_kek` is not needed any more"
        ),
        &json!({"resealed": resealed, "signed_jobs": signed}),
    )
}

/// Repeats a pass until one finds nothing, and returns the sum. During a pass, a service that still
/// has the keys in the other order may seal the data key of a new tenant with the old one.
async fn repeat_until_none(pass: impl AsyncFn() -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let mut all = 0;
    loop {
        match pass().await? {
            0 => return Ok(all),
            found => all += found,
        }
    }
}

/// Returns the number of data keys and keys of the platform that were sealed with another key.
async fn reseal_all(directory: &Directory) -> anyhow::Result<u64> {
    let (mut last, mut resealed) = (None, 0);
    directory.platform_keys().reseal(&mut resealed).await?;
    loop {
        last = directory.tenants().reseal_batch(last, &mut resealed).await?;
        if last.is_none() {
            return Ok(resealed);
        }
    }
}

/// Returns the number of jobs that were signed with another key.
async fn sign_all(jobs: &Jobs) -> anyhow::Result<u64> {
    let (mut last, mut signed) = (None, 0);
    loop {
        last = jobs.renew_signatures(last, &mut signed).await?;
        if last.is_none() {
            return Ok(signed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn values_that_appear_during_a_pass_are_encrypted_by_another_one() {
        let found = [5, 1, 0, 7];
        let passes = Cell::new(0);
        let pass = async || {
            let number = passes.replace(passes.get() + 1);
            Ok(found[number])
        };

        assert_eq!(repeat_until_none(pass).await.unwrap(), 6);
        assert_eq!(passes.get(), 3);
    }
}
