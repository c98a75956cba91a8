//! Postgres, NATS, Redis and a collector over TLS, and what the operator is told if one of them
//! refuses a service.
//!
//! The packaged Postgres and Valkey are built without TLS: a proxy ends it in front of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use holdfast_testkit::{
    Authority, Backends, Certificate, Process, Reply, TlsProxy, TlsStart, free_address,
};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::node::Node;
use holdfast_tests::person::{GrpcClient, until};
use holdfast_tests::turnstile;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use crate::RUNNER;
use crate::jetstream::nats_program;

const NAMES: [&str; 1] = ["127.0.0.1"];
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a service would have repeated a line.
const REPEAT_TIME: Duration = Duration::from_secs(4);

/// Has a service log also that a backend is back.
const LOG_INFO: (&str, &str) = ("HOLDFAST_TELEMETRY__LOG", "info");

/// An NKey of a user: its seed and its public key.
const NKEY_SEED: &str = "SUAAOAV4DYLJYCS66DSQPPWK7RVOEWPBGLCTWLHXRUDQQSRXPSV7JATXQE";
const NKEY: &str = "UBMDZTBFSRGODQDHYJBURGXD7H5N62LJFR6X5W7YCPXJVXLKRYSMFUFX";

/// Settings of a gateway, as variables.
type Settings = Vec<(&'static str, String)>;

/// A mesh, and an authority for its backends.
struct World {
    mesh: Mesh,
    authority: Authority,
    folder: TempDir,
    /// The file with the authority.
    trusted: String,
    /// A file with another authority.
    other: String,
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let mesh = Mesh::prepare(&MeshConfig::small(RUNNER), Backends::get().await?).await?;
        mesh.fakes.model.answer(|_| Reply::text("it is encrypted"));
        let folder = tempfile::tempdir()?;
        let authority = Authority::new()?;
        let write = |name: &str, pem: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem)?;
            anyhow::Ok(path.display().to_string())
        };
        let trusted = write("trusted.pem", authority.pem())?;
        let other = write("other.pem", Authority::new()?.pem())?;
        Ok(Self { mesh, authority, folder, trusted, other })
    }

    fn good(&self) -> anyhow::Result<Certificate> {
        self.authority.issue(&NAMES)
    }

    fn expired(&self) -> anyhow::Result<Certificate> {
        self.authority.issue_expired(&NAMES)
    }

    async fn postgres(&self, certificate: &Certificate) -> anyhow::Result<TlsProxy> {
        TlsProxy::in_front_of(&self.mesh.url(), certificate, TlsStart::Postgres).await
    }

    async fn redis(&self, certificate: &Certificate) -> anyhow::Result<TlsProxy> {
        TlsProxy::in_front_of(self.mesh.redis.url(), certificate, TlsStart::AtOnce).await
    }

    fn postgres_settings(&self, proxy: &TlsProxy, authorities: &str) -> Settings {
        let url = with_port(&self.mesh.url(), proxy.port());
        let url = format!("{url}?sslmode=verify-full&sslrootcert={authorities}");
        vec![("HOLDFAST_DATABASE__URL", url)]
    }

    fn redis_settings(&self, proxy: &TlsProxy, authorities: &str) -> Settings {
        let url = with_port(self.mesh.redis.url(), proxy.port()).replace("redis://", "rediss://");
        vec![("HOLDFAST_REDIS__URL", url), ("HOLDFAST_REDIS__AUTHORITIES", authorities.to_owned())]
    }

    /// Makes calls until the gateway, which logs with [`LOG_INFO`], uses NATS and Redis. One that
    /// is slow for a moment is logged as gone, and then as back.
    async fn reaches_nats_and_redis(&self) -> anyhow::Result<()> {
        // NATS is logged as gone if it is not connected after two seconds.
        sleep(REPEAT_TIME).await;
        let client = GrpcClient::of(&self.mesh, 0)?;
        let pairs = [("nats is gone", "nats is back"), ("redis fails", "redis is back")];
        let reached = until("NATS and Redis are reached", async || {
            // Redis is asked only by calls.
            client.put_owner("telegram:1").await?;
            let output = self.mesh.gateways[0].output().await;
            let is_back = |(gone, back): (&str, &str)| {
                output.matches(gone).count() == output.matches(back).count()
            };
            Ok(pairs.into_iter().all(is_back))
        })
        .await;
        let output = self.mesh.gateways[0].output().await;
        ensure!(!output.contains("nats refuses"), "{output}");
        reached.context(output)
    }

    /// Starts the gateway with these settings and makes calls until it has written `expected`, which
    /// it must not repeat at once.
    async fn is_told(&self, settings: Settings, expected: &str) -> anyhow::Result<()> {
        self.is_told_by(&self.mesh.gateways[0], settings, expected).await
    }

    /// As [`Self::is_told`], by another process.
    async fn is_told_by(
        &self,
        gateway: &Node,
        settings: Settings,
        expected: &str,
    ) -> anyhow::Result<()> {
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        gateway.start_with(&settings).await?;
        let begun = Instant::now();
        let client = GrpcClient::of(&self.mesh, 0)?;
        let call = async || {
            // Redis is asked only by calls.
            drop(timeout(Duration::from_secs(2), client.put_owner("telegram:1")).await);
            gateway.output().await
        };
        let is_written = async || Ok(call().await.contains(expected));
        until(expected, is_written).await.with_context(|| format!("{settings:?}"))?;
        sleep(REPEAT_TIME).await;
        let output = call().await;
        gateway.end().await?;
        let lines = output.lines().filter(|line| line.contains(expected)).count();
        // A service that waits for its database says so every ten seconds.
        let most = 1 + begun.elapsed().as_secs() / 10;
        ensure!(lines as u64 <= most, "`{expected}` is written {lines} times:\n{output}");
        let secrets = ["wrong-password", NKEY_SEED];
        ensure!(secrets.iter().all(|secret| !output.contains(secret)), "a secret is shown");
        Ok(())
    }
}

/// The same URL, with another port on loopback.
fn with_port(url: &str, port: u16) -> String {
    let from = url.find('@').map_or(0, |at| at + 1);
    let to = url[from..].find('/').map_or(url.len(), |at| from + at);
    format!("{}127.0.0.1:{port}{}", &url[..from], &url[to..])
}

fn with_password(url: &str, password: &str) -> String {
    let to = url.find('@').unwrap_or(url.len());
    let from = url[..to].rfind(':').map_or(0, |at| at + 1);
    format!("{}{password}{}", &url[..from], &url[to..])
}

/// A NATS server with TLS, an NKey, and a user who may do nothing.
struct Nats {
    port: u16,
    _process: Process,
}

impl Nats {
    async fn start(folder: &Path, name: &str, certificate: &Certificate) -> anyhow::Result<Self> {
        Self::start_for(folder, name, certificate, "").await
    }

    /// `clients` are further settings of TLS.
    async fn start_for(
        folder: &Path,
        name: &str,
        certificate: &Certificate,
        clients: &str,
    ) -> anyhow::Result<Self> {
        let files = certificate.write(folder, name)?;
        let (at, config) = (free_address()?, folder.join(format!("{name}.conf")));
        let text = format!(
            "listen: {at}\njetstream {{ store_dir: {:?} }}\n\
             tls {{ cert_file: {:?}, key_file: {:?}, {clients} }}\n\
             authorization {{ users: [\n\
             {{ nkey: {NKEY} }}, {{ user: full, password: secret }},\n\
             {{ user: limited, password: secret, permissions: {{ publish: {{ deny: \">\" }}, \
             subscribe: {{ deny: \">\" }} }} }}] }}\n",
            folder.join(name),
            files.certificate,
            files.private_key,
        );
        std::fs::write(&config, text)?;
        let mut process = Process::builder(nats_program()?).arg("-c").arg(config).spawn()?;
        let is_open = async || tokio::net::TcpStream::connect(at).await.is_ok();
        process.wait_until("a port of NATS", START_TIMEOUT, is_open).await?;
        Ok(Self { port: at.port(), _process: process })
    }

    fn settings(&self, login: &str, authorities: &str) -> Settings {
        vec![
            ("HOLDFAST_NATS__URL", format!("tls://{login}127.0.0.1:{}", self.port)),
            ("HOLDFAST_NATS__AUTHORITIES", authorities.to_owned()),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_reaches_all_backends_and_a_collector_over_tls() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let good = world.good()?;
    let (postgres, redis) = (world.postgres(&good).await?, world.redis(&good).await?);
    let nats = Nats::start(world.folder.path(), "nats", &good).await?;
    let collector = TcpListener::bind("127.0.0.1:0").await?;
    let traces = TlsProxy::start(collector.local_addr()?, &good, TlsStart::AtOnce).await?;
    let mut settings = world.postgres_settings(&postgres, &world.trusted);
    settings.extend(world.redis_settings(&redis, &world.trusted));
    settings.extend(nats.settings("", &world.trusted));
    settings.push(("HOLDFAST_NATS__NKEY", NKEY_SEED.to_owned()));
    let endpoint = format!("https://127.0.0.1:{}", traces.port());
    settings.push(("HOLDFAST_TELEMETRY__OTLP_ENDPOINT", endpoint));
    settings.push(("HOLDFAST_TELEMETRY__OTLP_AUTHORITIES", world.trusted.clone()));
    let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<_> = settings.chain([LOG_INFO]).collect();
    let (gateway, runner) = (&world.mesh.gateways[0], &world.mesh.runners[0]);
    gateway.start_with(&settings).await?;
    runner.start().await?;
    gateway.ready(START_TIMEOUT).await?;

    let answer = GrpcClient::of(&world.mesh, 0)?.ask("", "hello").await?;
    ensure!(answer == "it is encrypted", "{answer}");
    let (mut connection, _) = timeout(START_TIMEOUT, collector.accept()).await??;
    let mut preface = [0; 14];
    timeout(START_TIMEOUT, connection.read_exact(&mut preface)).await??;
    ensure!(&preface == b"PRI * HTTP/2.0", "no gRPC arrives at the collector");
    world.reaches_nats_and_redis().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_shows_its_certificate_to_backends_that_ask_for_one() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let (good, clients) = (world.good()?, Authority::new()?);
    let own = clients.issue(&["gateway"])?.write(world.folder.path(), "own")?;
    let (certificate, key) =
        (own.certificate.display().to_string(), own.private_key.display().to_string());
    let ca_file = world.folder.path().join("clients.pem");
    std::fs::write(&ca_file, clients.pem())?;
    let verify = format!("ca_file: {ca_file:?}, verify: true");

    let asked = TlsProxy::for_clients_of;
    let url = world.mesh.url();
    let postgres = asked(&clients, &url, &good, TlsStart::Postgres).await?;
    let redis = asked(&clients, world.mesh.redis.url(), &good, TlsStart::AtOnce).await?;
    let nats = Nats::start_for(world.folder.path(), "asks", &good, &verify).await?;
    let of_postgres = world.postgres_settings(&postgres, &world.trusted);
    let of_redis = world.redis_settings(&redis, &world.trusted);
    let of_nats = nats.settings("full:secret@", &world.trusted);

    let (_, url) = of_postgres[0].clone();
    let url = format!("{url}&sslcert={certificate}&sslkey={key}");
    let mut settings = vec![
        ("HOLDFAST_DATABASE__URL", url),
        ("HOLDFAST_REDIS__CERTIFICATE", certificate.clone()),
        ("HOLDFAST_REDIS__PRIVATE_KEY", key.clone()),
        ("HOLDFAST_NATS__CERTIFICATE", certificate),
        ("HOLDFAST_NATS__PRIVATE_KEY", key),
    ];
    settings.extend(of_redis.iter().chain(&of_nats).cloned());
    let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<_> = settings.chain([LOG_INFO]).collect();
    let (gateway, runner) = (&world.mesh.gateways[0], &world.mesh.runners[0]);
    gateway.start_with(&settings).await?;
    runner.start().await?;
    gateway.ready(START_TIMEOUT).await?;
    let answer = GrpcClient::of(&world.mesh, 0)?.ask("", "hello").await?;
    ensure!(answer == "it is encrypted", "{answer}");
    world.reaches_nats_and_redis().await?;
    gateway.end().await?;

    world.is_told(of_postgres, "by `sslcert` and `sslkey` in `database.url`").await?;
    world.is_told(of_redis, "by `redis.certificate` and `redis.private_key`").await?;
    world.is_told(of_nats, "by `nats.certificate` and `nats.private_key`").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_nats_denies_is_told_at_the_start_with_what_to_grant() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let nats = Nats::start(world.folder.path(), "limits", &world.good()?).await?;
    let settings = || nats.settings("limited:secret@", &world.trusted);
    let runner = &world.mesh.runners[0];

    let grant = |what: &str| format!("{what} in the permissions of this service's user in NATS");
    world.is_told(settings(), &grant("wake.>` to `publish`")).await?;
    world.is_told_by(runner, settings(), "add `$JS.API.STREAM.INFO.").await?;
    world.is_told_by(runner, settings(), &grant("wake.run` to `subscribe`")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_postgres_refuses_is_told_with_what_to_do() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let url = world.mesh.url();
    let (good, expired) =
        (world.postgres(&world.good()?).await?, world.postgres(&world.expired()?).await?);

    let wrong = vec![("HOLDFAST_DATABASE__URL", with_password(&url, "wrong-password"))];
    world.is_told(wrong, "set user and password in `database.url`").await?;
    let settings = world.postgres_settings(&expired, &world.trusted);
    world.is_told(settings, "its certificate has expired; renew the server's certificate").await?;
    let settings = world.postgres_settings(&good, &world.other);
    world
        .is_told(settings, "its authority's certificate by `sslrootcert` in `database.url`")
        .await?;
    let plain = vec![("HOLDFAST_DATABASE__URL", format!("{url}?sslmode=verify-full"))];
    world.is_told(plain, "turn TLS on in Postgres (`ssl = on`)").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nats_refuses_is_told_once_with_what_to_do() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let good = Nats::start(world.folder.path(), "good", &world.good()?).await?;
    let expired = Nats::start(world.folder.path(), "expired", &world.expired()?).await?;

    let settings = good.settings("full:wrong-password@", &world.trusted);
    world.is_told(settings, "the login is wrong or has expired").await?;
    let settings = expired.settings("full:secret@", &world.trusted);
    world.is_told(settings, "its certificate has expired; renew the server's certificate").await?;
    let settings = good.settings("full:secret@", &world.other);
    world.is_told(settings, "its authority's certificate by `nats.authorities`").await?;
    let settings = vec![("HOLDFAST_NATS__CREDENTIALS", "no credentials".to_owned())];
    world.is_told(settings, "write the content of a `.creds` file").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_refuses_is_told_once_with_what_to_do() -> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let world = World::new().await?;
    let (good, expired) =
        (world.redis(&world.good()?).await?, world.redis(&world.expired()?).await?);
    let url = world.mesh.redis.url();

    let wrong = vec![("HOLDFAST_REDIS__URL", with_password(url, "wrong-password"))];
    world.is_told(wrong, "set user and password in `redis.url`").await?;
    let limited = vec![("HOLDFAST_REDIS__URL", world.mesh.redis.url_without_rights().await?)];
    world.is_told(limited, "give the user the rights").await?;
    let settings = world.redis_settings(&expired, &world.trusted);
    world.is_told(settings, "its certificate has expired; renew the server's certificate").await?;
    let settings = world.redis_settings(&good, &world.other);
    world.is_told(settings, "its authority's certificate by `redis.authorities`").await
}
