//! The thread that starts processes, and never ends.
//!
//! `bwrap --die-with-parent` asks the kernel to kill it once its parent is gone, and its
//! parent, for the kernel, is the *thread* that started it (`PR_SET_PDEATHSIG`, prctl(2)). A
//! runtime's threads come and go; this one stays as long as the process does.

use std::{
    io,
    sync::{LazyLock, mpsc},
    thread,
};

use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

type Work = Box<dyn FnOnce() + Send>;

static SPAWNER: LazyLock<io::Result<mpsc::Sender<Work>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<Work>();
    thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(move || {
        while let Ok(work) = receiver.recv() {
            work();
        }
    })?;
    Ok(sender)
});

/// Starts the command from that thread. Call it within a runtime that has I/O.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) async fn spawn(mut command: Command) -> io::Result<Child> {
    let runtime = Handle::current();
    let (answer, child) = oneshot::channel();
    let work: Work = Box::new(move || {
        let _within = runtime.enter();
        // If nobody waits any more the child is dropped, which kills it.
        let _unheard = answer.send(command.spawn());
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let spawner = SPAWNER.as_ref().map_err(|error| io::Error::new(error.kind(), error))?;
    spawner.send(work).map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}
