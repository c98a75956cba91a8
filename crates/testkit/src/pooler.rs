//! PgBouncer in transaction mode, in front of a test's Postgres.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;

use crate::process::Process;
use crate::scratch;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A PgBouncer; ended with the value.
#[derive(Debug)]
pub struct Pooler {
    _process: Process,
    url: String,
}

impl Pooler {
    /// Starts a PgBouncer that opens at most `connections` to the database of `url`, and hands one
    /// to a client for one transaction. `settings` are further lines of its configuration.
    ///
    /// # Errors
    ///
    /// If it does not start; with what it said last.
    pub async fn start(url: &str, connections: u32, settings: &str) -> anyhow::Result<Self> {
        let target = Target::parse(url).context("not a URL with user, password and database")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("holdfast-pooler-{}", scratch::token()));
        std::fs::create_dir_all(&folder)?;
        let users = folder.join("users.txt");
        std::fs::write(&users, format!("\"{}\" \"{}\"\n", target.user, target.password))?;
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = plain\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {connections}\nmax_client_conn = 500\n\
             server_login_retry = 1\n{settings}\n",
            target.host,
            target.port,
            users.display(),
        );
        std::fs::write(&config, text)?;
        // It refuses to run as root; as another user it ignores this.
        let mut process = Process::builder("pgbouncer").arg("-u").arg("nobody").arg(&config);
        process = process.arg("-q");
        let mut process = process.spawn()?;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        process.wait_for_port(addr, START_TIMEOUT).await?;
        let Target { user, password, database, .. } = target;
        Ok(Self {
            _process: process,
            url: format!("postgres://{user}:{password}@{addr}/{database}"),
        })
    }

    /// The database, through the pooler.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Target<'u> {
    user: &'u str,
    password: &'u str,
    host: &'u str,
    port: &'u str,
    database: &'u str,
}

impl<'u> Target<'u> {
    fn parse(url: &'u str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (login, rest) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (address, database) = rest.split_once('/')?;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        let database = database.split('?').next()?;
        Some(Self { user, password, host, port, database })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("postgres://u:p@h:1/db?sslmode=disable");

        let expected = Target { user: "u", password: "p", host: "h", port: "1", database: "db" };
        assert_eq!(target, Some(expected));
        assert_eq!(Target::parse("postgres://h/db"), None);
    }
}
