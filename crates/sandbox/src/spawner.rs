//! Thread that starts processes, and never ends.
//!
//! `bwrap --die-with-parent` asks the kernel to kill it once its parent is gone, and its parent,
//! for the kernel, is the *thread* that started it (`PR_SET_PDEATHSIG`, prctl(2)). A runtime's
//! threads come and go; this one lives as long as the process.
//!
//! **What can go wrong.** A descriptor without `O_CLOEXEC` (one that we were started with, or that
//! a library opened) is inherited by the processes we start, and a command could reach it through
//! `/proc/1/fd`. If there are any, a shell closes them first.

use std::{
    ffi::OsStr,
    fs, io,
    ops::Range,
    sync::{LazyLock, mpsc},
    thread,
};

use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
};

/// Shell that closes descriptors, and runs scripts.
pub(crate) const SHELL: &str = "/bin/bash";

/// `O_CLOEXEC`, as `/proc/self/fdinfo` shows it on x86_64 and aarch64; see open(2).
const CLOEXEC_FLAG: u32 = 0o2_000_000;

/// Command for this program that inherits no descriptors but those mapped to `given`.
pub(crate) fn command(program: impl AsRef<OsStr>, given: &Range<i32>) -> Command {
    let mut inherited = inherited();
    inherited.retain(|fd| !given.contains(fd));
    if inherited.is_empty() {
        return Command::new(program);
    }
    let close: String = inherited.iter().map(|fd| format!("exec {fd}>&-; ")).collect();
    let mut command = Command::new(SHELL);
    command.arg("-c").arg(close + "exec \"$0\" \"$@\"").arg(program);
    command
}

/// Descriptors that a new process would inherit, besides the standard ones.
fn inherited() -> Vec<i32> {
    let Ok(open) = fs::read_dir("/proc/self/fdinfo") else { return Vec::new() };
    let numbers = open.flatten().filter_map(|fd| fd.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|fd| *fd > 2 && is_inherited(*fd)).collect()
}

fn is_inherited(fd: i32) -> bool {
    // A descriptor that was closed meanwhile is not inherited.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOEXEC_FLAG == 0)
}

type SpawnJob = Box<dyn FnOnce() + Send>;

static SPAWNER: LazyLock<io::Result<mpsc::Sender<SpawnJob>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel::<SpawnJob>();
    thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(move || {
        while let Ok(work) = receiver.recv() {
            work();
        }
    })?;
    Ok(sender)
});

/// Starts the command on the spawner thread. Call it within a runtime that has I/O.
pub(crate) async fn spawn(mut command: Command) -> io::Result<Child> {
    let runtime = Handle::current();
    let (answer, child) = oneshot::channel();
    let work: SpawnJob = Box::new(move || {
        let _within = runtime.enter();
        // If the caller stopped waiting, the child is dropped, which kills it.
        let _unheard = answer.send(command.spawn());
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let spawner = SPAWNER.as_ref().map_err(|error| io::Error::new(error.kind(), error))?;
    spawner.send(work).map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    #[test]
    fn a_descriptor_is_inherited_unless_it_closes_itself() {
        let file = fs::File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        assert!(!inherited().contains(&number));

        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        assert!(inherited().contains(&number));
    }
}
