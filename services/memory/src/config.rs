//! What an operator may choose about the memory.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, masked},
    telemetry,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Everything that the service reads: its own table, and those that all services share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The memory.
    pub memory: Memory,
    /// Postgres.
    pub database: holdfast_pg::Config,
    /// Logs and spans.
    pub telemetry: telemetry::Config,
    /// How the platform's own services trust each other.
    pub mesh: Mesh,
}

/// The memory: the table `[memory]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Where gRPC is served, and health and metrics over HTTP/1.1 beside it.
    ///
    /// Only the mesh's own services call it. Keep everybody else away by a network policy.
    pub listen: SocketAddr,

    /// What turns texts into vectors. Another model has everything embedded anew, in the
    /// background; see docs/memory.md.
    pub embedding: Embedding,

    /// The embedding before this one, until everything is embedded anew: questions are asked by it
    /// meanwhile. Without it they are answered by words, and by what is embedded already.
    pub former: Option<Embedding>,

    /// From how many vectors on a tenant gets a table of its own with an index. Below, each search
    /// looks at all of them, which is exact.
    pub index_above: u32,

    /// After so many days a daily note counts half. 0 has none age.
    pub half_life_days: f64,

    /// What is masked in the knowledge base: `secret`, `email`, `phone`, `card`.
    pub mask: Vec<String>,

    /// What keeps a text out of the knowledge base, of the same four.
    pub refuse: Vec<String>,

    /// How long to let calls at hand finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// What turns texts into vectors: the tables `[memory.embedding]` and `[memory.former]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Embedding {
    /// `auto` is `local` if this program has it and its files are there, else `hashed`.
    pub engine: Engine,

    /// The directory of the local model, which `make embedder` fetches.
    pub dir: PathBuf,

    /// Threads of the local model, 1 to 16.
    pub threads: usize,

    /// The address of an embedding server up to and with `/v1`.
    pub base_url: String,

    /// The model's name there.
    pub model: String,

    /// How many numbers its vectors have.
    pub dimension: usize,

    /// The server's key, if it wants one.
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,

    /// Asks the server to shorten its vectors to `dimension`, which only some models can.
    pub shorten: bool,

    /// What the model wants before a question, such as `query: `.
    pub question_prefix: String,

    /// What the model wants before a passage, such as `passage: `.
    pub passage_prefix: String,

    /// How long one request to the server may take.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

/// The kinds of embedders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The local one if it can be, else the hashed one.
    Auto,
    /// A model in this process.
    Local,
    /// A server that speaks `/v1/embeddings`.
    OpenAi,
    /// No model: words only. For tests and trials.
    Hashed,
}

/// What the privacy policy knows.
pub const PRIVATE: [&str; 4] = ["secret", "email", "phone", "card"];

impl Default for Memory {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18794)),
            embedding: Embedding::default(),
            former: None,
            index_above: 20_000,
            half_life_days: 30.0,
            mask: vec!["secret".to_owned()],
            refuse: Vec::new(),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Default for Embedding {
    fn default() -> Self {
        Self {
            engine: Engine::Auto,
            dir: PathBuf::from(".holdfast/embedder"),
            threads: 2,
            base_url: "https://api.openai.com/v1".to_owned(),
            model: "text-embedding-3-small".to_owned(),
            dimension: 1536,
            api_key: "".into(),
            shorten: false,
            question_prefix: String::new(),
            passage_prefix: String::new(),
            timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Refuses what cannot work, and warns of what is unwise.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        let memory = &self.memory;
        ensure!(
            (100..=100_000).contains(&memory.index_above),
            "`memory.index_above` is {}: write 100 to 100000",
            memory.index_above
        );
        ensure!(
            (0.0..=36_500.0).contains(&memory.half_life_days),
            "`memory.half_life_days` is {}: write 0 to 36500",
            memory.half_life_days
        );
        for (setting, kinds) in [("mask", &memory.mask), ("refuse", &memory.refuse)] {
            let unknown = kinds.iter().find(|kind| !PRIVATE.contains(&kind.as_str()));
            ensure!(
                unknown.is_none(),
                "`memory.{setting}` has `{}`: write {}",
                unknown.map_or("", String::as_str),
                PRIVATE.map(|kind| format!("`{kind}`")).join(", ")
            );
        }
        if !memory.listen.ip().is_loopback() {
            warn!(
                address = %memory.listen,
                "`memory.listen` can be reached by others and speaks no tls; \
                 let only the mesh's services through to it"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_usable_and_on_loopback() {
        let config = Config::default();

        config.check().unwrap();
        assert!(config.memory.listen.ip().is_loopback());
        assert_eq!(config.mesh.memory_url, format!("http://{}", config.memory.listen));
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_setting_to_change() {
        let refused = |change: fn(&mut Memory)| {
            let mut config = Config::default();
            change(&mut config.memory);
            config.check().unwrap_err().to_string()
        };

        assert!(refused(|m| m.index_above = 1).contains("`memory.index_above`"));
        assert!(refused(|m| m.half_life_days = f64::NAN).contains("`memory.half_life_days`"));
        assert!(refused(|m| m.mask = vec!["emails".into()]).contains("`memory.mask` has `emails`"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = Config::default();
        config.memory.embedding.api_key = "key-of-the-day".into();
        config.mesh.secret = "secret-of-the-mesh".into();

        let shown = holdfast_kit::config::print(&config);

        assert!(!shown.contains("of-the-"), "{shown}");
    }
}
