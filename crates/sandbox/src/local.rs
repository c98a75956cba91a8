//! Code that all backends on this machine share: everything but the isolation.

use std::{
    fmt, io,
    sync::{Arc, Mutex},
};

use futures::future::BoxFuture;
use tokio::{io::AsyncWriteExt as _, process::ChildStdin};
use tokio_util::sync::CancellationToken;

use crate::{
    Access, Backend, CapturedOutput, Command, CommandEnd, CommandTerms, Config, Error, Limits,
    LocalSandbox, Outcome, PipedProcess, Process, Sandbox, Workspace, background,
    disk::GrowthLimit,
    error,
    pipes::{Shared, drain, finish_readers, lock, pipes},
    slices::{LimitScope, NoSlices},
    supervise::{StartedCommand, SupervisionLimits, supervise},
};

/// Isolates a command, and starts it.
pub(crate) trait Launcher: fmt::Debug + Send + Sync + 'static {
    fn backend(&self) -> Backend;

    /// Starts the command. The script does not run before the command is supervised.
    fn launch(
        &self,
        command: Command,
        limits: Limits,
    ) -> impl Future<Output = Result<StartedCommand, Error>> + Send;
}

#[derive(Debug)]
pub(crate) struct Local<L> {
    launcher: L,
    config: Config,
    scope: LimitScope,
}

impl<L: Launcher> Local<L> {
    pub(crate) fn new(launcher: L, config: Config) -> Self {
        let scope = match &config.tenant {
            Some(limits) => LimitScope::of_this_process(limits),
            None => LimitScope::Processes(NoSlices::Off),
        };
        Self { launcher, config, scope }
    }

    /// Starts the command; its script waits for the supervisor.
    async fn start(&self, command: Command) -> Result<(StartedCommand, SupervisionLimits), Error> {
        if command.needs_pod {
            return Err(Error::PodNeeded);
        }
        let CommandTerms { limits, timeout } = command.terms(&self.config)?;
        let Workspace { dir, access } = command.workspace.clone();
        let growth = async {
            match access {
                Access::Write => GrowthLimit::from_now(&dir, &limits).await.map(Some),
                Access::Read => Ok(None),
            }
        };
        let tenant = command.tenant;
        // The sandbox is built while the workspace is measured.
        let launch = self.launcher.launch(command, limits.clone());
        let (mut launched, growth) = futures::future::try_join(launch, growth).await?;
        if let (LimitScope::Tenants(slices), Some(tenant)) = (&self.scope, tenant) {
            launched.slice = Some(slices.join(tenant, launched.first_processes())?);
        }
        Ok((launched, SupervisionLimits { limits, timeout, growth }))
    }

    async fn run_to_end(
        &self,
        mut command: Command,
        cancel: CancellationToken,
    ) -> Result<Outcome, Error> {
        let input = std::mem::take(&mut command.stdin);
        let (mut launched, terms) = self.start(command).await?;
        let kept = || Arc::new(Mutex::new(CapturedOutput::at_most(terms.limits.output)));
        let (out, err) = (kept(), kept());
        let (stdin, stdout, stderr) = pipes(&mut launched);
        let write = tokio::spawn(feed(stdin, input));
        let readers = [drain(stdout, Arc::clone(&out)), drain(stderr, Arc::clone(&err))];

        let verdict = supervise(&mut launched, &terms, &cancel).await;
        write.abort();
        finish_readers(readers).await;
        let verdict = verdict.map_err(Error::failed("wait for the command"))?;
        let (stdout, stderr) = (take(&out), take(&err));
        if !verdict.began && verdict.ended == CommandEnd::Exited(1) {
            return Err(error::from_bwrap(&stderr.to_text()));
        }
        Ok(Outcome {
            ended: verdict.ended,
            stdout,
            stderr,
            duration: verdict.duration,
            peak_memory: verdict.peak_memory,
        })
    }

    async fn start_in_background(&self, mut command: Command) -> Result<Box<dyn Process>, Error> {
        let input = std::mem::take(&mut command.stdin);
        let (launched, terms) = self.start(command).await?;
        Ok(Box::new(background::begin(launched, terms, input)))
    }

    async fn start_with_pipes(&self, command: Command) -> Result<PipedProcess, Error> {
        let (launched, terms) = self.start(command).await?;
        let (process, stdin, stdout) = background::with_pipes(launched, terms);
        let missing = || io::Error::other("it has no pipes");
        let failed = Error::failed("start the command");
        match (stdin, stdout) {
            (Some(stdin), Some(stdout)) => Ok(PipedProcess {
                process: Box::new(process),
                stdin: Box::new(stdin),
                stdout: Box::new(stdout),
            }),
            _ => Err(failed(missing())),
        }
    }
}

impl<L: Launcher> Sandbox for Local<L> {
    fn backend(&self) -> Backend {
        self.launcher.backend()
    }

    fn limit_scope(&self) -> String {
        self.scope.to_string()
    }

    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, Error>> {
        Box::pin(self.start_in_background(command))
    }
}

impl<L: Launcher> LocalSandbox for Local<L> {
    fn run(
        &self,
        command: Command,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(self.run_to_end(command, cancel))
    }

    fn spawn_piped(&self, command: Command) -> BoxFuture<'_, Result<PipedProcess, Error>> {
        Box::pin(self.start_with_pipes(command))
    }
}

/// Writes the input and closes it. A command may ignore its input.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _unread = stdin.write_all(&input).await;
    }
}

fn take(kept: &Shared<CapturedOutput>) -> CapturedOutput {
    std::mem::take(&mut *lock(kept))
}
