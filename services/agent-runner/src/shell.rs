//! The agent's commands: each runs in a sandbox, in a folder with the agent's files, and what it
//! changes there is kept in the agent's tree before anyone is told of its end.
//!
//! | file | what |
//! |---|---|
//! | `folders.rs` | a folder for each command, with the files that its session may see |
//! | `running.rs`, `keep.rs` | a command that runs; committing what it changed |
//! | `jobs.rs`, `behind.rs` | commands in the background, and the end of one |
//! | `afar.rs` | those of a session that another runner has begun |
//! | `judge.rs` | whether a command may run, and who is asked |
//! | `runs.rs` | what a command runs, which is what is approved |
//!
//! ## What can go wrong
//!
//! A command acts, and is recorded as begun before it runs: if this process dies, the next runner
//! tells the model that nobody knows how it went. Its folder is brought to the tree's newest state
//! before the next command, so half of what it did is never kept.

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

/// How long a command that begins in the background is looked at: many fail at once.
const FIRST_LOOK: Duration = Duration::from_millis(150);

/// The longest title of a command, in characters.
const LONGEST_TITLE: usize = 100;

/// Where commands run. Cloning shares it.
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
    /// Nobody waits for a command any more.
    stopping: CancellationToken,
}

/// What a shell needs of the runner.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) workspaces: Workspaces,
    pub(crate) held: Arc<Held>,
    pub(crate) sessions: Sessions,
    pub(crate) bus: Bus,
}

impl Shell {
    /// Tries the sandbox. If no commands can run here it says why, as the log does.
    ///
    /// # Errors
    ///
    /// If a setting makes no sense.
    pub(crate) async fn open(
        config: &Runner,
        parts: Parts,
    ) -> anyhow::Result<Result<Self, String>> {
        let patterns = config.sandbox.guard.clone();
        // To compile them takes as long as trying the sandbox: a runner's start waits for both.
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

    /// Where the programs of a command are, and the contents of the agent's files that it runs.
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

    /// Starts a command, in a folder with the agent's files as they are now.
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
    /// What is told of it.
    pub(crate) fn backend(&self) -> String {
        self.0.backend.to_string()
    }
}

impl Inner {
    /// What a command may see, and of which copy, if not of its agent's own files.
    fn sight(&self, call: &Call) -> Result<(Sight, Option<AgentId>), ToolError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        let desk = hold.desk();
        let kind = desk.kind.unwrap_or(SessionKind::Global);
        Ok((Sight { kind, audience: desk.audience }, desk.branch))
    }

    /// What the commands of the agent's skills are given.
    fn secrets(&self, call: &Call) -> Result<Arc<Secrets>, ToolError> {
        let hold = self.held.get(call.session);
        let hold = hold.ok_or_else(|| anyhow::anyhow!("the session is not held here"))?;
        let secrets = Arc::clone(&hold.desk().secrets);
        Ok(secrets)
    }

    /// Refuses what no approval would let through.
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
                // Nobody could write to it.
                drop(self.0.processes.close_input(running.owner, running.id));
                patience
            }
            None => FIRST_LOOK,
        };
        let wait = self.0.processes.wait(running.owner, running.id, patience);
        // A runner that stops ends it behind the turn, and keeps what it changed.
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
    /// Does something to a process, wherever it runs.
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

    /// Does something to a process that runs here.
    async fn do_here(&self, owner: Owner, job: &Job, wish: Wish) -> Result<Done, ToolError> {
        let processes = &self.0.processes;
        match wish {
            Wish::Look { wait_ms } => {
                let end = job.wait(Duration::from_millis(wait_ms)).await;
                return Ok(Done::Ran(Box::new(self.looked(owner, job, end))));
            }
            Wish::End => {
                // Whoever ends it is told here.
                let (end, stopped) =
                    tokio::join!(job.wait(behind::LAST_WORDS), processes.stop(owner, job.id));
                // One that ended long ago is not known there any more.
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

/// A command in a line.
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
