//! The thread that starts processes, and never ends.
//!
//! `bwrap --die-with-parent` asks the kernel to kill it once its parent is gone, and its
//! parent, for the kernel, is the *thread* that started it (`PR_SET_PDEATHSIG`, prctl(2)). A
//! runtime's threads come and go; this one stays as long as the process does.
//!
//! **What can go wrong.** A descriptor that we were started with, or that a library opened
//! carelessly, is inherited by what we start (`O_CLOEXEC` is not set), and a command could
//! reach it through `/proc/1/fd`. Where there are such, a shell closes them first.

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

/// The shell that closes descriptors, and runs scripts.
pub(crate) const SHELL: &str = "/bin/bash";

/// `O_CLOEXEC`, as `/proc/self/fdinfo` shows it on x86_64 and aarch64; see open(2).
const CLOSED_BY_ITSELF: u32 = 0o2_000_000;

/// A command for this program, which will inherit nothing but what is mapped to `given`.
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

/// The descriptors that what we start would inherit, besides the standard ones.
fn inherited() -> Vec<i32> {
    let Ok(open) = fs::read_dir("/proc/self/fdinfo") else { return Vec::new() };
    let numbers = open.flatten().filter_map(|fd| fd.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|fd| *fd > 2 && is_inherited(*fd)).collect()
}

fn is_inherited(fd: i32) -> bool {
    // What is closed meanwhile is not inherited.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSED_BY_ITSELF == 0)
}

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
