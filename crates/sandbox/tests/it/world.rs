//! Sandbox and workspace for each test.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_sandbox::{BackendChoice, Command, Config, Limits, LocalSandbox, Outcome, open};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Sandbox with small limits, and a workspace with a secret beside it.
pub struct World {
    pub sandbox: Arc<dyn LocalSandbox>,
    dir: TempDir,
}

/// Secret outside the workspace, and in this process' environment.
pub const SECRET: &str = "hf-secret-7f3a91";

pub fn config(backend: BackendChoice) -> Config {
    const MIB: u64 = 1 << 20;
    Config {
        backend,
        limits: Limits {
            memory: 192 * MIB,
            processes: 64,
            file_size: 16 * MIB,
            disk: 24 * MIB,
            tmp: 4 * MIB,
            cpu: Duration::from_secs(20),
            output: 20_000,
            ..Limits::default()
        },
        timeout: Duration::from_secs(20),
        ..Config::default()
    }
}

impl World {
    /// Uses bubblewrap; panics with instructions if it is not installed.
    pub async fn walled() -> anyhow::Result<Self> {
        Self::with(config(BackendChoice::Bubblewrap)).await
    }

    /// Uses the plain backend.
    pub async fn plain() -> anyhow::Result<Self> {
        Self::with(config(BackendChoice::Plain)).await
    }

    pub async fn with(config: Config) -> anyhow::Result<Self> {
        let sandbox = open(&config).await.context("no sandbox, no test")?;
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("workspace"))?;
        fs::write(dir.path().join("secret"), SECRET)?;
        Ok(Self { sandbox, dir })
    }

    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// File that holds the secret.
    pub fn secret(&self) -> PathBuf {
        self.dir.path().join("secret")
    }

    pub fn command(&self, script: &str) -> Command {
        Command::new(script, self.workspace())
    }

    pub async fn run(&self, script: &str) -> anyhow::Result<Outcome> {
        self.run_command(self.command(script)).await
    }

    pub async fn run_command(&self, command: Command) -> anyhow::Result<Outcome> {
        Ok(self.sandbox.run(command, CancellationToken::new()).await?)
    }

    /// Runs a script that must succeed, and returns its output.
    pub async fn output(&self, script: &str) -> anyhow::Result<String> {
        let outcome = self.run(script).await?;
        anyhow::ensure!(
            outcome.ended.is_success(),
            "{}: {}{}",
            outcome.ended,
            outcome.stdout.to_text(),
            outcome.stderr.to_text()
        );
        Ok(outcome.stdout.to_text())
    }
}

/// Returns a short, unique duration for `sleep`, by which its process can be found.
pub fn seconds(whole: u32) -> String {
    format!("{whole}.{}", std::process::id())
}

/// Whether a process of this machine has this word among its arguments.
pub fn is_running(word: &str) -> bool {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let is_own = process.file_name().to_str() == Some(&own);
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        !is_own && arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}
