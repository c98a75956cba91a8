//! Configuration of the memory service.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::ensure;
use holdfast_kit::{
    config::{Mesh, Tls, masked},
    telemetry,
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub memory: Memory,
    pub database: holdfast_pg::Config,
    pub telemetry: telemetry::Config,
    /// Authentication between the platform's services.
    pub mesh: Mesh,
    /// Certificate of the server, and authorities of its callers.
    pub tls: Tls,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Address for gRPC, and for health and metrics over HTTP/1.1.
    ///
    /// Only services of the mesh call it. Block all others by a network policy.
    pub listen: SocketAddr,

    /// Embedding model. After a change all units are embedded again, in the background; see
    /// docs/memory.md.
    pub embedding: Embedding,

    /// Previous embedding model, needed until all units are embedded again: questions are embedded
    /// by it meanwhile. Without it, searches use keywords and the units that are already embedded.
    pub former: Option<Embedding>,

    /// Number of vectors above which a tenant gets its own table with an index. Below it, each
    /// search scans all vectors, which is exact.
    pub index_above: u32,

    /// Half-life of daily notes in days; 0 disables aging.
    pub half_life_days: f64,

    /// Private data that is masked in the knowledge base: `secret`, `email`, `phone`, `card`.
    pub mask: Vec<String>,

    /// Private data that keeps a text out of the knowledge base; same values.
    pub refuse: Vec<String>,

    /// Time for calls in progress to finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// Tables `[memory.embedding]` and `[memory.former]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Embedding {
    /// Kind of embedder. `auto` is `local` if the feature and the model's files are there, else
    /// `hashed`.
    pub engine: Engine,

    /// Directory of the local model's files, which `make embedder` downloads.
    pub dir: PathBuf,

    /// Threads of the local model, 1 to 16.
    pub threads: usize,

    /// Base URL of an embedding server, including `/v1`.
    pub base_url: String,

    pub model: String,

    /// Numbers per vector.
    pub dimension: usize,

    /// API key of the server, if it needs one.
    #[serde(serialize_with = "masked")]
    pub api_key: SecretString,

    /// Asks the server to shorten its vectors to `dimension`; only some models can.
    pub shorten: bool,

    /// Prefix that the model expects before a question, such as `query: `.
    pub question_prefix: String,

    /// Prefix that the model expects before a passage, such as `passage: `.
    pub passage_prefix: String,

    /// Timeout of one request to the server.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Local if possible, else hashed.
    Auto,
    Local,
    /// Server with `/v1/embeddings`.
    OpenAi,
    /// No model: shared words only. For tests and trials.
    Hashed,
}

/// Kinds of private data that the privacy policy detects.
pub const PRIVATE_KINDS: [&str; 4] = ["secret", "email", "phone", "card"];

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
    /// Refuses invalid settings and warns of unwise ones.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
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
            let unknown = kinds.iter().find(|kind| !PRIVATE_KINDS.contains(&kind.as_str()));
            ensure!(
                unknown.is_none(),
                "`memory.{setting}` has `{}`: write {}",
                unknown.map_or("", String::as_str),
                PRIVATE_KINDS.map(|kind| format!("`{kind}`")).join(", ")
            );
        }
        ensure!(
            self.tls.certificate.is_none() || self.tls.authorities.is_some(),
            "`tls.authorities` is not set: only services call this one, and their certificates are \
             verified by it"
        );
        self.tls.check_listener("memory.listen", memory.listen)
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
