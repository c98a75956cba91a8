//! What an operator may choose about the runner.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::ensure;
use holdfast_agent::Limits;
use holdfast_kit::{
    config::{Mesh, Secrets},
    telemetry,
};
use holdfast_session::LEASE;
use holdfast_tools::Web;
use serde::{Deserialize, Serialize};

use crate::studio::Media;

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
    /// What jobs and reminders may be.
    pub schedules: holdfast_jobs::Rules,
    /// How the platform's own services trust and find each other.
    pub mesh: Mesh,
    /// Where skills come from.
    pub skills: holdfast_skills::Config,
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

    /// How many long conversations are summarised at once, beside the turns; 0 is none.
    ///
    /// Each is one to three short calls of the agent's model, after every turn that leaves more
    /// than 20 messages or three quarters of `context_tokens` since the last summary.
    pub summaries: u32,

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

    /// Calls that a model may make in one answer; what is beyond is refused, and may be asked again.
    pub tool_calls_at_once: usize,

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

    /// Where commands run, and within which limits.
    pub sandbox: holdfast_sandbox::Config,

    /// Where the files are that commands work on.
    pub scratch: Scratch,
    /// Others' tools: MCP servers.
    pub mcp: crate::mcp::Config,
    /// Which models draw and speak.
    pub media: Media,
    /// What is remembered of those whom agents speak with.
    pub memory: Remembering,
    /// The browser that agents drive; none, unless one is given.
    pub browser: holdfast_browser::Config,

    /// How long turns may take to come to a step's end when the process is asked to stop.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`, with 5 s to spare.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// The table `[runner.scratch]`: where commands' files are while they are worked on.
///
/// It holds copies: what is lost there is brought again, and what a command changes is kept in the
/// database as soon as it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scratch {
    /// The directory, of which the runner is the owner and which no command sees.
    pub dir: PathBuf,

    /// The most bytes of files' contents that are kept there, so as not to be fetched again.
    pub cache: u64,

    /// How many commands of one tenant run in this process at a time, those in the background too.
    pub commands_per_tenant: usize,

    /// For how long a session's folder is kept after its last command, and what is known of its
    /// background processes after their end.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,
}

/// The table `[runner.memory]`: what is remembered of those whom agents speak with. Without
/// `mesh.secret` nothing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Remembering {
    /// How many memories that fit a message are shown to the model with it; 0 is none.
    pub recall: u32,

    /// How long they are waited for; the turn goes on without them.
    #[serde(with = "humantime_serde")]
    pub recall_timeout: Duration,

    /// How long a conversation must have rested before what is worth remembering is taken from it.
    #[serde(with = "humantime_serde")]
    pub extract_after: Duration,

    /// How many conversations that is done with at once, each with a call of its agent's model; 0
    /// is none.
    pub extractions: u32,
}

impl Default for Remembering {
    fn default() -> Self {
        Self {
            recall: 5,
            recall_timeout: Duration::from_millis(150),
            extract_after: Duration::from_mins(10),
            extractions: 1,
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("/var/lib/holdfast/scratch"),
            cache: 1 << 30,
            commands_per_tenant: 64,
            idle: Duration::from_hours(1),
        }
    }
}

impl Default for Runner {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18_791)),
            slots: 32,
            history_entries: 200,
            context_tokens: holdfast_agent::CONTEXT_LIMIT,
            summaries: 2,
            lease: LEASE,
            turn_deadline: Duration::from_secs(600),
            model_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            approval_timeout: Duration::from_secs(120),
            tool_calls_per_turn: 20,
            tool_calls_at_once: 10,
            poll: Duration::from_secs(1),
            sweep: Duration::from_secs(1),
            relay: Duration::from_secs(5),
            gauges: Duration::from_secs(15),
            prune: Duration::from_secs(3600),
            web: Web::default(),
            sandbox: holdfast_sandbox::Config::default(),
            scratch: Scratch::default(),
            mcp: crate::mcp::Config::default(),
            media: Media::default(),
            memory: Remembering::default(),
            browser: holdfast_browser::Config::default(),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl Runner {
    /// How far an agent may go by itself.
    pub(crate) const fn limits(&self) -> Limits {
        Limits { calls: self.tool_calls_per_turn, at_once: self.tool_calls_at_once }
    }

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
        ensure!(
            self.tool_calls_at_once > 0,
            "`runner.tool_calls_at_once` is 0: no tool could be called; write 10, say"
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
        self.sandbox.check()?;
        ensure!(
            self.scratch.dir.is_absolute(),
            "`runner.scratch.dir` is `{}`: write it from the root on",
            self.scratch.dir.display()
        );
        self.mcp.check()?;
        ensure!(
            self.memory.recall <= 50,
            "`runner.memory.recall` is {}: 50 is the most, and 5 a good choice",
            self.memory.recall
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
