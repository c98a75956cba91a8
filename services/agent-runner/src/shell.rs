//! Commands of agents: each runs in the sandbox, in a folder with the agent's files. Its changes
//! are committed to the workspace before anyone is told that it has ended.
//!
//! | file | contents |
//! |---|---|
//! | `folders.rs` | a scratch folder for each command, with the files that its session may see |
//! | `running.rs`, `keep.rs` | running commands; committing their changes |
//! | `jobs.rs`, `behind.rs` | background commands and their end |
//! | `afar.rs` | background commands on other runners |
//! | `judge.rs` | policy and approval of commands |
//! | `runs.rs` | programs and files that a command runs, which an approval is bound to |
//!
//! ## What can go wrong
//!
//! A command acts on the outside world and is recorded as begun before it runs: if this process
//! crashes, the next runner reports an unknown outcome to the model. The folder is reset to the
//! newest state of the workspace before the next command, so partial changes are never kept.

mod afar;
mod behind;
mod folders;
mod jobs;
mod judge;
mod keep;
mod running;
mod runs;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use holdfast_bus::Bus;
use holdfast_sandbox::{
    Backend, Command, Guard, MOUNT, Network, NetworkPolicy, Owner, ProcessId, Processes, Signal,
    State, WorkPath,
};
use holdfast_session::Sessions;
use holdfast_tools::{
    Approval, Call, CommandLine, Commands, ProcessInput, ProcessLine, ProcessSignal, Ran, Stands,
    ToolError,
};
use holdfast_types::{AgentId, Fault as _, SessionKind, TreePath};
use holdfast_workspace::{By, Workspaces};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use self::judge::{Judge, is_bound_to_scripts};
use self::{
    afar::{Done, Wish},
    folders::{Folders, Sight, Whose},
    jobs::{End, Job, Jobs},
    judge::Bound,
    running::{Running, ran, stands},
    runs::Runs,
};
use crate::{config::Runner, held::Held, skills::Secrets};

/// Time for which a new background command is watched: many fail at once.
const FIRST_LOOK: Duration = Duration::from_millis(150);

/// Limit on a command's title, in characters.
const LONGEST_TITLE: usize = 100;

/// Access to the sandbox and the scratch folders. Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct Shell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    processes: Processes,
    backend: Backend,
    guard: Guard,
    settings: holdfast_sandbox::Config,
    idle: Duration,
    folders: Arc<Folders>,
    workspaces: Workspaces,
    jobs: Jobs,
    held: Arc<Held>,
    sessions: Sessions,
    bus: Bus,
    /// Cancelled when the process stops: then nobody waits for commands.
    stopping: CancellationToken,
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) workspaces: Workspaces,
    pub(crate) held: Arc<Held>,
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
        config: &Runner,
        parts: Parts,
    ) -> anyhow::Result<Result<Self, String>> {
        let patterns = config.sandbox.guard.clone();
        // Compiling the patterns takes as long as trying the sandbox: both run at the same time.
        let guard = tokio::task::spawn_blocking(move || Guard::new(&patterns));
        let (guard, sandbox) = tokio::join!(guard, holdfast_sandbox::open(&config.sandbox));
        let guard = guard??;
        let sandbox = match sandbox {
            Ok(sandbox) => sandbox,
            Err(error @ holdfast_sandbox::Error::Off) => {
                info!(%error, "agents have no commands");
                return Ok(Err(error.to_string()));
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "agents have no commands");
                return Ok(Err(error.to_string()));
            }
        };
        let backend = sandbox.backend();
        let Parts { workspaces, held, sessions, bus } = parts;
        Ok(Ok(Self(Arc::new(Inner {
            processes: Processes::new(sandbox, config.sandbox.processes_per_session),
            backend,
            guard,
            settings: config.sandbox.clone(),
            idle: config.scratch.idle,
            folders: Arc::new(Folders::new(config.scratch.clone(), workspaces.clone())),
            workspaces,
            jobs: Jobs::default(),
            held,
            sessions,
            bus,
            stopping: CancellationToken::new(),
        }))))
    }

    /// Paths of the command's programs, and hashes of the workspace files that it runs.
    async fn what_runs(&self, call: &Call, line: &CommandLine) -> Result<Bound, ToolError> {
        let runs = Runs::of(&line.script);
        let (sight, branch) = self.0.sight(call)?;
        let agent = branch.unwrap_or(call.agent);
        let path = |script: &String| {
            let from_root = script.starts_with('/');
            let whole = match line.workdir.trim_end_matches('/') {
                workdir if !from_root && !workdir.is_empty() => format!("{workdir}/{script}"),
                _ => script.clone(),
            };
            let path = WorkPath::parse(&whole).ok()?;
            let path = path.as_relative().to_str()?.to_owned();
            sight.sees(&path).then(|| path.parse::<TreePath>().ok()).flatten()
        };
        let paths: Vec<TreePath> = runs.scripts.iter().filter_map(path).collect();
        let files = match paths.is_empty() {
            true => BTreeMap::new(),
            false => {
                let found = self.0.workspaces.read_many(call.tenant, agent, &paths).await;
                found.map_err(|error| ToolError::Broken(error.into()))?
            }
        };
        let programs = runs.programs.iter();
        Ok(Bound {
            programs: programs
                .filter_map(|name| Some((name.clone(), runs::found(name)?)))
                .collect(),
            scripts: files
                .into_iter()
                .map(|(path, file)| (path.to_string(), file.hash.to_string()))
                .collect(),
        })
    }

    /// Starts a command in a folder with the agent's current files.
    async fn start(&self, call: &Call, line: &CommandLine) -> Result<Running, ToolError> {
        let (sight, branch) = self.0.sight(call)?;
        let agent = branch.unwrap_or(call.agent);
        let whose = Whose { tenant: call.tenant, agent, session: call.session, sight };
        let folder = self.0.folders.take(whose).await.map_err(not_laid_out)?;
        let mut command = Command::new(line.script.as_str(), folder.scratch.tree());
        command.workdir = WorkPath::parse(&line.workdir).map_err(tell)?;
        command.env = line.env.clone();
        self.0.secrets(call)?.give(&mut command.env);
        command.env.insert("HOLDFAST_AGENT".to_owned(), call.agent_name.to_string());
        command.env.insert("HOLDFAST_SESSION".to_owned(), call.session.to_string());
        command.timeout = match line.patience {
            None => Some(line.timeout.unwrap_or(self.0.settings.longest)),
            Some(_) => line.timeout,
        };
        command.network = if line.network { Network::Host } else { Network::Off };
        let owner = owner(call);
        let id = self.0.processes.spawn(owner, command).await.map_err(not_started)?;
        let by = By {
            run: Some(call.run),
            ..By::author(call.agent_name.as_str(), &format!("exec: {}", title(&line.script)))
        };
        Ok(Running::new(self.clone(), owner, id, by.with_key(&call.key), folder))
    }
}

impl Shell {
    /// Name of the sandbox backend.
    pub(crate) fn backend(&self) -> String {
        self.0.backend.to_string()
    }
}

impl Inner {
    /// Files that a command may see, and the copy of the workspace that it works on, if any.
    fn sight(&self, call: &Call) -> Result<(Sight, Option<AgentId>), ToolError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        let desk = hold.desk();
        let kind = desk.kind.unwrap_or(SessionKind::Global);
        Ok((Sight { kind, audience: desk.audience }, desk.branch))
    }

    /// Secrets for the commands of the agent's skills.
    fn secrets(&self, call: &Call) -> Result<Arc<Secrets>, ToolError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        let secrets = Arc::clone(&hold.desk().secrets);
        Ok(secrets)
    }

    /// Reason why the command is never permitted, even with an approval.
    fn refusal(&self, line: &CommandLine) -> Option<String> {
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
        if let Some(refusal) = self.0.refusal(line) {
            return Ok(Approval::Deny(refusal));
        }
        let judge = self.0.held.get(call.session).and_then(|hold| hold.desk().judge.clone());
        match judge::approval(judge.as_ref(), self.0.backend, line) {
            Approval::Ask { subject, summary, pattern } => {
                let runs = self.what_runs(call, line).await?;
                Ok(judge::bound_to(runs, (subject, summary, pattern)))
            }
            settled @ (Approval::Never | Approval::Deny(_)) => Ok(settled),
        }
    }

    async fn run(&self, call: &Call, line: CommandLine) -> Result<Ran, ToolError> {
        if let Some(refusal) = self.0.refusal(&line) {
            return Err(ToolError::Tell(refusal));
        }
        let mut running = self.start(call, &line).await?;
        let patience = match line.patience {
            Some(patience) => {
                // Nobody could write to it later.
                drop(self.0.processes.close_input(running.owner, running.id));
                patience
            }
            None => FIRST_LOOK,
        };
        let wait = self.0.processes.wait(running.owner, running.id, patience);
        // If the runner stops, the command becomes a background command, which saves its changes.
        let waited = self.0.stopping.run_until_cancelled(wait).await;
        match waited.unwrap_or(Ok(State::Running)).map_err(tell)? {
            State::Ended(ended) => {
                let (unread, took) = (running.unread(), running.began.elapsed());
                let kept = running.keep(ended).await;
                self.0.processes.forget(running.owner, running.id);
                behind::count(ended);
                Ok(ran(stands(ended), unread, took, Some(kept)))
            }
            State::Running => {
                let (unread, took) = (running.unread(), running.began.elapsed());
                let id = self.go_on(running, title(&line.script));
                Ok(ran(Stands::Running(id.to_string()), unread, took, None))
            }
        }
    }

    async fn list(&self, call: &Call) -> Result<Vec<ProcessLine>, ToolError> {
        self.list_everywhere(owner(call)).await
    }

    async fn look(&self, call: &Call, id: &str, patience: Duration) -> Result<Ran, ToolError> {
        let wait_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.ask_ran(call, id, Wish::Look { wait_ms }).await
    }

    async fn write(&self, call: &Call, id: &str, input: ProcessInput) -> Result<(), ToolError> {
        self.ask(call, id, Wish::Write(input)).await.map(drop)
    }

    async fn signal(&self, call: &Call, id: &str, signal: ProcessSignal) -> Result<(), ToolError> {
        self.ask(call, id, Wish::Signal(signal)).await.map(drop)
    }

    async fn end(&self, call: &Call, id: &str) -> Result<Ran, ToolError> {
        self.ask_ran(call, id, Wish::End).await
    }
}

impl Shell {
    /// Executes a request on a process, here or on another runner.
    async fn ask(&self, call: &Call, id: &str, wish: Wish) -> Result<Done, ToolError> {
        let parsed: Option<ProcessId> = id.parse().ok();
        let Some(parsed) = parsed else {
            return Err(ToolError::Tell(
                "there is no such process: `list` shows those there are".to_owned(),
            ));
        };
        match self.0.jobs.find(owner(call), parsed) {
            Some(job) => self.do_here(owner(call), &job, wish).await,
            None => self.do_afar(owner(call), parsed, wish).await,
        }
    }

    async fn ask_ran(&self, call: &Call, id: &str, wish: Wish) -> Result<Ran, ToolError> {
        match self.ask(call, id, wish).await? {
            Done::Ran(ran) => Ok(*ran),
            Done::Nothing => Err(lost(id)),
        }
    }

    /// Executes a request on a process that runs here.
    async fn do_here(&self, owner: Owner, job: &Job, wish: Wish) -> Result<Done, ToolError> {
        let processes = &self.0.processes;
        match wish {
            Wish::Look { wait_ms } => {
                let end = job.wait(Duration::from_millis(wait_ms)).await;
                return Ok(Done::Ran(Box::new(self.looked(owner, job, end))));
            }
            Wish::End => {
                // The caller is told of the end by this answer.
                let (end, stopped) =
                    tokio::join!(job.wait(behind::LAST_WORDS), processes.stop(owner, job.id));
                // A process that ended long ago is not known any more.
                drop(stopped);
                return Ok(Done::Ran(Box::new(self.looked(owner, job, end))));
            }
            Wish::Write(ProcessInput { text, is_last }) => {
                if !text.is_empty() {
                    processes.write(owner, job.id, text.into_bytes()).await.map_err(tell)?;
                }
                if is_last {
                    processes.close_input(owner, job.id).map_err(tell)?;
                }
            }
            Wish::Signal(signal) => {
                let signal = match signal {
                    ProcessSignal::Int => Signal::Interrupt,
                    ProcessSignal::Term => Signal::Terminate,
                    ProcessSignal::Kill => Signal::Kill,
                    ProcessSignal::Hup => Signal::HangUp,
                    ProcessSignal::Usr1 => Signal::User1,
                    ProcessSignal::Usr2 => Signal::User2,
                };
                processes.signal(owner, job.id, signal).map_err(tell)?;
            }
        }
        Ok(Done::Nothing)
    }

    fn looked(&self, owner: Owner, job: &Job, end: Option<End>) -> Ran {
        let unread = self.0.processes.unread(owner, job.id).ok();
        match end {
            Some(end) => ran(stands(end.ended), unread, end.took, Some(end.kept)),
            None => ran(Stands::Running(job.id.to_string()), unread, job.began.elapsed(), None),
        }
    }
}

fn owner(call: &Call) -> Owner {
    Owner { tenant: call.tenant, session: call.session }
}

/// One-line title of a command.
fn title(script: &str) -> String {
    let words = script.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title: String = words.chars().filter(|c| !c.is_control()).collect();
    if title.chars().count() > LONGEST_TITLE {
        title = title.chars().take(LONGEST_TITLE - 1).chain(['…']).collect();
    }
    title
}

fn lost(id: &str) -> ToolError {
    ToolError::Tell(format!(
        "lost: `{id}` is known no more, for its runner stopped or its end is long past; what it \
         had changed in files by the time it was lost is not kept"
    ))
}

fn tell(error: impl std::error::Error) -> ToolError {
    ToolError::Tell(error.to_string())
}

fn not_started(error: holdfast_sandbox::Error) -> ToolError {
    if error.kind().is_transient() {
        warn!(error = &error as &dyn std::error::Error, "a command could not be started");
    }
    ToolError::Tell(format!("not run: {error}"))
}

fn not_laid_out(error: folders::Error) -> ToolError {
    if !matches!(error, folders::Error::TooMany { .. }) {
        warn!(error = &error as &dyn std::error::Error, "an agent's files could not be laid out");
    }
    ToolError::Tell(format!("not run: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_and_short() {
        assert_eq!(title("  ls -l \n\t rm x\u{7} "), "ls -l rm x");
        assert_eq!(title(&"x".repeat(500)).chars().count(), LONGEST_TITLE);
    }
}
