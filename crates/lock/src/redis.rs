//! Redis connection with a bounded wait.

use std::{
    fmt, fs,
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    Client, ClientTlsConfig, ConnectionInfo, FromRedisValue, IntoConnectionInfo as _, RedisResult,
    Script, ScriptInvocation, TlsCertificates,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};
use holdfast_kit::config;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::{
    Error,
    limit::LocalLimits,
    sentinel::{SentinelServer, SentinelSettings},
};

/// Maximum wait for Redis per call, outside of tests.
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(500);

/// Period after a failure in which Redis is not asked.
const FAILURE_REST: Duration = Duration::from_millis(500);

/// Redis settings: the table `[redis]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `redis://[user:password@]host:port/db`, or `rediss://` for TLS.
    #[serde(serialize_with = "config::masked")]
    pub url: SecretString,

    /// Addresses of Redis Sentinels, separated by commas: `redis://[user:password@]host:26379,…`.
    /// They name the server; then `url` gives only its login, database and TLS.
    #[serde(serialize_with = "config::masked")]
    pub sentinels: SecretString,

    /// Name of the group of servers in the Sentinels' configuration.
    pub sentinel_group: String,

    /// File with the certificates of the authorities by which the server is verified, in PEM, for
    /// `rediss://`. Without it, those of the machine are used. It is read at the start.
    pub authorities: Option<PathBuf>,

    /// File with the certificate that is shown to a server that asks for one, in PEM, for
    /// `rediss://`. It is read at the start, like the key.
    pub certificate: Option<PathBuf>,

    /// File with the private key of `certificate`.
    pub private_key: Option<PathBuf>,

    /// Prefix of all keys, for installations or tests that share a Redis.
    pub prefix: String,

    /// Number of processes among which a limit is divided while Redis is down.
    ///
    /// Each process then allows approximately that share.
    pub replicas: u32,

    /// Maximum wait for Redis per call: [`REDIS_TIMEOUT`], and more in tests. No setting.
    #[serde(skip)]
    pub call_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".into(),
            sentinels: SecretString::default(),
            sentinel_group: "mymaster".to_owned(),
            authorities: None,
            certificate: None,
            private_key: None,
            prefix: String::new(),
            replicas: 1,
            call_timeout: REDIS_TIMEOUT,
        }
    }
}

/// A Redis connection. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    server: Server,
    prefix: Arc<str>,
    call_timeout: Duration,
    health: Arc<Health>,
    pub(crate) local_limits: Arc<LocalLimits>,
}

#[derive(Clone)]
enum Server {
    Fixed(ConnectionManager),
    BySentinel(Arc<SentinelServer>),
}

impl Server {
    async fn invoke<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> RedisResult<T> {
        match self {
            Self::Fixed(manager) => script.invoke_async(&mut manager.clone()).await,
            Self::BySentinel(server) => script.invoke_async(&mut server.connection().await?).await,
        }
    }

    async fn forget(&self) {
        match self {
            // It connects again by itself.
            Self::Fixed(_) => {}
            Self::BySentinel(server) => server.forget().await,
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Health {
    /// End of the period in which Redis is not asked; `None` while it is healthy.
    resting_until: Mutex<Option<Instant>>,
    /// Whether the failure was logged. Failure and recovery are each logged once, and a failure
    /// again if it has another advice: the first one may have been a timeout.
    known_down: AtomicBool,
    /// The advice that was logged last since Redis failed.
    logged_advice: Mutex<Option<String>>,
}

impl Locks {
    /// Prepares the connection. Redis may be down. Call it inside a runtime.
    ///
    /// # Errors
    ///
    /// If the URL is invalid.
    pub fn connect_lazy(config: &Config) -> Result<Self, Error> {
        let info = config.url.expose_secret().into_connection_info().map_err(url)?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let manager = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(config.call_timeout * 2))
            .set_response_timeout(Some(config.call_timeout))
            // A failed call starts the next connection attempt, so that no call waits for several
            // attempts.
            .set_number_of_retries(0);
        let is_tls = config.url.expose_secret().starts_with("rediss://");
        let certificates = if is_tls { certificates(config)? } else { None };
        let sentinels = sentinels(config.sentinels.expose_secret()).map_err(url)?;
        let server = if sentinels.is_empty() {
            let client = match certificates {
                Some(certificates) => Client::build_with_tls(info, certificates),
                None => Client::open(info),
            };
            client
                .and_then(|client| ConnectionManager::new_lazy_with_config(client, manager))
                .map(Server::Fixed)
        } else {
            let group = config.sentinel_group.clone();
            let settings = SentinelSettings {
                sentinels,
                group,
                server: info,
                is_tls,
                certificates,
                timeout: config.call_timeout,
            };
            SentinelServer::new(settings).map(|server| Server::BySentinel(Arc::new(server)))
        };
        Ok(Self {
            server: server.map_err(url)?,
            prefix: config.prefix.as_str().into(),
            call_timeout: config.call_timeout,
            health: Arc::default(),
            local_limits: Arc::new(LocalLimits::new(config.replicas)),
        })
    }

    /// Returns the version of the server, and the memory that it uses in bytes.
    ///
    /// # Errors
    ///
    /// If Redis does not answer, or does not tell.
    pub async fn server_status(&self) -> Result<(String, u64), Error> {
        static INFO: LazyLock<Script> = LazyLock::new(|| {
            Script::new("return redis.call('INFO', 'server') .. redis.call('INFO', 'memory')")
        });
        let info: String = self.run(&INFO.prepare_invoke()).await?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let version = field("redis_version:").unwrap_or_default().to_owned();
        Ok((version, field("used_memory:").and_then(|bytes| bytes.parse().ok()).unwrap_or(0)))
    }

    pub(crate) fn key(&self, rest: impl fmt::Display) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Runs a script, with the timeout of all calls.
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        if !self.health.may_ask() {
            return Err(Error::Resting);
        }
        let error = match timeout(self.call_timeout, self.server.invoke(script)).await {
            Ok(Ok(answer)) => {
                self.health.answered();
                return Ok(answer);
            }
            Ok(Err(error)) => Error::Failed(error),
            Err(_) => Error::TimedOut(self.call_timeout),
        };
        self.server.forget().await;
        self.health.failed(&error);
        Err(error)
    }
}

/// Reads the files of the settings; `None` if there are none.
fn certificates(config: &Config) -> Result<Option<TlsCertificates>, Error> {
    let read = |setting, path: &PathBuf| {
        fs::read(path).map_err(|source| Error::File { setting, path: path.clone(), source })
    };
    let root_cert =
        config.authorities.as_ref().map(|path| read("authorities", path)).transpose()?;
    let client_tls = match (&config.certificate, &config.private_key) {
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read("certificate", certificate)?,
            client_key: read("private_key", key)?,
        }),
        (None, None) => None,
        _ => return Err(Error::HalfOfCertificate),
    };
    let is_empty = root_cert.is_none() && client_tls.is_none();
    Ok((!is_empty).then_some(TlsCertificates { client_tls, root_cert }))
}

fn sentinels(list: &str) -> RedisResult<Vec<ConnectionInfo>> {
    let urls = list.split(',').map(str::trim).filter(|url| !url.is_empty());
    urls.map(|url| url.into_connection_info()).collect()
}

impl Health {
    /// Whether Redis may be asked. After a rest one caller is let through; if it gets an answer,
    /// all are.
    fn may_ask(&self) -> bool {
        let mut until = self.resting_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *until {
            Some(end) if now < end => false,
            Some(_) => {
                *until = Some(now + FAILURE_REST);
                true
            }
            None => true,
        }
    }

    fn answered(&self) {
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.known_down.swap(false, Ordering::Relaxed) {
            *self.logged_advice.lock().unwrap_or_else(PoisonError::into_inner) = None;
            info!("redis is back");
        }
    }

    fn failed(&self, error: &Error) {
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + FAILURE_REST);
        let advice = error.advice();
        if self.is_news(advice.as_deref()) {
            let advice = advice.unwrap_or_default();
            let error = error as &dyn std::error::Error;
            warn!(error, advice, "redis fails; going on without locks, and with limits of our own");
        }
    }

    /// Whether a failure with this advice is to be logged. It then counts as logged.
    fn is_news(&self, advice: Option<&str>) -> bool {
        let was_known = self.known_down.swap(true, Ordering::Relaxed);
        let mut logged = self.logged_advice.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = advice.is_some() && logged.as_deref() != advice;
        if is_new {
            *logged = advice.map(str::to_owned);
        }
        !was_known || is_new
    }
}

fn url(error: ::redis::RedisError) -> Error {
    Error::Url(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_and_again_if_it_says_what_to_do() {
        let health = Health::default();
        let password = Some("set user and password in `redis.url`");

        assert!(health.is_news(None));
        assert!(!health.is_news(None));
        assert!(health.is_news(password));
        assert!(!health.is_news(None));
        assert!(!health.is_news(password));

        health.answered();
        assert!(health.is_news(password));
        assert!(!health.is_news(password));
    }
}
