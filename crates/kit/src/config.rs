//! Settings of a process: defaults, then a TOML or YAML file, then the environment.
//!
//! One file, or one environment, may configure the whole platform. It has tables that every service
//! shares (`[database]`, `[nats]`, …) and one table for each service (`[gateway]`, `[runner]`, …).
//! A service's struct has a field for each table that it reads. The other services' tables are
//! skipped *by name*. Any other unknown setting is rejected, since an operator would not notice
//! that it has no effect.
//!
//! | | |
//! |---|---|
//! | `HOLDFAST_CONFIG` | the file: YAML if its name ends in `.yaml` or `.yml`, otherwise TOML |
//! | `HOLDFAST_GATEWAY__HTTP__LISTEN` | `gateway.http.listen` |
//! | `HOLDFAST_DATABASE__URL_FILE` | a file that holds `database.url`, such as a mounted `Secret` |
//!
//! `${NAME}` in a text of the file stands for a variable of the environment, and `$${` for `${`. Only
//! the tables that the service reads are replaced: another service's variables need not be set.
//!
//! An empty variable counts as unset. No setting's name ends in `_file`. A variable without `__` is
//! not a setting: the command line has some of its own, and Kubernetes adds one for each port of
//! each `Service`. One that looks like a misspelt setting is rejected nevertheless.

pub mod reload;
mod shared;
mod spelling;
mod variables;

use std::{collections::BTreeMap, fs, path::Path};

use figment::{
    Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format as _, Toml},
    value::{Dict, Map, Value},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, Serializer, de::DeserializeOwned};

pub use self::shared::{Mesh, Proxies, Secrets, Tls};
use self::{
    spelling::{alternatives, is_similar, suggestion},
    variables::replace_variables,
};

/// All tables that a file may have. A service skips those that its struct does not have.
const TABLES: [&str; 20] = [
    "audio",
    "bridge",
    "database",
    "egress",
    "gateway",
    "memory",
    "mesh",
    "nats",
    "oidc",
    "operator",
    "proxies",
    "redis",
    "runner",
    "scheduler",
    "schedules",
    "secrets",
    "secrets_service",
    "skills",
    "telemetry",
    "tls",
];

const PREFIX: &str = "HOLDFAST_";

/// Reason why the settings cannot be used; the message says what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read `{path}`, which `{variable}` names: {why}")]
    Unreadable {
        path: String,
        /// The environment variable that names the file.
        variable: String,
        /// The error of the operating system.
        why: String,
    },
    /// The file is not valid TOML or YAML.
    #[error("{0}")]
    Malformed(String),
    /// A text of the file has `${` without `}`, or a variable that is not set.
    #[error("`{key}` ({origin}) {why}")]
    Variable {
        /// Dotted path of the setting.
        key: String,
        /// File that sets it.
        origin: String,
        why: String,
    },
    /// The struct has no field for the service's own table. A defect.
    #[error("the configuration has no table `{0}`; its struct lacks the field")]
    NoTable(String),
    #[error("there is no setting `{key}` ({origin}){hint}")]
    Unknown {
        /// Dotted path of the setting.
        key: String,
        /// File or variable that sets it.
        origin: String,
        /// Suggestion for the correct name, or the list of known names.
        hint: String,
    },
    #[error("`{key}` ({origin}) {why}")]
    Unusable {
        /// Dotted path of the setting.
        key: String,
        /// File or variable that sets it.
        origin: String,
        /// Problem, without the value: it may be a secret.
        why: String,
    },
}

/// Reads the settings of the service whose own table is `section` from the file and the
/// environment.
///
/// # Errors
///
/// If a setting is unknown or its value cannot be used.
pub fn load<T: DeserializeOwned>(section: &str) -> Result<T, ConfigError> {
    load_from(section, variables())
}

/// The variables of the process that are texts.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Reads the settings like [`load`], but from the given variables instead of the environment.
///
/// # Errors
///
/// As [`load`].
pub fn load_from<T: DeserializeOwned>(
    section: &str,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let (figment, settings) = given::<T>(section, vars)?;
    extract(figment, settings)
}

/// Reads what the file and the variables set, of the tables that the struct has.
fn given<T: DeserializeOwned>(
    section: &str,
    vars: impl IntoIterator<Item = (String, String)>,
) -> Result<(Figment, Vec<Setting>), ConfigError> {
    let mut vars: Vec<(String, String)> = vars.into_iter().collect();
    // Sorted, so that the same mistakes always give the same error, in whatever order the system
    // lists the variables.
    vars.sort();
    let known = table_names::<T>();

    let mut figment = Figment::new();
    let mut settings = Vec::new();
    if let Some((name, path)) =
        vars.iter().find(|(name, value)| name == "HOLDFAST_CONFIG" && !value.is_empty())
    {
        let mut dict = parse_file(path, &read(path, name)?)?;
        let origin = format!("in `{path}`");
        for table in dict.keys() {
            check_table(table, table, &origin, known)?;
        }
        dict.retain(|table, _| known.contains(&table.as_str()));
        let replaced = replace_variables(&mut dict, &vars, &origin)?;
        figment = figment.merge(Tables { origin, dict });
        for setting in replaced {
            figment = figment.merge(setting.clone());
            settings.push(setting);
        }
    }
    for (name, value) in &vars {
        let Some(setting) = Setting::parse(name, value, known)? else { continue };
        check_table(&setting.path[0], &setting.path.join("."), &setting.origin, known)?;
        if known.contains(&setting.path[0].as_str()) {
            figment = figment.merge(setting.clone());
            settings.push(setting);
        }
    }
    if !known.contains(&section) {
        return Err(ConfigError::NoTable(section.to_owned()));
    }
    Ok((figment, settings))
}

/// Returns the settings that are given, by their dotted names. Lists are one value.
fn values(figment: &Figment) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    let mut open: Vec<(String, Value)> = match figment.extract::<Dict>() {
        Ok(tables) => tables.into_iter().collect(),
        Err(_) => Vec::new(),
    };
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Dict(_, fields) => {
                open.extend(
                    fields.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)),
                );
            }
            value => {
                values.insert(name, value);
            }
        }
    }
    values
}

/// Returns the effective settings as JSON, for operators.
///
/// Secrets appear as asterisks if their fields are serialised by [`masked`].
#[must_use]
pub fn print<T: Serialize>(config: &T) -> String {
    serde_json::to_string_pretty(config).unwrap_or_else(|error| format!("cannot be shown: {error}"))
}

/// Serialises a secret as asterisks, or as an empty string if it is empty:
/// `#[serde(serialize_with = "config::masked")]`.
///
/// # Errors
///
/// Only errors of the serialiser.
pub fn masked<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if secret.expose_secret().is_empty() { "" } else { "********" })
}

/// Returns the variable that sets a setting: `HOLDFAST_GATEWAY__HTTP__LISTEN` for
/// `gateway.http.listen`.
#[must_use]
pub fn variable(setting: &str) -> String {
    format!("{PREFIX}{}", setting.replace('.', "__").to_uppercase())
}

/// Whether an environment variable holds the setting itself, rather than the name of a file.
#[must_use]
pub fn is_in_environment(setting: &str) -> bool {
    std::env::var_os(variable(setting)).is_some_and(|value| !value.is_empty())
}

/// A setting that is given as a text: one environment variable, or one that the file refers to.
#[derive(Debug, Clone)]
struct Setting {
    path: Vec<String>,
    value: Value,
    raw: String,
    origin: String,
}

impl Setting {
    /// Returns `None` if the variable is not a setting.
    fn parse(name: &str, given: &str, known: &[&str]) -> Result<Option<Self>, ConfigError> {
        let Some(key) = name.strip_prefix(PREFIX).filter(|_| !given.is_empty()) else {
            return Ok(None);
        };
        let key = key.to_lowercase();
        if !key.contains("__") {
            return misspelt_variable(name, &key, known).map_or(Ok(None), Err);
        }
        let (key, raw, value, origin) = match key.strip_suffix("_file") {
            Some(key) => {
                let secret = read(given, name)?.trim_end_matches(['\r', '\n']).to_owned();
                let origin = format!("from the file that `{name}` names");
                (key.to_owned(), secret.clone(), Value::from(secret), origin)
            }
            None => (key, given.to_owned(), value_of(given), format!("from `{name}`")),
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

/// Reads `12` as a number, `true` as a boolean, and anything else as a text.
fn value_of(given: &str) -> Value {
    given.parse().unwrap_or_else(|never| match never {})
}

/// Tables of one file.
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

fn parse_file(path: &str, text: &str) -> Result<Dict, ConfigError> {
    let extension = Path::new(path).extension().unwrap_or_default();
    if extension == "yaml" || extension == "yml" {
        // Without the snippet, which shows secrets. An empty file is null.
        let file = serde_saphyr::from_str::<Option<Dict>>(text);
        let malformed = |error: serde_saphyr::Error| {
            ConfigError::Malformed(format!("`{path}` is no YAML: {}", error.without_snippet()))
        };
        return Ok(file.map_err(malformed)?.unwrap_or_default());
    }
    let file = Figment::from(Toml::string(text)).extract::<Dict>();
    file.map_err(|error| ConfigError::Malformed(format!("`{path}` is no TOML: {}", error.kind)))
}

/// Rejects a variable without `__` that begins like a table's name, unless it is one that
/// Kubernetes adds.
fn misspelt_variable(name: &str, key: &str, known: &[&str]) -> Option<ConfigError> {
    let (first, rest) = key.split_once('_')?;
    let table = known.iter().chain(&TABLES).find(|table| is_similar(first, table))?;
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

/// Returns the names of the struct's tables. They are taken from the error that serde's derive
/// reports for an unknown field.
fn table_names<T: DeserializeOwned>() -> &'static [&'static str] {
    match Figment::from(("?", true)).extract::<T>() {
        Err(error) => match error.kind {
            Kind::UnknownField(_, fields) => fields,
            _ => &[],
        },
        Ok(_) => &[],
    }
}

/// Rejects a table that no service has.
fn check_table(table: &str, key: &str, origin: &str, known: &[&str]) -> Result<(), ConfigError> {
    if known.contains(&table) || TABLES.contains(&table) {
        return Ok(());
    }
    let tables: Vec<&str> = known.iter().chain(&TABLES).copied().collect();
    let hint = suggestion(table, &tables);
    Err(ConfigError::Unknown { key: key.to_owned(), origin: origin.to_owned(), hint })
}

/// Deserialises the settings. A variable's `1234` may mean a number or a text, which only the
/// struct knows: if the number does not fit, the text is tried.
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
            return Err(config_error(&error, &figment));
        };
        let setting = settings.swap_remove(at);
        let value = Value::from(setting.raw.clone());
        figment = figment.merge(Setting { value, ..setting });
    }
}

fn config_error(error: &figment::Error, figment: &Figment) -> ConfigError {
    let mut path = error.path.clone();
    if let Kind::UnknownField(name, known) = &error.kind {
        if path.last() != Some(name) {
            path.push(name.clone());
        }
        let (key, hint) = (path.join("."), suggestion(name, known));
        return ConfigError::Unknown { origin: origin(figment, &key), key, hint };
    }
    let why = match &error.kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => {
            format!("must be {expected}")
        }
        Kind::UnknownVariant(_, known) => format!("must be {}", alternatives(known)),
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

    /// A file that is deleted when the test ends.
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
    fn a_file_may_be_yaml() {
        let file = File::new(
            "settings.yaml",
            "database:\n  url: postgres://yaml\n  pool_size: 7\ngateway: {mode: shut, shutdown_grace: 20s}\n",
        );
        let config = load(&[("HOLDFAST_CONFIG", file.path())]).unwrap();
        assert_eq!(config.database.url.expose_secret(), "postgres://yaml");
        assert_eq!((config.database.pool_size, config.gateway.mode), (7, Mode::Shut));
        assert_eq!(config.gateway.shutdown_grace, Duration::from_secs(20));

        let empty = File::new("empty.yml", "# nothing is set\n");
        assert!(load(&[("HOLDFAST_CONFIG", empty.path())]).is_ok());

        let file = File::new("wrong.yaml", "database:\n  pool_sise: 7\n");
        assert_eq!(
            refused(&[("HOLDFAST_CONFIG", file.path())]),
            format!(
                "there is no setting `database.pool_sise` (in `{}`); did you mean `pool_size`?",
                file.path()
            )
        );
        let file = File::new("broken.yaml", "database:\n  url: [hunter2\n");
        let refusal = refused(&[("HOLDFAST_CONFIG", file.path())]);
        assert!(refusal.contains("is no YAML") && !refusal.contains("hunter2"), "{refusal}");
    }

    #[test]
    fn a_text_of_the_file_may_name_variables() {
        let file = File::new(
            "variables.toml",
            "[database]\nurl = 'postgres://${DB_USER}:${DB_PASSWORD}@db/$${x}'\npool_size = '${POOL}'\n\
             [gateway]\nmode = '${MODE}'\nshutdown_grace = '${GRACE}s'\n\
             [runner]\nwhatever = '${NOT_SET_HERE}'\n",
        );
        let vars = [
            ("HOLDFAST_CONFIG", file.path()),
            ("DB_USER", "holdfast"),
            ("DB_PASSWORD", "${POOL}"),
            ("POOL", "7"),
            ("MODE", "shut"),
            ("GRACE", "20"),
        ];

        let config = load(&vars).unwrap();

        // What a variable holds is not searched for variables.
        assert_eq!(config.database.url.expose_secret(), "postgres://holdfast:${POOL}@db/${x}");
        assert_eq!((config.database.pool_size, config.gateway.mode), (7, Mode::Shut));
        assert_eq!(config.gateway.shutdown_grace, Duration::from_secs(20));

        let mut vars = vars.to_vec();
        vars.push(("HOLDFAST_DATABASE__POOL_SIZE", "9"));
        assert_eq!(load(&vars).unwrap().database.pool_size, 9);
        vars.retain(|(name, _)| *name != "DB_PASSWORD");
        assert_eq!(
            refused(&vars),
            format!(
                "`database.url` (in `{}`) needs the environment variable `DB_PASSWORD`, which is \
                 not set",
                file.path()
            )
        );
    }

    #[test]
    fn a_variable_that_is_a_secret_may_look_like_a_number_and_one_that_does_not_fit_is_named() {
        let file = File::new("secret.yaml", "database: {url: '${DB_URL}', pool_size: '${POOL}'}\n");
        let vars = [("HOLDFAST_CONFIG", file.path()), ("DB_URL", "0012"), ("POOL", "3")];
        assert_eq!(load(&vars).unwrap().database.url.expose_secret(), "0012");

        let vars = [("HOLDFAST_CONFIG", file.path()), ("DB_URL", "x"), ("POOL", "hunter2")];
        assert_eq!(
            refused(&vars),
            format!("`database.pool_size` (`POOL` in `{}`) must be u32", file.path())
        );

        let open = File::new("open.yaml", "database: {url: 'x${DB'}\n");
        let refusal = refused(&[("HOLDFAST_CONFIG", open.path())]);
        assert!(refusal.contains("has `${` without `}`"), "{refusal}");
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
