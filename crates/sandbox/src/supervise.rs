//! Watches a command to its end, and sees to it that nothing of it is left.
//!
//! **What can go wrong.** The command may refuse to end, go on eating while it is asked to,
//! or end while it is being looked at. Whoever awaits may be dropped at any point: then
//! [`Launched`]'s `Drop` kills. Between two looks a command may go beyond a limit that is
//! only watched; how far is in `docs/sandbox.md`.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    io::{Errno, ioctl_fionread, write},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, pidfd_open,
        pidfd_send_signal, test_kill_process_group, waitid,
    },
};
use tokio::{
    io::unix::AsyncFd,
    process::Child,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{Ended, Limit, Limits, disk::Growth, tree};

/// How often processes and memory are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How long a command that was asked to end may take to.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A command that was started, and its walls with it.
#[derive(Debug)]
pub(crate) struct Launched {
    /// What we started: `bwrap`, or the command's shell.
    pub child: Child,
    /// A handle to it.
    pub leader: AsyncFd<OwnedFd>,
    /// How its processes are reached.
    pub reach: Arc<Reach>,
    /// What holds the processes together.
    pub hold: Hold,
}

/// How a command's processes are reached.
#[derive(Debug)]
pub(crate) struct Reach {
    /// The process that all others descend from, as the host numbers it.
    pub root: Pid,
    /// A handle to it.
    pub first: First,
}

/// Whose the process is that all others descend from.
#[derive(Debug)]
pub(crate) enum First {
    /// The command's own shell.
    Own(OwnedFd),
    /// The first of a namespace, which only reaps; all others die with it.
    Theirs(OwnedFd),
}

impl Reach {
    /// Sends a signal to all processes of the command.
    pub(crate) fn signal(&self, signal: Signal) {
        // Whoever has ended needs none.
        match &self.first {
            First::Theirs(first) if signal == Signal::KILL => {
                let _ended = pidfd_send_signal(first, signal);
            }
            First::Theirs(_) => tree::signal_descendants(self.root, signal),
            First::Own(first) => {
                tree::signal_descendants(self.root, signal);
                let _ended = pidfd_send_signal(first, signal);
            }
        }
    }
}

/// What holds a command's processes together.
#[derive(Debug)]
pub(crate) enum Hold {
    /// A process namespace, which dies with its first process.
    Namespace {
        /// A handle to the first process.
        init: AsyncFd<OwnedFd>,
        /// It waits until it is let go.
        gate: Gate,
    },
    /// A process group, which a process may leave.
    Group,
}

/// A pipe whose one byte says: go.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Its near end.
    pub near: OwnedFd,
    /// Its far end, as we see it too.
    pub far: OwnedFd,
}

impl Gate {
    /// Whether someone passed: the walls stood, and the script began.
    fn is_passed(&self) -> bool {
        ioctl_fionread(&self.far).is_ok_and(|waiting| waiting == 0)
    }
}

impl Launched {
    fn release(&self) -> io::Result<()> {
        if let Hold::Namespace { gate, .. } = &self.hold {
            write(&gate.near, b"1")?;
        }
        Ok(())
    }

    /// Kills all of it.
    fn kill(&self) {
        // Whom a signal does not find any more is what we want it to be.
        let _gone = match &self.hold {
            Hold::Namespace { init, .. } => pidfd_send_signal(init.get_ref(), Signal::KILL),
            Hold::Group => {
                tree::signal_descendants(self.reach.root, Signal::KILL);
                // Nobody else can have this number: the leader was not waited for yet.
                match self.child.id() {
                    Some(_) => kill_process_group(self.reach.root, Signal::KILL),
                    None => Err(Errno::SRCH),
                }
            }
        };
    }

    /// Kills all of it, waits until it is gone, and says how it ended, if by itself.
    async fn finish(&mut self) -> io::Result<Ended> {
        use std::os::unix::process::ExitStatusExt as _;

        self.kill();
        if let Hold::Namespace { init, .. } = &self.hold
            && !tree::is_childless(self.reach.root)
        {
            // The first process of a namespace is gone only after all others are. Where it has
            // none, its own end, which takes the kernel some milliseconds, is not waited for.
            let _gone = init.readable().await?;
        }
        let status = self.child.wait().await?;
        match &self.hold {
            Hold::Group => self.group_gone().await,
            // `bwrap` leaves its child to the machine's first process: in a container, to us.
            Hold::Namespace { init, .. } if getpid() == Pid::INIT => {
                let _gone = init.readable().await?;
                let _not_ours = waitid(WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED);
            }
            Hold::Namespace { .. } => {}
        }
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => Ended::from_code(code),
            (None, Some(signal)) => Ended::from_signal(signal),
            (None, None) => Ended::Signalled(0),
        })
    }
}

impl Launched {
    /// Waits a moment until those of the group who were killed are dead.
    async fn group_gone(&self) {
        for _ in 0..500 {
            if test_kill_process_group(self.reach.root).is_err() {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a command may, and when it must end.
#[derive(Debug)]
pub(crate) struct Terms {
    pub limits: Limits,
    pub timeout: Duration,
    /// How much the workspace may grow; nothing if the command cannot write there.
    pub growth: Option<Growth>,
}

/// How it went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    pub ended: Ended,
    pub duration: Duration,
    pub peak_memory: Option<u64>,
    /// Whether the script began at all.
    pub began: bool,
}

/// Lets the command go, and watches it until it and all that it started are gone.
///
/// # Errors
///
/// If it cannot be waited for.
pub(crate) async fn supervise(
    launched: &mut Launched,
    terms: &Terms,
    cancel: &CancellationToken,
) -> io::Result<Verdict> {
    launched.release()?;
    let began = Instant::now();
    let (why, peak_memory) = watch(launched, terms, cancel).await?;
    let duration = began.elapsed();
    let by_itself = launched.finish().await?;
    let ended = match (why, &terms.growth) {
        (Some(why), _) => why,
        // What was quicker than the watcher is told, too.
        (None, Some(growth)) if growth.is_exceeded(None).await => Ended::Limit(Limit::Disk),
        (None, _) => by_itself,
    };
    let began = match &launched.hold {
        Hold::Namespace { gate, .. } => gate.is_passed(),
        Hold::Group => true,
    };
    Ok(Verdict { ended, duration, peak_memory, began })
}

/// Waits for the command's end, or a reason to end it; with the most memory that was seen.
async fn watch(
    launched: &Launched,
    terms: &Terms,
    cancel: &CancellationToken,
) -> io::Result<(Option<Ended>, Option<u64>)> {
    let mut peak = None;
    // Why it was asked to end, and when it will be made to.
    let mut asked: Option<(Ended, Instant)> = None;
    let deadline = Instant::now() + terms.timeout;
    let exceeded = async {
        match &terms.growth {
            Some(growth) => growth.exceeded(launched.reach.root).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(exceeded);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        let until = asked.map_or(deadline, |(_, until)| until);
        let reason = tokio::select! {
            biased;
            ended = launched.leader.readable() => {
                let _ready = ended?;
                return Ok((asked.map(|(why, _)| why), peak));
            }
            () = cancel.cancelled(), if asked.is_none() => Ended::Cancelled,
            () = sleep_until(until) => match asked {
                Some((why, _)) => return Ok((Some(why), peak)),
                None => Ended::TimedOut,
            },
            () = &mut exceeded => return Ok((Some(Ended::Limit(Limit::Disk)), peak)),
            _ = ticks.tick() => {
                let weight = tree::weigh(&tree::pids(launched.reach.root));
                if weight.memory > 0 {
                    peak = peak.max(Some(weight.memory));
                }
                match over(weight, &terms.limits) {
                    // No grace: it would be used to go on eating.
                    Some(limit) => return Ok((Some(Ended::Limit(limit)), peak)),
                    None => continue,
                }
            }
        };
        launched.reach.signal(Signal::TERM);
        asked = Some((reason, Instant::now() + GRACE));
    }
}

/// The limit that is exceeded. Too many processes are too much memory as well, and are why.
fn over(weight: tree::Weight, limits: &Limits) -> Option<Limit> {
    if weight.tasks > u64::from(limits.processes) {
        Some(Limit::Processes)
    } else if weight.memory > limits.memory {
        Some(Limit::Memory)
    } else {
        None
    }
}

/// How long a closed command's output is waited for: what it started and left may hold it open.
pub(crate) async fn output_patience() {
    sleep(Duration::from_millis(500)).await;
}

/// A handle to a process that can be waited for.
///
/// # Errors
///
/// If there is no such process any more.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; `OwnedFd`'s cannot"
)]
pub(crate) fn handle(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}
