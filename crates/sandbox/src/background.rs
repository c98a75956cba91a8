//! Background command on this machine.

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
    output::OutputRing,
    pipes::{Shared, drain, finish_readers, lock, pipes},
    supervise::{SignalTarget, StartedCommand, SupervisionLimits, SupervisionResult, supervise},
};

/// Command in the background, and the task that supervises it.
pub(crate) struct Background {
    reach: Arc<SignalTarget>,
    out: Shared<OutputRing>,
    err: Shared<OutputRing>,
    input: Mutex<Option<mpsc::Sender<Input>>>,
    stop: CancellationToken,
    state: watch::Receiver<State>,
    supervisor: JoinHandle<()>,
}

/// Bytes for a process, and the channel that is told once they are written.
type Input = (Vec<u8>, oneshot::Sender<io::Result<()>>);

impl Background {
    /// Lets the command begin, and supervises it from now on.
    pub(crate) fn begin(
        mut launched: StartedCommand,
        terms: SupervisionLimits,
        input: Vec<u8>,
    ) -> Self {
        let kept = || Arc::new(Mutex::new(OutputRing::at_most(terms.limits.output)));
        let (out, err) = (kept(), kept());
        let (stdin, stdout, stderr) = pipes(&mut launched);
        let readers = [drain(stdout, Arc::clone(&out)), drain(stderr, Arc::clone(&err))];
        let (sender, receiver) = mpsc::channel(1);
        let writer = tokio::spawn(keep_feeding(stdin, input, receiver));
        Self::watch(launched, terms, (out, err), Some(sender), (writer, readers))
    }

    /// Like [`begin`](Self::begin), but hands out the command's standard input and output.
    pub(crate) fn with_pipes(
        mut launched: StartedCommand,
        terms: SupervisionLimits,
    ) -> (Self, Option<ChildStdin>, Option<ChildStdout>) {
        let kept = || Arc::new(Mutex::new(OutputRing::at_most(terms.limits.output)));
        let (out, err) = (kept(), kept());
        let (stdin, stdout, stderr) = pipes(&mut launched);
        let nothing = || tokio::spawn(std::future::ready(()));
        let readers = [nothing(), drain(stderr, Arc::clone(&err))];
        let process = Self::watch(launched, terms, (out, err), None, (nothing(), readers));
        (process, stdin, stdout)
    }

    fn watch(
        mut launched: StartedCommand,
        terms: SupervisionLimits,
        (out, err): (Shared<OutputRing>, Shared<OutputRing>),
        input: Option<mpsc::Sender<Input>>,
        (writer, readers): (JoinHandle<()>, [JoinHandle<()>; 2]),
    ) -> Self {
        let reach = Arc::clone(&launched.signal_target);
        let stop = CancellationToken::new();
        let cancel = stop.clone();
        let (tell, state) = watch::channel(State::Running);
        let supervisor = tokio::spawn(async move {
            let verdict: io::Result<SupervisionResult> =
                supervise(&mut launched, &terms, &cancel).await;
            writer.abort();
            finish_readers(readers).await;
            let ended = verdict.map_or_else(
                |error| {
                    tracing::error!(%error, "a background process could not be waited for");
                    CommandEnd::Signalled(0)
                },
                |verdict| verdict.ended,
            );
            tell.send_replace(State::Ended(ended));
        });
        let input = Mutex::new(input);
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
            self.reach.signal(signal.as_signal());
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
