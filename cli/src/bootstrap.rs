//! Setup of a new installation: schema, secrets, tenant, key, model.
//!
//! All steps are idempotent, and several processes may run them at once.

use std::{env, fs};

use anyhow::{Context as _, bail};
use clap::Args;
use holdfast_directory::{Actor, Directory, NewKey, NewProvider, ProviderKind, SCOPES, Seal};
use holdfast_kit::config::{self, Secrets};
use holdfast_pg::Pools;
use holdfast_types::{ModelId, TenantId};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    backends,
    error::Error,
    screen::Screen,
    secret,
    state_dir::{StateDir, write_private},
};

/// The tenant that `up` makes.
pub const DEV_TENANT: &str = "dev";

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Print the effective settings as JSON, with secrets masked, and exit
    #[arg(long)]
    print_config: bool,
}

#[derive(Debug, Args)]
pub struct BootstrapArgs {
    /// Name of the tenant; created if it does not exist
    #[arg(long, default_value = DEV_TENANT)]
    tenant: String,

    /// Migrate the database's schema first
    #[arg(long)]
    migrate: bool,
}

/// Settings for `migrate` and `bootstrap`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    database: holdfast_pg::Config,
    secrets: Secrets,
}

/// A tenant that is ready for its first login.
#[derive(Debug)]
pub struct BootstrappedTenant {
    /// API key of the tenant, with all scopes.
    pub key: String,
    /// Default model of the tenant, if the environment names one.
    pub model: Option<String>,
}

/// Runs `holdfast migrate`.
///
/// # Errors
///
/// If the owner cannot connect or a migration fails.
pub async fn migrate(args: &MigrateArgs, screen: &Screen) -> Result<(), Error> {
    let config: Config = config::load("database").context("the configuration is not usable")?;
    if args.print_config {
        return screen.print(&format!("{}\n", config::print(&config)));
    }
    let version = migrate_schema(config.database.admin_url.expose_secret()).await?;
    screen.done(&format!("the schema is version {version}"), &json!({"version": version}))
}

/// Runs `holdfast bootstrap`.
///
/// # Errors
///
/// If the database does not answer, or was set up with other secrets.
pub async fn run(args: BootstrapArgs, home: &StateDir, screen: &Screen) -> Result<(), Error> {
    home.create()?;
    let mut vars: Vec<(String, String)> = environment();
    vars.extend(secret::ensure(home, is_set)?);
    let config = load(vars)?;
    if args.migrate {
        migrate_schema(config.database.admin_url.expose_secret()).await?;
    }
    let opened = set_up_tenant(config, home, &args.tenant).await?;
    let file = home.key_file();
    screen.done(
        &format!("tenant `{}` is ready; its key is in {}", args.tenant, file.display()),
        &json!({"tenant": args.tenant, "key": opened.key, "key_file": file}),
    )
}

/// Reads the settings from these variables.
///
/// # Errors
///
/// If a setting is invalid.
pub fn load(vars: Vec<(String, String)>) -> anyhow::Result<Config> {
    config::load_from("database", vars).context("the configuration is not usable")
}

/// Returns the process's environment variables that are valid UTF-8.
pub fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    env::vars_os().filter_map(text).collect()
}

/// Whether the operator set an environment variable.
pub fn is_set(name: &str) -> bool {
    env::var_os(name).is_some()
}

/// Migrates as the schema's owner, and returns the schema's version.
///
/// # Errors
///
/// If the owner's URL is missing or does not connect, or a migration fails.
pub async fn migrate_schema(admin_url: &str) -> anyhow::Result<i64> {
    if admin_url.is_empty() {
        bail!(
            "the schema's owner is not known: set {} to a URL whose user may create schemas and \
             roles, as `postgres://postgres@host/holdfast`",
            backends::ADMIN
        );
    }
    holdfast_pg::migrate(admin_url).await.context("the schema could not be brought up to date")
}

/// Rejects a database whose schema is older than this binary.
///
/// # Errors
///
/// If it is older, or the database does not answer.
pub async fn check_schema(config: &Config) -> anyhow::Result<()> {
    let pools = Pools::lazy(&config.database, "bootstrap")?;
    let pending = holdfast_pg::pending(&pools).await;
    pools.close().await;
    match pending.context("the database does not answer: check `database.url`")? {
        None => Ok(()),
        Some(problem) => bail!(
            "the database cannot be used, {problem}: set {} and this migrates it, or run \
             `holdfast migrate`",
            backends::ADMIN
        ),
    }
}

/// Creates the tenant, a key and the model that the environment names, as far as they are missing.
///
/// # Errors
///
/// If the database does not answer, or was set up with other secrets.
pub async fn set_up_tenant(
    config: Config,
    home: &StateDir,
    tenant: &str,
) -> anyhow::Result<BootstrappedTenant> {
    let pools = Pools::lazy(&config.database, "bootstrap")?;
    let seal = Seal::new(&config.secrets.kek)?;
    let directory = Directory::new(pools.clone(), seal, config.secrets.pepper);

    let (tenant, _) = directory.tenants().ensure(tenant).await?;
    let key = key(&directory, home, tenant.id).await?;
    let model = match model_from_environment(|name| env::var(name).ok())? {
        Some(wanted) => Some(set_model(&directory, tenant.id, wanted).await?),
        None => None,
    };
    pools.close().await;
    Ok(BootstrappedTenant { key, model })
}

/// Returns the stored key if it is valid and has all scopes; otherwise creates a new one.
async fn key(directory: &Directory, home: &StateDir, tenant: TenantId) -> anyhow::Result<String> {
    let file = home.key_file();
    let known = fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
    if let Ok(caller) = directory.keys().authenticate(&known).await
        && caller.tenant == tenant
        && SCOPES.iter().all(|scope| caller.scopes.iter().any(|has| has == scope))
    {
        return Ok(known);
    }
    let new = NewKey {
        name: "development".to_owned(),
        scopes: SCOPES.map(str::to_owned).to_vec(),
        lifetime: None,
    };
    let (_, secret) = directory.keys().create(tenant, Actor::Operator, new).await?;
    let key = secret.expose_secret().to_owned();
    write_private(&file, &format!("{key}\n"))?;
    Ok(key)
}

/// A model and its provider, from the environment.
#[derive(Debug)]
struct EnvironmentModel {
    model: ModelId,
    base_url: String,
    api_key: Option<SecretString>,
}

/// Reads `HOLDFAST_MODEL`, `OPENAI_BASE_URL` and `OPENAI_API_KEY`. Without `HOLDFAST_MODEL` returns
/// `None`, and the existing providers are not changed.
fn model_from_environment(
    read: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<EnvironmentModel>> {
    let read = |name: &str| read(name).filter(|value| !value.is_empty());
    let Some(text) = read("HOLDFAST_MODEL") else { return Ok(None) };
    let model: ModelId = text
        .parse()
        .context("HOLDFAST_MODEL names no model: write `openai:<id>` or `demo:demo`")?;
    let (base_url, api_key) = (read("OPENAI_BASE_URL"), read("OPENAI_API_KEY"));
    if kind(&model) == ProviderKind::OpenAi && api_key.is_none() && base_url.is_none() {
        bail!(
            "HOLDFAST_MODEL is `{text}`, and nothing says how to reach it: set OPENAI_API_KEY, or \
             OPENAI_BASE_URL for a server that needs no key"
        );
    }
    let api_key = api_key.map(SecretString::from);
    Ok(Some(EnvironmentModel { model, base_url: base_url.unwrap_or_default(), api_key }))
}

fn kind(model: &ModelId) -> ProviderKind {
    if model.provider() == "demo" { ProviderKind::Demo } else { ProviderKind::OpenAi }
}

async fn set_model(
    directory: &Directory,
    tenant: TenantId,
    wanted: EnvironmentModel,
) -> anyhow::Result<String> {
    let EnvironmentModel { model, base_url, api_key } = wanted;
    let kind = kind(&model);
    let is_demo = kind == ProviderKind::Demo;
    let provider = NewProvider {
        name: model.provider().to_owned(),
        kind,
        base_url: if is_demo { String::new() } else { base_url },
        api_key: if is_demo { None } else { api_key },
        default_model: Some(model.to_string()),
    };
    directory.providers().put(tenant, Actor::Operator, provider).await.context(
        "the model of HOLDFAST_MODEL could not be set up; if the secrets of this installation were \
         lost, nothing that is sealed in its database can be read",
    )?;
    Ok(model.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(vars: &[(&str, &str)]) -> anyhow::Result<Option<EnvironmentModel>> {
        model_from_environment(|name| {
            vars.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_a_model_nothing_is_changed() {
        assert!(wanted(&[("OPENAI_API_KEY", "sk")]).unwrap().is_none());
        assert!(wanted(&[("HOLDFAST_MODEL", "")]).unwrap().is_none());
    }

    #[test]
    fn a_model_needs_a_way_to_reach_it() {
        let error = wanted(&[("HOLDFAST_MODEL", "openai:gpt-5")]).unwrap_err().to_string();
        assert!(error.contains("OPENAI_API_KEY"), "{error}");

        assert!(wanted(&[("HOLDFAST_MODEL", "gpt 5")]).is_err());
        assert!(wanted(&[("HOLDFAST_MODEL", "demo:demo")]).unwrap().is_some());
        let local = [("HOLDFAST_MODEL", "openai:qwen3"), ("OPENAI_BASE_URL", "http://l/v1")];
        assert_eq!(wanted(&local).unwrap().unwrap().base_url, "http://l/v1");
    }

    #[test]
    fn the_schema_s_owner_is_asked_for_by_its_variable() {
        let config = load(Vec::new()).unwrap();

        assert_eq!(config.database.admin_url.expose_secret(), "");
        assert!(!config::print(&config).contains("postgres://"));
    }
}
