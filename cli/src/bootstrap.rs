//! Setup of a new installation: schema, secrets, tenant, key, model, channel accounts.
//!
//! All steps are idempotent, and several processes may run them at once.

mod accounts;

use std::{env, fs};

use anyhow::{Context as _, bail};
use clap::Args;
use holdfast_directory::{Actor, Directory, NewKey, NewProvider, ProviderKind, SCOPES};
use holdfast_kit::config::{self, Secrets};
use holdfast_pg::Pools;
use holdfast_types::{ModelId, PersonId, TenantId};
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
    pub database: holdfast_pg::Config,
    pub secrets: Secrets,
    /// Addresses of providers that the operator allows.
    pub egress: holdfast_egress::Config,
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
    vars.extend(secret::ensure(home, is_set)?.operator);
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

/// Creates the tenant, a key, and the model and channel accounts that the environment names, as far
/// as they are missing.
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
    let directory = Directory::new(pools.clone(), &config.secrets)?;

    let (tenant, _) = directory.tenants().ensure(tenant).await?;
    let owner = directory.people().first_owner(tenant.id, (&owner_name(), true)).await?;
    let key = key(&directory, home, (tenant.id, owner.id)).await?;
    let model = match model_from_environment(|name| env::var(name).ok())? {
        Some(wanted) => Some(set_model(&directory, tenant.id, wanted).await?),
        None => None,
    };
    accounts::set_up(&directory, tenant.id, |name| env::var(name).ok()).await?;
    pools.close().await;
    Ok(BootstrappedTenant { key, model })
}

/// Name of the first owner: that of the user of this machine.
fn owner_name() -> String {
    let mut named =
        ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(|name| env::var(name).ok());
    let fit = |name: &String| {
        !name.trim().is_empty() && !name.contains(char::is_control) && name.chars().count() <= 200
    };
    named.find(fit).unwrap_or_else(|| "Owner".to_owned())
}

/// Returns the stored key if it is valid and has all scopes; otherwise creates a new one. It is the
/// owner's.
async fn key(
    directory: &Directory,
    home: &StateDir,
    (tenant, owner): (TenantId, PersonId),
) -> anyhow::Result<String> {
    let file = home.key_file();
    let known = fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
    if let Ok(caller) = directory.keys().authenticate(&known).await
        && caller.tenant == tenant
        && SCOPES.iter().all(|scope| caller.scopes.iter().any(|has| has == scope))
    {
        if caller.person.is_none() {
            directory.keys().give_to(tenant, caller.key, owner).await?;
        }
        return Ok(known);
    }
    let new = NewKey {
        name: "development".to_owned(),
        scopes: SCOPES.map(str::to_owned).to_vec(),
        lifetime: None,
        person: Some(owner),
        agent: None,
        origins: Vec::new(),
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

/// Reads `HOLDFAST_MODEL`, and the key and the address of its provider.
///
/// They are `ANTHROPIC_API_KEY` and `ANTHROPIC_BASE_URL` for `anthropic:…`. A provider with another name whose address is in
/// `OPENAI_BASE_URL` has its key in `OPENAI_API_KEY`. Without `HOLDFAST_MODEL` returns `None`, and the
/// existing providers are not changed.
fn model_from_environment(
    read: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<EnvironmentModel>> {
    let read = |name: &str| read(name).filter(|value| !value.is_empty());
    let Some(text) = read("HOLDFAST_MODEL") else { return Ok(None) };
    let model: ModelId = text
        .parse()
        .context("HOLDFAST_MODEL names no model: write `openai:<id>` or `demo:demo`")?;
    let prefix = variable_prefix(model.provider());
    let (key_name, url_name) = (format!("{prefix}_API_KEY"), format!("{prefix}_BASE_URL"));
    let (mut api_key, mut base_url) = (read(&key_name), read(&url_name));
    let kind = kind(&model);
    if kind == ProviderKind::OpenAi && base_url.is_none() {
        base_url = read("OPENAI_BASE_URL");
        api_key = api_key.or_else(|| base_url.as_ref().and_then(|_| read("OPENAI_API_KEY")));
    }
    let needs_key = !matches!(kind, ProviderKind::Demo | ProviderKind::Ollama);
    if needs_key && api_key.is_none() && base_url.is_none() {
        bail!(
            "HOLDFAST_MODEL is `{text}`, and nothing says how to reach it: set {key_name}, or \
             {url_name} for a server that needs no key"
        );
    }
    let api_key = api_key.map(SecretString::from);
    Ok(Some(EnvironmentModel { model, base_url: base_url.unwrap_or_default(), api_key }))
}

/// Beginning of the names of a provider's variables.
fn variable_prefix(provider: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    match provider {
        "openai-responses" => "OPENAI".to_owned(),
        "google" => "GEMINI".to_owned(),
        provider => provider.chars().map(word).collect(),
    }
}

/// A provider that has the name of a kind is of that kind; others have OpenAI's API.
fn kind(model: &ModelId) -> ProviderKind {
    match model.provider() {
        "google" => ProviderKind::Gemini,
        provider => ProviderKind::parse(provider).unwrap_or(ProviderKind::OpenAi),
    }
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
        ..NewProvider::default()
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
    fn a_provider_is_of_the_kind_that_its_name_says() {
        let model = |model: &str, vars: &[(&str, &str)]| {
            wanted(&[&[("HOLDFAST_MODEL", model)], vars].concat())
        };
        let key =
            |found: &EnvironmentModel| found.api_key.as_ref().unwrap().expose_secret().to_owned();

        let refused = model("anthropic:claude-sonnet-5", &[("OPENAI_API_KEY", "sk")]);
        assert!(refused.unwrap_err().to_string().contains("set ANTHROPIC_API_KEY"));
        for (name, variable, expected) in [
            ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY", ProviderKind::Anthropic),
            ("gemini:gemini-3-pro", "GEMINI_API_KEY", ProviderKind::Gemini),
            ("google:gemini-3-pro", "GEMINI_API_KEY", ProviderKind::Gemini),
            ("openai-responses:gpt-5", "OPENAI_API_KEY", ProviderKind::Responses),
            ("groq:qwen3", "GROQ_API_KEY", ProviderKind::OpenAi),
        ] {
            let found = model(name, &[(variable, "k")]).unwrap().unwrap();
            assert_eq!((kind(&found.model), key(&found).as_str()), (expected, "k"), "{name}");
        }
        let local = [("OPENAI_BASE_URL", "http://l/v1"), ("OPENAI_API_KEY", "k")];
        let found = model("mine:qwen3", &local).unwrap().unwrap();
        assert_eq!((found.base_url.as_str(), key(&found).as_str()), ("http://l/v1", "k"));
        let ollama = model("ollama:qwen3", &[("OPENAI_API_KEY", "sk")]).unwrap().unwrap();
        assert!(kind(&ollama.model) == ProviderKind::Ollama && ollama.api_key.is_none());
    }

    #[test]
    fn the_schema_s_owner_is_asked_for_by_its_variable() {
        let config = load(Vec::new()).unwrap();

        assert_eq!(config.database.admin_url.expose_secret(), "");
        assert!(!config::print(&config).contains("postgres://"));
    }
}
