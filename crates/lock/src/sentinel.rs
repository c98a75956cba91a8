//! The server that Redis Sentinel names, and its connection.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates, TlsMode,
    aio::MultiplexedConnection,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::sync::Mutex;

/// A server that may move. Its address is asked for when a call has failed.
#[derive(Debug)]
pub(crate) struct SentinelServer {
    settings: SentinelSettings,
    /// Number of times that the address was asked for: each time another Sentinel is the first, as
    /// one that does not answer would use up the time of the call.
    asked: AtomicUsize,
    connection: Mutex<Option<MultiplexedConnection>>,
}

#[derive(Debug)]
pub(crate) struct SentinelSettings {
    pub sentinels: Vec<ConnectionInfo>,
    /// Name of the group of servers.
    pub group: String,
    /// Login and database of the server; its address is not used.
    pub server: ConnectionInfo,
    pub is_tls: bool,
    pub certificates: Option<TlsCertificates>,
    /// Maximum wait for a connection, and for an answer.
    pub timeout: Duration,
}

impl SentinelServer {
    /// Checks the settings. Nothing is connected yet.
    pub fn new(settings: SentinelSettings) -> RedisResult<Self> {
        settings.client(0)?;
        Ok(Self { settings, asked: AtomicUsize::new(0), connection: Mutex::default() })
    }

    pub async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = &*connection {
            return Ok(open.clone());
        }
        let mut sentinels = self.settings.client(self.asked.fetch_add(1, Ordering::Relaxed))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.timeout))
            .set_response_timeout(Some(self.settings.timeout));
        let open = sentinels.get_async_connection_with_config(&config).await?;
        *connection = Some(open.clone());
        Ok(open)
    }

    /// Closes the connection after a failure: the server may have moved.
    pub async fn forget(&self) {
        *self.connection.lock().await = None;
    }
}

impl SentinelSettings {
    fn client(&self, first: usize) -> RedisResult<SentinelClient> {
        let mut addresses: Vec<ConnectionAddr> =
            self.sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
        let count = addresses.len().max(1);
        addresses.rotate_left(first % count);
        let nodelay = || TcpSettings::default().set_nodelay(true);
        let server = self.server.redis_settings();
        let mut builder =
            SentinelClientBuilder::new(addresses, &self.group, SentinelServerType::Master)?
                .set_client_to_redis_db(server.db())
                .set_client_to_redis_tcp_settings(nodelay())
                .set_client_to_sentinel_tcp_settings(nodelay());
        if let Some(user) = server.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = server.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.is_tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
        }
        // All Sentinels of a group have one login.
        let login = self.sentinels.first().map(ConnectionInfo::redis_settings);
        if let Some(user) = login.and_then(|login| login.username()) {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = login.and_then(|login| login.password()) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        builder.build()
    }
}
