//! A running secrets service, and clients in the name of other services.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_grpc::SecretsClient;
use holdfast_kit::{
    config::{self, Secrets},
    tls::Tls,
};
use secrets::{App, Config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Services with their keys, in and outside of the service's list.
pub const KEYS: [(&str, &str); 5] = [
    ("gateway", "key of the gateway in tests"),
    ("agent-runner", "key of the runner in tests"),
    ("channel-bridge", "key of the bridge in tests"),
    ("memory-service", "key of the memory service in tests"),
    ("scheduler", "key of the scheduler in tests"),
];

pub struct Served {
    pub url: String,
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// Secrets of an installation whose key-encryption key consists of this byte.
pub fn secrets(kek: u8) -> Secrets {
    let pepper = "pepper of the tests".into();
    Secrets { kek: STANDARD.encode([kek; 32]).into(), pepper, ..Secrets::default() }
}

impl Served {
    /// Starts a service with the keys of all of [`KEYS`].
    pub async fn start(secrets: Secrets) -> anyhow::Result<Self> {
        let keys: Vec<String> = KEYS.iter().map(|(name, key)| format!("{name}={key}")).collect();
        let mut config = Config { secrets, ..Config::default() };
        config.secrets_service.listen = "127.0.0.1:0".parse()?;
        config.mesh.caller_keys = keys.join(",").into();
        let app = App::connect(config).await?;
        let url = format!("http://{}", app.address()?);
        let stop = CancellationToken::new();
        let running = tokio::spawn(app.run(stop.clone()));
        Ok(Self { url, stop, running })
    }

    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.running.await?
    }

    /// Client in the name of a service, with the key of one.
    pub fn client(&self, service: &'static str, key_of: &str) -> SecretsClient {
        let (_, key) = KEYS.iter().find(|(name, _)| *name == key_of).unwrap();
        let mesh = config::Mesh {
            secrets_url: self.url.clone(),
            secrets_key: (*key).into(),
            // As a service that has a key for other calls, too.
            key: "key for other calls".into(),
            ..config::Mesh::default()
        };
        let client =
            SecretsClient::configured(&Secrets::default(), &mesh, &Tls::default(), service);
        client.unwrap().unwrap()
    }
}
