//! Supervision of a command until it and all its descendants are gone.
//!
//! **What can go wrong.** The command may refuse to end, keep using resources during the grace
//! period, or end while it is measured. The supervising future may be dropped at any point: then
//! [`Launched`]'s `Drop` kills the command. Between two measurements a command may exceed a limit;
//! `docs/sandbox.md` says by how much.

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

/// Interval between two measurements of processes and memory.
const TICK: Duration = Duration::from_millis(20);

/// Time between the request to end and the kill.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Started command, with its isolation.
#[derive(Debug)]
pub(crate) struct Launched {
    /// Direct child: `bwrap`, or the command's shell.
    pub child: Child,
    pub leader: AsyncFd<OwnedFd>,
    pub reach: Arc<Reach>,
    pub hold: Hold,
}

/// Target of signals to a command.
#[derive(Debug)]
pub(crate) struct Reach {
    /// Common ancestor of the command's processes: its id on the host.
    pub root: Pid,
    pub first: First,
}

/// Role of the common ancestor, with a handle to it.
#[derive(Debug)]
pub(crate) enum First {
    /// The command's own shell is the ancestor.
    Own(OwnedFd),
    /// First process of a namespace, which only reaps; all others die with it.
    Theirs(OwnedFd),
}

impl Reach {
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that the process has ended, which is fine.
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

/// Mechanism that groups a command's processes.
#[derive(Debug)]
pub(crate) enum Hold {
    /// A process namespace, which dies with its first process.
    Namespace {
        init: AsyncFd<OwnedFd>,
        /// Gate at which `bwrap` waits.
        gate: Gate,
    },
    /// A process group, which a process may leave.
    Group,
}

/// Pipe on which one byte lets the command begin.
#[derive(Debug)]
pub(crate) struct Gate {
    pub near: OwnedFd,
    /// Reading end, a copy of `bwrap`'s.
    pub far: OwnedFd,
}

impl Gate {
    /// Whether the byte was read: the sandbox was built, and the script began.
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

    /// Kills all processes.
    fn kill(&self) {
        // A process that cannot be found any more is dead already.
        let _gone = match &self.hold {
            Hold::Namespace { init, .. } => pidfd_send_signal(init.get_ref(), Signal::KILL),
            Hold::Group => {
                tree::signal_descendants(self.reach.root, Signal::KILL);
                // The id cannot have been reused: the leader was not waited for yet.
                match self.child.id() {
                    Some(_) => kill_process_group(self.reach.root, Signal::KILL),
                    None => Err(Errno::SRCH),
                }
            }
        };
    }

    /// Kills all processes, waits until they are gone, and returns the leader's exit status as an
    /// end.
    async fn finish(&mut self) -> io::Result<Ended> {
        use std::os::unix::process::ExitStatusExt as _;

        self.kill();
        if let Hold::Namespace { init, .. } = &self.hold
            && !tree::is_childless(self.reach.root)
        {
            // A namespace's first process is gone only after all others are. If it has no children,
            // its own end, which takes the kernel some milliseconds, is not waited for.
            let _gone = init.readable().await?;
        }
        let status = self.child.wait().await?;
        match &self.hold {
            Hold::Group => self.group_gone().await,
            // `bwrap` leaves its child to the machine's first process; in a container we are that
            // process.
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
    /// Waits up to half a second until the killed processes of the group are dead.
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

/// Limits of a command, and when it must end.
#[derive(Debug)]
pub(crate) struct Terms {
    pub limits: Limits,
    pub timeout: Duration,
    /// Limit on the workspace's growth; `None` if the command cannot write there.
    pub growth: Option<Growth>,
}

/// Result of supervising a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    pub ended: Ended,
    pub duration: Duration,
    pub peak_memory: Option<u64>,
    /// Whether the script began at all.
    pub began: bool,
}

/// Lets the command begin, and supervises it until it and all its descendants are gone.
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
        // The command may end with the disk limit exceeded before the next measurement.
        (None, Some(growth)) if growth.is_exceeded(None).await => Ended::Limit(Limit::Disk),
        (None, _) => by_itself,
    };
    let began = match &launched.hold {
        Hold::Namespace { gate, .. } => gate.is_passed(),
        Hold::Group => true,
    };
    Ok(Verdict { ended, duration, peak_memory, began })
}

/// Waits for the command's end or a reason to end it. Returns that reason, and the peak memory.
async fn watch(
    launched: &Launched,
    terms: &Terms,
    cancel: &CancellationToken,
) -> io::Result<(Option<Ended>, Option<u64>)> {
    let mut peak = None;
    // Reason of the request to end, and the time of the kill.
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
                    // No grace period: the command would keep using the resource.
                    Some(limit) => return Ok((Some(Ended::Limit(limit)), peak)),
                    None => continue,
                }
            }
        };
        launched.reach.signal(Signal::TERM);
        asked = Some((reason, Instant::now() + GRACE));
    }
}

/// Returns the exceeded limit. Too many processes often use too much memory: report their number.
fn over(weight: tree::Weight, limits: &Limits) -> Option<Limit> {
    if weight.tasks > u64::from(limits.processes) {
        Some(Limit::Processes)
    } else if weight.memory > limits.memory {
        Some(Limit::Memory)
    } else {
        None
    }
}

/// Waits for output after the command's end: a descendant may keep the pipe open.
pub(crate) async fn output_patience() {
    sleep(Duration::from_millis(500)).await;
}

/// Opens a handle on which a process' end can be awaited.
///
/// # Errors
///
/// If the process does not exist any more.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types whose descriptor may change; `OwnedFd`'s cannot"
)]
pub(crate) fn handle(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}
