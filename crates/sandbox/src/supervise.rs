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

use holdfast_proxy::Proxy;
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

use crate::{CommandEnd, Limit, Limits, disk::GrowthLimit, slices::SliceMember, tree};

/// Interval between two measurements of processes and memory.
const MEASURE_INTERVAL: Duration = Duration::from_millis(20);

/// Time between the request to end and the kill.
pub(crate) const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// Started command, with its isolation.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    /// Direct child: `bwrap`, or the command's shell.
    pub child: Child,
    pub leader: AsyncFd<OwnedFd>,
    pub signal_target: Arc<SignalTarget>,
    pub containment: Containment,
    /// Part in the tenant's slice, given back after the processes are gone.
    pub slice: Option<SliceMember>,
    /// The command's way to the network, which ends with the command.
    pub _proxy: Option<Proxy>,
}

/// Target of signals to a command.
#[derive(Debug)]
pub(crate) struct SignalTarget {
    /// Common ancestor of the command's processes: its id on the host.
    pub root: Pid,
    pub first: RootProcess,
}

/// Role of the common ancestor, with a handle to it.
#[derive(Debug)]
pub(crate) enum RootProcess {
    /// The command's own shell is the ancestor.
    Shell(OwnedFd),
    /// First process of a namespace, which only reaps; all others die with it.
    NamespaceInit(OwnedFd),
}

impl SignalTarget {
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that the process has ended, which is fine.
        match &self.first {
            RootProcess::NamespaceInit(first) if signal == Signal::KILL => {
                let _ended = pidfd_send_signal(first, signal);
            }
            RootProcess::NamespaceInit(_) => tree::signal_descendants(self.root, signal),
            RootProcess::Shell(first) => {
                tree::signal_descendants(self.root, signal);
                let _ended = pidfd_send_signal(first, signal);
            }
        }
    }
}

/// Mechanism that groups a command's processes.
#[derive(Debug)]
pub(crate) enum Containment {
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

impl StartedCommand {
    fn release(&self) -> io::Result<()> {
        if let Containment::Namespace { gate, .. } = &self.containment {
            write(&gate.near, b"1")?;
        }
        Ok(())
    }

    /// Processes that all others of the command descend from.
    pub(crate) fn first_processes(&self) -> impl Iterator<Item = Pid> {
        let child = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let root = self.signal_target.root;
        child.filter(move |child| *child != root).into_iter().chain([root])
    }

    /// Kills all processes.
    fn kill(&self) {
        // A process that cannot be found any more is dead already.
        let _gone = match &self.containment {
            Containment::Namespace { init, .. } => pidfd_send_signal(init.get_ref(), Signal::KILL),
            Containment::Group => {
                tree::signal_descendants(self.signal_target.root, Signal::KILL);
                // The id cannot have been reused: the leader was not waited for yet.
                match self.child.id() {
                    Some(_) => kill_process_group(self.signal_target.root, Signal::KILL),
                    None => Err(Errno::SRCH),
                }
            }
        };
    }

    /// Kills all processes, waits until they are gone, and returns the leader's exit status as an
    /// end.
    async fn finish(&mut self) -> io::Result<CommandEnd> {
        use std::os::unix::process::ExitStatusExt as _;

        self.kill();
        if let Containment::Namespace { init, .. } = &self.containment
            && !tree::is_childless(self.signal_target.root)
        {
            // A namespace's first process is gone only after all others are. If it has no children,
            // its own end, which takes the kernel some milliseconds, is not waited for.
            let _gone = init.readable().await?;
        }
        let status = self.child.wait().await?;
        match &self.containment {
            Containment::Group => self.group_gone().await,
            // `bwrap` leaves its child to the machine's first process; in a container we are that
            // process.
            Containment::Namespace { init, .. } if getpid() == Pid::INIT => {
                let _gone = init.readable().await?;
                let _not_ours = waitid(WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED);
            }
            Containment::Namespace { .. } => {}
        }
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => CommandEnd::from_code(code),
            (None, Some(signal)) => CommandEnd::from_signal(signal),
            (None, None) => CommandEnd::Signalled(0),
        })
    }
}

impl StartedCommand {
    /// Waits up to half a second until the killed processes of the group are dead.
    async fn group_gone(&self) {
        for _ in 0..500 {
            if test_kill_process_group(self.signal_target.root).is_err() {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Limits of a command, and when it must end.
#[derive(Debug)]
pub(crate) struct SupervisionLimits {
    pub limits: Limits,
    pub timeout: Duration,
    /// Limit on the workspace's growth; `None` if the command cannot write there.
    pub growth: Option<GrowthLimit>,
}

/// Result of supervising a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SupervisionResult {
    pub ended: CommandEnd,
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
    launched: &mut StartedCommand,
    terms: &SupervisionLimits,
    cancel: &CancellationToken,
) -> io::Result<SupervisionResult> {
    launched.release()?;
    let began = Instant::now();
    let (why, peak_memory) = watch(launched, terms, cancel).await?;
    let duration = began.elapsed();
    let by_itself = launched.finish().await?;
    let ended = match (why, &terms.growth) {
        (Some(why), _) => why,
        // The command may end with the disk limit exceeded before the next measurement.
        (None, Some(growth)) => {
            growth.exceeded_now(None).await.map_or(by_itself, CommandEnd::Limit)
        }
        (None, None) => by_itself,
    };
    let began = match &launched.containment {
        Containment::Namespace { gate, .. } => gate.is_passed(),
        Containment::Group => true,
    };
    Ok(SupervisionResult { ended, duration, peak_memory, began })
}

/// Waits for the command's end or a reason to end it. Returns that reason, and the peak memory.
async fn watch(
    launched: &StartedCommand,
    terms: &SupervisionLimits,
    cancel: &CancellationToken,
) -> io::Result<(Option<CommandEnd>, Option<u64>)> {
    let mut peak = None;
    // Reason of the request to end, and the time of the kill.
    let mut asked: Option<(CommandEnd, Instant)> = None;
    let deadline = Instant::now() + terms.timeout;
    let exceeded = async {
        match &terms.growth {
            Some(growth) => growth.exceeded(launched.signal_target.root).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(exceeded);
    let mut ticks = interval(MEASURE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    loop {
        let until = asked.map_or(deadline, |(_, until)| until);
        let reason = tokio::select! {
            biased;
            ended = launched.leader.readable() => {
                let _ready = ended?;
                return Ok((asked.map(|(why, _)| why), peak));
            }
            () = cancel.cancelled(), if asked.is_none() => CommandEnd::Cancelled,
            () = sleep_until(until) => match asked {
                Some((why, _)) => return Ok((Some(why), peak)),
                None => CommandEnd::TimedOut,
            },
            limit = &mut exceeded => return Ok((Some(CommandEnd::Limit(limit)), peak)),
            _ = ticks.tick() => {
                let weight = tree::measure(&tree::pids(launched.signal_target.root));
                if weight.memory > 0 {
                    peak = peak.max(Some(weight.memory));
                }
                match exceeded_limit(weight, &terms.limits) {
                    // No grace period: the command would keep using the resource.
                    Some(limit) => return Ok((Some(CommandEnd::Limit(limit)), peak)),
                    None => continue,
                }
            }
        };
        launched.signal_target.signal(Signal::TERM);
        asked = Some((reason, Instant::now() + TERMINATION_GRACE));
    }
}

/// Returns the exceeded limit. Too many processes often use too much memory: report their number.
fn exceeded_limit(weight: tree::ResourceUsage, limits: &Limits) -> Option<Limit> {
    if weight.tasks > u64::from(limits.processes) {
        Some(Limit::Processes)
    } else if weight.memory > limits.memory {
        Some(Limit::Memory)
    } else {
        None
    }
}

/// Waits for output after the command's end: a descendant may keep the pipe open.
pub(crate) async fn output_grace() {
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
pub(crate) fn open_pidfd(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}
