//! Finds the backends that tests use, or starts them.
//!
//! Existing backends are named by the variables that the services read. Otherwise real ones are
//! started by `deploy/dev/backends.py` under `.holdfast/test`, shared by all test
//! processes. Sharing is safe since each test has a namespace of its own. A test that *crashes* a
//! backend needs [`OwnBackends`].

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::scratch;

const ADMIN_URL: &str = "HOLDFAST_DATABASE__ADMIN_URL";
const APP_URL: &str = "HOLDFAST_DATABASE__URL";
const NATS_URL: &str = "HOLDFAST_NATS__URL";
const REDIS_URL: &str = "HOLDFAST_REDIS__URL";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backends {
    /// Postgres as a superuser, who may create databases and roles.
    pub admin_url: String,
    /// Postgres as the services log in: a role that owns nothing.
    pub app_url: String,
    /// Postgres as a service logs in that has a login of its own, by the service's name; empty for
    /// given backends.
    pub service_urls: BTreeMap<String, String>,
    pub nats_url: String,
    pub redis_url: String,
    /// NATS and Redis as a service logs in that connects to them; empty for given backends.
    pub nats_service_urls: BTreeMap<String, String>,
    pub redis_service_urls: BTreeMap<String, String>,
}

impl Backends {
    /// The shared backends; the first call of a process finds or starts them.
    ///
    /// # Errors
    ///
    /// If they cannot be started, with what `backends.py` said about it.
    pub async fn get() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Backends> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::find).await
    }

    async fn find() -> anyhow::Result<Self> {
        let given =
            GivenUrls::from(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        given.or_start(shared).await
    }
}

struct GivenUrls {
    admin_url: Option<String>,
    app_url: Option<String>,
    nats_url: Option<String>,
    redis_url: Option<String>,
}

impl GivenUrls {
    fn from(read: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            admin_url: read(ADMIN_URL),
            app_url: read(APP_URL),
            nats_url: read(NATS_URL),
            redis_url: read(REDIS_URL),
        }
    }

    /// Starts backends only if one is not given.
    async fn or_start(
        self,
        start: impl AsyncFnOnce() -> anyhow::Result<Backends>,
    ) -> anyhow::Result<Backends> {
        if self.admin_url.is_some() != self.app_url.is_some() {
            bail!(
                "only one of {ADMIN_URL} and {APP_URL} is set: tests create databases as the \
                 first and work as the second; set both or neither"
            );
        }
        if let Self {
            admin_url: Some(admin_url),
            app_url: Some(app_url),
            nats_url: Some(nats_url),
            redis_url: Some(redis_url),
        } = self
        {
            return Ok(Backends { admin_url, app_url, nats_url, redis_url, ..Backends::nowhere() });
        }
        let started = start().await?;
        let unless_given = |given: &Option<String>, urls| match given {
            Some(_) => BTreeMap::new(),
            None => urls,
        };
        Ok(Backends {
            service_urls: unless_given(&self.app_url, started.service_urls),
            nats_service_urls: unless_given(&self.nats_url, started.nats_service_urls),
            redis_service_urls: unless_given(&self.redis_url, started.redis_service_urls),
            admin_url: self.admin_url.unwrap_or(started.admin_url),
            app_url: self.app_url.unwrap_or(started.app_url),
            nats_url: self.nats_url.unwrap_or(started.nats_url),
            redis_url: self.redis_url.unwrap_or(started.redis_url),
        })
    }
}

/// One of the three servers, as `backends.py` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    Nats,
    Redis,
}

impl Server {
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Nats => "nats",
            Self::Redis => "redis",
        }
    }
}

/// Backends that belong to one test, which may stop, crash and restart them.
///
/// Unlike the shared ones they keep every promise about durability: Postgres syncs each commit. A
/// restarted server comes back on its old port. Dropping the value ends all three and deletes
/// their data.
#[derive(Debug)]
pub struct OwnBackends {
    dir: PathBuf,
    backends: Backends,
}

impl OwnBackends {
    /// Starts three servers with empty data.
    ///
    /// # Errors
    ///
    /// If they cannot be started, with what `backends.py` said about it.
    pub async fn start() -> anyhow::Result<Self> {
        packages().await?;
        // Beside the shared ones, which are elsewhere if Postgres' user cannot reach the checkout.
        let shared = shared_dir().canonicalize().context("the shared backends have no folder")?;
        let packages = shared.join("pkg");
        let dir = shared.with_file_name(format!("holdfast-own-{}", scratch::token()));
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot make `{}`", dir.display()))?;
        // The packages are read only, so one installation serves all.
        std::os::unix::fs::symlink(&packages, dir.join("pkg"))
            .with_context(|| format!("cannot link the packages into `{}`", dir.display()))?;
        let mut own = Self { dir, backends: Backends::nowhere() };
        // Another server must not find the port of one that is down just now.
        own.backends = up(own.dir.clone(), &["--any-port"]).await?;
        Ok(own)
    }

    #[must_use]
    pub const fn urls(&self) -> &Backends {
        &self.backends
    }

    /// A running server's process; Postgres' has one more for each connection below it.
    pub fn pid(&self, server: Server) -> anyhow::Result<u32> {
        let state = std::fs::read_to_string(self.dir.join("state.json"))
            .context("the backends' state cannot be read")?;
        let state: HashMap<String, serde_json::Value> = serde_json::from_str(&state)?;
        let pid = state.get(server.name()).and_then(|server| server["pid"].as_u64());
        let pid = pid.with_context(|| format!("`{}` does not run", server.name()))?;
        Ok(u32::try_from(pid)?)
    }

    /// Ends a server as a crash would: SIGKILL to all of its processes.
    pub async fn kill(&self, server: Server) -> anyhow::Result<()> {
        script(&self.dir, &["kill", server.name()]).await.map(drop)
    }

    /// Stops a server in good order.
    pub async fn stop(&self, server: Server) -> anyhow::Result<()> {
        script(&self.dir, &["stop", server.name()]).await.map(drop)
    }

    /// Starts a server that was stopped or killed, and waits until it is healthy.
    ///
    /// # Errors
    ///
    /// If `backends.py` fails, with what it said; or if another process took the server's port
    /// meanwhile, since nobody would find it at the new one.
    pub async fn restart(&self, server: Server) -> anyhow::Result<()> {
        let now = parse(&script(&self.dir, &["start", server.name()]).await?)?;
        if now != self.backends {
            bail!("`{}` came back at another port: {now:?}", server.name());
        }
        Ok(())
    }

    /// Folder with the data of each server and, below `pkg`, their programs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Deletes all data of Redis.
    pub async fn flush_redis(&self) -> anyhow::Result<()> {
        let client = redis::Client::open(self.backends.redis_url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    /// Deletes the JetStream store, as if its disk were lost. NATS must be stopped.
    pub async fn wipe_nats(&self) -> anyhow::Result<()> {
        script(&self.dir, &["wipe", "nats"]).await.map(drop)
    }
}

impl Drop for OwnBackends {
    fn drop(&mut self) {
        let dir = self.dir.clone();
        scratch::clean_up(async move {
            for server in [Server::Redis, Server::Nats, Server::Postgres] {
                // Killed rather than stopped: nobody will read the data again.
                script(&dir, &["kill", server.name()]).await?;
            }
            std::fs::remove_dir_all(&dir)?;
            Ok(())
        });
    }
}

impl Backends {
    const fn nowhere() -> Self {
        Self {
            admin_url: String::new(),
            app_url: String::new(),
            service_urls: BTreeMap::new(),
            nats_url: String::new(),
            redis_url: String::new(),
            nats_service_urls: BTreeMap::new(),
            redis_service_urls: BTreeMap::new(),
        }
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Folder of the servers' programs, installed if they are not there yet.
pub(crate) async fn packages() -> anyhow::Result<PathBuf> {
    let packages = shared_dir().join("pkg");
    if !packages.join("installed").exists() {
        shared().await?;
    }
    Ok(packages)
}

fn shared_dir() -> PathBuf {
    root().join(".holdfast").join("test")
}

/// The shared backends: found running, mostly, else started.
async fn shared() -> anyhow::Result<Backends> {
    let dir = shared_dir();
    match running(&dir) {
        Some(backends) => Ok(backends),
        None => up(dir, &["--fast"]).await,
    }
}

/// What runs in `dir` according to its state file, if all of it does. Each test is a process of
/// its own, and Python would cost each a tenth of a second.
fn running(dir: &Path) -> Option<Backends> {
    let state = std::fs::read_to_string(dir.join("state.json")).ok()?;
    let pids: HashMap<String, serde_json::Value> = serde_json::from_str(&state).ok()?;
    for server in pids.values() {
        // The same guard against a reused pid as in the script.
        let line = std::fs::read(format!("/proc/{}/cmdline", server["pid"].as_u64()?)).ok()?;
        if !String::from_utf8_lossy(&line).contains(dir.to_str()?) {
            return None;
        }
    }
    parse(&state).ok()
}

async fn up(dir: PathBuf, flags: &[&str]) -> anyhow::Result<Backends> {
    let args: Vec<&str> = std::iter::once("up").chain(flags.iter().copied()).collect();
    parse(&script(&dir, &args).await?)
}

/// Runs `backends.py` and returns what it printed; what it says on the way is the error if it
/// fails.
async fn script(dir: &Path, args: &[&str]) -> anyhow::Result<String> {
    let path = root().join("deploy/dev/backends.py");
    let run = Command::new("python3")
        .arg(&path)
        .args(args)
        .arg("--json")
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .output();
    // The first `up` downloads; a hung one must not hang the tests.
    let output = tokio::time::timeout(Duration::from_secs(180), run)
        .await
        .with_context(|| format!("`{} {}` takes more than 180 s", path.display(), args.join(" ")))?
        .with_context(|| {
            format!(
                "cannot run python3 on `{}`: install Python 3.9 or later, or set {ADMIN_URL}, \
                 {APP_URL}, {NATS_URL} and {REDIS_URL}",
                path.display()
            )
        })?;
    if !output.status.success() {
        bail!(
            "`{} {}` failed:\n{}",
            path.display(),
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("`backends.py` printed something that is not UTF-8")
}

fn parse(json: &str) -> anyhow::Result<Backends> {
    #[derive(Deserialize)]
    struct State {
        postgres: Postgres,
        nats: At,
        redis: At,
    }
    #[derive(Deserialize)]
    struct Postgres {
        admin_url: String,
        url: String,
        service_urls: BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    struct At {
        url: String,
        service_urls: BTreeMap<String, String>,
    }

    let state: State = serde_json::from_str(json)
        .with_context(|| format!("`backends.py` did not print its state: `{json}`"))?;
    Ok(Backends {
        admin_url: state.postgres.admin_url,
        app_url: state.postgres.url,
        service_urls: state.postgres.service_urls,
        nats_url: state.nats.url,
        redis_url: state.redis.url,
        nats_service_urls: state.nats.service_urls,
        redis_service_urls: state.redis.service_urls,
    })
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, PgConnection};

    use super::*;

    fn backends(host: &str) -> Backends {
        Backends {
            admin_url: format!("postgres://admin@{host}"),
            app_url: format!("postgres://app@{host}"),
            nats_url: format!("nats://{host}"),
            redis_url: format!("redis://{host}"),
            ..Backends::nowhere()
        }
    }

    fn given(names: &[&str]) -> GivenUrls {
        GivenUrls::from(|name| {
            let there = backends("given");
            let url = match name {
                ADMIN_URL => there.admin_url,
                APP_URL => there.app_url,
                NATS_URL => there.nats_url,
                _ => there.redis_url,
            };
            names.contains(&name).then_some(url)
        })
    }

    #[tokio::test]
    async fn backends_that_are_all_given_are_used_and_none_is_started() {
        let found = given(&[ADMIN_URL, APP_URL, NATS_URL, REDIS_URL])
            .or_start(async || bail!("started"))
            .await
            .unwrap();

        assert_eq!(found, backends("given"));
    }

    #[tokio::test]
    async fn a_backend_that_is_not_given_is_started() {
        let found = given(&[NATS_URL]).or_start(async || Ok(backends("started"))).await.unwrap();

        assert_eq!(found, Backends { nats_url: "nats://given".to_owned(), ..backends("started") });
    }

    #[tokio::test]
    async fn half_a_database_is_refused() {
        let refused = given(&[APP_URL, NATS_URL]).or_start(async || bail!("started")).await;

        assert!(refused.unwrap_err().to_string().contains("set both or neither"));
    }

    #[tokio::test]
    async fn no_server_serves_who_does_not_know_its_password() {
        let started = shared().await.unwrap();
        let without = |url: &str| {
            let (scheme, rest) = url.split_once("://").unwrap();
            let (login, server) = rest.split_once('@').unwrap();
            let user = login.split(':').next().filter(|user| !user.is_empty());
            format!(
                "{scheme}://{}{server}",
                user.map(|user| format!("{user}@")).unwrap_or_default()
            )
        };

        for url in [&started.admin_url, &started.app_url] {
            let refused = PgConnection::connect(&without(url)).await.unwrap_err();
            assert!(refused.to_string().contains("password"), "{refused}");
        }
        // The services' password is not the password of the schema's owner.
        let as_owner = started.app_url.replace("://holdfast:", "://postgres:");
        let refused = PgConnection::connect(&as_owner).await.unwrap_err();
        assert!(refused.to_string().contains("password"), "{refused}");
        assert!(async_nats::connect(without(&started.nats_url)).await.is_err());
        let redis = redis::Client::open(without(&started.redis_url)).unwrap();
        let mut connection = redis.get_multiplexed_async_connection().await.unwrap();
        let refused = redis::cmd("DBSIZE").query_async::<i64>(&mut connection).await.unwrap_err();
        assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    }

    #[tokio::test]
    async fn servers_whose_password_file_is_lost_get_another_password() {
        let own = OwnBackends::start().await.unwrap();
        let old = own.urls().clone();
        std::fs::remove_file(own.dir.join("password")).unwrap();

        let new = up(own.dir.clone(), &[]).await.unwrap();

        assert_eq!(new.admin_url, old.admin_url);
        assert!(PgConnection::connect(&old.app_url).await.is_err());
        PgConnection::connect(&new.app_url).await.unwrap();
        crate::nats::connect(&new.nats_url).await.unwrap();
        let redis = redis::Client::open(new.redis_url).unwrap();
        redis.get_multiplexed_async_connection().await.unwrap();
    }

    #[tokio::test]
    async fn a_killed_postgres_comes_back_where_it_was_with_what_was_committed() {
        let own = OwnBackends::start().await.unwrap();
        let url = own.urls().admin_url.clone();
        let mut before = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("create table kept (id int); insert into kept values (7)")
            .execute(&mut before)
            .await
            .unwrap();

        own.kill(Server::Postgres).await.unwrap();
        assert!(PgConnection::connect(&url).await.is_err());
        own.restart(Server::Postgres).await.unwrap();

        let mut after = PgConnection::connect(&url).await.unwrap();
        let id: i32 =
            sqlx::query_scalar("select id from kept").fetch_one(&mut after).await.unwrap();
        assert_eq!(id, 7);
    }
}
