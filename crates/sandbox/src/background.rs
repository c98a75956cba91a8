//! Background command, with the task that supervises it.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use tokio::{
    io::AsyncWriteExt as _,
    process::{ChildStdin, ChildStdout},
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    CommandEnd, Error, OutputChunk, Process, Signal, State, Stream,
    output::{OutputRing, OutputSink as _},
    pipes::{Shared, drain, finish_readers, lock, pipes},
    supervise::{StartedCommand, SupervisionLimits, supervise},
};

/// Command in the background, and the task that supervises it.
pub struct Background {
    signal: Box<dyn Fn(Signal) + Send + Sync>,
    out: Shared<OutputRing>,
    err: Shared<OutputRing>,
    input: Mutex<Option<mpsc::Sender<Input>>>,
    stop: CancellationToken,
    state: watch::Receiver<State>,
    supervisor: JoinHandle<()>,
}

/// What the supervisor of a background command reads and writes.
#[derive(Debug)]
pub struct SupervisorIo {
    pub out: OutputWriter,
    pub err: OutputWriter,
    /// Bytes for standard input; it ends when the input is closed.
    pub input: mpsc::Receiver<Input>,
    /// Cancelled when the command is asked to end.
    pub stop: CancellationToken,
}

/// Bytes for a process, and the channel that is told once they are written.
#[derive(Debug)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub written: oneshot::Sender<io::Result<()>>,
}

/// Consumer of one output stream of a command.
#[derive(Debug)]
pub struct OutputWriter(Shared<OutputRing>);

impl OutputWriter {
    pub fn push(&self, bytes: &[u8]) {
        lock(&self.0).push(bytes);
    }
}

impl Background {
    /// Starts the supervisor, which returns once the command has ended and its output is complete.
    /// Dropping the supervisor must kill the command.
    ///
    /// The last `output` bytes of each stream are kept.
    pub fn start<F>(
        output: usize,
        signal: impl Fn(Signal) + Send + Sync + 'static,
        supervise: impl FnOnce(SupervisorIo) -> F,
    ) -> Self
    where
        F: Future<Output = CommandEnd> + Send + 'static,
    {
        let kept = || Arc::new(Mutex::new(OutputRing::at_most(output)));
        let (out, err, stop) = (kept(), kept(), CancellationToken::new());
        let (sender, input) = mpsc::channel(1);
        let io = SupervisorIo {
            out: OutputWriter(Arc::clone(&out)),
            err: OutputWriter(Arc::clone(&err)),
            input,
            stop: stop.clone(),
        };
        let supervise = supervise(io);
        let (tell, state) = watch::channel(State::Running);
        let supervisor = tokio::spawn(async move {
            let ended = supervise.await;
            tell.send_replace(State::Ended(ended));
        });
        let input = Mutex::new(Some(sender));
        Self { signal: Box::new(signal), out, err, input, stop, state, supervisor }
    }

    fn input(&self) -> MutexGuard<'_, Option<mpsc::Sender<Input>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, bytes: Vec<u8>) -> Result<(), Error> {
        let sender = self.input().clone().ok_or(Error::InputClosed)?;
        let (written, told) = oneshot::channel();
        sender.send(Input { bytes, written }).await.map_err(|_| Error::InputClosed)?;
        told.await.map_err(|_| Error::InputClosed)?.map_err(|_| Error::InputClosed)
    }
}

/// Lets the command begin, and supervises it from now on.
pub(crate) fn begin(
    mut launched: StartedCommand,
    terms: SupervisionLimits,
    input: Vec<u8>,
) -> Background {
    let (stdin, stdout, stderr) = pipes(&mut launched);
    watch_local(launched, terms, |io| {
        let readers = [drain(stdout, io.out.0), drain(stderr, io.err.0)];
        (tokio::spawn(keep_feeding(stdin, input, io.input)), readers, io.stop)
    })
}

/// Like [`begin`], but hands out the command's standard input and output.
pub(crate) fn with_pipes(
    mut launched: StartedCommand,
    terms: SupervisionLimits,
) -> (Background, Option<ChildStdin>, Option<ChildStdout>) {
    let (stdin, stdout, stderr) = pipes(&mut launched);
    let nothing = || tokio::spawn(std::future::ready(()));
    let process = watch_local(launched, terms, |io| {
        (nothing(), [nothing(), drain(stderr, io.err.0)], io.stop)
    });
    (process, stdin, stdout)
}

/// Tasks that move the input and the output of a command, and the request to end it.
type LocalTasks = (JoinHandle<()>, [JoinHandle<()>; 2], CancellationToken);

fn watch_local(
    mut launched: StartedCommand,
    terms: SupervisionLimits,
    connect: impl FnOnce(SupervisorIo) -> LocalTasks,
) -> Background {
    let target = Arc::clone(&launched.signal_target);
    let signal = move |signal: Signal| target.signal(signal.as_signal());
    Background::start(terms.limits.output, signal, |io| {
        let (writer, readers, stop) = connect(io);
        async move {
            let verdict = supervise(&mut launched, &terms, &stop).await;
            writer.abort();
            finish_readers(readers).await;
            verdict.map_or_else(
                |error| {
                    tracing::error!(%error, "a background process could not be waited for");
                    CommandEnd::Signalled(0)
                },
                |verdict| verdict.ended,
            )
        }
    })
}

async fn keep_feeding(stdin: Option<ChildStdin>, first: Vec<u8>, mut more: mpsc::Receiver<Input>) {
    let Some(mut stdin) = stdin else { return };
    if stdin.write_all(&first).await.is_err() {
        return;
    }
    while let Some(Input { bytes, written: tell }) = more.recv().await {
        let written = stdin.write_all(&bytes).await;
        let is_over = written.is_err();
        // The caller may have stopped waiting.
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

    fn read(&self, stream: Stream, from: u64) -> OutputChunk {
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
            (self.signal)(signal);
        }
    }

    fn stop(&self) {
        self.stop.cancel();
    }

    fn ended(&self) -> BoxFuture<'_, CommandEnd> {
        Box::pin(async {
            let mut state = self.state.clone();
            let ended = state.wait_for(|state| *state != State::Running).await;
            match ended.as_deref() {
                Ok(State::Ended(ended)) => *ended,
                // The supervisor always reports the end, unless the runtime stops.
                Ok(State::Running) | Err(_) => CommandEnd::Cancelled,
            }
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Drops the supervised command, which kills it.
        self.supervisor.abort();
    }
}
