//! A pod in use: files in, command, files out.

use std::{
    collections::BTreeSet,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use holdfast_sandbox::{
    CommandEnd, CommandTerms, LossReason, OutputWriter, Signal, Stream, SupervisorIo,
};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};
use tracing::debug;

use crate::{
    cluster::{Cluster, PodId},
    error::Error,
    exec::{self, ExecError, ExecOutput},
    scripts,
    tree::{self, ChannelReader, ChannelWriter, TreeSize, UnpackOutcome},
};

/// Time for files to reach a pod, or to come back.
const FILES_TIMEOUT: Duration = Duration::from_mins(2);

/// Time for a signal to reach a pod.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between the request to end and the kill, as on one machine.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// Parts of output that are on their way.
const MAX_PARTS: usize = 16;

/// Bytes of standard error that explain a failure.
const MAX_SAID: usize = 2000;

/// Names of the pods of this runner.
pub(crate) type UsedPods = Arc<Mutex<BTreeSet<String>>>;

/// Entry of a pod in [`UsedPods`], removed on drop.
#[derive(Debug)]
pub(crate) struct UsedPod {
    pods: UsedPods,
    name: String,
}

impl UsedPod {
    pub(crate) fn new(pods: &UsedPods, name: &str) -> Self {
        pods.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        Self { pods: Arc::clone(pods), name: name.to_owned() }
    }
}

impl Drop for UsedPod {
    fn drop(&mut self) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// A pod that one folder uses. Dropping it deletes the pod.
#[derive(Debug)]
pub(crate) struct SandboxPod {
    pub(crate) id: PodId,
    cluster: Cluster,
    /// Value of the folder whose files the pod has.
    synced: Option<u64>,
    is_deleted: bool,
    _held: UsedPod,
}

impl Drop for SandboxPod {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if std::mem::take(&mut self.is_deleted) {
            return;
        }
        let (cluster, id) = (self.cluster.clone(), self.id.clone());
        runtime.spawn(async move {
            if let Err(error) = cluster.delete(&id, None).await {
                // Its lease expires, and the sweep deletes it.
                debug!(error = &error as &dyn std::error::Error, "a pod was not deleted");
            }
        });
    }
}

impl SandboxPod {
    pub(crate) const fn new(id: PodId, cluster: Cluster, held: UsedPod) -> Self {
        Self { id, cluster, synced: None, is_deleted: false, _held: held }
    }

    /// Deletes the pod, and waits until the cluster has accepted that.
    pub(crate) async fn delete(mut self) -> Result<(), Error> {
        self.is_deleted = true;
        self.cluster.delete(&self.id, None).await
    }

    /// Brings the files of a folder to the pod. Returns their size.
    pub(crate) async fn bring_in(&mut self, dir: &Path) -> Result<TreeSize, Error> {
        let from = dir.to_owned();
        let (size, stamp) = blocking(move || tree::measure(&from)).await.map_err(Error::Files)?;
        if self.synced == Some(stamp) {
            return Ok(size);
        }
        let (sender, input) = mpsc::channel(MAX_PARTS);
        let from = dir.to_owned();
        let packing = blocking(move || tree::pack(&from, ChannelWriter(sender)));
        let mut said = ErrorOutput::default();
        let unpacking =
            self.cluster.exec(&self.id.name, scripts::UNPACK, (Vec::new(), input), &mut said);
        let unpacked = timeout(FILES_TIMEOUT, unpacking).await;
        match unpacked.unwrap_or(Ok(Err(ExecError::Disconnected)))? {
            Ok(0) => {}
            Ok(_) => return Err(Error::Image { said: said.line() }),
            Err(ExecError::Failed(said)) => return Err(self.failure(said).await),
            Err(ExecError::Disconnected | ExecError::Stopped) => return Err(Error::PodGone),
        }
        packing.await.map_err(Error::Files)?;
        self.synced = Some(stamp);
        Ok(size)
    }

    /// Reason why a process could not be started in the pod.
    async fn failure(&self, said: String) -> Error {
        match self.cluster.is_running(&self.id.name).await {
            Ok(true) => Error::Image { said },
            Ok(false) => Error::PodGone,
            Err(error) => error,
        }
    }

    /// Starts the command's shell, which waits for its first line.
    pub(crate) async fn start(&mut self) -> Result<kube::client::Connection, Error> {
        // A command that runs from now on may change the files.
        self.synced = None;
        self.cluster.connect_exec(&self.id.name, scripts::RUN).await
    }

    /// Makes the folder equal to the pod's files. Returns the end of a command whose files cannot
    /// be kept.
    async fn bring_out(&mut self, dir: &Path, ceiling: TreeSize) -> Option<CommandEnd> {
        let (sender, parts) = mpsc::channel(MAX_PARTS);
        let to = dir.to_owned();
        let unpacking = blocking(move || {
            let reader = ChannelReader { parts, part: Bytes::new() };
            let unpacked = tree::unpack(&to, reader, ceiling)?;
            Ok((unpacked, tree::measure(&to)?.1))
        });
        let mut output = ArchiveOutput { sender, said: ErrorOutput::default() };
        let (_, no_input) = mpsc::channel(1);
        let packing =
            self.cluster.exec(&self.id.name, scripts::PACK, (Vec::new(), no_input), &mut output);
        let packed = timeout(FILES_TIMEOUT, packing).await;
        let ArchiveOutput { sender, said } = output;
        drop(sender);
        let unpacked = unpacking.await;
        match (packed, unpacked) {
            (_, Ok((UnpackOutcome::Over(limit), _))) => Some(CommandEnd::Limit(limit)),
            (Ok(Ok(Ok(0))), Ok((unpacked, stamp))) => {
                self.synced = (unpacked == UnpackOutcome::Same).then_some(stamp);
                None
            }
            (packed, unpacked) => {
                let (said, unpacked) = (said.line(), unpacked.err());
                tracing::warn!(?packed, ?unpacked, said, "files could not be read from a pod");
                Some(CommandEnd::Lost(self.loss(LossReason::FilesUnreadable).await))
            }
        }
    }

    /// Reason of a loss, `else_reason` unless the pod is gone.
    async fn loss(&self, else_reason: LossReason) -> LossReason {
        match self.cluster.is_running(&self.id.name).await {
            Ok(false) => LossReason::PodGone,
            Ok(true) | Err(_) => else_reason,
        }
    }

    async fn signal(&self, signal: Signal) {
        let (_, no_input) = mpsc::channel(1);
        let (script, mut said) = (scripts::signal(signal), ErrorOutput::default());
        let sent = self.cluster.exec(&self.id.name, script, (Vec::new(), no_input), &mut said);
        match timeout(SIGNAL_TIMEOUT, sent).await {
            Ok(Ok(Ok(_))) => {}
            failed => debug!(?failed, "a signal did not reach its pod"),
        }
    }
}

/// Starts work on a thread that may block.
fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    let working = spawn_blocking(work);
    async { working.await.map_err(io::Error::other).and_then(|done| done) }
}

/// A command that was started in its pod.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    pub(crate) pod: SandboxPod,
    pub(crate) first_line: Vec<u8>,
    pub(crate) terms: CommandTerms,
    /// Folder that gets the changed files; `None` if the command may change none.
    pub(crate) changes: Option<PathBuf>,
    pub(crate) ceiling: TreeSize,
}

impl RunningCommand {
    /// Moves input and output until the command has ended, then brings its files back. Returns the
    /// pod if it can be used again.
    pub(crate) async fn supervise(
        mut self,
        connection: kube::client::Connection,
        io: SupervisorIo,
        mut signals: mpsc::UnboundedReceiver<Signal>,
    ) -> (CommandEnd, Option<SandboxPod>) {
        let SupervisorIo { out, err, input, stop } = io;
        let mut output = Rings { out, err };
        let first_line = std::mem::take(&mut self.first_line);
        let transfer = exec::transfer(connection.into_stream(), first_line, input, &mut output);
        tokio::pin!(transfer);
        let deadline = Instant::now() + self.terms.timeout;
        // Reason of the request to end, and the time of the kill.
        let mut asked: Option<(CommandEnd, Instant)> = None;
        let mut is_killed = false;
        let by_itself = loop {
            let until = asked.map_or(deadline, |(_, until)| until);
            let (reason, signal) = tokio::select! {
                biased;
                ended = &mut transfer => break ended,
                Some(signal) = signals.recv() => (None, signal),
                () = stop.cancelled(), if asked.is_none() => {
                    (Some(CommandEnd::Cancelled), Signal::Terminate)
                }
                () = sleep_until(until) => match asked {
                    None => (Some(CommandEnd::TimedOut), Signal::Terminate),
                    Some(_) if is_killed => break Err(ExecError::Disconnected),
                    Some((reason, _)) => {
                        is_killed = true;
                        asked = Some((reason, Instant::now() + SIGNAL_TIMEOUT));
                        (None, Signal::Kill)
                    }
                },
            };
            if let Some(reason) = reason {
                asked = Some((reason, Instant::now() + TERMINATION_GRACE));
            }
            // The output goes on while the signal is sent.
            let sending = self.pod.signal(signal);
            tokio::pin!(sending);
            let ended = tokio::select! {
                biased;
                ended = &mut transfer => Some(ended),
                () = &mut sending => None,
            };
            if let Some(ended) = ended {
                break ended;
            }
        };
        self.finish(by_itself, asked.map(|(reason, _)| reason)).await
    }

    async fn finish(
        mut self,
        by_itself: Result<i32, ExecError>,
        asked: Option<CommandEnd>,
    ) -> (CommandEnd, Option<SandboxPod>) {
        let ended = match (by_itself, asked) {
            (Err(error), _) => {
                debug!(%error, "the end of a command is unknown");
                let reason = self.pod.loss(LossReason::Disconnected).await;
                return (CommandEnd::Lost(reason), None);
            }
            (Ok(_), Some(reason)) => reason,
            (Ok(code), None) => CommandEnd::from_code(code),
        };
        let Some(dir) = self.changes.take() else { return (ended, Some(self.pod)) };
        match self.pod.bring_out(&dir, self.ceiling).await {
            Some(ended) => (ended, None),
            None => (ended, Some(self.pod)),
        }
    }
}

/// Output of a command.
struct Rings {
    out: OutputWriter,
    err: OutputWriter,
}

impl ExecOutput for Rings {
    async fn write(&mut self, stream: Stream, bytes: Bytes) -> ControlFlow<()> {
        match stream {
            Stream::Out => self.out.push(&bytes),
            Stream::Err => self.err.push(&bytes),
        }
        ControlFlow::Continue(())
    }
}

/// Beginning of what a script says on standard error.
#[derive(Debug, Default)]
struct ErrorOutput(Vec<u8>);

impl ErrorOutput {
    /// Its last line.
    fn line(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let line = text.lines().last().unwrap_or("a script of ours failed in it");
        line.chars().filter(|c| !c.is_control()).take(200).collect()
    }
}

impl ExecOutput for ErrorOutput {
    async fn write(&mut self, stream: Stream, bytes: Bytes) -> ControlFlow<()> {
        if stream == Stream::Err {
            let room = MAX_SAID.saturating_sub(self.0.len()).min(bytes.len());
            self.0.extend_from_slice(&bytes[..room]);
        }
        ControlFlow::Continue(())
    }
}

/// Tar stream of a pod.
struct ArchiveOutput {
    sender: mpsc::Sender<Bytes>,
    said: ErrorOutput,
}

impl ExecOutput for ArchiveOutput {
    async fn write(&mut self, stream: Stream, bytes: Bytes) -> ControlFlow<()> {
        match stream {
            Stream::Out => match self.sender.send(bytes).await {
                Ok(()) => ControlFlow::Continue(()),
                // The reader stops at a limit.
                Err(_) => ControlFlow::Break(()),
            },
            Stream::Err => self.said.write(stream, bytes).await,
        }
    }
}
