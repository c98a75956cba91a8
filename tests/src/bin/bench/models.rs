//! The fake models: each a process, with an agent of its name.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use holdfast_testkit::Process;
use tokio::time::sleep;

use crate::readiness;

/// A fake model, and the agent that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    Instant,
    /// Answers after 200 ms.
    Slow,
    /// Answers after 3 s.
    VerySlow,
    /// Answers at once, and calls a tool first.
    Tool,
    /// Calls a tool [`ROUNDS`] times, one call after the other.
    Rounds,
    /// Plays the built-in behaviours in [`ROUNDS`] steps, of which each calls the tool.
    Behaviors,
}

/// Calls of the tool in one turn of the models that call it more than once.
pub const ROUNDS: usize = 12;

impl Model {
    const ALL: [Self; 6] =
        [Self::Instant, Self::Slow, Self::VerySlow, Self::Tool, Self::Rounds, Self::Behaviors];

    /// The provider's name, and the agent's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Slow => "slow",
            Self::VerySlow => "very-slow",
            Self::Tool => "tool",
            Self::Rounds => "rounds",
            Self::Behaviors => "behaviors",
        }
    }

    pub const fn latency(self) -> Duration {
        match self {
            Self::Instant | Self::Tool | Self::Rounds | Self::Behaviors => Duration::ZERO,
            Self::Slow => Duration::from_millis(200),
            Self::VerySlow => Duration::from_secs(3),
        }
    }
}

#[derive(Debug)]
pub struct Models(Vec<(Model, String, Process)>);

impl Models {
    pub async fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("fake_model");
        let mut running = Vec::new();
        for model in Model::ALL {
            let latency = model.latency().as_millis().to_string();
            let mut builder = Process::builder(&program).arg("--latency-ms").arg(latency);
            let arguments = match model {
                Model::Instant | Model::Slow | Model::VerySlow => Vec::new(),
                Model::Tool => vec!["--rounds".to_owned(), "1".to_owned()],
                Model::Rounds => vec!["--rounds".to_owned(), ROUNDS.to_string()],
                // The first step plans the todos, the last one checks them.
                Model::Behaviors => vec!["--todos".to_owned(), (ROUNDS - 2).to_string()],
            };
            if !arguments.is_empty() {
                builder = builder.arg("--tool").arg("session_status");
            }
            for argument in arguments {
                builder = builder.arg(argument);
            }
            let process = builder.spawn().context("the fake models are built by `make bench`")?;
            running.push((model, url(&process).await?, process));
        }
        Ok(Self(running))
    }

    /// Each, with its base URL.
    pub fn all(&self) -> impl Iterator<Item = (Model, String)> {
        self.0.iter().map(|(model, url, _)| (*model, url.clone()))
    }

    /// How long the last request to this one was, in bytes.
    pub async fn last_size(&self, model: Model) -> anyhow::Result<usize> {
        let (_, url, _) = self.0.iter().find(|(of, ..)| *of == model).context("no such model")?;
        Ok(readiness::get(address(url)?, "/size").await?.1.trim().parse()?)
    }

    /// How many requests all of them have got so far.
    pub async fn requests(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for (_, url, _) in &self.0 {
            sum += readiness::get(address(url)?, "/count").await?.1.trim().parse::<u64>()?;
        }
        Ok(sum)
    }
}

/// Where the server of this base URL listens.
fn address(url: &str) -> anyhow::Result<SocketAddr> {
    Ok(url.trim_start_matches("http://").trim_end_matches("/v1").parse()?)
}

/// The URL that the process prints first.
async fn url(process: &Process) -> anyhow::Result<String> {
    for _ in 0..1000 {
        if let Some((line, _)) = process.output().split_once('\n') {
            return Ok(line.to_owned());
        }
        sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("the fake model does not start; it said `{}`", process.output())
}
