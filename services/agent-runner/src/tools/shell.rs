//! Commands of agents: each runs in the sandbox, in a folder with the agent's files. Its changes
//! are committed to the workspace before anyone is told that it has ended.
//!
//! | file | contents |
//! |---|---|
//! | `folders.rs` | a scratch folder for each command, with the files that its session may see |
//! | `sandboxes.rs` | the sandbox that the configuration asks for |
//! | `running_command.rs`, `commit.rs` | running commands; committing their changes |
//! | `jobs.rs`, `background.rs` | background commands and their end |
//! | `remote_jobs.rs` | background commands on other runners |
//! | `command_policy.rs` | policy and approval of commands |
//! | `command_parts.rs` | programs and files that a command runs, which an approval is bound to |
//!
//! ## What can go wrong
//!
//! A command acts on the outside world and is recorded as begun before it runs: if this process
//! crashes, the next runner reports an unknown outcome to the model. The folder is reset to the
//! newest state of the workspace before the next command, so partial changes are never kept.

mod background;
mod command_parts;
mod command_policy;
mod commit;
mod folders;
mod git_files;
mod jobs;
mod remote_jobs;
mod running_command;
mod sandboxes;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use holdfast_bus::Bus;
use holdfast_egress::Guard;
use holdfast_sandbox::{
    Backend, Command, CommandEnd, MOUNT, Network, NetworkPolicy, Owner, ProcessId, Processes,
    ScriptGuard, Signal, State, WorkPath,
};
use holdfast_sandbox_pods::PodSandbox;
use holdfast_session::{CommandsSpent, HeldKind, LostItem, Sessions};
use holdfast_tools::{
    Approval, Call, CommandLine, CommandResult, CommandState, Commands, GuardedHosts, ProcessInput,
    ProcessSignal, ProcessSummary, ToolError,
};
use holdfast_types::{Fault as _, TenantId, TreePath};
use holdfast_workspace::{ChangeAuthor, Workspaces};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use self::command_policy::{CommandPolicy, is_bound_to_scripts, with_file};
use self::{
    command_parts::CommandParts,
    command_policy::CommandBinding,
    folders::{FolderKey, Folders},
    jobs::{BackgroundJob, BackgroundJobs, JobEnd},
    remote_jobs::{ProcessAnswer, ProcessRequest},
    running_command::{CommandTraits, RunningCommand, command_result, end_status},
    sandboxes::OpenSandbox,
};
use crate::{
    agents::skills::Secrets,
    config::RunnerConfig,
    tools::{files::visible_tree_path, lost_state::Losses, tool_context::ToolContext},
};

/// Time for which a new background command is watched: many fail at once.
const INITIAL_WATCH: Duration = Duration::from_millis(150);

/// Limit on a command's title, in characters.
const MAX_TITLE_CHARS: usize = 100;

/// Access to the sandbox and the scratch folders. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct Shell(Arc<ShellState>);

#[derive(Debug)]
struct ShellState {
    processes: Processes,
    backend: Backend,
    limit_scope: String,
    /// The pods of commands, if they run in pods.
    pods: Option<PodSandbox>,
    guard: ScriptGuard,
    /// Addresses that commands may reach.
    egress: Guard,
    settings: holdfast_sandbox::Config,
    idle: Duration,
    folders: Arc<Folders>,
    workspaces: Workspaces,
    jobs: BackgroundJobs,
    /// Maximum background commands of a tenant.
    background_per_tenant: usize,
    sessions: Sessions,
    bus: Bus,
    /// Cancelled when the process stops: then nobody waits for commands.
    stopping: CancellationToken,
}

/// The sandbox as prompts describe it.
#[derive(Debug)]
pub(crate) struct SandboxDescription {
    pub(crate) container: &'static str,
    pub(crate) restrictions: String,
}

#[derive(Debug)]
pub(crate) struct ShellBackends {
    pub(crate) workspaces: Workspaces,
    pub(crate) sessions: Sessions,
    pub(crate) bus: Bus,
}

impl Shell {
    /// Tries the sandbox. If no commands can run, returns the reason, which is also logged.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub(crate) async fn open(
        config: &RunnerConfig,
        parts: ShellBackends,
    ) -> anyhow::Result<Result<Self, String>> {
        let patterns = config.sandbox.guard.clone();
        // Compiling the patterns takes as long as trying the sandbox: both run at the same time.
        let guard = tokio::task::spawn_blocking(move || ScriptGuard::new(&patterns));
        let (guard, opened) = tokio::join!(guard, sandboxes::open(config));
        let guard = guard??;
        let OpenSandbox { sandbox, pods } = match opened {
            Ok(opened) => opened,
            Err(error @ holdfast_sandbox::Error::CommandsDisabled) => {
                info!(%error, "agents have no commands");
                return Ok(Err(error.to_string()));
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "agents have no commands");
                return Ok(Err(error.to_string()));
            }
        };
        let egress = Guard::with_system_resolver(config.web.allow.clone())?;
        let (backend, limit_scope) = (sandbox.backend(), sandbox.limit_scope());
        let ShellBackends { workspaces, sessions, bus } = parts;
        Ok(Ok(Self(Arc::new(ShellState {
            processes: Processes::new(sandbox, config.sandbox.processes_per_session),
            backend,
            limit_scope,
            pods,
            guard,
            egress,
            settings: config.sandbox.clone(),
            idle: config.scratch.idle,
            folders: Arc::new(Folders::new(config.scratch.clone(), workspaces.clone())),
            workspaces,
            jobs: BackgroundJobs::default(),
            background_per_tenant: config.scratch.background_per_tenant(),
            sessions,
            bus,
            stopping: CancellationToken::new(),
        }))))
    }

    /// Describes the sandbox; `None` if commands are not isolated.
    pub(crate) fn sandbox_description(&self) -> Option<SandboxDescription> {
        let container = match self.0.backend {
            Backend::Plain => return None,
            Backend::Bubblewrap => "bubblewrap",
            Backend::Pods => "pod",
        };
        let limits = &self.0.settings.limits;
        let network = match self.0.settings.network {
            NetworkPolicy::Off => "no network",
            NetworkPolicy::Proxy => {
                "network only on request, through the proxy that `http_proxy` names, to public \
                 addresses"
            }
            NetworkPolicy::Host => "network only on request",
        };
        let memory = limits.memory >> 20;
        let restrictions = match self.0.backend {
            Backend::Pods => format!(
                "Files of this workspace only; {network}; at most {memory} MiB of memory; other \
                 programs than here, and nothing but files stays between commands"
            ),
            Backend::Bubblewrap | Backend::Plain => format!(
                "Files of this workspace only; {network}; at most {memory} MiB of memory and {} \
                 processes",
                limits.processes,
            ),
        };
        Some(SandboxDescription { container, restrictions })
    }

    /// Paths of the command's programs, and the workspace files that it runs.
    async fn bind_command(
        &self,
        call: &Call,
        line: &CommandLine,
    ) -> Result<CommandBinding, ToolError> {
        let runs = CommandParts::parse(&line.script);
        let ToolContext { file_view: view, workspace_branch, .. } = ToolContext::of(call)?;
        let agent = workspace_branch.unwrap_or(call.agent);
        let tree_path = |script: &String| {
            let from_root = script.starts_with('/');
            let whole = match line.workdir.trim_end_matches('/') {
                workdir if !from_root && !workdir.is_empty() => format!("{workdir}/{script}"),
                _ => script.clone(),
            };
            let path = WorkPath::parse(&whole).ok()?;
            let path: TreePath = path.as_relative().to_str()?.parse().ok()?;
            visible_tree_path(view, &path).ok().flatten()
        };
        let run: BTreeSet<TreePath> = runs.scripts.iter().filter_map(tree_path).collect();
        let arguments: BTreeSet<TreePath> = runs.arguments.iter().filter_map(tree_path).collect();
        let paths: Vec<TreePath> = run.union(&arguments).cloned().collect();
        let files = match paths.is_empty() {
            true => BTreeMap::new(),
            false => {
                let found = self.0.workspaces.read_many(call.tenant, agent, &paths).await;
                found.map_err(|error| ToolError::Broken(error.into()))?
            }
        };
        let programs = runs.programs.iter();
        Ok(CommandBinding {
            programs: programs
                .filter_map(|name| Some((name.clone(), command_parts::find_program(name)?)))
                .collect(),
            scripts: files
                .into_iter()
                .filter_map(|(path, file)| Some((view.view_path(&path)?, file)))
                .collect(),
            arguments: arguments.difference(&run).filter_map(|path| view.view_path(path)).collect(),
            is_truncated: runs.is_truncated,
        })
    }

    /// Starts a command in a folder with the agent's current files.
    async fn start_command(
        &self,
        call: &Call,
        line: &CommandLine,
    ) -> Result<RunningCommand, ToolError> {
        let ToolContext { file_view, workspace_branch, .. } = ToolContext::of(call)?;
        let agent = workspace_branch.unwrap_or(call.agent);
        let view = file_view.clone();
        let whose = FolderKey { tenant: call.tenant, agent, session: call.session, view };
        let folder = self.0.folders.acquire(whose).await.map_err(folder_error)?;
        let sees_outside_text = folder.has_outside_text();
        let mut command = Command::new(line.script.as_str(), folder.scratch.tree());
        command.workdir = WorkPath::parse(&line.workdir).map_err(tool_error)?;
        command.env = line.env.clone();
        self.0.command_secrets(call)?.add_to_env(&mut command.env);
        command.env.insert("HOLDFAST_AGENT".to_owned(), call.agent_name.to_string());
        command.env.insert("HOLDFAST_SESSION".to_owned(), call.session.to_string());
        command.timeout = match line.patience {
            None => Some(line.timeout.unwrap_or(self.0.settings.longest)),
            Some(_) => line.timeout,
        };
        let backend = self.0.backend_of(ToolContext::of(call)?);
        command.needs_pod = backend == Backend::Pods;
        command.network = self.0.network_of(call, line);
        let counted = self.0.sessions.usage().count_command(call.tenant, call.agent).await;
        if let Err(spent) = counted.map_err(|error| ToolError::Broken(error.into()))? {
            return Err(ToolError::Tell(spent_text(spent)));
        }
        let owner = process_owner(call);
        let id = self.0.processes.spawn(owner, command).await.map_err(start_error)?;
        let by = ChangeAuthor {
            run: Some(call.run),
            ..ChangeAuthor::new(
                call.agent_name.as_str(),
                &format!("exec: {}", command_title(&line.script)),
            )
        };
        let context = ToolContext::of(call)?;
        let by = by.in_step(context.change_step(call));
        // The network is outside, too. Which of its files a command reads is not known.
        let outside = context.has_read_outside_text || line.network || sees_outside_text;
        let asked = command_policy::required_approval(&context.command_policy, backend, line);
        let traits =
            CommandTraits::new(outside, asked != Approval::Never).read_only(context.is_read_only);
        Ok(RunningCommand::new(self.clone(), owner, id, by.with_key(&call.key), folder, traits))
    }
}

impl Shell {
    /// The pods of commands, if they run in pods.
    pub(crate) fn pods(&self) -> Option<PodSandbox> {
        self.0.pods.clone()
    }

    /// Sandbox backend, and the kind of its limits.
    pub(crate) fn sandbox_report(&self) -> String {
        format!("{}, {}", self.0.backend, self.0.limit_scope)
    }
}

impl ShellState {
    /// Backend of a conversation's commands.
    fn backend_of(&self, context: &ToolContext) -> Backend {
        match self.pods {
            Some(_) if context.command_policy.needs_pod() => Backend::Pods,
            Some(_) | None => self.backend,
        }
    }

    /// Network of a command: what the tenant and the agent may reach, if it asks for a network.
    fn network_of(&self, call: &Call, line: &CommandLine) -> Network {
        match (line.network, self.settings.network) {
            (false, _) => Network::Off,
            (true, NetworkPolicy::Proxy) => {
                let rules = GuardedHosts::new(self.egress.clone(), call.hosts.clone());
                Network::Proxy(Arc::new(rules))
            }
            (true, NetworkPolicy::Off | NetworkPolicy::Host) => Network::Host,
        }
    }

    /// Secrets for the commands of the agent's skills.
    fn command_secrets(&self, call: &Call) -> Result<Arc<Secrets>, ToolError> {
        Ok(Arc::clone(&ToolContext::of(call)?.secrets))
    }

    /// Reason why no further command of a tenant may go on in the background. Two commands at the
    /// same moment may both be admitted.
    fn background_refusal(&self, tenant: TenantId) -> Option<String> {
        let limit = self.background_per_tenant;
        let unsettled = self.jobs.unsettled();
        let running = unsettled.iter().filter(|(owner, _)| owner.tenant == tenant).count();
        (running >= limit).then(|| {
            format!(
                "{limit} background commands of this tenant run here, which is the limit: end one \
                 with `process`, wait until one has ended, or run the command in the foreground \
                 with a longer `yield_ms`"
            )
        })
    }

    /// Reason why the command is never permitted, even with an approval.
    fn permanent_refusal(&self, line: &CommandLine) -> Option<String> {
        if let Err(blocked) = self.guard.check(&line.script, Path::new(MOUNT)) {
            metrics::counter!("holdfast_runner_commands_total", "outcome" => "blocked")
                .increment(1);
            return Some(blocked.to_string());
        }
        if line.network && self.settings.network == NetworkPolicy::Off {
            return Some(
                "commands have no network in this installation: `web_fetch` reads pages".to_owned(),
            );
        }
        None
    }
}

impl Commands for Shell {
    async fn approval(&self, call: &Call, line: &CommandLine) -> Result<Approval, ToolError> {
        let line = &in_workspace(call, line.clone())?;
        if let Some(refusal) = self.0.permanent_refusal(line) {
            return Ok(Approval::Deny(refusal));
        }
        let context = ToolContext::of(call)?;
        let backend = self.0.backend_of(context);
        match command_policy::required_approval(&context.command_policy, backend, line) {
            Approval::Ask { subject, summary, pattern } => {
                let runs = self.bind_command(call, line).await?;
                Ok(command_policy::bind_approval(runs, (subject, summary, pattern)))
            }
            settled @ (Approval::Never | Approval::Deny(_)) => Ok(settled),
        }
    }

    async fn run(&self, call: &Call, line: CommandLine) -> Result<CommandResult, ToolError> {
        let line = in_workspace(call, line)?;
        if let Some(refusal) = self.0.permanent_refusal(&line) {
            return Err(ToolError::Tell(refusal));
        }
        if line.patience.is_none()
            && let Some(why) = self.0.background_refusal(call.tenant)
        {
            return Err(ToolError::Tell(format!("not run: {why}")));
        }
        let mut running = self.start_command(call, &line).await?;
        let patience = match line.patience {
            Some(patience) => {
                // Nobody could write to it later.
                drop(self.0.processes.close_input(running.owner, running.id));
                patience
            }
            None => INITIAL_WATCH,
        };
        let wait = self.0.processes.wait(running.owner, running.id, patience);
        // If the runner stops, the command becomes a background command, which saves its changes.
        let waited = self.0.stopping.run_until_cancelled(wait).await;
        match waited.unwrap_or(Ok(State::Running)).map_err(tool_error)? {
            State::Ended(ended) => {
                let (unread, took) = (running.unread(), running.began.elapsed());
                let kept = running.commit_changes(ended).await;
                self.0.processes.forget(running.owner, running.id);
                background::count_end(ended);
                Ok(command_result(end_status(ended), unread, took, Some(kept)))
            }
            State::Running => {
                if !self.0.stopping.is_cancelled()
                    && let Some(why) = self.0.background_refusal(call.tenant)
                {
                    // A process that ended meanwhile is stopped already.
                    let ended = self.0.processes.stop(running.owner, running.id).await;
                    let (unread, took) = (running.unread(), running.began.elapsed());
                    let kept = running.commit_changes(ended.unwrap_or(CommandEnd::Cancelled)).await;
                    self.0.processes.forget(running.owner, running.id);
                    background::count_end(CommandEnd::Cancelled);
                    let stands = CommandState::Ended(format!("stopped: {why}"));
                    return Ok(command_result(stands, unread, took, Some(kept)));
                }
                let (unread, took) = (running.unread(), running.began.elapsed());
                let id = self.move_to_background(running, command_title(&line.script));
                Ok(command_result(CommandState::Running(id.to_string()), unread, took, None))
            }
        }
    }

    async fn list(&self, call: &Call) -> Result<Vec<ProcessSummary>, ToolError> {
        self.list_everywhere(process_owner(call)).await
    }

    async fn look(
        &self,
        call: &Call,
        id: &str,
        patience: Duration,
    ) -> Result<CommandResult, ToolError> {
        let wait_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.request_status(call, id, ProcessRequest::Look { wait_ms }).await
    }

    async fn input_approval(
        &self,
        call: &Call,
        id: &str,
        input: &ProcessInput,
    ) -> Result<Approval, ToolError> {
        let lines = self.list_everywhere(process_owner(call)).await?;
        // The call itself reports an unknown process.
        let Some(line) = lines.into_iter().find(|line| line.id == id) else {
            return Ok(Approval::Never);
        };
        if !line.is_approved {
            return Ok(Approval::Never);
        }
        let policy = &ToolContext::of(call)?.command_policy;
        Ok(command_policy::input_approval(policy, &line, input))
    }

    async fn write(&self, call: &Call, id: &str, input: ProcessInput) -> Result<(), ToolError> {
        let outside = ToolContext::of(call)?.has_read_outside_text;
        self.request_anywhere(call, id, ProcessRequest::Write { input, outside }).await.map(drop)
    }

    async fn signal(&self, call: &Call, id: &str, signal: ProcessSignal) -> Result<(), ToolError> {
        self.request_anywhere(call, id, ProcessRequest::Signal(signal)).await.map(drop)
    }

    async fn end(&self, call: &Call, id: &str) -> Result<CommandResult, ToolError> {
        self.request_status(call, id, ProcessRequest::End).await
    }
}

impl Shell {
    /// Executes a request on a process, here or on another runner.
    async fn request_anywhere(
        &self,
        call: &Call,
        id: &str,
        wish: ProcessRequest,
    ) -> Result<ProcessAnswer, ToolError> {
        let parsed: Option<ProcessId> = id.parse().ok();
        let Some(parsed) = parsed else {
            return Err(ToolError::Tell(
                "there is no such process: `list` shows those there are".to_owned(),
            ));
        };
        match self.0.jobs.find(process_owner(call), parsed) {
            Some(job) => self.request_here(process_owner(call), &job, wish).await,
            None => {
                let owner = process_owner(call);
                let losses = Losses(self.0.sessions.clone());
                match losses.find(owner, HeldKind::Command, Some(id)).await {
                    Some(lost) => Err(told_lost_error(&lost)),
                    None => self.request_elsewhere(owner, parsed, wish).await,
                }
            }
        }
    }

    async fn request_status(
        &self,
        call: &Call,
        id: &str,
        wish: ProcessRequest,
    ) -> Result<CommandResult, ToolError> {
        match self.request_anywhere(call, id, wish).await? {
            ProcessAnswer::Ran(ran) => Ok(*ran),
            ProcessAnswer::Nothing => Err(lost_error(id)),
        }
    }

    /// Executes a request on a process that runs here.
    async fn request_here(
        &self,
        owner: Owner,
        job: &BackgroundJob,
        wish: ProcessRequest,
    ) -> Result<ProcessAnswer, ToolError> {
        let processes = &self.0.processes;
        match wish {
            ProcessRequest::Look { wait_ms } => {
                let end = job.wait(Duration::from_millis(wait_ms)).await;
                return Ok(ProcessAnswer::Ran(Box::new(self.status_of(owner, job, end))));
            }
            ProcessRequest::End => {
                // The caller is told of the end by this answer.
                let (end, stopped) =
                    tokio::join!(job.wait(background::STOP_TIMEOUT), processes.stop(owner, job.id));
                // A process that ended long ago is not known any more.
                drop(stopped);
                return Ok(ProcessAnswer::Ran(Box::new(self.status_of(owner, job, end))));
            }
            ProcessRequest::Write { input: ProcessInput { text, is_last }, outside } => {
                if outside {
                    job.traits.set_outside();
                }
                if !text.is_empty() {
                    processes.write(owner, job.id, text.into_bytes()).await.map_err(tool_error)?;
                }
                if is_last {
                    processes.close_input(owner, job.id).map_err(tool_error)?;
                }
            }
            ProcessRequest::Signal(signal) => {
                let signal = match signal {
                    ProcessSignal::Int => Signal::Interrupt,
                    ProcessSignal::Term => Signal::Terminate,
                    ProcessSignal::Kill => Signal::Kill,
                    ProcessSignal::Hup => Signal::HangUp,
                    ProcessSignal::Usr1 => Signal::User1,
                    ProcessSignal::Usr2 => Signal::User2,
                };
                processes.signal(owner, job.id, signal).map_err(tool_error)?;
            }
        }
        Ok(ProcessAnswer::Nothing)
    }

    fn status_of(&self, owner: Owner, job: &BackgroundJob, end: Option<JobEnd>) -> CommandResult {
        let unread = self.0.processes.unread(owner, job.id).ok();
        match end {
            Some(end) => command_result(end_status(end.ended), unread, end.took, Some(end.kept)),
            None => command_result(
                CommandState::Running(job.id.to_string()),
                unread,
                job.began.elapsed(),
                None,
            ),
        }
    }
}

/// A command without a folder begins in that of the session's local workspace.
fn in_workspace(call: &Call, line: CommandLine) -> Result<CommandLine, ToolError> {
    match &ToolContext::of(call)?.workdir {
        Some(folder) if line.workdir.is_empty() => {
            Ok(CommandLine { workdir: folder.clone(), ..line })
        }
        Some(_) | None => Ok(line),
    }
}

fn spent_text(CommandsSpent { limit }: CommandsSpent) -> String {
    format!(
        "the {limit} commands a day of the tenant's plan are used up: do without commands until \
         midnight UTC, and tell the user that whoever runs this installation can change the plan"
    )
}

fn process_owner(call: &Call) -> Owner {
    Owner { tenant: call.tenant, session: call.session }
}

/// One-line title of a command.
fn command_title(script: &str) -> String {
    let words = script.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title: String = words.chars().filter(|c| !c.is_control()).collect();
    if title.chars().count() > MAX_TITLE_CHARS {
        title = title.chars().take(MAX_TITLE_CHARS - 1).chain(['…']).collect();
    }
    title
}

fn lost_error(id: &str) -> ToolError {
    ToolError::Tell(format!(
        "lost: `{id}` is known no more, for its runner stopped or its end is long past; what it \
         had changed in files by the time it was lost is not kept"
    ))
}

fn told_lost_error(lost: &LostItem) -> ToolError {
    ToolError::Tell(format!(
        "lost: {lost}, because {}; what it had changed in files is not kept. Start it again if you \
         need it",
        lost.reason
    ))
}

fn tool_error(error: impl std::error::Error) -> ToolError {
    ToolError::Tell(error.to_string())
}

fn start_error(error: holdfast_sandbox::Error) -> ToolError {
    if error.kind().is_transient() {
        warn!(error = &error as &dyn std::error::Error, "a command could not be started");
    }
    ToolError::Tell(format!("not run: {error}"))
}

fn folder_error(error: folders::Error) -> ToolError {
    if !matches!(error, folders::Error::TooMany { .. } | folders::Error::Busy { .. }) {
        warn!(error = &error as &dyn std::error::Error, "an agent's files could not be laid out");
    }
    ToolError::Tell(format!("not run: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_and_short() {
        assert_eq!(command_title("  ls -l \n\t rm x\u{7} "), "ls -l rm x");
        assert_eq!(command_title(&"x".repeat(500)).chars().count(), MAX_TITLE_CHARS);
    }
}
