//! Configuration of the runner.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use holdfast_agent::Limits;
use holdfast_kit::{
    config::{Mesh, Secrets, Tls},
    telemetry,
};
use holdfast_llm::{WorkloadIdentityConfig, audio::AudioConfig};
use holdfast_pg::LoginScope;
use holdfast_sandbox::BackendChoice;
use holdfast_session::{CLAIM_LEASE, HOLDER_WAIT, RunnerPool};
use holdfast_tools::Web;
use serde::{Deserialize, Serialize};

mod mcp;
mod media;
mod prompt;

pub use self::{mcp::McpConfig, media::MediaConfig, prompt::PromptConfig};

/// Settings of a runner process: the shared tables and its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub database: holdfast_pg::Config,
    pub nats: holdfast_bus::Config,
    pub redis: holdfast_lock::Config,
    pub telemetry: telemetry::Config,
    /// Keys that protect other keys.
    pub secrets: Secrets,
    /// Limits of jobs and reminders.
    pub schedules: holdfast_schedule::store::Rules,
    /// Trust and addresses between the platform's own services.
    pub mesh: Mesh,
    /// Certificate of the server and of calls to the memory service.
    pub tls: Tls,
    pub skills: holdfast_skills::Config,
    /// Addresses of providers that tenants choose.
    pub egress: holdfast_egress::Config,
    /// Models that speak and transcribe.
    pub audio: AudioConfig,
    pub runner: RunnerConfig,
}

/// The table `[runner]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunnerConfig {
    /// Address of health and metrics.
    pub listen: SocketAddr,

    /// Pool of this runner: it works for the tenants of this pool only
    /// (`holdfast tenants update --pool`). Empty: for the tenants without a pool.
    pub pool: String,

    /// Turns that this process runs at once.
    ///
    /// A turn mostly waits for its model, so this may be well above the number of cores; each
    /// writes two to five transactions.
    pub slots: u32,

    /// Newest entries of a session that a turn reads.
    pub history_entries: u32,

    /// Limit on a prompt, in tokens.
    pub context_tokens: usize,

    /// Long conversations that are summarised at once, in the background; 0 disables summaries.
    ///
    /// Each takes one to three short calls of the agent's model, after every turn that leaves more
    /// than 20 messages or three quarters of `context_tokens` since the last summary.
    pub summaries: u32,

    /// Time after which an unrenewed lease expires. It is renewed every third of that.
    ///
    /// Must be the same for all runners of a database. A shorter lease detects a lost runner
    /// sooner, and loses sessions sooner when the runner is delayed.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,

    /// Time for which a ready session waits for the runner that holds its background commands,
    /// browser window or MCP servers. Then another runner takes it, and they are lost.
    #[serde(with = "humantime_serde")]
    pub holder_wait: Duration,

    /// Time limit of a turn, including tools and retries.
    #[serde(with = "humantime_serde")]
    pub turn_deadline: Duration,

    /// Time limit of one answer of a model, including retries.
    #[serde(with = "humantime_serde")]
    pub model_timeout: Duration,

    /// Time limit of one tool call.
    #[serde(with = "humantime_serde")]
    pub tool_timeout: Duration,

    /// Time limit for an approval decision; then the call is denied. An agent may set its own.
    #[serde(with = "humantime_serde")]
    pub approval_timeout: Duration,

    /// Time that the client of an API has to send the results of its own tools; then its calls end
    /// with an error.
    #[serde(with = "humantime_serde")]
    pub client_tool_timeout: Duration,

    /// Calls that a model may make in one turn, without those of the client's tools.
    pub tool_calls_per_turn: usize,

    /// Calls that a model may make in one answer; the others are refused and may be made again.
    pub tool_calls_at_once: usize,

    /// Interval of claim attempts when no wake-up arrives.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,

    /// Interval of the sweep for expired leases and deadlines.
    #[serde(with = "humantime_serde")]
    pub sweep: Duration,

    /// Interval of logging and publishing events, in addition to after each turn.
    #[serde(with = "humantime_serde")]
    pub relay: Duration,

    /// Interval of measuring queues for `/metrics`.
    #[serde(with = "humantime_serde")]
    pub gauges: Duration,

    /// Interval of looking after tenants: plans that changed, expiry, warnings about limits.
    #[serde(with = "humantime_serde")]
    pub tenant_limits: Duration,

    /// Interval of deleting data past its retention.
    #[serde(with = "humantime_serde")]
    pub prune: Duration,

    /// Retention of the log of events: how long a subscriber may be away.
    #[serde(with = "humantime_serde")]
    pub event_retention: Duration,

    /// Delay before an event that a webhook did not accept is posted again; doubled by each failure,
    /// up to an hour.
    #[serde(with = "humantime_serde")]
    pub webhook_retry: Duration,

    /// Time after which such an event is given up, and a webhook that accepts nothing is disabled.
    #[serde(with = "humantime_serde")]
    pub webhook_give_up: Duration,

    /// Folder to which rows are written before they are deleted for their age; empty: they are not
    /// archived. What cannot be archived is not deleted.
    pub archive: PathBuf,

    /// Whether agents without a model of their own, of tenants without a default, are answered by
    /// the demonstration model. Unset: unless tenants are hosted (`sandbox.hosted`).
    pub demo_model: Option<bool>,

    /// Limits of the web tools.
    pub web: Web,

    /// Sandbox of commands and its limits.
    pub sandbox: holdfast_sandbox::Config,

    /// Pods of commands.
    pub pods: holdfast_sandbox_pods::Config,

    /// Folders of files that commands work on.
    pub scratch: ScratchConfig,
    pub mcp: McpConfig,
    /// Models for images, and voices.
    pub media: MediaConfig,
    /// Identities that the cloud gives to this installation; no tenant uses them by default.
    pub workload_identity: WorkloadIdentityConfig,
    /// Texts of prompts.
    pub prompt: PromptConfig,
    pub memory: MemoryConfig,
    /// Browser of the agents; none by default.
    pub browser: holdfast_browser::Config,

    /// Time that turns have to reach the end of a step when the process stops.
    ///
    /// Keep it below the pod's `terminationGracePeriodSeconds`, with 5 s to spare.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
}

/// Commands at once for each processor, where no number is set.
const COMMANDS_PER_PROCESSOR: usize = 8;

/// Table `[runner.scratch]`: the folders that commands work in.
///
/// They hold copies: lost files are fetched again, and a command's changes are stored in the
/// database as soon as it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScratchConfig {
    /// Directory, owned by the runner and invisible to commands.
    pub dir: PathBuf,

    /// Size of the cache of file contents, in bytes.
    pub cache: u64,

    /// Commands of all tenants that run in this process at once, including background ones; 0 is
    /// eight for each processor.
    ///
    /// Tenants share them fairly: a free slot goes to the tenant that uses the fewest, and the last
    /// quarter is for tenants that use less than a quarter.
    pub commands: usize,

    /// Commands of one tenant that run in this process at once, including background ones.
    pub commands_per_tenant: usize,

    /// Folders of one tenant that are kept besides those in which commands run.
    ///
    /// Each has at most the size of a folder, so this bounds the disk that a tenant uses.
    pub folders_per_tenant: usize,

    /// Time for which a session's folder is kept after its last command, and the records of its
    /// background processes after their end.
    #[serde(with = "humantime_serde")]
    pub idle: Duration,
}

/// Table `[runner.memory]`. Without `mesh.key` or `mesh.secret` there is no memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Memories that are added to the prompt for a message; 0 is none.
    pub recall: u32,

    /// Time limit of the memory prefetch; then the turn goes on without memories.
    #[serde(with = "humantime_serde")]
    pub recall_timeout: Duration,

    /// Idle time of a conversation before memories are extracted from it.
    #[serde(with = "humantime_serde")]
    pub extract_after: Duration,

    /// Extractions that run at once, each with a call of its agent's model; 0 disables extraction.
    pub extractions: u32,

    /// Whether conversation turns are indexed, so that later conversations of the same person find
    /// them.
    pub index_turns: bool,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            recall: 5,
            recall_timeout: Duration::from_millis(150),
            extract_after: Duration::from_mins(10),
            extractions: 1,
            index_turns: true,
        }
    }
}

impl ScratchConfig {
    /// Commands that may run at once on this machine.
    pub(crate) fn command_slots(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        match self.commands {
            0 => processors * COMMANDS_PER_PROCESSOR,
            commands => commands,
        }
    }

    /// Background commands that a tenant may have: half of the commands that it may have, so that
    /// the others need not wait for the end of a background command.
    pub(crate) fn background_per_tenant(&self) -> usize {
        (self.command_slots().min(self.commands_per_tenant) / 2).max(1)
    }
}

impl Default for ScratchConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("/var/lib/holdfast/scratch"),
            cache: 1 << 30,
            commands: 0,
            commands_per_tenant: 64,
            folders_per_tenant: 64,
            idle: Duration::from_hours(1),
        }
    }
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 18_791)),
            pool: String::new(),
            slots: 32,
            history_entries: 200,
            context_tokens: holdfast_agent::CONTEXT_LIMIT,
            summaries: 2,
            lease: CLAIM_LEASE,
            turn_deadline: Duration::from_secs(600),
            model_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            holder_wait: HOLDER_WAIT,
            approval_timeout: Duration::from_secs(120),
            client_tool_timeout: Duration::from_secs(3_600),
            tool_calls_per_turn: 20,
            tool_calls_at_once: 10,
            poll: Duration::from_secs(1),
            sweep: Duration::from_secs(1),
            relay: Duration::from_secs(1),
            gauges: Duration::from_secs(15),
            tenant_limits: Duration::from_secs(60),
            prune: Duration::from_secs(3600),
            event_retention: Duration::from_secs(7 * 86_400),
            webhook_retry: Duration::from_secs(5),
            webhook_give_up: Duration::from_secs(86_400),
            archive: PathBuf::new(),
            demo_model: None,
            web: Web::default(),
            sandbox: holdfast_sandbox::Config::default(),
            pods: holdfast_sandbox_pods::Config::default(),
            scratch: ScratchConfig::default(),
            mcp: McpConfig::default(),
            media: MediaConfig::default(),
            workload_identity: WorkloadIdentityConfig::default(),
            prompt: PromptConfig::default(),
            memory: MemoryConfig::default(),
            browser: holdfast_browser::Config::default(),
            shutdown_grace: Duration::from_secs(25),
        }
    }
}

impl RunnerConfig {
    pub(crate) const fn limits(&self) -> Limits {
        Limits { calls: self.tool_calls_per_turn, at_once: self.tool_calls_at_once }
    }

    /// Whether the demonstration model answers.
    pub(crate) fn has_demo_model(&self) -> bool {
        self.demo_model.unwrap_or(!self.sandbox.hosted)
    }

    /// Whether commands may run in pods.
    pub(crate) fn has_pods(&self) -> bool {
        match self.sandbox.backend {
            BackendChoice::Pods => true,
            BackendChoice::Auto | BackendChoice::Bubblewrap | BackendChoice::Plain => {
                !self.pods.namespace.is_empty()
            }
            BackendChoice::None => false,
        }
    }

    /// Settings of the sandbox on this machine. Where pods can be used, nothing runs without
    /// isolation.
    pub(crate) fn local_sandbox(&self) -> holdfast_sandbox::Config {
        let mut sandbox = self.sandbox.clone();
        if self.has_pods() && sandbox.backend == BackendChoice::Auto {
            sandbox.backend = BackendChoice::Bubblewrap;
        }
        sandbox
    }

    /// Returns the pool; `None` is the default pool.
    ///
    /// # Errors
    ///
    /// If it is not a name of a pool.
    pub fn pool(&self) -> anyhow::Result<Option<RunnerPool>> {
        match self.pool.as_str() {
            "" => Ok(None),
            name => Ok(Some(name.parse().context("`runner.pool`")?)),
        }
    }

    /// Checks that the login of the database reaches the tenants of this runner's pool.
    ///
    /// # Errors
    ///
    /// If it reaches those of another pool: the runner would wait for work for ever.
    pub fn check_login(&self, scope: &LoginScope) -> anyhow::Result<()> {
        let reached = match scope {
            LoginScope::AllTenants => return Ok(()),
            LoginScope::Pool(pool) => pool.as_str(),
            LoginScope::DefaultPool => "",
        };
        ensure!(
            reached == self.pool,
            "`database.url` has the login of the runner pool `{reached}`, and `runner.pool` is `{}`: \
             set both to the same pool; an empty name is the default pool",
            self.pool
        );
        Ok(())
    }

    /// Checks combinations of values.
    ///
    /// # Errors
    ///
    /// Names the setting to change.
    pub fn check(&self) -> anyhow::Result<()> {
        self.pool()?;
        self.workload_identity.check().context("`runner.workload_identity`")?;
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
            ("tenant_limits", self.tenant_limits),
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
        if self.has_pods() {
            self.pods.check(self.sandbox.longest)?;
        }
        ensure!(
            self.scratch.dir.is_absolute(),
            "`runner.scratch.dir` is `{}`: write it from the root on",
            self.scratch.dir.display()
        );
        ensure!(
            self.scratch.folders_per_tenant > 0,
            "`runner.scratch.folders_per_tenant` is 0: write 64, say"
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
        assert!(RunnerConfig::default().check().is_ok());

        let config =
            RunnerConfig { model_timeout: Duration::from_secs(601), ..RunnerConfig::default() };

        assert!(config.check().unwrap_err().to_string().starts_with("`runner.model_timeout`"));
    }

    #[test]
    fn a_runner_does_not_start_with_the_login_of_another_pool() {
        let of_red = RunnerConfig { pool: "red".into(), ..RunnerConfig::default() };
        let pool = |name: &str| LoginScope::Pool(name.to_owned());

        for scope in [LoginScope::AllTenants, pool("red")] {
            assert!(of_red.check_login(&scope).is_ok(), "{scope:?}");
        }
        for scope in [LoginScope::DefaultPool, pool("blue")] {
            let refused = of_red.check_login(&scope).unwrap_err().to_string();
            assert!(refused.contains("`runner.pool` is `red`"), "{refused}");
        }
        assert!(RunnerConfig::default().check_login(&LoginScope::DefaultPool).is_ok());
        assert!(RunnerConfig::default().check_login(&pool("red")).is_err());
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
