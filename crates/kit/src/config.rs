//! The settings of a process: defaults, then a TOML file, then the environment.
//!
//! One file, and one environment, may serve the whole platform: tables that
//! every service shares (`[database]`, `[nats]`, …) and one for each service
//! (`[gateway]`, `[runner]`, …). A service's struct has a field for each table
//! that it reads; the tables of others are passed over *by name*, and anything
//! else that is unknown is refused, since a setting that is silently ignored is
//! found at night.
//!
//! | | |
//! |---|---|
//! | `HOLDFAST_CONFIG` | the TOML file |
//! | `HOLDFAST_GATEWAY__HTTP__LISTEN` | `gateway.http.listen` |
//! | `HOLDFAST_DATABASE__URL_FILE` | a file that holds `database.url`, as a mounted `Secret` does |
//!
//! An empty variable is none. No setting's name ends in `_file`. A variable without `__` is no setting:
//! the command line has some of its own, and Kubernetes adds one for each port
//! of each `Service`; one that looks like a misspelt setting is refused still.

mod shared;
mod spelling;

use std::{fs, path::Path};

use figment::{
    Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format as _, Toml},
    value::{Dict, Map, Value},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, Serializer, de::DeserializeOwned};

pub use self::shared::{Mesh, Secrets};
use self::spelling::{any_of, is_near, near};

/// Every table that a file may have; a service passes over those that its struct lacks.
const TABLES: [&str; 13] = [
    "bridge",
    "database",
    "gateway",
    "memory",
    "mesh",
    "nats",
    "redis",
    "runner",
    "scheduler",
    "schedules",
    "secrets",
    "skills",
    "telemetry",
];

const PREFIX: &str = "HOLDFAST_";

/// Why the settings cannot be used; it says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read `{path}`, which `{variable}` names: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The variable that names it.
        variable: String,
        /// What the system said.
        why: String,
    },
    /// The file is no TOML.
    #[error("{0}")]
    Malformed(String),
    /// The struct has no table by the service's name: a defect.
    #[error("the configuration has no table `{0}`; its struct lacks the field")]
    NoTable(String),
    /// A setting that nobody knows.
    #[error("there is no setting `{key}` ({origin}){hint}")]
    Unknown {
        /// The setting, dotted.
        key: String,
        /// Where it was found.
        origin: String,
        /// What may have been meant.
        hint: String,
    },
    /// A setting whose value cannot be used.
    #[error("`{key}` ({origin}) {why}")]
    Unusable {
        /// The setting, dotted.
        key: String,
        /// Where it was found.
        origin: String,
        /// What is wrong, without the value: it may be a secret.
        why: String,
    },
}

/// Reads the settings of the service whose own table is `section` from the file and environment.
///
/// # Errors
///
/// If something is unknown, or cannot be used.
pub fn load<T: DeserializeOwned>(section: &str) -> Result<T, ConfigError> {
    let vars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    load_from(section, vars)
}

/// As [`load`], from the given variables instead of the environment's.
///
/// # Errors
///
/// As [`load`].
pub fn load_from<T: DeserializeOwned>(
    section: &str,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let mut vars: Vec<(String, String)> = vars.into_iter().collect();
    // So that the same mistake is told alike whatever order the system lists them in.
    vars.sort();
    let known = fields_of::<T>();

    let mut figment = Figment::new();
    if let Some((name, path)) =
        vars.iter().find(|(name, value)| name == "HOLDFAST_CONFIG" && !value.is_empty())
    {
        let mut dict = toml(path, &read(path, name)?)?;
        let origin = format!("in `{path}`");
        for table in dict.keys() {
            check_table(table, table, &origin, known)?;
        }
        dict.retain(|table, _| known.contains(&table.as_str()));
        figment = figment.merge(Tables { origin, dict });
    }
    let mut settings = Vec::new();
    for (name, value) in &vars {
        let Some(setting) = Setting::of(name, value, known)? else { continue };
        check_table(&setting.path[0], &setting.path.join("."), &setting.origin, known)?;
        if known.contains(&setting.path[0].as_str()) {
            figment = figment.merge(setting.clone());
            settings.push(setting);
        }
    }
    if !known.contains(&section) {
        return Err(ConfigError::NoTable(section.to_owned()));
    }
    extract(figment, settings)
}

/// The settings as JSON, for people who ask what is in force.
///
/// Secrets show as asterisks where their fields are serialised by [`masked`].
#[must_use]
pub fn print<T: Serialize>(config: &T) -> String {
    serde_json::to_string_pretty(config).unwrap_or_else(|error| format!("cannot be shown: {error}"))
}

/// Serialises a secret as asterisks, or as nothing where it is empty:
/// `#[serde(serialize_with = "config::masked")]`.
///
/// # Errors
///
/// Only the serialiser's own.
pub fn masked<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if secret.expose_secret().is_empty() { "" } else { "********" })
}

/// The variable that sets a setting: `gateway.http.listen` is `HOLDFAST_GATEWAY__HTTP__LISTEN`.
#[must_use]
pub fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.replace('.', "__").to_uppercase())
}

/// One variable of the environment that is a setting.
#[derive(Debug, Clone)]
struct Setting {
    path: Vec<String>,
    value: Value,
    raw: String,
    origin: String,
}

impl Setting {
    /// `None` if the variable is no setting.
    fn of(name: &str, given: &str, known: &[&str]) -> Result<Option<Self>, ConfigError> {
        let Some(key) = name.strip_prefix(PREFIX).filter(|_| !given.is_empty()) else {
            return Ok(None);
        };
        let key = key.to_lowercase();
        if !key.contains("__") {
            return misspelt(name, &key, known).map_or(Ok(None), Err);
        }
        let (key, raw, value, origin) = match key.strip_suffix("_file") {
            Some(key) => {
                let secret = read(given, name)?.trim_end_matches(['\r', '\n']).to_owned();
                let origin = format!("from the file that `{name}` names");
                (key.to_owned(), secret.clone(), Value::from(secret), origin)
            }
            None => {
                let value = given.parse().unwrap_or_else(|never| match never {});
                (key, given.to_owned(), value, format!("from `{name}`"))
            }
        };
        let path = key.split("__").map(str::to_owned).collect();
        Ok(Some(Self { path, value, raw, origin }))
    }
}

impl Provider for Setting {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        let wrap = |inner: Value, key: &String| Value::from(Dict::from([(key.clone(), inner)]));
        let nested = self.path.iter().rev().fold(self.value.clone(), wrap);
        Ok(Profile::Default.collect(nested.into_dict().unwrap_or_default()))
    }
}

/// What a file holds.
struct Tables {
    origin: String,
    dict: Dict,
}

impl Provider for Tables {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

fn read(path: &str, variable: &str) -> Result<String, ConfigError> {
    fs::read_to_string(Path::new(path)).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        variable: variable.to_owned(),
        why: error.to_string(),
    })
}

fn toml(path: &str, text: &str) -> Result<Dict, ConfigError> {
    let file = Figment::from(Toml::string(text)).extract::<Dict>();
    file.map_err(|error| ConfigError::Malformed(format!("`{path}` is no TOML: {}", error.kind)))
}

/// A variable without `__` that begins like a table's name, and is not one that Kubernetes adds.
fn misspelt(name: &str, key: &str, known: &[&str]) -> Option<ConfigError> {
    let (first, rest) = key.split_once('_')?;
    let table = known.iter().chain(&TABLES).find(|table| is_near(first, table))?;
    let of_kubernetes = rest.starts_with("service_") || rest == "port" || rest.starts_with("port_");
    if of_kubernetes || rest.is_empty() {
        return None;
    }
    Some(ConfigError::Unknown {
        key: key.to_owned(),
        origin: format!("from `{name}`"),
        hint: format!(
            "; a setting has two underscores after its table: did you mean `{}`?",
            variable(&format!("{table}.{rest}"))
        ),
    })
}

/// The tables that the struct has, as serde's derive knows them.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    match Figment::from(("?", true)).extract::<T>() {
        Err(error) => match error.kind {
            Kind::UnknownField(_, fields) => fields,
            _ => &[],
        },
        Ok(_) => &[],
    }
}

/// Refuses a table that neither this service nor any other has.
fn check_table(table: &str, key: &str, origin: &str, known: &[&str]) -> Result<(), ConfigError> {
    if known.contains(&table) || TABLES.contains(&table) {
        return Ok(());
    }
    let tables: Vec<&str> = known.iter().chain(&TABLES).copied().collect();
    let hint = near(table, &tables);
    Err(ConfigError::Unknown { key: key.to_owned(), origin: origin.to_owned(), hint })
}

/// A variable's `1234` may be a number or a text, and only the struct knows: so if a number
/// does not fit, the text is tried.
fn extract<T: DeserializeOwned>(
    mut figment: Figment,
    settings: Vec<Setting>,
) -> Result<T, ConfigError> {
    let mut settings = settings;
    loop {
        let error = match figment.extract() {
            Ok(config) => return Ok(config),
            Err(error) => error,
        };
        let text = settings
            .iter()
            .position(|setting| setting.path == error.path && setting.value.as_str().is_none());
        let Some(at) = text.filter(|_| matches!(error.kind, Kind::InvalidType(..))) else {
            return Err(refuse(&error, &figment));
        };
        let setting = settings.swap_remove(at);
        let value = Value::from(setting.raw.clone());
        figment = figment.merge(Setting { value, ..setting });
    }
}

fn refuse(error: &figment::Error, figment: &Figment) -> ConfigError {
    let mut path = error.path.clone();
    if let Kind::UnknownField(name, known) = &error.kind {
        if path.last() != Some(name) {
            path.push(name.clone());
        }
        let (key, hint) = (path.join("."), near(name, known));
        return ConfigError::Unknown { origin: origin(figment, &key), key, hint };
    }
    let why = match &error.kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            format!("must be {expected}")
        }
        Kind::UnknownVariant(_, known) => format!("must be {}", any_of(known)),
        other => format!("cannot be used: {other}"),
    };
    let key = path.join(".");
    ConfigError::Unusable { origin: origin(figment, &key), key, why }
}

fn origin(figment: &Figment, key: &str) -> String {
    let found = figment.find_metadata(key);
    found.map_or_else(|| "of unknown origin".to_owned(), |found| found.name.to_string())
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Config {
        database: Database,
        gateway: Gateway,
    }

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Database {
        #[serde(serialize_with = "masked")]
        url: SecretString,
        pool_size: u32,
    }

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Gateway {
        http: Http,
        #[serde(with = "humantime_serde")]
        shutdown_grace: Duration,
        mode: Mode,
    }

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Http {
        listen: Option<std::net::SocketAddr>,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Open,
        Shut,
    }

    fn load(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load_from("gateway", vars)
    }

    fn refused(vars: &[(&str, &str)]) -> String {
        load(vars).unwrap_err().to_string()
    }

    /// A file that goes when the test does.
    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("holdfast-kit-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            Self(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn an_empty_name_of_a_file_is_none() {
        assert!(load(&[("HOLDFAST_CONFIG", "")]).is_ok());
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_defaults() {
        let file = File::new(
            "layers.toml",
            "[database]\nurl = 'postgres://file'\npool_size = 7\n\
             [gateway]\nmode = 'shut'\n[runner]\nwhatever = 1\n",
        );

        let config = load(&[
            ("HOLDFAST_CONFIG", file.path()),
            ("HOLDFAST_DATABASE__URL", "postgres://env"),
            ("HOLDFAST_GATEWAY__HTTP__LISTEN", "127.0.0.1:18789"),
            ("HOLDFAST_GATEWAY__SHUTDOWN_GRACE", "20s"),
            ("HOLDFAST_RUNNER__SLOTS", "4"),
            ("HOLDFAST_MODEL", "demo"),
            ("HOLDFAST_API_KEY", "hf_x"),
            ("HOLDFAST_URL", "http://x"),
            ("HOLDFAST_DATABASE__POOL_SIZE", ""),
            ("PATH", "/bin"),
        ])
        .unwrap();

        assert_eq!(config.database.url.expose_secret(), "postgres://env");
        assert_eq!(config.database.pool_size, 7);
        assert_eq!(config.gateway.mode, Mode::Shut);
        assert_eq!(config.gateway.shutdown_grace, Duration::from_secs(20));
        assert_eq!(config.gateway.http.listen, "127.0.0.1:18789".parse().ok());
    }

    #[test]
    fn a_secret_may_be_a_file_and_may_look_like_a_number() {
        let file = File::new("secret", "postgres://secret\n");

        let config = load(&[("HOLDFAST_DATABASE__URL_FILE", file.path())]).unwrap();
        assert_eq!(config.database.url.expose_secret(), "postgres://secret");

        let config = load(&[("HOLDFAST_DATABASE__URL", "0012")]).unwrap();
        assert_eq!(config.database.url.expose_secret(), "0012");
    }

    #[test]
    fn what_is_unknown_is_refused_with_its_origin_and_the_nearest_name() {
        let file = File::new("unknown.toml", "[gatewy]\nx = 1\n");

        assert_eq!(
            refused(&[("HOLDFAST_DATABASE__POOLSIZE", "1")]),
            "there is no setting `database.poolsize` (from `HOLDFAST_DATABASE__POOLSIZE`); \
             did you mean `pool_size`?"
        );
        assert_eq!(
            refused(&[("HOLDFAST_CONFIG", file.path())]),
            format!("there is no setting `gatewy` (in `{}`); did you mean `gateway`?", file.path())
        );
        assert_eq!(
            refused(&[("HOLDFAST_DATABASE_URL", "x")]),
            "there is no setting `database_url` (from `HOLDFAST_DATABASE_URL`); a setting has two \
             underscores after its table: did you mean `HOLDFAST_DATABASE__URL`?"
        );
        assert!(refused(&[("HOLDFAST_WEATHER__X", "1")]).contains("`weather.x`"));
        assert!(refused(&[("HOLDFAST_GATEWAY__HTTP__PORT", "1")]).contains("`gateway.http.port`"));
    }

    #[test]
    fn what_kubernetes_says_about_its_services_is_no_setting() {
        let config = load(&[
            ("HOLDFAST_GATEWAY_SERVICE_HOST", "10.0.0.1"),
            ("HOLDFAST_GATEWAY_PORT", "tcp://10.0.0.1:18790"),
            ("HOLDFAST_GATEWAY_PORT_18790_TCP_ADDR", "10.0.0.1"),
        ]);

        assert!(config.is_ok());
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_without_being_repeated() {
        assert_eq!(
            refused(&[("HOLDFAST_DATABASE__POOL_SIZE", "hunter2")]),
            "`database.pool_size` (from `HOLDFAST_DATABASE__POOL_SIZE`) must be u32"
        );
        assert_eq!(
            refused(&[("HOLDFAST_GATEWAY__MODE", "ajar")]),
            "`gateway.mode` (from `HOLDFAST_GATEWAY__MODE`) must be `open` or `shut`"
        );
        assert!(
            refused(&[("HOLDFAST_CONFIG", "/nowhere/x.toml")])
                .starts_with("cannot read `/nowhere/x.toml`, which `HOLDFAST_CONFIG` names")
        );
    }

    #[test]
    fn a_secret_is_never_shown() {
        let config = load(&[("HOLDFAST_DATABASE__URL", "postgres://u:hunter2@db")]).unwrap();

        let shown = print(&config);

        assert!(shown.contains("\"url\": \"********\""), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
