//! What an operator may choose about the runner.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use holdfast_kit::{config::Secrets, telemetry};
use holdfast_session::LEASE;
use holdfast_tools::Web;
use serde::{Deserialize, Serialize};

/// The settings of a process that runs agents: the tables it shares with others, and its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The database.
    pub database: holdfast_pg::Config,
    /// The bus.
    pub nats: holdfast_bus::Config,
    /// The locks.
    pub redis: holdfast_lock::Config,
    /// Logs, spans, numbers.
    pub telemetry: telemetry::Config,
    /// Keys that protect other keys.
    pub secrets: Secrets,
    /// The runner itself.
    pub runner: Runner,
}

/// The table `[runner]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runner {
    /// Where health and metrics are served.
    pub listen: SocketAddr,

    /// Turns that this process runs at once.
    ///
    /// A turn mostly waits for its model, so this may be well above the number of cores; each
    /// writes two to five transactions.
    pub slots: u32,

    /// How many of a session's newest entries a turn looks at.
    pub history_entries: u32,

    /// How many tokens a prompt may be.
    pub context_tokens: usize,

    /// How long a claim lasts without being renewed; it is renewed every third of that.
    ///
    /// Every runner of a database should have the same. A shorter one finds a lost runner sooner,
    /// and is lost sooner itself when it is held up.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,

    /// How long a turn may take, tools and retries included.
    #[serde(with = "humantime_serde")]
    pub turn_deadline: Duration,

    /// How long one answer of a model may take, retries included.
    #[serde(with = "humantime_serde")]
    pub model_timeout: Duration,

    /// How long one call of a tool may take.
    #[serde(with = "humantime_serde")]
    pub tool_timeout: Duration,

    /// How long a person's word on a call that needs it is waited for; then it is denied. An agent
    /// may say otherwise.
    #[serde(with = "humantime_serde")]
    pub approval_timeout: Duration,

    /// Calls that a model may make in one turn.
    pub tool_calls_per_turn: usize,

    /// How often to look for work when no wake-up came.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,

    /// How often to look for runners that were lost and waits that are over.
    #[serde(with = "humantime_serde")]
    pub sweep: Duration,

    /// How often to look for events to publish, besides after each turn.
    #[serde(with = "humantime_serde")]
    pub relay: Duration,

    /// How often to measure queues for `/metrics`.
    #[serde(with = "humantime_serde")]
    pub gauges: Duration,

    /// How often to remove what is past its retention.
    #[serde(with = "humantime_serde")]
    pub prune: Duration,

    /// What tools may do on the web.
    pub web: Web,

    /// How long turns may take to come to a step's end when the process is asked to stop.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`, with 5 s to spare.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

impl Default for Runner {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18_791)),
            slots: 32,
            history_entries: 200,
            context_tokens: holdfast_agent::CONTEXT_LIMIT,
            lease: LEASE,
            turn_deadline: Duration::from_secs(600),
            model_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            approval_timeout: Duration::from_secs(120),
            tool_calls_per_turn: 20,
            poll: Duration::from_secs(1),
            sweep: Duration::from_secs(1),
            relay: Duration::from_secs(5),
            gauges: Duration::from_secs(15),
            prune: Duration::from_secs(3600),
            web: Web::default(),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Runner {
    /// Checks what two values mean together.
    ///
    /// # Errors
    ///
    /// With the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(self.slots > 0, "`runner.slots` is 0: nothing would ever run");
        ensure!(self.history_entries > 0, "`runner.history_entries` is 0: write 200, say");
        ensure!(
            self.approval_timeout >= Duration::from_secs(1),
            "`runner.approval_timeout` is {:?}: nobody could answer; 1 s is the least",
            self.approval_timeout
        );
        let loops = [
            ("poll", self.poll),
            ("sweep", self.sweep),
            ("relay", self.relay),
            ("gauges", self.gauges),
            ("prune", self.prune),
        ];
        for (name, every) in loops {
            ensure!(
                every >= Duration::from_millis(10),
                "`runner.{name}` is {every:?}: 10 ms is the least"
            );
        }
        ensure!(
            self.sweep <= self.lease / 3,
            "`runner.sweep` is {:?}: more than a third of the lease of {:?} would leave \
             orphaned sessions lying",
            self.sweep,
            self.lease
        );
        ensure!(
            self.model_timeout <= self.turn_deadline,
            "`runner.model_timeout` is {:?}, longer than `runner.turn_deadline` of {:?}",
            self.model_timeout,
            self.turn_deadline
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kit::config;

    use super::*;

    #[test]
    fn the_defaults_are_usable_and_what_contradicts_itself_is_refused() {
        assert!(Runner::default().check().is_ok());

        let config = Runner { model_timeout: Duration::from_secs(601), ..Runner::default() };

        assert!(config.check().unwrap_err().to_string().starts_with("`runner.model_timeout`"));
    }

    #[test]
    fn a_file_and_the_environment_are_read_and_secrets_are_not_shown() {
        let vars = [
            ("HOLDFAST_RUNNER__SLOTS", "3"),
            ("HOLDFAST_RUNNER__TURN_DEADLINE", "2m"),
            ("HOLDFAST_SECRETS__KEK", "c2VjcmV0"),
            ("HOLDFAST_GATEWAY__HTTP", "127.0.0.1:1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));

        let config: Config = config::load_from("runner", vars).unwrap();

        assert_eq!((config.runner.slots, config.runner.turn_deadline.as_secs()), (3, 120));
        assert!(!config::print(&config).contains("c2VjcmV0"));
    }
}
