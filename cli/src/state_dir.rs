//! The directory in which `up` keeps everything, by default `.holdfast`.
//!
//! | path | contents |
//! |---|---|
//! | `state.json` | addresses of the services, while `up` runs and everything is ready; see [`State`] |
//! | `dev.key` | the development tenant's API key |
//! | `secrets/` | secrets shared by the services: `kek`, `pepper`, `mesh` |
//! | `env` | the settings as shell variables, to start one more service by hand |
//! | `run/` | `<service>-<n>.pid`, `up.pid`, the lock of the running `up` |
//! | `log/` | `<service>-<n>.log`, `up.log` |
//! | `backends/` | programs and data of the databases |
//!
//! Files with secrets are readable by their owner only.

use std::{
    env,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Default name of the directory.
pub const DEFAULT_DIR_NAME: &str = ".holdfast";

/// Attempts to take the lock, and the wait between them: a command that looks whether `up` runs
/// holds it for a moment.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

/// Addresses of the running services: the file `state.json`, for programs and people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Process id of `up`. When it ends, it ends all services.
    pub pid: u32,
    /// Whether each service is a process of its own.
    pub split: bool,
    pub gateway: Gateway,
    pub gateways: Vec<Gateway>,
    pub runners: Vec<Http>,
    pub bridge: Http,
    pub scheduler: Http,
    pub memory: Http,
    /// Only if each service is a process of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Http>,
    pub key: String,
    /// The development tenant's default model, if the environment named one.
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// URL of the OpenAI-compatible API, health and metrics.
    pub http: String,
    /// URL of the gRPC API.
    pub grpc: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// URL of health and metrics, and of webhooks if it is the bridge.
    pub http: String,
}

impl State {
    /// Addresses at which the services answer `/readyz`.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let gateways = self.gateways.iter().map(|gateway| &gateway.http);
        let others = self.runners.iter().chain([&self.bridge, &self.scheduler, &self.memory]);
        let others = others.chain(&self.secrets);
        let all = gateways.chain(others.map(|service| &service.http));
        all.filter_map(|url| url.strip_prefix("http://")?.parse().ok())
    }
}

/// Returns the nearest such directory, in the current one or above.
pub fn find() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    here.ancestors().map(|dir| dir.join(DEFAULT_DIR_NAME)).find(|dir| dir.is_dir())
}

impl StateDir {
    /// Creates a handle to a directory, which need not exist. The path is made absolute, since
    /// services receive it.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(path)? })
    }

    /// Creates the directory and its subdirectories.
    pub fn create(&self) -> anyhow::Result<()> {
        for dir in [self.path.clone(), self.path.join("run"), self.path.join("log")] {
            fs::create_dir_all(&dir).with_context(|| {
                format!("cannot make `{}`: choose another place by --dir", dir.display())
            })?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn key_file(&self) -> PathBuf {
        self.path.join("dev.key")
    }

    pub fn secrets(&self) -> PathBuf {
        self.path.join("secrets")
    }

    pub fn backends(&self) -> PathBuf {
        self.path.join("backends")
    }

    /// Returns the directory for files of commands.
    pub fn scratch(&self) -> PathBuf {
        self.path.join("scratch")
    }

    /// Returns the directory into which `make embedder` installs the local embedding model.
    pub fn embedder(&self) -> PathBuf {
        self.path.join("embedder")
    }

    pub fn env_file(&self) -> PathBuf {
        self.path.join("env")
    }

    pub fn plan_file(&self) -> PathBuf {
        self.path.join("run").join("plan.json")
    }

    pub fn pid_file(&self, process: &str) -> PathBuf {
        self.path.join("run").join(format!("{process}.pid"))
    }

    pub fn log_file(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    pub fn logs(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn state(&self) -> anyhow::Result<State> {
        let path = self.state_file();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("`{}` is damaged", path.display()))
    }

    pub fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Deletes a file, if it exists.
    pub fn remove_file(path: &Path) {
        // A file that remains is harmless: a pid counts only while the lock is held.
        drop(fs::remove_file(path));
    }

    /// Takes the lock of this directory; `None` if another `up` holds it.
    ///
    /// The lock lasts while any process has the file open, so a crash releases it.
    pub fn lock(&self) -> anyhow::Result<Option<File>> {
        let path = self.lock_file();
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        for _ in 0..LOCK_ATTEMPTS {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_RETRY_DELAY),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock `{}`", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Whether an `up` runs here, by its lock: pids and files may be those of a crashed one.
    pub fn is_up_running(&self) -> anyhow::Result<bool> {
        let path = self.lock_file();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot open `{}`", path.display()));
            }
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock `{}`", path.display()))
            }
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.path.join("run").join("up.lock")
    }

    /// Whether an `up` ever ran here.
    pub fn exists(&self) -> bool {
        self.path.join("run").is_dir()
    }
}

/// Writes a file atomically, readable by its owner only.
pub fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        StateDir::remove_file(&new);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}

#[cfg(test)]
pub use scratch::Scratch;

#[cfg(test)]
mod scratch {
    use super::*;

    /// A temporary directory of one test, deleted when dropped.
    pub struct Scratch(pub StateDir);

    impl Scratch {
        pub fn new() -> Self {
            let name = format!("holdfast-cli-{}", uuid::Uuid::now_v7().simple());
            let home = StateDir::new(env::temp_dir().join(name)).unwrap();
            home.create().unwrap();
            Self(home)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(self.0.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_one_may_be_the_up_of_a_directory() {
        let scratch = Scratch::new();

        let first = scratch.0.lock().unwrap();
        assert!(first.is_some());
        assert!(scratch.0.lock().unwrap().is_none());

        drop(first);
        assert!(scratch.0.lock().unwrap().is_some());
    }

    #[test]
    fn what_is_private_is_its_owner_s_alone_and_written_over_whole() {
        let scratch = Scratch::new();
        let path = scratch.0.key_file();

        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();

        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_state_is_told_by_its_path() {
        let scratch = Scratch::new();
        fs::write(scratch.0.state_file(), "{").unwrap();

        let error = format!("{:#}", scratch.0.state().unwrap_err());

        assert!(error.contains("state.json` is damaged"), "{error}");
    }
}
