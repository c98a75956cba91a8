//! The connection, and how long it may keep anyone waiting.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    Client, FromRedisValue, IntoConnectionInfo as _, ScriptInvocation,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};
use holdfast_kit::config;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::{Error, rate::Shares};

/// The longest that a call waits for Redis.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// For how long Redis is not asked after it failed.
const REST: Duration = Duration::from_millis(500);

/// Where Redis is: the table `[redis]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `redis://[user:password@]host:port/db`, or `rediss://` for TLS.
    #[serde(serialize_with = "config::masked")]
    pub url: SecretString,

    /// What every key begins with: for installations, or tests, that share a Redis.
    pub prefix: String,

    /// Among how many processes a limit is divided while Redis is gone.
    ///
    /// Each then allows that part of it, as well as it can.
    pub replicas: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { url: "redis://127.0.0.1:6379".into(), prefix: String::new(), replicas: 1 }
    }
}

/// Redis, as far as Holdfast uses it. Cheap to clone.
#[derive(Clone)]
pub struct Locks {
    redis: ConnectionManager,
    prefix: Arc<str>,
    health: Arc<Health>,
    pub(crate) shares: Arc<Shares>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Health {
    /// Until when Redis is not asked; nothing while it is well.
    resting_until: Mutex<Option<Instant>>,
    /// Whether its failure was logged: once, and its return once.
    known_down: AtomicBool,
}

impl Locks {
    /// Gets ready to ask Redis, which need not be there: call it inside a runtime.
    ///
    /// # Errors
    ///
    /// If the URL is none.
    pub fn connect_lazy(config: &Config) -> Result<Self, Error> {
        let info = config.url.expose_secret().into_connection_info().map_err(url)?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let manager = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(PATIENCE))
            // A call that fails begins the next attempt, so that none waits for attempts to fail.
            .set_number_of_retries(0);
        let redis = Client::open(info)
            .and_then(|client| ConnectionManager::new_lazy_with_config(client, manager))
            .map_err(url)?;
        Ok(Self {
            redis,
            prefix: config.prefix.as_str().into(),
            health: Arc::default(),
            shares: Arc::new(Shares::among(config.replicas)),
        })
    }

    pub(crate) fn key(&self, rest: impl fmt::Display) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Runs a script, within [`PATIENCE`].
    pub(crate) async fn run<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, Error> {
        if !self.health.may_ask() {
            return Err(Error::Resting);
        }
        let mut redis = self.redis.clone();
        match timeout(PATIENCE, script.invoke_async(&mut redis)).await {
            Ok(Ok(answer)) => {
                self.health.answered();
                Ok(answer)
            }
            Ok(Err(error)) => {
                let error = Error::Failed(error.into());
                self.health.failed(&error);
                Err(error)
            }
            Err(_) => {
                let error = Error::Silent(PATIENCE);
                self.health.failed(&error);
                Err(error)
            }
        }
    }
}

impl Health {
    /// Whether Redis is asked. Of those who come after a rest one is let through, and if that one
    /// is answered so are all.
    fn may_ask(&self) -> bool {
        let mut until = self.resting_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match *until {
            Some(end) if now < end => false,
            Some(_) => {
                *until = Some(now + REST);
                true
            }
            None => true,
        }
    }

    fn answered(&self) {
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.known_down.swap(false, Ordering::Relaxed) {
            info!("redis is back");
        }
    }

    fn failed(&self, error: &Error) {
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now() + REST);
        if !self.known_down.swap(true, Ordering::Relaxed) {
            let error = error as &dyn std::error::Error;
            warn!(error, "redis fails; going on without locks, and with limits of our own");
        }
    }
}

fn url(error: ::redis::RedisError) -> Error {
    Error::Url(error.into())
}
