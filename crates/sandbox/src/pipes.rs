//! Pipes of a started command, and tasks that read them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::{
    output::OutputSink,
    supervise::{StartedCommand, output_grace},
};

pub(crate) type Shared<T> = Arc<Mutex<T>>;

pub(crate) fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) type Pipes = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

pub(crate) fn pipes(launched: &mut StartedCommand) -> Pipes {
    let child = &mut launched.child;
    (child.stdin.take(), child.stdout.take(), child.stderr.take())
}

/// Reads until the end, even beyond what is kept, so that the command never blocks on output.
pub(crate) fn drain<K: OutputSink>(
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

/// Waits for the rest of the output. All writers are dead, except those that left their group.
pub(crate) async fn finish_readers(readers: [JoinHandle<()>; 2]) {
    let aborts = readers.each_ref().map(JoinHandle::abort_handle);
    tokio::select! {
        _ = futures::future::join_all(readers) => {}
        () = output_grace() => aborts.iter().for_each(|abort| abort.abort()),
    }
}
