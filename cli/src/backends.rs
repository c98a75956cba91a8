//! Development backends: Postgres, NATS and Redis, started by an embedded script.
//!
//! A backend whose URL is in the environment is used instead of a started one.

use std::{collections::BTreeMap, env, ffi::OsStr, path::PathBuf, process::Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::state_dir::StateDir;

/// The script, and the users of NATS and Redis that it reads.
const SCRIPT_FILES: [(&str, &str); 3] = [
    ("backends.py", include_str!("../../deploy/dev/backends.py")),
    ("nats-users.conf", include_str!("../../helm/holdfast/files/nats-users.conf")),
    ("redis-users.conf", include_str!("../../helm/holdfast/files/redis-users.conf")),
];

pub const DATABASE: &str = "HOLDFAST_DATABASE__URL";
pub const ADMIN: &str = "HOLDFAST_DATABASE__ADMIN_URL";
pub const NATS: &str = "HOLDFAST_NATS__URL";
pub const REDIS: &str = "HOLDFAST_REDIS__URL";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backends {
    /// Postgres, with a login that has the rights of all services.
    pub database: String,
    /// By the name of the service: variables with the URLs of backends to which the service has a
    /// login of its own. Those of a backend are missing if the operator set the URL for all.
    pub of_services: BTreeMap<String, BTreeMap<String, String>>,
    /// Postgres, with the schema's owner; `None` if the operator set only the services' URL.
    pub admin: Option<String>,
    /// NATS and Redis, with a login that may do everything.
    pub nats: String,
    pub redis: String,
}

impl Backends {
    /// Returns the URLs from the environment, and starts the backends that it does not name.
    ///
    /// # Errors
    ///
    /// If a backend cannot be started; the error says what to do.
    pub async fn get(home: &StateDir) -> anyhow::Result<Self> {
        let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self::from_environment_or_started(given, async || start_script(home).await).await
    }

    async fn from_environment_or_started(
        given: impl Fn(&str) -> Option<String>,
        start: impl AsyncFnOnce() -> anyhow::Result<Self>,
    ) -> anyhow::Result<Self> {
        let (database, nats, redis) = (given(DATABASE), given(NATS), given(REDIS));
        let admin = given(ADMIN);
        if admin.is_some() && database.is_none() {
            bail!("{ADMIN} is set and {DATABASE} is not: set both or neither");
        }
        if let (Some(database), Some(nats), Some(redis)) = (&database, &nats, &redis) {
            return Ok(Self {
                database: database.clone(),
                of_services: BTreeMap::new(),
                admin,
                nats: nats.clone(),
                redis: redis.clone(),
            });
        }
        let mut started = start().await?;
        for urls in started.of_services.values_mut() {
            urls.retain(|variable, _| given(variable).is_none());
        }
        let (admin, database) = match database {
            Some(database) => (admin, database),
            None => (started.admin, started.database),
        };
        Ok(Self {
            database,
            of_services: started.of_services,
            admin,
            nats: nats.unwrap_or(started.nats),
            redis: redis.unwrap_or(started.redis),
        })
    }
}

/// Stops the backends that [`Backends::get`] started.
///
/// # Errors
///
/// If the script fails.
pub async fn down(home: &StateDir) -> anyhow::Result<()> {
    if home.backends().join("state.json").exists() {
        run(home, "down").await?;
    }
    Ok(())
}

/// Starts the backends of the running `up` that have ended, on their former ports. Backends that
/// somebody else runs are left alone.
///
/// # Errors
///
/// If one cannot be started; the error says what to do.
pub async fn restart_ended(home: &StateDir) -> anyhow::Result<()> {
    let state = std::fs::read_to_string(home.backends().join("state.json")).unwrap_or_default();
    if has_started(&state) {
        run(home, "up").await?;
    }
    Ok(())
}

/// Whether the script's state has a server that was started and not stopped with all others.
fn has_started(state: &str) -> bool {
    let state: Value = serde_json::from_str(state).unwrap_or_default();
    let servers = state.as_object().into_iter().flat_map(serde_json::Map::values);
    servers.into_iter().any(|server| server["pid"].is_u64())
}

async fn start_script(home: &StateDir) -> anyhow::Result<Backends> {
    parse(&run(home, "up").await?)
}

/// Runs the script. Its stderr goes to the terminal; its stdout is returned.
async fn run(home: &StateDir, command: &str) -> anyhow::Result<String> {
    let script = script(home)?;
    let child = Command::new("python3")
        .arg(&script)
        .args([OsStr::new(command), OsStr::new("--json"), OsStr::new("--dir")])
        .arg(home.backends())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!(
                "cannot run python3: install Python 3.9 or later with pip, or set {DATABASE}, \
                 {ADMIN}, {NATS} and {REDIS} to use backends of your own"
            )
        })?;
    let output = child.wait_with_output().await.context("cannot wait for the backends' script")?;
    if !output.status.success() {
        bail!("the backends did not do as they were told; what to do is said above");
    }
    String::from_utf8(output.stdout).context("the backends' script printed what is not UTF-8")
}

/// Writes the script to the directory of `up`, where a person can run it too.
fn script(home: &StateDir) -> anyhow::Result<PathBuf> {
    for (name, text) in SCRIPT_FILES {
        let path = home.path().join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(home.path().join("backends.py"))
}

fn parse(json: &str) -> anyhow::Result<Backends> {
    #[derive(Deserialize)]
    struct ScriptOutput {
        postgres: Postgres,
        nats: BackendUrl,
        redis: BackendUrl,
    }
    #[derive(Deserialize)]
    struct Postgres {
        admin_url: String,
        url: String,
        service_urls: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct BackendUrl {
        url: String,
        service_urls: BTreeMap<String, String>,
    }
    let all: ScriptOutput = serde_json::from_str(json)
        .with_context(|| format!("the backends' script printed `{json}`"))?;
    let mut of_services: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (variable, urls) in [
        (DATABASE, all.postgres.service_urls),
        (NATS, all.nats.service_urls),
        (REDIS, all.redis.service_urls),
    ] {
        for (service, url) in urls {
            of_services.entry(service).or_default().insert(variable.to_owned(), url);
        }
    }
    Ok(Backends {
        admin: Some(same_database(&all.postgres.admin_url, &all.postgres.url)),
        database: all.postgres.url,
        of_services,
        nats: all.nats.url,
        redis: all.redis.url,
    })
}

/// Returns the owner's URL for the services' database. The script's URL names the server's default
/// database.
fn same_database(admin: &str, services: &str) -> String {
    match (admin.rsplit_once('/'), services.rsplit_once('/')) {
        (Some((server, _)), Some((_, database))) => format!("{server}/{database}"),
        _ => admin.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{
        "postgres": {"pid": 1, "port": 2, "fast": false,
            "admin_url": "postgres://postgres@127.0.0.1:25432/postgres",
            "url": "postgres://holdfast:holdfast@127.0.0.1:25432/holdfast",
            "service_urls": {"gateway": "postgres://holdfast_gateway:g@127.0.0.1:25432/holdfast"}},
        "nats": {"pid": 1, "port": 2, "url": "nats://127.0.0.1:24222",
            "service_urls": {"gateway": "nats://holdfast_gateway:g@127.0.0.1:24222"}},
        "redis": {"pid": 1, "port": 2, "url": "redis://127.0.0.1:26379", "service_urls": {}}
    }"#;

    #[test]
    fn the_owner_works_in_the_services_database() {
        let backends = parse(PRINTED).unwrap();

        assert_eq!(backends.admin.as_deref(), Some("postgres://postgres@127.0.0.1:25432/holdfast"));
    }

    #[test]
    fn backends_that_were_all_stopped_are_not_those_of_the_running_up() {
        assert!(has_started(PRINTED));
        assert!(has_started(r#"{"postgres": {"pid": null}, "nats": {"pid": 7}}"#));
        assert!(!has_started(r#"{"postgres": {"pid": null}, "nats": {"pid": null}}"#));
        assert!(!has_started(""));
    }

    #[tokio::test]
    async fn backends_that_are_all_given_are_used_and_none_is_started() {
        let given = |name: &str| Some(name.to_owned());

        let backends =
            Backends::from_environment_or_started(given, async || bail!("started")).await.unwrap();

        assert_eq!(backends.database, DATABASE);
        assert_eq!(backends.admin.as_deref(), Some(ADMIN));
    }

    #[tokio::test]
    async fn a_given_database_is_not_migrated_as_the_owner_of_another() {
        let given = |name: &str| (name == DATABASE).then(|| "postgres://mine".to_owned());

        let backends =
            Backends::from_environment_or_started(given, async || parse(PRINTED)).await.unwrap();

        assert_eq!(backends.database, "postgres://mine");
        assert_eq!(backends.admin, None);
        let gateway = &backends.of_services["gateway"];
        assert_eq!(gateway.get(DATABASE), None);
        assert_eq!(gateway[NATS], "nats://holdfast_gateway:g@127.0.0.1:24222");
        assert_eq!(backends.nats, "nats://127.0.0.1:24222");
    }

    #[tokio::test]
    async fn an_owner_without_a_database_is_refused() {
        let given = |name: &str| (name == ADMIN).then(|| "postgres://mine".to_owned());

        let refused = Backends::from_environment_or_started(given, async || parse(PRINTED)).await;

        assert!(refused.unwrap_err().to_string().contains("set both or neither"));
    }
}
