//! What all backends on this machine have in common: everything but the walls.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Access, Backend, Captured, Chunk, Command, Config, Ended, Error, Limits, Network,
    NetworkPolicy, Outcome, Process, Root, Sandbox, Signal, State, Stream, WorkPath,
    disk::Growth,
    error,
    output::{Keep, Ring},
    supervise::{Launched, Reach, Terms, Verdict, output_patience, supervise},
};

/// Builds the walls around a command, and starts it within.
pub(crate) trait Launch: fmt::Debug + Send + Sync + 'static {
    fn backend(&self) -> Backend;

    /// The command does nothing until it is supervised.
    fn launch(
        &self,
        command: Command,
        limits: Limits,
    ) -> impl Future<Output = Result<Launched, Error>> + Send;
}

/// A sandbox on this machine.
#[derive(Debug)]
pub(crate) struct Local<L> {
    walls: L,
    config: Config,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: Launch> Local<L> {
    pub(crate) const fn new(walls: L, config: Config) -> Self {
        Self { walls, config }
    }

    /// Starts the command; it waits for its supervisor.
    async fn start(&self, command: Command) -> Result<(Launched, Terms), Error> {
        command.check()?;
        if command.network == Network::Host && self.config.network == NetworkPolicy::Off {
            return Err(Error::NoNetwork);
        }
        let timeout = command.timeout.unwrap_or(self.config.timeout);
        if timeout > self.config.longest {
            return Err(Error::TimeoutTooLong { asked: timeout, most: self.config.longest });
        }
        let most = &self.config.limits;
        let limits = command.limits.clone().map_or_else(|| most.clone(), |own| own.within(most));
        limits.check()?;

        let writes = match &command.workspace.access {
            Access::Read => false,
            Access::Write => true,
            Access::Scoped(scope) => !scope.write.is_empty(),
        };
        let dir = command.workspace.dir.clone();
        let growth = async {
            match writes {
                true => Growth::from_now(&dir, limits.disk).await.map(Some),
                false => Ok(None),
            }
        };
        // The walls are built while the workspace is measured.
        let launch = self.walls.launch(command, limits.clone());
        let (launched, growth) = futures::future::try_join(launch, growth).await?;
        Ok((launched, Terms { limits, timeout, growth }))
    }

    async fn run_to_end(
        &self,
        mut command: Command,
        cancel: CancellationToken,
    ) -> Result<Outcome, Error> {
        let input = std::mem::take(&mut command.stdin);
        let (mut launched, terms) = self.start(command).await?;
        let kept = || Arc::new(Mutex::new(Captured::at_most(terms.limits.output)));
        let (out, err) = (kept(), kept());
        let (stdin, stdout, stderr) = pipes(&mut launched);
        let write = tokio::spawn(feed(stdin, input));
        let readers = [drain(stdout, Arc::clone(&out)), drain(stderr, Arc::clone(&err))];

        let verdict = supervise(&mut launched, &terms, &cancel).await;
        write.abort();
        settle(readers).await;
        let verdict = verdict.map_err(Error::failed("wait for the command"))?;
        let (stdout, stderr) = (take(&out), take(&err));
        if !verdict.began && verdict.ended == Ended::Exited(1) {
            return Err(error::from_builder(&stderr.to_text()));
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
        Ok(Box::new(Background::begin(launched, terms, input)))
    }
}

impl<L: Launch> Sandbox for Local<L> {
    fn backend(&self) -> Backend {
        self.walls.backend()
    }

    fn run(
        &self,
        command: Command,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Outcome, Error>> {
        Box::pin(self.run_to_end(command, cancel))
    }

    fn spawn(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Process>, Error>> {
        Box::pin(self.start_in_background(command))
    }
}

/// Looks whether the directory that a command starts in is there, and one that it sees.
pub(crate) fn check_workdir(root: &Root, command: &Command) -> Result<(), Error> {
    root.open_dir(&command.workdir)?;
    if let Access::Scoped(scope) = &command.workspace.access {
        let sees = |dir: &WorkPath| command.workdir.is_within(dir);
        let is_seen = command.workdir.is_top() || scope.read.iter().chain(&scope.write).any(sees);
        if !is_seen {
            return Err(Error::Path(crate::PathError::NotFound));
        }
    }
    Ok(())
}

type Pipes = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

fn pipes(launched: &mut Launched) -> Pipes {
    let child = &mut launched.child;
    (child.stdin.take(), child.stdout.take(), child.stderr.take())
}

/// Writes the input and closes it. A command that does not want it may leave it.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _unread = stdin.write_all(&input).await;
    }
}

/// Reads until the end, whatever is kept of it, so that the command is never held up.
fn drain<K: Keep>(
    stream: Option<impl AsyncRead + Send + Unpin + 'static>,
    into: Shared<K>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Some(mut stream) = stream else { return };
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read) = stream.read(&mut buffer).await {
            if read == 0 {
                return;
            }
            lock(&into).push(&buffer[..read]);
        }
    })
}

/// Waits for what is still in the pipes. All writers are dead, unless one left its group.
async fn settle(readers: [JoinHandle<()>; 2]) {
    let aborts = readers.each_ref().map(JoinHandle::abort_handle);
    tokio::select! {
        _ = futures::future::join_all(readers) => {}
        () = output_patience() => aborts.iter().for_each(|abort| abort.abort()),
    }
}

fn take(kept: &Shared<Captured>) -> Captured {
    std::mem::take(&mut *lock(kept))
}

/// A command in the background, and the task that watches it.
struct Background {
    reach: Arc<Reach>,
    out: Shared<Ring>,
    err: Shared<Ring>,
    input: Mutex<Option<mpsc::Sender<Input>>>,
    stop: CancellationToken,
    state: watch::Receiver<State>,
    supervisor: JoinHandle<()>,
}

/// Bytes for a process, and whom to tell that they were taken.
type Input = (Vec<u8>, oneshot::Sender<io::Result<()>>);

impl Background {
    fn begin(mut launched: Launched, terms: Terms, input: Vec<u8>) -> Self {
        let kept = || Arc::new(Mutex::new(Ring::at_most(terms.limits.output)));
        let (out, err) = (kept(), kept());
        let (stdin, stdout, stderr) = pipes(&mut launched);
        let readers = [drain(stdout, Arc::clone(&out)), drain(stderr, Arc::clone(&err))];
        let (sender, receiver) = mpsc::channel(1);
        let writer = tokio::spawn(keep_feeding(stdin, input, receiver));

        let reach = Arc::clone(&launched.reach);
        let stop = CancellationToken::new();
        let cancel = stop.clone();
        let (tell, state) = watch::channel(State::Running);
        let supervisor = tokio::spawn(async move {
            let verdict: io::Result<Verdict> = supervise(&mut launched, &terms, &cancel).await;
            writer.abort();
            settle(readers).await;
            let ended = verdict.map_or_else(
                |error| {
                    tracing::error!(%error, "a background process could not be waited for");
                    Ended::Signalled(0)
                },
                |verdict| verdict.ended,
            );
            tell.send_replace(State::Ended(ended));
        });
        let input = Mutex::new(Some(sender));
        Self { reach, out, err, input, stop, state, supervisor }
    }

    fn input(&self) -> MutexGuard<'_, Option<mpsc::Sender<Input>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, bytes: Vec<u8>) -> Result<(), Error> {
        let sender = self.input().clone().ok_or(Error::InputClosed)?;
        let (tell, told) = oneshot::channel();
        sender.send((bytes, tell)).await.map_err(|_| Error::InputClosed)?;
        told.await.map_err(|_| Error::InputClosed)?.map_err(|_| Error::InputClosed)
    }
}

async fn keep_feeding(stdin: Option<ChildStdin>, first: Vec<u8>, mut more: mpsc::Receiver<Input>) {
    let Some(mut stdin) = stdin else { return };
    if stdin.write_all(&first).await.is_err() {
        return;
    }
    while let Some((bytes, tell)) = more.recv().await {
        let written = stdin.write_all(&bytes).await;
        let is_over = written.is_err();
        // Whoever does not wait any more need not know.
        let _unheard = tell.send(written);
        if is_over {
            return;
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Process for Background {
    fn state(&self) -> State {
        *self.state.borrow()
    }

    fn read(&self, stream: Stream, from: u64) -> Chunk {
        match stream {
            Stream::Out => lock(&self.out).read(from),
            Stream::Err => lock(&self.err).read(from),
        }
    }

    fn write(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.send(bytes))
    }

    fn close_input(&self) {
        self.input().take();
    }

    fn signal(&self, signal: Signal) {
        if self.state() == State::Running {
            self.reach.signal(signal.as_signal());
        }
    }

    fn stop(&self) {
        self.stop.cancel();
    }

    fn ended(&self) -> BoxFuture<'_, Ended> {
        Box::pin(async {
            let mut state = self.state.clone();
            let ended = state.wait_for(|state| *state != State::Running).await;
            match ended.as_deref() {
                Ok(State::Ended(ended)) => *ended,
                // The supervisor tells the end, whatever happens, unless the runtime stops.
                Ok(State::Running) | Err(_) => Ended::Cancelled,
            }
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Drops what it supervises, which kills it.
        self.supervisor.abort();
    }
}
